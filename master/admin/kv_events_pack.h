/* SPDX-License-Identifier: Apache-2.0
 * kv_events_pack.h - a message of KV events in MessagePack. */
#ifndef MCM_KV_EVENTS_PACK_H
#define MCM_KV_EVENTS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcm;
struct mcm_event_entry;

struct mcm_kv_pack {
	uint8_t *bytes;
	size_t len, cap;
	bool overflow;			/* the message is incomplete: it did not fit */
};

/* Begin a message of @events events; one mcm_kv_pack_event() each must follow, then the tail. */
void mcm_kv_pack_head(struct mcm_kv_pack *p, uint64_t time_ms, unsigned events);
void mcm_kv_pack_tail(struct mcm_kv_pack *p);
/* How many events mcm_kv_pack_event() makes of one of the ring: two of a rename, 0 if it is not published. */
unsigned mcm_kv_event_count(const struct mcm *m, const struct mcm_event_entry *e, uint64_t *skipped);
void mcm_kv_pack_event(struct mcm_kv_pack *p, const struct mcm *m, const struct mcm_event_entry *e,
		       const char *tenant);
/* The number that a key is: decimal, or hexadecimal after 0x.  False: the key is not a number. */
bool mcm_kv_key_hash(const void *key, size_t len, uint64_t *ret);

#endif
