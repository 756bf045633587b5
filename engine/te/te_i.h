/* SPDX-License-Identifier: Apache-2.0
 * te_i.h - structures and functions shared by the files of the upstream-compatible engine.
 *
 * Locks, in the order of acquisition: a segment's reload_lock, publish_lock, mem_lock, seg_lock, a batch's
 * lock, mce_te_work.lock; arena_lock, slot_lock, topo_lock and the inbox's lock are leaves.  The first two
 * are held during network requests. */
#ifndef MCE_TE_I_H
#define MCE_TE_I_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mce_te.h>

#include "common/list.h"
#include "common/net/net.h"
#include "common/sys/thread.h"
#include "engine/engine_i.h"
#include "engine/upstream/handshake.h"
#include "engine/upstream/port.h"
#include "engine/upstream/rpc_meta.h"
#include "meta/meta.h"
#include "engine/upstream/segdesc.h"

/* Time limit of a request to a metadata server; also to a peer, unless MC_* variables allow a longer connect. */
#define MCE_TE_ASK_MS MCE_HANDSHAKE_ANSWER_MS

/* ---- settings (env.c) -------------------------------------------------------------------------- */

/* The MC_* variables at the time when the engine was opened; 0 and "": not set. */
struct mce_te_env {
	bool force_tcp, force_hca;
	bool ipv6;
	bool legacy_binding;
	bool no_metacache;
	bool proto_v1;
	char bind_address[MC_ADDR_MAX];
	int handshake_port;
	int port_min, port_max;	/* always set */
	unsigned conns, io_threads;
	uint64_t progress_ms, status_ms, refresh_ms;
	int64_t ask_ms;		/* time limit of a request to a peer */
	uint64_t max_mr;	/* bytes; a longer buffer is published in pieces */
};
void mce_te_env_load(struct mce_te_env *env);
/* The address of the first interface that is up and is not the loopback; "127.0.0.1" or "::1" without one. */
void mce_te_own_address(bool ipv6, char ret[MC_ADDR_MAX]);
/* The name of the interface that has the address @host; "" if none has. */
void mce_te_interface_of(const char *host, char ret[IF_NAMESIZE]);

/* ---- NUMA nodes (numa.c) ------------------------------------------------------------------------ */

struct mce_te_numa;
/* Discover the machine's NUMA nodes.  @first_cpus: processors near the network device, "": unknown;
 * their node gets index 0.  Any thread may use the result. */
int mce_te_numa_open(const char *first_cpus, struct mce_te_numa **ret);
void mce_te_numa_close(struct mce_te_numa *numa);	/* NULL is fine */
/* Set the NUMA fields of @conf; @numa must outlive the engine. */
void mce_te_numa_conf(struct mce_te_numa *numa, struct mce_conf *conf);
/* The number of the node with index @index, and the index of the node with number @node; -ENOENT. */
int mce_te_numa_node(const struct mce_te_numa *numa, unsigned index);
int mce_te_numa_index(const struct mce_te_numa *numa, int node);
/* The number of the node that the calling thread runs on; -1 with fewer than two nodes. */
int mce_te_numa_here(const struct mce_te_numa *numa);
/* For mce_mr_attr.numa: 1 + the index of the node in "cpu:N"; 0 for all other locations. */
unsigned mce_te_location_numa_index(const struct mce_te_numa *numa, const char *location);
/* Take pages of the range that are allocated from now on from @node; -1: from any node.  Failure is logged. */
void mce_te_numa_bind(struct mce_te_numa *numa, void *addr, size_t len, int node);

/* ---- registered memory (memory.c) -------------------------------------------------------------- */

struct mce_te_mem {
	uint64_t addr, len;
	bool remote;		/* published */
	struct mce_mr *mr;
	char *location;
};

/* @attr has a file descriptor for managed memory, -1 for the user's. */
int mce_te_mem_add(struct mce_te *te, const struct mce_mr_attr *attr, const char *location);
int mce_te_mem_remove(struct mce_te *te, uint64_t addr, uint64_t *ret_len);	/* NULL is fine */
/* Publish the descriptor at the metadata server; does nothing with P2PHANDSHAKE.  0 also when the server cannot
 * be reached: the text is sent later.  @more: memory was registered, so publish a removed segment again. */
int mce_te_mem_publish(struct mce_te *te, bool more);
/* The deadline of a publish request, and its result: 0 also for an unreachable server. */
uint64_t mce_te_publish_deadline(struct mce_te *te);
int mce_te_publish_result(struct mce_te *te, int r);
/* Whether upstream's nodes shall use RDMA: publish the descriptor so.  Nothing changes without NICs. */
int mce_te_publish_rdma(struct mce_te *te, bool rdma);
/* The descriptor as text; free() it. */
int mce_te_mem_describe(struct mce_te *te, char **ret_text);
void mce_te_mem_done(struct mce_te *te);

void mce_te_arenas_done(struct mce_te *te);		/* after their regions are unregistered */

/* ---- RDMA with upstream's nodes (rdma.c) --------------------------------------------------------- */

struct mce_te_view;

/* For mce_mr_attr.nics: the NICs that the user's topology prefers for the location; 0: none. */
uint32_t mce_te_location_nics(struct mce_te *te, const char *location);
/* Add the engine's NICs, their matrix, and the keys of all pieces to a descriptor that has the buffers.  The
 * strings and arrays are freed with mce_te_rdma_undescribe(), also after a failure. */
struct mce_te_rdma_desc {
	struct mce_segdesc_device *devices;
	char *texts;		/* names and GIDs of the devices */
	char *matrix;
	uint32_t *keys;
};
int mce_te_rdma_describe(struct mce_te *te, struct mce_segdesc *d, struct mce_te_rdma_desc *ret);
void mce_te_rdma_undescribe(struct mce_te_rdma_desc *r);
/* Set the peer of @v: that of a descriptor which is reached over RDMA. */
int mce_te_rdma_peer(struct mce_te *te, const struct mce_segdesc *d, const char *host, int port,
		     struct mce_te_view *v);
/* Answer an upstream node's message for RDMA. */
int mce_te_on_connection(void *arg, const char *text, size_t len, char **ret_text);

/* ---- segments (segment.c) ---------------------------------------------------------------------- */

struct mce_te_buf {
	uint64_t addr, len, rkey;
};

/* A segment's buffers and peer, from one descriptor of it; constant, counted. */
struct mce_te_view {
	uint32_t refs;		/* atomic */
	struct mce_peer *peer;
	bool rdma;		/* the peer is upstream's, over RDMA: the key of a buffer is its address */
	unsigned n;
	struct mce_te_buf first;	/* in the order of the descriptor */
	struct mce_te_buf buf[];	/* sorted by address */
};

struct mce_te_segment {
	segment_id_t id;	/* constant */
	char *name;
	struct mc_mutex reload_lock;
	/* guarded by reload_lock */
	uint64_t silent_until;	/* it did not answer: until then no request for several segments; 0: it did */
	/* guarded by mce_te.seg_lock */
	struct mce_te_view *view;
};

/* A reference to the cached view of a segment.  With MC_DISABLE_METACACHE the descriptor is fetched,
 * until @deadline. -ENOENT: no such id. */
int mce_te_view_get(struct mce_te *te, segment_id_t id, uint64_t deadline, struct mce_te_view **ret);
/* Fetch the segment's descriptor again, unless another thread has replaced @known already (NULL: in any case).
 * A reference to the new view. */
int mce_te_view_refetch(struct mce_te *te, segment_id_t id, const struct mce_te_view *known,
			struct mce_te_view **ret);
/* The same until @deadline or mce_te_ask_by(), whichever comes first, for a thread that asks several segments:
 * -ETIMEDOUT at once if a request to the segment timed out in the last MCE_TE_ASK_MS. */
int mce_te_view_refetch_by(struct mce_te *te, segment_id_t id, const struct mce_te_view *known,
			   uint64_t deadline, struct mce_te_view **ret);
void mce_te_view_unref(struct mce_te_view *v);	/* NULL is fine */
/* The buffer that holds [@addr, @addr + @len), or NULL. */
const struct mce_te_buf *mce_te_view_find(const struct mce_te_view *v, uint64_t addr, uint64_t len);
/* The engine's registered memory has changed: make its own view anew at the next use. */
void mce_te_own_view_drop(struct mce_te *te);
/* The address of the segment's handshake service; takes at most MCE_TE_ASK_MS.  @host as for
 * mce_handshake_call(). */
int mce_te_rpc_address(struct mce_te *te, const char *name, uint64_t deadline, char host[MC_ADDR_MAX],
		       int *ret_port);
int mce_te_segment_name(struct mce_te *te, segment_id_t id, char **ret);
void mce_te_segments_done(struct mce_te *te);
/* The name of a segment at @peer, or NULL; seg_lock is held. */
const char *mce_te_name_of_locked(struct mce_te *te, const struct mce_peer *peer);

/* ---- batches (batch.c, submit.c, finish.c) ----------------------------------------------------- */

struct mce_te_task {
	segment_id_t segment;
	bool retried;
	bool later;		/* submit.c: wait for the segment's descriptor first */
};

/* Views in a batch without an allocated array. */
#define MCE_TE_FEW 4u

/* A slot for a batch.  Slots are freed only when the engine is closed, so a thread may look up the id
 * of a freed batch. */
struct mce_te_batch {
	struct mc_mutex lock;
	struct mc_cond change;	/* monotonic clock */
	struct mce_te *te;
	uint32_t index;
	struct mce_batch group;
	/* guarded by lock */
	uint64_t id;		/* 0: free */
	uint64_t generation;
	size_t capacity, n;	/* tasks allowed, and tasks so far */
	size_t allocated;	/* tasks that fit in the arrays below */
	size_t cursor;		/* the tasks before it have ended */
	size_t since;		/* the tasks before it had ended when the batch last became busy */
	unsigned users;		/* threads that wait */
	unsigned pollers;	/* threads that use its requests without the lock */
	unsigned stoppers;	/* pollers that end requests; the next post waits for them */
	unsigned submitters;	/* threads that submit requests to the engine */
	bool busy;		/* tasks were submitted, and not all of them are final */
	bool ended;		/* was busy, and all tasks became final, at least once */
	bool finishing;		/* in a queue, or a worker handles it */
	bool prepared;
	int stop_status;	/* 0, or the status that the remaining tasks end with; also read without lock */
	bool notify;		/* send a notification when all tasks are completed */
	segment_id_t notify_segment;
	char *notify_name, *notify_msg;
	int eventfd;		/* -1: none */
	uint64_t deadline;	/* MC_NEVER: none; also read without lock */
	uint64_t began_ns;	/* when the batch last became busy; 0 without metrics */
	struct mce_te_view **views;	/* referenced because requests use them; few, or allocated */
	unsigned nviews, views_cap;
	struct mce_te_view *few[MCE_TE_FEW];
	/* owned by the submitter, then the engine, then the worker */
	struct mce_req *reqs;
	struct iovec *iovs;
	struct mce_te_task *tasks;
	/* guarded by mce_te_work.lock */
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

/* 0, or the status for tasks not yet submitted: the batch was stopped, or its deadline has passed.  Not locked. */
int mce_te_batch_stopped(const struct mce_te_batch *b);

/* The batch, locked; NULL: no such id. */
struct mce_te_batch *mce_te_batch_lock(struct mce_te *te, batch_id_t id);
void mce_te_batch_unlock(struct mce_te_batch *b);
/* All tasks are final: wake the waiting threads.  Locked. */
void mce_te_batch_settle_locked(struct mce_te_batch *b);
/* Keep a view until the batch is freed; consumes the reference, also on failure.  Not locked. */
int mce_te_batch_keep(struct mce_te_batch *b, struct mce_te_view *v);
/* Wait for the running tasks whose local memory overlaps [@addr, @addr + @len); cancel their batches at
 * @deadline. */
void mce_te_batches_wait_range(struct mce_te *te, uint64_t addr, uint64_t len, uint64_t deadline);
/* End all tasks; no thread submits any more. */
void mce_te_batches_stop(struct mce_te *te);
void mce_te_batches_done(struct mce_te *te);
/* Free the slots, after the end of the engine's threads, which may use them. */
void mce_te_batches_free(struct mce_te *te);

struct mce_te_asks;

/* The view that the last request used, kept by the batch. */
struct mce_te_cache {
	const struct mce_te_asks *answers;	/* use only these views; NULL: use cached views */
	segment_id_t segment;
	struct mce_te_view *view;
	bool reloaded;
};
/* Set peer and rkey of request @i from the view of its segment; @reload: its descriptor may be fetched
 * again.  0, or the status that the task ends with. */
int mce_te_resolve(struct mce_te_batch *b, size_t i, bool reload, struct mce_te_cache *cache);

/* ---- hints (hint.c) ----------------------------------------------------------------------------- */

/* As in struct mce_req. */
struct mce_te_hints {
	enum mce_path path;
	uint16_t nics;
};
/* The hints of the options; names that the engine does not have are logged once each, and mean no hint. */
void mce_te_hints(struct mce_te *te, const struct mce_te_submit_opts *opts, struct mce_te_hints *ret);

/* ---- fetching several descriptors (ask.c) -------------------------------------------------------- */

struct mce_te_ask {
	segment_id_t segment;
	const struct mce_te_view *known;	/* as for mce_te_view_refetch() */
	struct mce_te_view *view;	/* kept by the batch; NULL: see err */
	int err;
};
struct mce_te_asks {
	struct mce_te_batch *b;
	bool uncached;			/* use mce_te_view_get(), which also asks segments that were silent */
	struct mce_te_ask *list;	/* sorted by segment */
	unsigned n, cap;
	unsigned next;			/* atomic */
};
/* Add @segment to the list; adding it again does nothing.  -ENOMEM. */
int mce_te_asks_add(struct mce_te_asks *a, segment_id_t segment, const struct mce_te_view *known);
/* Call mce_te_view_refetch_by() with the batch's deadline for each segment, until the batch is stopped. */
void mce_te_asks_run(struct mce_te_asks *a);
/* The fetched view of @segment, kept by the batch; or its error.  -ENOMEM: it is not in the list. */
int mce_te_asks_view(const struct mce_te_asks *a, segment_id_t segment, struct mce_te_view **ret);
void mce_te_asks_done(struct mce_te_asks *a);

/* ---- worker threads (finish.c) ----------------------------------------------------------------- */

#define MCE_TE_WORKERS 4u

/* A queue of batches and its worker threads. */
struct mce_te_queue {
	struct mce_te *te;
	struct mc_cond added;
	struct mc_list list;
	unsigned workers, idle;
	struct mc_thread worker[MCE_TE_WORKERS];
};

struct mce_te_work {
	struct mc_mutex lock;
	struct mc_cond timer_changed;	/* monotonic clock; of timer and refresher */
	/* Batches to retry may wait for silent peers; batches that only send a notification do not wait
	 * for them. */
	struct mce_te_queue retry, notify;
	struct mc_list timed;	/* batches with a deadline */
	struct mc_thread timer, refresher;
	bool timer_runs, refresher_runs, stopping;
	/* atomic */
	uint64_t last;		/* end of all requests to peers; MC_NEVER while the engine is open */
};
void mce_te_work_init(struct mce_te *te);
/* Finish the queued batches without retries, using the network for at most MCE_TE_ASK_MS, and end the threads.
 * Batches that end later are neither retried nor notified. */
void mce_te_work_stop(struct mce_te *te);
void mce_te_work_done(struct mce_te_work *w);
/* True once mce_te_work_stop() has begun. */
bool mce_te_stopping(const struct mce_te *te);
/* Deadline of a request to a peer that begins now: mce_te_env.ask_ms, or mce_te_work.last if that is sooner. */
uint64_t mce_te_ask_by(const struct mce_te *te);
/* mce_batch.done of every batch. */
void mce_te_batch_ended(void *arg);
/* The batch has a deadline: put it on the timer's list. */
int mce_te_timer_add(struct mce_te_batch *b);
void mce_te_timer_remove(struct mce_te_batch *b);
/* Start the thread that fetches all descriptors again every mce_te_env.refresh_ms. */
int mce_te_refresh_start(struct mce_te *te);
/* End the tasks that are not final with @status, now or when their submitter has submitted them; queued
 * retries and notifications are dropped.  Batch locked, and unlocked in between. */
void mce_te_batch_stop_locked(struct mce_te_batch *b, int status);

/* ---- notifications (notify.c) ------------------------------------------------------------------ */

#define MCE_TE_INBOX_MAX 65536u		/* notifications not yet fetched; more are refused */
#define MCE_TE_INBOX_BYTES (64u << 20)

struct mce_te_inbox {
	struct mc_mutex lock;
	notify_msg_t *item;
	unsigned n, cap;
	uint64_t bytes;
};
/* mce_te_notify(), ended at @deadline if that is sooner. */
int mce_te_notify_by(struct mce_te *te, segment_id_t segment, const char *name, const char *msg, uint64_t deadline);
int mce_te_inbox_add(struct mce_te_inbox *in, const char *name, const char *msg);
/* The number of notifications and their array, for mce_te_inbox_free(). */
int mce_te_inbox_take(struct mce_te_inbox *in, notify_msg_t **ret);
void mce_te_inbox_free(notify_msg_t *item, int n);
void mce_te_inbox_done(struct mce_te_inbox *in);

/* ---- engine ------------------------------------------------------------------------------------ */

struct mce_topo;

#define MCE_TE_CHUNKS 16384u		/* chunks of 64 batches: 1,048,576 at a time */
#define MCE_TE_CHUNK 64u

struct mce_te_rate {
	uint64_t at_ns, bytes;
	double ewma_bps;
};

/* ---- transfers on streams of a GPU (stream.c) -------------------------------------------------- */

struct mce_te_streams {
	struct mc_mutex lock;
	struct mc_cond change;
	/* guarded by lock */
	struct mc_list queue;	/* whose streams have got to them */
	unsigned pending;	/* submitted, and not over */
	bool started, closing;
	struct mc_thread thread;
};
void mce_te_streams_init(struct mce_te_streams *w);
/* Waits for all that are submitted; false: some do not end, so that the engine has to stay. */
bool mce_te_streams_stop(struct mce_te_streams *w);
void mce_te_streams_done(struct mce_te_streams *w);

struct mce_te {
	/* constant after open */
	struct mce_te_env env;
	struct mce_te_numa *numa;
	struct mce_engine *engine;
	struct mce_peer *self;	/* referenced, so that its counters last */
	struct mcd_client *meta;	/* NULL with P2PHANDSHAKE */
	struct mce_handshake *handshake;
	struct mc_networks *networks;	/* hosts that may connect; NULL: all */
	struct mce_te_metric *metric;	/* NULL: not enabled */
	char host[MC_ADDR_MAX];	/* advertised */
	char name[MC_ADDR_MAX];
	char address[MC_ADDR_MAX];
	int rpc_port;
	unsigned fork_depth;
	char *nic_filter, *matrix_nics;
	bool discovers;		/* MC_MS_AUTO_DISC=1: NICs and topology are discovered, whatever the program names */
	bool matrix;		/* the topology is the user's */
	bool ready;		/* atomic: name and engine are set */
	/* guarded by publish_lock, which is held during network requests */
	struct mc_mutex publish_lock;
	bool withdrawn;		/* never published again */
	bool removed;		/* not published until memory is registered */
	/* guarded by mem_lock */
	struct mc_mutex mem_lock;
	struct mce_te_mem *mem;	/* in the order of registration */
	unsigned nmem, mem_cap;
	uint64_t npieces;	/* published entries for all of @mem */
	bool rdma;		/* publish the NICs and their keys */
	char *text;		/* the descriptor, NULL: encode it at the next use */
	/* guarded by arena_lock */
	struct mc_mutex arena_lock;
	struct mce_te_arena *arenas;
	/* guarded by seg_lock */
	struct mc_rwlock seg_lock;
	struct mce_te_segment **segment;	/* [id - 1] */
	unsigned nsegments, segments_cap;
	struct mce_te_view *own;	/* NULL: make it at the next use */
	/* guarded by slot_lock; chunk[] is also read without lock */
	struct mc_mutex slot_lock;
	struct mce_te_batch *chunk[MCE_TE_CHUNKS];
	uint32_t *free_slot;
	uint32_t nslots, nfree;
	/* own locks */
	struct mce_te_work work;
	struct mce_te_streams streams;
	struct mce_te_inbox inbox;
	struct mc_mutex topo_lock;
	struct mce_topo *topo;
	struct mce_te_rate rate;
	struct mc_list live_node;	/* shutdown.c */
};

/* ---- MC_TE_METRIC and the log (metric.c) ------------------------------------------------------- */

/* 0 also when the variable is not set; *ret stays NULL then. */
int mce_te_metric_open(struct mce_te *te, struct mce_te_metric **ret);
void mce_te_metric_close(struct mce_te_metric *m);	/* before mce_engine_close() */
void mce_te_metric_batch(struct mce_te_metric *m, uint64_t began_ns);	/* a batch has ended */
/* Apply MC_LOG_LEVEL and MC_LOG_DIR, once per process; without them the program's own log settings stay. */
void mce_te_log_open(void);

/* Remove the engine's entries from the metadata server and never publish again. */
void mce_te_withdraw(struct mce_te *te);
/* The same until memory is registered. */
void mce_te_remove(struct mce_te *te);
/* Publish the address of the handshake service; with publish_lock, or before other threads know the engine. */
int mce_te_address_publish(struct mce_te *te);
void mce_te_shutdown_forget(struct mce_te *te);	/* shutdown.c: the engine is being closed */
/* The load of at most @max devices, for getNicLoadStats(); returns their number. */
int mce_te_loads(struct mce_te *te, struct nic_load_stat *stats, size_t max);
/* The topology, discovered or read from the topology file at the first call; the engine keeps it. */
int mce_te_topo(struct mce_te *te, struct mce_topo **ret);

#endif
