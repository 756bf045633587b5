/* SPDX-License-Identifier: Apache-2.0
 * mcm_i.h - the master as its own files see it.
 *
 * Order of locks, taken downwards only (docs/LOCKING.md says why):
 *	clients.lock, sessions.lock, tasks.lock, session.lock, segment.run_lock,
 *	shards (ascending), put shard, names.tree_lock, names stripe and quarantine_lock, segments.lock,
 *	segment.lock, slabs */
#ifndef MCM_MCM_I_H
#define MCM_MCM_I_H

#include "common/clock.h"
#include "common/list.h"
#include "common/thread.h"
#include "master/client.h"
#include "master/ops/event.h"
#include "master/space/evict.h"
#include "master/index/group.h"
#include "master/ops/hot.h"
#include "master/index/index.h"
#include "master/journal/journal_i.h"
#include "master/admin/kv_events.h"
#include "master/mcm.h"
#include "master/index/names.h"
#include "master/ops/put.h"
#include "master/space/allocate.h"
#include "master/space/segment.h"
#include "master/admin/stats.h"
#include "master/space/strategy.h"
#include "master/task/task.h"
#include "master/tenant/tenant.h"

struct mcm {
	/* constant after start */
	struct mcm_conf conf;		/* strings are the caller's */
	const struct mcm_strategy *strategy;
	const struct mcm_evict_ops *evict;
	uint64_t start_ms;
	uint64_t start_wall_ms;
	/* atomic */
	uint64_t heartbeat_ms, heartbeat_idle_ms;	/* what owners and others are told (liveness.c) */
	uint64_t stalled_ms;		/* how long the master itself did not run (liveness.c) */
	uint64_t clock_max_ms;		/* the clock's end until the monitor runs; set after stalled_ms */
	uint64_t generation;		/* the next one, without the put shard's bits */
	struct mcm_put_samples put_samples;
	bool evict_wanted;
	uint32_t promise_lease_end;	/* tick at which the last promise of an exist ends */
	bool ready;			/* clients are served */
	bool held_over;			/* what is held may go (restore_held.c) */
	/* each with its own locks */
	struct mcm_index index;
	struct mcm_names names;
	struct mcm_segments segments;
	struct mcm_clients clients;
	struct mcm_puts puts;
	struct mcm_tasks tasks;
	struct mcm_events events;
	struct mcm_groups groups;
	struct mcm_tenants tenants;
	struct mcm_rates rates;
	struct mcm_hot hot;
	pthread_mutex_t sessions_lock;
	struct mc_list sessions;
	struct mcm_notes notes;
	struct mcm_journal *journal;	/* NULL: none */
	struct mcm_kv_events *kv_events;	/* constant while served; NULL: not wanted */
	/* objects of an earlier master that are held: the evictor's */
	uint32_t held_next, held_end;
	/* the monitor's */
	uint64_t held_until_ms;		/* at the least; 0: none are, or no longer */
	uint64_t held_from_ms;
	uint64_t tick_ns;		/* when it last ran */
	uint64_t due_ms;		/* nobody falls silent before */
	uint64_t pins_turn;		/* counts its looks at the sessions' leases */
	/* owned by who starts and stops */
	struct mc_stop monitor_stop, evictor_stop;
	pthread_t monitor, evictor;
	bool monitor_runs, evictor_runs;
	struct mcp_server *server;	/* atomic */
	struct mc_httpd *httpd;
	struct mcd_server *meta;	/* NULL: not wanted */
	int meta_port;
	int http_port;
};

/* The master's clock: milliseconds since its start during which it ran.  Leases and silence are
 * measured on it, so that a master that was stopped for a minute blames nobody for that minute; nor does a thread
 * that wakes before the monitor, who alone knows of the minute. */
static inline uint64_t mcm_now_ms(const struct mcm *m)
{
	uint64_t max = __atomic_load_n(&m->clock_max_ms, __ATOMIC_ACQUIRE);
	uint64_t now = mc_now_ms() - m->start_ms - __atomic_load_n(&m->stalled_ms, __ATOMIC_RELAXED);

	return now < max ? now : max;
}

static inline uint32_t mcm_now_tick(const struct mcm *m)
{
	return mcm_tick(mcm_now_ms(m));
}

/* How long a read holds its object's bytes when it is neither renewed nor given back.  Also where promises
 * are not wanted (default_kv_lease_ttl 0) the bytes of a read under way must not be given to others, and
 * a lease of 0 would mean to clients that it has no end. */
#define MCM_READ_LEASE_MIN_MS 64
static inline uint64_t mcm_read_lease_ms(const struct mcm *m)
{
	uint64_t ms = m->conf.default_kv_lease_ttl;

	return ms < MCM_READ_LEASE_MIN_MS ? MCM_READ_LEASE_MIN_MS : ms;
}

/* The state without threads, sockets and sessions: what tests drive with a fake clock.  @conf is
 * copied, its strings are not. */
int mcm_core_new(const struct mcm_conf *conf, struct mcm **ret);
void mcm_core_free(struct mcm *m);

#endif
