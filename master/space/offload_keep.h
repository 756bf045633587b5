/* SPDX-License-Identifier: Apache-2.0
 * offload_keep.h - objects that stay in memory until they are on a disk (task/offload.h says which). */
#ifndef MCM_OFFLOAD_KEEP_H
#define MCM_OFFLOAD_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/msg.h"

struct mcm;
struct mcm_object;
struct mcm_segment;

/* Do some objects of @s stay until they are on a disk? */
bool mcm_offload_awaits(const struct mcm *m, const struct mcm_segment *s);
/* Does the object, which has a copy on @s, stay because it has none on a higher rank?  The shard or the lock of @s is
 * held. */
bool mcm_offload_keeps(const struct mcm *m, const struct mcm_segment *s, const struct mcm_object *o);
/* Shard locked.  The same for any of its segments. */
bool mcm_offload_keeps_any(const struct mcm *m, const struct mcm_object *o);
/* A put is refused because of objects that stay.  Returns -MC_ENOSPACE with a detail. */
int mcm_offload_put_waits(struct mcm *m, uint64_t len);
/* No lock held.  An object that was on no disk has left the memory of @s: count it, and log the reason once. */
void mcm_offload_lost(struct mcm *m, const struct mcm_segment *s, uint64_t size);

/* The larger one of @most and of the largest range that @disk takes from its owner's memory, in bytes.  The table's
 * lock is held. */
uint64_t mcm_offload_disk_takes(const struct mcm *m, struct mcm_segment *disk, uint64_t most);
/* The disk gets no copies now: its device does not work, or many copies failed. */
bool mcm_offload_disk_rests(const struct mcm *m, const struct mcm_segment *disk);
/* Could a disk that works take an object of @size bytes, if its last copies had not failed? */
bool mcm_offload_disk_fits(const struct mcm *m, struct mcm_segment *disk, uint64_t size);
/* An object of @size bytes found no range on the disk many times, though it should: do not try such objects for 10 s,
 * nor keep them.  tasks.lock held. */
void mcm_offload_disk_unfit(const struct mcm *m, struct mcm_segment *disk, uint64_t size);
/* The disks of the owner of @s take ranges of up to @takes bytes. */
void mcm_offload_set_takes(struct mcm *m, struct mcm_segment *s, uint64_t takes);
/* The owner asks for copies: it is alive, and its disks may have changed. */
void mcm_offload_owner_asks(struct mcm *m, struct mcp_id client);

#endif
