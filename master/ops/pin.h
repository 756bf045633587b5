/* SPDX-License-Identifier: Apache-2.0
 * pin.h - pins and read leases of a session. */
#ifndef MCM_PIN_H
#define MCM_PIN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/msg.h"

struct mcm;
struct mcm_session;

/* A reader's pin of one object.  Its id has the index in the session's array and the tag. */
struct mcm_pin {
	uint32_t slot;		/* the object; 0: free */
	uint32_t tag;
	uint32_t prev, next;	/* leases in the order of their ends; free pins use next only */
	uint64_t until_ms;	/* 0: until released */
};

/* ---- the session's lock held ---- */

/* Make room for one pin, so that mcm_pin_add() cannot fail.  -MC_ELIMIT, -ENOMEM. */
int mcm_pin_reserve(struct mcm *m, struct mcm_session *s);
/* May the session pin an object that counts for @bytes bytes?  It may pin one object of any size, and a share of the
 * pool; several pins of an object count once.  The object's shard is locked.  -MC_ELIMIT. */
int mcm_pin_check(struct mcm *m, struct mcm_session *s, uint32_t slot, uint64_t bytes);
/* The bytes that an object counts for: none when it has a copy in a segment of the session's client, which only
 * withholds its own memory.  The object's shard is locked. */
uint64_t mcm_pin_bytes(const struct mcm *m, const struct mcm_session *s, uint32_t slot);
/* Record a pin that the caller has counted in the object.  @until_ms 0: until released. */
uint64_t mcm_pin_add(struct mcm_session *s, uint32_t slot, uint64_t bytes, uint64_t until_ms);
/* Unknown pins are ignored: their lease has expired. */
void mcm_pin_release(struct mcm *m, struct mcm_session *s, uint64_t pin);
void mcm_pin_renew(struct mcm *m, struct mcm_session *s, uint64_t pin);

/* The object of a pin, 0: there is no such pin. */
uint32_t mcm_pin_slot(struct mcm_session *s, uint64_t pin);
/* A pinned object's copy on the disk @segment is bad: drop it.  Only a peer that @may_remove objects drops the last
 * one.  Unknown pins and segments are ignored. */
void mcm_pin_bad_copy(struct mcm *m, struct mcm_session *s, uint64_t pin, struct mcp_id segment, bool may_remove);

/* The session ends: drop all its pins. */
void mcm_pins_remove_all(struct mcm *m, struct mcm_session *s);

/* ---- no lock held ---- */

/* For the monitor: drop some expired leases of each session.  True: there may be more. */
bool mcm_pins_tick(struct mcm *m);

#endif
