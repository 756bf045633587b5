/* SPDX-License-Identifier: Apache-2.0
 * event.h - changes of keys: one ring of the last events for any number of watchers, each of which
 * remembers the number of the last event that it has read.
 *
 * The ring has a fixed size, so a slow watcher cannot make it grow: it is told how many events it
 * missed.  If no watcher has read for a minute, events are not recorded, and a put pays one check
 * of a flag.  Events of one key are in the order in which they happened. */
#ifndef MCM_EVENT_H
#define MCM_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "proto/msg.h"

#define MCM_EVENTS_MAX (1u << 16)	/* events in the ring */
#define MCM_EVENTS_BYTES (16u << 20)
#define MCM_EVENTS_IDLE_MS 60000

struct mcm;

struct mcm_events {
	bool on;			/* atomic: events are recorded */
	bool groups;			/* constant after start: record groups too */
	/* guarded by lock, a leaf */
	struct mc_mutex lock;
	uint8_t *ring;			/* NULL: not recording */
	uint64_t *at;			/* position of event n in at[n % MCM_EVENTS_MAX] */
	uint64_t end;			/* bytes written since recording began */
	uint64_t first, next;		/* number of the oldest event in the ring; of the next event */
	uint64_t asked_ms;		/* last read by a watcher, on the master's clock */
};

void mcm_events_init(struct mcm_events *e);
void mcm_events_done(struct mcm_events *e);

static inline bool mcm_events_on(const struct mcm_events *e)
{
	return __builtin_expect(__atomic_load_n(&e->on, __ATOMIC_RELAXED), 0);
}

/* The key of an object has a new value or none.  The object's shard is locked. */
void mcm_event_object(struct mcm *m, enum mcp_event_type type, uint32_t slot);
/* The object was renamed from key @from.  Its shard is locked. */
void mcm_event_rename(struct mcm *m, uint32_t slot, struct mcp_bytes from);

/* Read events about a tenant's keys after number @since (UINT64_MAX: from now on).  @ret has room for @max
 * events, @text for @text_len bytes of their keys, to which they point.  Returns their number; *ret_since is
 * the number for the next call, *ret_lost how many events before were overwritten.  -ENOMEM. */
int mcm_events_read(struct mcm *m, uint64_t since, uint32_t types, uint32_t tenant, struct mcp_bytes prefix,
		    struct mcp_event *ret, unsigned max, char *text, size_t text_len,
		    uint64_t *ret_since, uint64_t *ret_lost);

/* An event of any tenant. */
struct mcm_event_entry {
	struct mcp_event event;
	uint32_t tenant;		/* the tenant's number */
	struct mcp_bytes group;		/* the object's, if groups are recorded */
};

/* The same about the keys of all tenants.  A watcher that is more than @behind_max events late (0:
 * no limit but the ring's) loses the oldest ones. */
int mcm_events_read_all(struct mcm *m, uint64_t since, uint64_t behind_max,
			struct mcm_event_entry *ret, unsigned max, char *text, size_t text_len,
			uint64_t *ret_since, uint64_t *ret_lost);

/* The number of the next event. */
uint64_t mcm_events_next(struct mcm *m);

/* Call it regularly: stops recording when no watcher reads any more. */
void mcm_events_tick(struct mcm *m);

#endif
