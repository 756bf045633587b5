/* SPDX-License-Identifier: Apache-2.0
 * mcm_i.h - the state of a master, for the files below master/. */
#ifndef MCM_MCM_I_H
#define MCM_MCM_I_H

#include "common/list.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "master/account.h"
#include "master/admin/kv_events.h"
#include "master/admin/stats_summary.h"
#include "master/client.h"
#include "master/clock.h"
#include "master/event.h"
#include "master/heartbeat.h"
#include "master/index/index.h"
#include "master/index/key.h"
#include "master/index/names.h"
#include "master/journal/durable.h"
#include "master/journal/journal.h"
#include "master/learn/learn.h"
#include "master/liveness.h"
#include "master/master.h"
#include "master/mount.h"
#include "master/object/grace.h"
#include "master/object/object.h"
#include "master/object/restore.h"
#include "master/ops/hot.h"
#include "master/ops/put.h"
#include "master/snapshot/confirm.h"
#include "master/space/allocate.h"
#include "master/space/empties.h"
#include "master/space/evict.h"
#include "master/space/group.h"
#include "master/space/offload_keep.h"
#include "master/security/credentials.h"
#include "master/space/segment.h"
#include "master/space/strategy.h"
#include "master/task/nof.h"
#include "master/task/offload.h"
#include "master/task/task.h"
#include "master/tenant/tenant.h"

struct mcm {
	/* constant after start */
	struct mcm_conf conf;		/* its strings belong to the caller of mcm_start() */
	const struct mcm_strategy *strategy;
	const struct mcm_evict_ops *evict;
	uint64_t start_ms;
	uint64_t start_wall_ms;
	struct mcp_id pool;		/* identity of the pool (pool.h) */
	struct mcp_id id;		/* identity of this process, in replies to HELLO */
	uint64_t snapshot_proof;	/* mount.seen of owners whose objects a restored snapshot has */
	bool from_snapshot;		/* the state is from a snapshot, and some of it was in doubt at the start */
	/* atomic */
	uint64_t heartbeat_ms, heartbeat_idle_ms;	/* intervals for owners and for other clients (heartbeat.h) */
	uint64_t stalled_ms;		/* total time in which the master did not run (clock.c) */
	uint64_t clock_max_ms;		/* limit of the clock until the monitor runs; set after stalled_ms */
	uint64_t generation;		/* the next one, without the put shard's bits */
	struct mcm_put_samples put_samples;
	bool evict_wanted;
	uint32_t promise_lease_end;	/* tick at which the last promise lease ends */
	bool ready;			/* clients are served */
	uint64_t confirmed[MCM_CONFIRM_RESULTS];	/* copies of a restored snapshot (snapshot/confirm.h) */
	bool grace_over;		/* restored objects may lose their grace pins (object/grace.h) */
	/* each with its own locks */
	struct mcm_index index;
	struct mcm_names names;
	struct mcm_segments segments;
	struct mcm_clients clients;
	struct mcm_puts puts;
	struct mcm_tasks tasks;
	struct mcm_offload offload;
	struct mcm_nof nof;
	struct mcm_events events;
	struct mcm_groups groups;
	struct mcm_tenants tenants;
	struct mcm_empties empties;
	struct mcm_slab object_links;	/* struct mcm_object_link, by slot */
	struct mcm_learn learn;
	struct mcm_rates rates;
	struct mcm_hot hot;
	struct mc_mutex sessions_lock;
	struct mc_list sessions;
	struct mcm_account *accounts[MCM_ACCOUNT_BUCKETS];	/* guarded by sessions_lock */
	struct mcm_durables durables;
	struct mcm_credentials credentials;
	struct mcm_journal *journal;	/* NULL: none */
	struct mcm_audit *audit;	/* constant while served; NULL: none (security/audit.h) */
	struct mcm_security *security;	/* constant; NULL: off (security/security.h) */
	struct mcm_kv_events *kv_events;	/* constant while served; NULL: switched off */
	/* owned by the evictor: slots that may have a grace pin, grace_next .. grace_end - 1, maybe none; grace_end 0:
	 * there was no grace period */
	uint32_t grace_next, grace_end;
	bool grace_released;		/* all of them were released */
	/* owned by the monitor */
	uint64_t grace_until_ms;	/* earliest end of the grace period; 0: it is over, or there was none */
	uint64_t grace_from_ms;
	bool unproven;			/* some segment may be unproven (snapshot/confirm.h); atomic */
	bool awaits;			/* some restored segments may be awaited */
	uint64_t tick_ns;		/* time of its last tick */
	uint64_t due_ms;		/* no segment has to be hidden or dropped before */
	uint64_t pins_turn;		/* number of its round over the sessions' leases */
	uint64_t pins_due_ms;		/* the next round begins then (mc_now_ms() scale) */
	bool pins_left;			/* the round has sessions left */
	uint64_t expiry_due_ms;		/* the next check of all connections' credentials (mc_now_ms() scale) */
	uint64_t summary_due_ms;	/* the next summary in the log (mc_now_ms() scale) */
	char summary[MCM_SUMMARY_MAX];	/* the last one */
	/* owned by the thread that starts and stops the master */
	struct mc_stop monitor_stop, evictor_stop;
	struct mc_thread monitor, evictor;
	bool monitor_runs, evictor_runs;
	struct mcp_server *server;	/* atomic; taken away under server_lock, which the check of credentials holds */
	struct mc_mutex server_lock;
	struct mcm_feeders *feeders;	/* ha/feeder.h; NULL: this master is alone */
	struct mcm_snapshots *snapshots;	/* snapshot/snapshot.h; NULL: there is no store of them */
	const struct mcm_lead *lead;	/* master.h; NULL: this master is alone */
	struct mc_uids *uids;		/* users of rpc_socket (identity.h); NULL: all, without an identity */
	struct mc_httpd *httpd;
	struct mcd_server *meta;	/* NULL: switched off */
	int meta_port;
	int http_port;
};

/* The master's clock: milliseconds since its start during which it ran.  Leases and silence are
 * measured on it, so that time in which the master was stopped counts neither against a lease nor
 * against a client.  Only the monitor can tell how long the master was stopped: until it has run,
 * clock_max_ms limits the clock for other threads. */
static inline uint64_t mcm_now_ms(const struct mcm *m)
{
	uint64_t max = __atomic_load_n(&m->clock_max_ms, __ATOMIC_ACQUIRE);
	uint64_t now = mc_now_ms() - m->start_ms - __atomic_load_n(&m->stalled_ms, __ATOMIC_RELAXED);

	return now < max ? now : max;
}

/* A new generation, larger than all before; @shard: of the put, else 0. */
static inline uint64_t mcm_generation_next(struct mcm *m, unsigned shard)
{
	return __atomic_fetch_add(&m->generation, 1, __ATOMIC_RELAXED) << MCM_PUT_SHARD_BITS | shard;
}

/* Would mcm_count_admit() evict?  Other puts may change the answer meanwhile. */
static inline bool mcm_count_full(const struct mcm *m, uint32_t key_len)
{
	uint64_t max = m->index.max;

	return max && mcm_load_relaxed(&m->index.count) + mcm_index_weight(&m->index, key_len) > max;
}

static inline uint32_t mcm_now_tick(const struct mcm *m)
{
	return mcm_tick(mcm_now_ms(m));
}

/* Lease of a read that is neither renewed nor released.  Also with default_kv_lease_ttl 0 (no promise leases)
 * the bytes of a running read must not be reused, and clients take a lease of 0 for one without end. */
#define MCM_READ_LEASE_MIN_MS 64
static inline uint64_t mcm_read_lease_ms(const struct mcm *m)
{
	uint64_t ms = m->conf.default_kv_lease_ttl;

	return ms < MCM_READ_LEASE_MIN_MS ? MCM_READ_LEASE_MIN_MS : ms;
}

/* A master without threads, sockets and sessions, which tests drive with a fake clock.  @conf is
 * copied except for its strings. */
int mcm_core_new(const struct mcm_conf *conf, struct mcm **ret);
/* The same with --security=on: @security outlives it. */
int mcm_core_new_secured(const struct mcm_conf *conf, struct mcm_security *security, struct mcm **ret);
/* The same with the state of the journal in @dir, which is only read (journal/check.h); the master keeps no journal. */
struct mcm_check;
int mcm_core_read(const struct mcm_conf *conf, struct mcm_security *security, const char *dir, struct mcm_check *check,
		  struct mcm **ret);
void mcm_core_free(struct mcm *m);
/* All periodic work of the monitor at @now_ms (mc_now_ms() scale), for its thread and for tests without threads: call
 * it with a period of mcm_tick_ms(), on one thread.  True: some is left, call it again at once. */
bool mcm_monitor_tick(struct mcm *m, uint64_t now_ms);

#endif
