/* SPDX-License-Identifier: Apache-2.0
 * event.h - what happened to keys: one ring of the last events, read by any number of watchers, each of
 * whom only holds the number of the last event that it has seen.
 *
 * The ring has a fixed size, so nobody who does not read can make it grow: who falls behind is told how
 * many he has missed.  While nobody has asked for a minute nothing is noted, and a put pays one look at a
 * flag.  Events of one key are in the order in which they happened. */
#ifndef MCM_EVENT_H
#define MCM_EVENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/msg.h"

#define MCM_EVENTS_MAX (1u << 16)	/* in the ring */
#define MCM_EVENTS_BYTES (16u << 20)
#define MCM_EVENTS_IDLE_MS 60000

struct mcm;

struct mcm_events {
	bool on;			/* atomic: somebody wants them */
	bool groups;			/* constant after start: groups are noted too */
	/* with the lock held; innermost, but for nothing */
	pthread_mutex_t lock;
	uint8_t *ring;			/* NULL: off */
	uint64_t *at;			/* position of event n in at[n % MCM_EVENTS_MAX] */
	uint64_t end;			/* bytes ever written */
	uint64_t first, next;		/* numbers of the oldest one kept, of the next one */
	uint64_t asked_ms;		/* the master's clock */
};

void mcm_events_init(struct mcm_events *e);
void mcm_events_done(struct mcm_events *e);

static inline bool mcm_events_on(const struct mcm_events *e)
{
	return __builtin_expect(__atomic_load_n(&e->on, __ATOMIC_RELAXED), 0);
}

/* An object's key has a new value, or has lost it.  The object's shard is locked. */
void mcm_event_object(struct mcm *m, enum mcp_event_type type, uint32_t slot);
/* The object got the key that it has now; @from is the one it had. */
void mcm_event_rename(struct mcm *m, uint32_t slot, struct mcp_bytes from);

/* Read on about a tenant's keys after number @since (UINT64_MAX: from now on).  @ret has room for @max,
 * @text for @text_len bytes of keys, which they point to.  Their number; *ret_since is what to ask with
 * next, *ret_lost how many came before and are gone.  -ENOMEM. */
int mcm_events_read(struct mcm *m, uint64_t since, uint32_t types, uint32_t tenant,
		    struct mcp_bytes prefix,
		    struct mcp_event *ret, unsigned max, char *text, size_t text_len,
		    uint64_t *ret_since, uint64_t *ret_lost);

/* One of any tenant's. */
struct mcm_event_entry {
	struct mcp_event event;
	uint32_t tenant;		/* number */
	struct mcp_bytes group;		/* of the object, when groups are noted */
};

/* The same about everybody's keys.  Who is more than @behind_max events late (0: no limit but the ring's)
 * loses the oldest ones. */
int mcm_events_read_all(struct mcm *m, uint64_t since, uint64_t behind_max,
			struct mcm_event_entry *ret, unsigned max, char *text, size_t text_len,
			uint64_t *ret_since, uint64_t *ret_lost);

/* The number of the next event. */
uint64_t mcm_events_next(struct mcm *m);

/* Now and then: stop when nobody asks any more. */
void mcm_events_tick(struct mcm *m);

#endif
