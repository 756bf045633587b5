/* SPDX-License-Identifier: Apache-2.0
 * te_i.h - what the files of the upstream-compatible engine share.
 *
 * Locks, in the order they are taken: a segment's reload_lock, publish_lock, mem_lock, seg_lock, a batch's
 * lock, mce_te_work.lock; arena_lock, slot_lock, topo_lock and the inbox's lock are leaves.  The first two
 * are held over the network. */
#ifndef MCE_TE_I_H
#define MCE_TE_I_H

#include <net/if.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mce_te.h>

#include "common/list.h"
#include "common/net/net.h"
#include "engine/engine_i.h"
#include "engine/upstream/handshake.h"
#include "engine/upstream/rpc_meta.h"
#include "meta/meta.h"
#include "engine/upstream/segdesc.h"

/* Asking a metadata server; a peer, too, unless connecting to it may take longer. */
#define MCE_TE_ASK_MS MCE_HANDSHAKE_ANSWER_MS

/* ---- settings (env.c) -------------------------------------------------------------------------- */

/* The MC_* variables as they were when the engine was opened; 0 and "": not set. */
struct mce_te_env {
	bool force_tcp;
	bool ipv6;
	bool legacy_binding;
	bool no_metacache;
	bool proto_v1;
	char bind_address[MC_ADDR_MAX];
	int handshake_port;
	int port_min, port_max;	/* always set */
	unsigned lanes, io_threads;
	uint64_t progress_ms, status_ms, refresh_ms;
	int64_t ask_ms;		/* asking a peer */
	uint64_t max_mr;	/* bytes; more is published in pieces */
};
void mce_te_env_load(struct mce_te_env *env);
/* The address of the first interface that is up and not the loopback, "127.0.0.1" when there is none. */
void mce_te_own_address(bool ipv6, char ret[MC_ADDR_MAX]);
/* The interface that has the address @host; "" when none has. */
void mce_te_interface_of(const char *host, char ret[IF_NAMESIZE]);
/* Does it name this host's loopback, so that nobody else can come this way? */
bool mce_te_is_loopback(const char *host);

/* ---- NUMA nodes (numa.c) ------------------------------------------------------------------------ */

struct mce_te_numa;
/* Look at the machine.  @first_cpus: the network's processors, "" when they are not known.  Any thread may use it. */
int mce_te_numa_open(const char *first_cpus, struct mce_te_numa **ret);
void mce_te_numa_close(struct mce_te_numa *numa);	/* NULL is fine */
/* Tell the engine what its places are; @numa has to outlive it. */
void mce_te_numa_conf(struct mce_te_numa *numa, struct mce_conf *conf);
/* The node of a place and the place of a node, -ENOENT. */
int mce_te_numa_node(const struct mce_te_numa *numa, unsigned place);
int mce_te_numa_index(const struct mce_te_numa *numa, int node);
/* The node that the calling thread is on; -1 when there is but one. */
int mce_te_numa_here(const struct mce_te_numa *numa);
/* For mce_mr_attr.place: that of "cpu:N"; 0 for all other locations. */
unsigned mce_te_location_numa_index(const struct mce_te_numa *numa, const char *location);
/* Have pages that come from now on come from @node, as long as it has some; -1: from anywhere. */
void mce_te_numa_bind(struct mce_te_numa *numa, void *addr, size_t len, int node);

/* ---- registered memory (memory.c) -------------------------------------------------------------- */

struct mce_te_mem {
	uint64_t addr, len;
	bool remote;		/* published */
	struct mce_mr *mr;
	char *location;
};

/* With a descriptor the memory is a shared mapping of (managed memory); -1 else. */
int mce_te_mem_add(struct mce_te *te, const struct mce_mr_attr *attr, const char *location);
int mce_te_mem_remove(struct mce_te *te, uint64_t addr, uint64_t *ret_len);	/* NULL is fine */
/* Tell the metadata server what is registered; does nothing with P2PHANDSHAKE.  0 also when the server is out of
 * reach: it is told when it is back.  @more: something was registered, so that a removed segment is there again. */
int mce_te_mem_publish(struct mce_te *te, bool more);
/* For what is published besides: how long to wait, and the result of it with the same mercy. */
uint64_t mce_te_publish_deadline(struct mce_te *te);
int mce_te_published(struct mce_te *te, int r);
/* The descriptor as text; free() it. */
int mce_te_mem_describe(struct mce_te *te, char **ret_text);
void mce_te_mem_done(struct mce_te *te);

void mce_te_arenas_done(struct mce_te *te);		/* regions are unregistered */

/* ---- segments (segment.c) ---------------------------------------------------------------------- */

struct mce_te_buf {
	uint64_t addr, len, rkey;
};

/* What was known of a segment at one time; constant, counted. */
struct mce_te_view {
	uint32_t refs;		/* atomic */
	struct mce_peer *peer;
	unsigned n;
	struct mce_te_buf first;	/* in the order of the descriptor */
	struct mce_te_buf buf[];	/* sorted by address */
};

struct mce_te_segment {
	segment_id_t id;	/* constant */
	char *name;
	pthread_mutex_t reload_lock;
	/* guarded by reload_lock */
	uint64_t silent_until;	/* who has others to see to does not ask; 0: it answered */
	/* guarded by mce_te.seg_lock */
	struct mce_te_view *view;
};

/* A reference to what is known of a segment; with MC_DISABLE_METACACHE it is asked for until @deadline.  -ENOENT: no
 * such id. */
int mce_te_view_get(struct mce_te *te, segment_id_t id, uint64_t deadline, struct mce_te_view **ret);
/* Fetch the segment's descriptor again, unless somebody else replaced @than meanwhile (NULL: in any case).
 * A reference to what is known then. */
int mce_te_view_newer(struct mce_te *te, segment_id_t id, const struct mce_te_view *than,
		      struct mce_te_view **ret);
/* The same until @deadline or mce_te_ask_by(), whichever comes first, for who has others to see to: -ETIMEDOUT at once
 * when the segment kept somebody waiting for nothing in the last MCE_TE_ASK_MS. */
int mce_te_view_newer_by(struct mce_te *te, segment_id_t id, const struct mce_te_view *than,
			 uint64_t deadline, struct mce_te_view **ret);
void mce_te_view_unref(struct mce_te_view *v);	/* NULL is fine */
/* The buffer that holds [@addr, @addr + @len), or NULL. */
const struct mce_te_buf *mce_te_view_find(const struct mce_te_view *v, uint64_t addr, uint64_t len);
/* What is known of the engine's own segment has changed. */
void mce_te_own_changed(struct mce_te *te);
/* Where the segment's handshake service is, asked for MCE_TE_ASK_MS at the most; @host as for mce_handshake_call(). */
int mce_te_rpc_address(struct mce_te *te, const char *name, uint64_t deadline, char host[MC_ADDR_MAX],
		       int *ret_port);
int mce_te_segment_name(struct mce_te *te, segment_id_t id, char **ret);
void mce_te_segments_done(struct mce_te *te);
/* The name of a segment that leads to @peer, or NULL; seg_lock is held. */
const char *mce_te_name_of_locked(struct mce_te *te, const struct mce_peer *peer);

/* ---- batches (batch.c, submit.c, finish.c) ----------------------------------------------------- */

struct mce_te_task {
	segment_id_t segment;
	bool retried;
	bool later;		/* submit.c: its segment is to be asked for first */
};

/* Segments that a batch names without memory of its own for them. */
#define MCE_TE_FEW 4u

/* A place for a batch.  Places are never freed before the engine is closed, so an id may be looked up
 * whatever became of its batch. */
struct mce_te_batch {
	pthread_mutex_t lock;
	pthread_cond_t change;	/* monotonic clock */
	struct mce_te *te;
	uint32_t index;
	struct mce_batch group;
	/* guarded by lock */
	uint64_t id;		/* 0: free */
	uint64_t generation;
	size_t capacity, n;	/* tasks there is room for, and those there are */
	size_t room;		/* tasks the arrays below have room for */
	size_t cursor;		/* tasks before it have ended */
	size_t since;		/* tasks before it ended before the batch was last busy */
	unsigned users;		/* threads that wait */
	unsigned pollers;	/* threads that look at its requests without the lock */
	unsigned stoppers;	/* those of them that end requests: not those of the next post */
	unsigned submitters;	/* threads that hand over requests */
	bool busy;		/* tasks were submitted and have not all come to their end */
	bool ended;		/* they have, once at least */
	bool finishing;		/* in the worker's queue or hands */
	bool prepared;
	int stop_status;	/* 0, or what the rest is being ended with; read without, too */
	bool notify;		/* a notification is to follow */
	segment_id_t notify_segment;
	char *notify_name, *notify_msg;
	int eventfd;		/* -1: none */
	uint64_t deadline;	/* MC_NEVER: none; the timer and who asks peers read it without */
	uint64_t began_ns;	/* when the first of what is under way was submitted; 0 without metrics */
	struct mce_te_view **views;	/* that the requests lean on; few, or allocated */
	unsigned nviews, views_cap;
	struct mce_te_view *few[MCE_TE_FEW];
	/* owned by the submitter, then the engine, then the worker */
	struct mce_req *reqs;
	struct iovec *iovs;
	struct mce_te_task *tasks;
	/* guarded by the worker's lock */
	struct mc_list work_node, timer_node;
};

static inline void mce_te_deadline_set(struct mce_te_batch *b, uint64_t deadline)
{
	__atomic_store_n(&b->deadline, deadline, __ATOMIC_RELAXED);
}

static inline uint64_t mce_te_deadline(const struct mce_te_batch *b)
{
	return __atomic_load_n(&b->deadline, __ATOMIC_RELAXED);
}

static inline void mce_te_stop_set(struct mce_te_batch *b, int status)
{
	__atomic_store_n(&b->stop_status, status, __ATOMIC_RELAXED);
}

/* 0, or what is not under way yet ends with: the batch was stopped, or its deadline has passed.  Not locked. */
int mce_te_batch_stopped(const struct mce_te_batch *b);

/* The batch, locked; NULL: no such id. */
struct mce_te_batch *mce_te_batch_lock(struct mce_te *te, batch_id_t id);
void mce_te_batch_unlock(struct mce_te_batch *b);
/* All tasks have come to their end: tell whoever waits.  Locked. */
void mce_te_batch_settle_locked(struct mce_te_batch *b);
/* Keep a view as long as the batch lasts; takes over the reference, also on failure.  Not locked. */
int mce_te_batch_keep(struct mce_te_batch *b, struct mce_te_view *v);
/* Wait for the tasks under way that have their local bytes in [@addr, @addr + @len); at @deadline their batches are
 * cancelled. */
void mce_te_batches_leave(struct mce_te *te, uint64_t addr, uint64_t len, uint64_t deadline);
/* End all tasks; nothing is submitted any more. */
void mce_te_batches_stop(struct mce_te *te);
void mce_te_batches_done(struct mce_te *te);
/* The places themselves: the engine's threads, which may be about to look at one, have ended. */
void mce_te_batches_free(struct mce_te *te);

struct mce_te_asks;

/* Fill in request @i from what is known of its segment; @reload: its descriptor may be fetched again.  0 or what the
 * task ends with.  *cache: the view of the last request, kept by the batch. */
struct mce_te_cache {
	const struct mce_te_asks *told;	/* only what segments have told just now counts; NULL: what is known */
	segment_id_t segment;
	struct mce_te_view *view;
	bool reloaded;
};
int mce_te_resolve(struct mce_te_batch *b, size_t i, bool reload, struct mce_te_cache *cache);

/* ---- asking for several segments (ask.c) -------------------------------------------------------- */

struct mce_te_ask {
	segment_id_t segment;
	const struct mce_te_view *than;	/* as for mce_te_view_newer() */
	struct mce_te_view *view;	/* kept by the batch; NULL: it cannot be had now */
	int err;			/* why not */
};
struct mce_te_asks {
	struct mce_te_batch *b;
	bool anew;			/* as mce_te_view_get() instead, which waits also for who was just silent */
	struct mce_te_ask *list;	/* sorted by segment */
	unsigned n, cap;
	unsigned next;			/* atomic */
};
/* Ask for @segment too; once, however often it is added.  -ENOMEM. */
int mce_te_asks_add(struct mce_te_asks *a, segment_id_t segment, const struct mce_te_view *than);
/* As mce_te_view_newer_by() with the batch's deadline for all of them, until it is stopped. */
void mce_te_asks_run(struct mce_te_asks *a);
/* What @segment has told, kept by the batch.  -ENOMEM: it was not asked; else why it told nothing. */
int mce_te_asks_view(const struct mce_te_asks *a, segment_id_t segment, struct mce_te_view **ret);
void mce_te_asks_done(struct mce_te_asks *a);

/* ---- work that may wait (finish.c) ------------------------------------------------------------- */

#define MCE_TE_WORKERS 4u

/* Batches in a row, and who takes them. */
struct mce_te_line {
	struct mce_te *te;
	pthread_cond_t news;
	struct mc_list queue;
	unsigned workers, idle;
	pthread_t worker[MCE_TE_WORKERS];
};

struct mce_te_work {
	pthread_mutex_t lock;
	pthread_cond_t timer_news;	/* monotonic clock; of timer and refresher */
	/* second tries, which may ask who does not answer; what has but to tell does not wait behind them */
	struct mce_te_line again, tell;
	struct mc_list timed;	/* batches with a deadline */
	pthread_t timer, refresher;
	bool timer_runs, refresher_runs, stopping;
	/* atomic */
	uint64_t last;		/* when asking others has to end; MC_NEVER while the engine is open */
};
void mce_te_work_init(struct mce_te *te);
/* Finish the queues, without second tries and waiting for the network MCE_TE_ASK_MS at most, and end the threads.
 * What ends from now on is not followed up. */
void mce_te_work_stop(struct mce_te *te);
void mce_te_work_done(struct mce_te_work *w);
/* The threads are being ended. */
bool mce_te_stopping(const struct mce_te *te);
/* Until when others may be asked: for mce_te_env.ask_ms, but all together no longer when the engine is being closed. */
uint64_t mce_te_ask_by(const struct mce_te *te);
/* mce_batch.done of every batch. */
void mce_te_batch_ended(void *arg);
/* The batch has a deadline: have the timer look. */
int mce_te_timer_add(struct mce_te_batch *b);
void mce_te_timer_remove(struct mce_te_batch *b);
/* Fetch all descriptors again, every mce_te_env.refresh_ms. */
int mce_te_refresh_start(struct mce_te *te);
/* End what has not ended with @status, now or when it has been handed over; what waits for its turn to be tried again,
 * or to be told, is not.  Batch locked, and unlocked in between. */
void mce_te_batch_stop_locked(struct mce_te_batch *b, int status);

/* ---- notifications (notify.c) ------------------------------------------------------------------ */

#define MCE_TE_INBOX_MAX 65536u		/* notifications that nobody fetched; more are refused */
#define MCE_TE_INBOX_BYTES (64u << 20)

struct mce_te_inbox {
	pthread_mutex_t lock;
	notify_msg_t *item;
	unsigned n, cap;
	uint64_t bytes;
};
/* mce_te_notify() until @deadline, if that is sooner. */
int mce_te_notify_by(struct mce_te *te, segment_id_t segment, const char *name, const char *msg, uint64_t deadline);
int mce_te_inbox_add(struct mce_te_inbox *in, const char *name, const char *msg);
/* The number of notifications and their array, for mce_te_inbox_free(). */
int mce_te_inbox_take(struct mce_te_inbox *in, notify_msg_t **ret);
void mce_te_inbox_free(notify_msg_t *item, int n);
void mce_te_inbox_done(struct mce_te_inbox *in);

/* ---- engine ------------------------------------------------------------------------------------ */

struct mce_topo;

#define MCE_TE_CHUNKS 16384u		/* of 64 batches: 1,048,576 at a time */
#define MCE_TE_CHUNK 64u

struct mce_te_rate {
	uint64_t at_ns, bytes;
	double ewma_bps;
};

struct mce_te {
	/* constant after open */
	struct mce_te_env env;
	struct mce_te_numa *numa;
	struct mce_engine *engine;
	struct mce_peer *self;	/* kept, with its counts */
	struct mcd_client *meta;	/* NULL with P2PHANDSHAKE */
	struct mce_handshake *handshake;
	struct mce_te_metric *metric;	/* NULL: nobody asked for it */
	char host[MC_ADDR_MAX];	/* advertised */
	char name[MC_ADDR_MAX];
	char address[MC_ADDR_MAX];
	int rpc_port;
	unsigned fork_depth;
	char *nic_filter;
	bool ready;		/* atomic: name and engine are there */
	/* guarded by publish_lock, which is held over the network */
	pthread_mutex_t publish_lock;
	bool withdrawn;		/* for good */
	bool removed;		/* until memory is registered */
	/* guarded by mem_lock */
	pthread_mutex_t mem_lock;
	struct mce_te_mem *mem;	/* in the order of registration */
	unsigned nmem, mem_cap;
	uint64_t npieces;	/* that they are published in */
	char *text;		/* the descriptor, NULL: to be made */
	/* guarded by arena_lock */
	pthread_mutex_t arena_lock;
	struct mce_te_arena *arenas;
	/* guarded by seg_lock */
	pthread_rwlock_t seg_lock;
	struct mce_te_segment **segment;	/* [id - 1] */
	unsigned nsegments, segments_cap;
	struct mce_te_view *own;	/* NULL: to be made */
	/* guarded by slot_lock; the chunks themselves are read without */
	pthread_mutex_t slot_lock;
	struct mce_te_batch *chunk[MCE_TE_CHUNKS];
	uint32_t *free_slot;
	uint32_t nslots, nfree;
	/* own locks */
	struct mce_te_work work;
	struct mce_te_inbox inbox;
	pthread_mutex_t topo_lock;
	struct mce_topo *topo;
	struct mce_te_rate rate;
	struct mc_list live_node;	/* shutdown.c */
};

/* ---- MC_TE_METRIC and the log (metric.c) ------------------------------------------------------- */

/* 0 also when the variable is not set; *ret stays NULL then. */
int mce_te_metric_open(struct mce_te *te, struct mce_te_metric **ret);
void mce_te_metric_close(struct mce_te_metric *m);	/* before the engine's */
void mce_te_metric_batch(struct mce_te_metric *m, uint64_t began_ns);	/* a batch has ended */
/* As MC_LOG_LEVEL and MC_LOG_DIR say, once per process; the program's own log stays when they say nothing. */
void mce_te_log_open(void);

/* Take the engine's entries out of the metadata server; nothing is published after that. */
void mce_te_withdraw(struct mce_te *te);
/* The same until memory is registered. */
void mce_te_remove(struct mce_te *te);
/* Tell the metadata server where the handshake service is; with publish_lock, or before others have the engine. */
int mce_te_address_publish(struct mce_te *te);
void mce_te_shutdown_forget(struct mce_te *te);	/* shutdown.c: the engine is being closed */
/* The load of each device, for getNicLoadStats(): of @room of them at the most; how many. */
int mce_te_loads(struct mce_te *te, struct nic_load_stat *stats, size_t room);
/* Discover, or read the topology file; kept. */
int mce_te_topo(struct mce_te *te, struct mce_topo **ret);

#endif
