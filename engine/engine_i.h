/* SPDX-License-Identifier: Apache-2.0
 * engine_i.h - declarations that the files of engine/ share.
 *
 * Locks: docs/LOCKING.md.  mce_engine.lock comes after a peer's lock, but the tick only tries for a peer's lock
 * while it holds the engine's (mce_peers_resolve_owed()).  No lock is held over a system call that can block. */
#ifndef MCE_ENGINE_I_H
#define MCE_ENGINE_I_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/net/evloop.h"
#include "common/net/net.h"
#include "common/principal.h"
#include "common/security/capability.h"
#include "common/sys/lock.h"
#include "common/sys/thread.h"
#include "engine/mce.h"
#include "engine/service.h"
#include "engine/transport.h"

#define MCE_TCP_CONNS_MAX 16u
#define MCE_IO_MAX 32u
/* Connecting and greeting a peer, whatever the waiters' deadlines; the progress timeout if less. */
#define MCE_CONNECT_MS 5000
/* Requests that a transport may take together. */
#define MCE_RUN_MAX 1024u
/* Endpoints whose late bytes are remembered after their handles were freed; the oldest are forgotten. */
#define MCE_FENCES_MAX 1024u
/* Threads that connect at one time. */
#define MCE_RESOLVERS_MAX 256u

/* ---- identity ---------------------------------------------------------------------------------- */

/* Identity of an engine and its host.  Equal hosts mean "maybe the same host"; the proof is that
 * the unix socket named by the nonce leads to the process at the other end of the TCP connection. */
struct mce_id {
	uint8_t nonce[16];	/* nonce of this engine's life */
	uint8_t boot[16];	/* boot id of the kernel */
	uint64_t netns_dev, netns_ino;	/* abstract unix sockets are visible within one network namespace */
};
int mce_id_make(struct mce_id *ret);
bool mce_id_same_host(const struct mce_id *a, const struct mce_id *b);
bool mce_id_same_engine(const struct mce_id *a, const struct mce_id *b);

/* ---- I/O threads ------------------------------------------------------------------------------- */

struct mce_engine;

/* One I/O thread.  A connection on it registers a watcher, which is called at every tick. */
struct mce_io {
	struct mce_engine *e;
	unsigned numa;		/* index of the NUMA node whose processors it uses */
	struct mc_evloop *loop;
	/* owned by the loop */
	struct mc_evtimer tick, again;
	struct mc_list watchers;	/* struct mce_watcher.node */
	struct mc_list resume;		/* struct mce_watcher.resume_node */
	uint64_t last_ms;		/* when the loop last proved that it runs */
	int bounce_fd;			/* file through which user_mem.c copies, -1: not needed yet */
};

/* The processors of a list like "0-3,8"; -EINVAL. */
int mce_cpus_parse(const char *list, cpu_set_t *ret);
int mce_io_open(struct mce_io *io, struct mce_engine *e, const char *name);
void mce_io_close(struct mce_io *io);	/* NULL loop is fine */
/* Any thread but the loop's: run @fn on the loop and wait until it has run. */
void mce_io_call(struct mce_io *io, void (*fn)(void *arg), void *arg);

/* exchange.c: send (@out) or receive all @len bytes of @s by @deadline, for a thread that may block.  -ETIMEDOUT,
 * -ECANCELED (the engine closes), -ECONNRESET, -errno. */
int mce_move_all(struct mce_engine *e, struct mc_stream *s, void *buf, size_t len, bool out, uint64_t deadline);

struct mce_watcher {
	struct mc_list node, resume_node;
	void (*tick)(struct mce_watcher *w, uint64_t now_ms);
	void (*resume)(struct mce_watcher *w);
};
/* loop: */
void mce_io_watch(struct mce_io *io, struct mce_watcher *w);
void mce_io_unwatch(struct mce_io *io, struct mce_watcher *w);
/* loop: call w->resume once the other descriptors had their turn. */
void mce_io_resume_later(struct mce_io *io, struct mce_watcher *w);
/* loop: true when the process was stopped for longer than MCE_STALL_MS, or half the progress timeout if
 * that is less, and no tick has run since: the bytes in the sockets may be that old. */
#define MCE_STALL_MS 2000u
bool mce_io_stalled(struct mce_io *io);

/* ---- memory regions ---------------------------------------------------------------------------- */

#define MCE_MR_BUCKETS 1024u
/* Access bit of regions that are not memory: no path that touches memory asks for it. */
#define MCE_ACCESS_MEDIUM 0x4u
/* Their addresses begin here, where no process has memory. */
#define MCE_MEDIUM_BASE (1ull << 62)

struct mce_mr {
	/* constant after register */
	struct mce_engine *e;
	uint64_t base, len, rkey;
	unsigned access;		/* MCE_ACCESS_*, or MCE_ACCESS_MEDIUM alone */
	bool guarded;		/* TCP peers need capabilities under cap_key */
	uint8_t cap_key[MC_CAPABILITY_KEY];
	struct mct_medium *medium;	/* NULL: memory */
	bool has_file;		/* registered with its file, which never becomes shorter; from byte fd_offset on */
	uint64_t fd_offset;
	uint32_t nics;		/* near it, 0: all.  Set by the RDMA service */
	void *service[MCE_PATHS];	/* each service's part of it (service.h) */
	int gpu;		/* it is device memory of this GPU, -1: host memory */
	/* guarded by the table's lock */
	struct mce_mr *next;
	/* atomic */
	uint32_t refs;		/* futex: users, the table included */
	bool dead;
	int numa;		/* MCE_NUMA_ASK, MCE_NUMA_ANY, or index of its NUMA node */
	struct mce_pins *pins;	/* windows that are pinned for a GPU (gpu/gpu_i.h), NULL: none */
};

#define MCE_NUMA_ANY (-1)
#define MCE_NUMA_ASK (-2)

struct mce_mr_table {
	struct mc_rwlock lock;
	struct mce_mr *bucket[MCE_MR_BUCKETS];
	struct mce_mr **by_base;	/* sorted */
	unsigned n, cap;
	uint64_t next_base;		/* address of the next region that is not memory */
};
int mce_mr_table_init(struct mce_mr_table *t);
void mce_mr_table_clear(struct mce_mr_table *t);	/* unregister all; the I/O threads run */
void mce_mr_table_done(struct mce_mr_table *t);	/* the I/O threads have ended */
/* Find the region and check that [@addr, @addr + @len) lies inside it and that a bit of @access is allowed.
 * 0 and a reference, or -ESTALE (no such key), -EACCES, -ERANGE. */
int mce_mr_get(struct mce_engine *e, uint64_t rkey, uint64_t addr, uint64_t len, unsigned access,
	       struct mce_mr **ret);
/* The same without a key: the region that contains @addr; all bits of @access are needed, 0: none.  -ERANGE also when
 * there is no such region. */
int mce_mr_get_at(struct mce_engine *e, uint64_t addr, uint64_t len, unsigned access, struct mce_mr **ret);
/* The same without an address: the region of @rkey. */
int mce_mr_find(struct mce_engine *e, uint64_t rkey, struct mce_mr **ret);
/* Is it the key of a region that is not memory? */
bool mce_mr_is_medium(struct mce_engine *e, uint64_t rkey);
/* Index of the NUMA node of the region that contains @addr; MCE_NUMA_ANY also when there is none. */
int mce_mr_numa_node(struct mce_engine *e, uint64_t addr);
void mce_mr_unref(struct mce_mr *mr);
static inline bool mce_mr_dead(const struct mce_mr *mr)
{
	return __atomic_load_n(&mr->dead, __ATOMIC_ACQUIRE);
}
/* user_mem.c, for memory that the program may have protected or unmapped, or whose file it may have truncated.  Plain:
 * a copy to all of it is safe now.  The two others are for the loop. */
bool mce_mr_check_plain(const struct mce_mr *mr);
ssize_t mce_user_write(struct mce_io *io, void *to, const void *from, size_t n);	/* bytes, or -EFAULT */
bool mce_user_readable(struct mce_io *io, const void *at, uint64_t len);
/* 0 when [@addr, @addr + @len) is inside [@base, @base + @room), else -ERANGE; nothing overflows. */
int mce_range_check(uint64_t base, uint64_t room, uint64_t addr, uint64_t len);

/* ---- requests ---------------------------------------------------------------------------------- */

/* Owner of a request.  The thread that sets DONE, under the peer's lock or before the request was shared, must call
 * mce_complete(). */
enum mce_where { MCE_AT_NOWHERE, MCE_AT_PENDING, MCE_AT_BUSY, MCE_AT_TRANSPORT, MCE_AT_DONE };

/* The engine's part of struct mce_req, kept in priv[]. */
struct __attribute__((may_alias)) mce_reqx {
	struct mc_list node;	/* mce_peer.pending, or the transport's queue */
	const struct mce_transport *owner;
	uint64_t total;		/* bytes of iov */
	uint64_t cut;		/* bytes handed out as fragments */
	uint64_t crc_left;	/* bytes of crc_len that have no checksum yet */
	uint64_t iov_off;	/* where the next fragment begins */
	uint32_t iov_idx;
	uint32_t fragments;	/* handed out and not finished */
	int32_t status;		/* first failure */
	uint8_t where;		/* enum mce_where */
	uint8_t tries;
	int8_t numa;		/* NUMA node whose connections carry it, MCE_NUMA_ANY */
	bool tail_left;		/* the CRC trailer is not cut yet */
	bool queued;		/* node is on the transport's queue */
	bool seen;		/* it was pending when the resolver's round began */
	bool staged;		/* other requests carry its bytes, and are counted instead of it */
	uint8_t gpu;		/* 1 + number of the GPU of device memory in iov, 0: it is all host memory */
	uint16_t nics;		/* near its memory, 0: all */
	bool followed;		/* the GPU has done all work that was given to it before the request */
};
static inline struct mce_reqx *mce_reqx(struct mce_req *req)
{
	_Static_assert(sizeof(struct mce_reqx) <= sizeof(req->priv), "priv[] is too small");
	return (struct mce_reqx *)req->priv;
}
static inline struct mce_req *mce_req_of(struct mc_list *node)
{
	return mc_container_of(mc_container_of(node, struct mce_reqx, node), struct mce_req, priv);
}
static inline void mce_req_move(struct mce_req *req, enum mce_where where)
{
	__atomic_store_n(&mce_reqx(req)->where, (uint8_t)where, __ATOMIC_RELAXED);
}
static inline enum mce_where mce_req_at(struct mce_req *req)
{
	return (enum mce_where)__atomic_load_n(&mce_reqx(req)->where, __ATOMIC_RELAXED);
}
static inline unsigned mce_req_access(const struct mce_req *req)
{
	return req->op == MCE_WRITE ? MCE_ACCESS_WRITE : MCE_ACCESS_READ;
}
/* Offset of the CRC trailer of a transfer and bytes of it (0: none). */
static inline uint64_t mce_tail_off(const struct mce_req *req)
{
	return (req->crc_len + 3) & ~3ull;
}
uint64_t mce_tail_len(const struct mce_req *req);
/* Length of the peer's range that the request touches, the trailer included. */
uint64_t mce_req_span(struct mce_req *req);

/* The only way a request ends: counts it, sets its status, wakes the batch's waiter.  After return the request
 * belongs to the caller of mce_submit(). */
void mce_complete(struct mce_req *req, enum mce_path path, int status);

/* ---- bytes ------------------------------------------------------------------------------------- */

/* Copy a whole transfer between its iov and @remote, checksums and trailer included. */
void mce_copy(struct mce_req *req, void *remote);
/* A part of a READ: @n bytes from @from to position @pos, a multiple of MC_CRC_CHUNK like @n unless they end it. */
void mce_copy_part(struct mce_req *req, uint64_t pos, const void *from, size_t n);
/* Add @n bytes at @p, which are at offset @pos of the transfer, to its checksums; in order within each chunk. */
void mce_crc_feed(struct mce_req *req, uint64_t pos, const void *p, size_t n);

/* ---- peers ------------------------------------------------------------------------------------- */

struct mce_peer {
	/* constant after creation */
	struct mce_engine *e;
	char endpoint[MC_ADDR_MAX];
	uint64_t token;		/* names this peer handle to the other side */
	unsigned upstream;	/* it speaks upstream's TCP protocol of this version, or MCE_UPSTREAM_RDMA; 0: ours */
	const struct mce_transport *const *transports; /* best first, ends with NULL */
	void *tp[MCE_PATHS];	/* each transport's part of the peer, owned by it (transport.h) */
	/* guarded by the engine's lock */
	struct mc_list node;
	unsigned refs;
	bool closing;		/* its last handle is being put: wait for mce_engine.idle */
	struct mc_list owed_node;	/* mce_engine.owed */
	/* guarded by lock */
	struct mc_mutex lock;
	bool local;		/* it is this engine */
	bool resolving;		/* a resolver thread runs */
	bool kicked;		/* the resolver has to make another round */
	struct mc_list pending;	/* requests that wait for the resolver */
	bool introduced;	/* id is known, from a living connection */
	uint64_t introductions;	/* how often introduced became true */
	struct mce_id id;
	uint64_t features;	/* feature bits of its greeting */
	bool doubts;		/* some transport may have a WRITE in doubt */
	/* atomic */
	struct mce_path_stats path[MCE_PATHS];
	uint64_t asked, ended;	/* bytes of requests */
	uint64_t numa_bytes[MCE_NUMA_MAX];
};
#define MCE_UPSTREAM_RDMA 100u
int mce_peer_get_at(struct mce_engine *e, const char *host, int port, unsigned upstream, struct mce_peer **ret);
/* Offer @req to the transports; true: it waits for the resolver now. */
bool mce_peer_submit(struct mce_peer *p, struct mce_req *req);
/* Queue @n requests that no other thread uses yet for the resolver, since one before them waits for the same. */
void mce_peer_pend(struct mce_peer *p, struct mce_req *reqs, unsigned n);
/* Offer @reqs to the transports together; how many were taken. */
unsigned mce_peer_offer_run(struct mce_peer *p, struct mce_req *reqs, unsigned n);
/* With the peer's lock: start the resolver, or another round of it.  0, or why it cannot be started. */
int mce_peer_resolve_locked(struct mce_peer *p);
/* The same for requests that stay with their transport: when it cannot be started now, a tick tries again. */
void mce_peer_resolve_later_locked(struct mce_peer *p);
/* The first I/O thread's tick: start those. */
void mce_peers_resolve_owed(struct mce_engine *e);
/* Cancel one request; see mce_transport.cancel. */
void mce_peer_cancel(struct mce_peer *p, struct mce_req *req, int status);
/* Fail all pending requests; the peer's lock is not held. */
void mce_peer_fail_pending(struct mce_peer *p, int status);
/* Has a transport other than @path's a WRITE in doubt?  Then a WRITE must not take @path: the older one could
 * overwrite it.  MCE_PATH_NONE: any transport. */
bool mce_peer_in_doubt_locked(struct mce_peer *p, enum mce_path path);
void mce_peers_close(struct mce_engine *e);
/* To visit all peers: the one after @p (NULL: the first) with a reference, for which that of @p is given up; NULL: no
 * more. */
struct mce_peer *mce_peer_next(struct mce_engine *e, struct mce_peer *p);

/* ---- announced copies ---------------------------------------------------------------------------
 *
 * A thread that writes to memory without its owner's help takes a slot of an array that the owner reads, checks that
 * it still may write, copies, and clears the slot.  The owner first withdraws the permission and then reads the
 * slots, so one of them sees the other. */

#define MCE_SLOTS 64u
/* Store @value, not 0, in one of the first @n slots; -EBUSY when other threads occupy all. */
int mce_slot_take(uint64_t slots[], unsigned n, uint64_t value, unsigned *ret);
void mce_slot_clear(uint64_t slots[], unsigned slot);

/* ---- writers that are fenced (writers.c) --------------------------------------------------------- */

/* Engines that are remembered one by one; when more are fenced, the oldest entry is merged into the number for all. */
#define MCE_WRITERS_MAX 1024u

struct mce_writer {
	uint8_t nonce[16];
	uint64_t upto;
};

struct mce_writers {
	struct mc_mutex lock;
	struct mce_writer *table;	/* MCE_WRITERS_MAX of them */
	unsigned next, used;
	uint64_t upto_all;
	uint64_t seen;			/* the largest number in an order or a greeting */
	uint64_t upto_own;		/* atomic: for WRITEs of this engine to itself */
	uint64_t copies[MCE_SLOTS];	/* atomic: the numbers of those that are being carried out */
};
int mce_writers_init(struct mce_writers *w);
void mce_writers_done(struct mce_writers *w);
/* May the engine not write here with this number? */
bool mce_writer_is_fenced(struct mce_engine *e, const uint8_t nonce[16], uint64_t fence);
/* Does the order "engine @nonce (NULL: all) up to @upto" affect the engine @of with number @fence? */
bool mce_fence_matches(const uint8_t nonce[16], uint64_t upto, const uint8_t of[16], uint64_t fence);
/* Around a WRITE of this engine to its own memory; -ESTALE: it is fenced.  The slot is cleared by the caller. */
int mce_own_write_begin(struct mce_engine *e, uint64_t fence, unsigned *ret_slot);

/* disk.c: the requests for media of this engine. */
struct mce_disk {
	struct mc_mutex lock;
	struct mc_list jobs;	/* guarded by lock */
};

/* ---- engine ------------------------------------------------------------------------------------ */

struct mce_engine {
	/* constant after open */
	struct mce_conf conf;	/* defaults filled in; strings are not kept */
	char endpoint[MC_ADDR_MAX];
	struct mce_id id;
	unsigned nio;
	struct mce_io io[MCE_IO_MAX];
	unsigned numa_nodes;	/* 0: memory is uniform */
	cpu_set_t cpus[MCE_NUMA_MAX];	/* CPUs of each node, [0] when it is uniform; empty: I/O threads run anywhere */
	void *service[MCE_PATHS];	/* state of each service (service.h) */
	struct mce_gpus *gpus;	/* state of gpu/gpu_i.h */
	int upstream_port;	/* -1: none */
	unsigned fork_depth;
	struct mce_mr_table mrs;
	struct mce_writers writers;
	struct mce_disk disk;
	/* atomic */
	uint64_t fence;		/* the number that mce_engine_set_fence() set */
	uint64_t refused_fence;	/* with which a WRITE was refused, 0: none */
	uint64_t time_early, time_late;	/* add to mc_now_ms(): mce_engine_time() */
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond idle;	/* resolvers became 0; a closing peer was freed, or stays */
	struct mc_list peers;
	struct mc_list fences;	/* records of freed peers */
	unsigned nfences;
	struct mc_list owed;	/* peers whose resolver could not be started: a tick does it */
	unsigned resolvers;
	struct mc_thread resolved;	/* the resolver that ended last, if there was one: it waits to be joined */
	bool has_resolved;
	bool closing;
};
static inline bool mce_closing(struct mce_engine *e)
{
	return __atomic_load_n(&e->closing, __ATOMIC_ACQUIRE);
}

/* Do the peers of this engine prove identities? */
static inline bool mce_proves_identities(const struct mce_engine *e)
{
	return e->conf.peer_admitted;
}
/* Is the peer that proved @p (NULL: no identity) still admitted?  An I/O thread. */
static inline bool mce_admits(const struct mce_engine *e, const struct mc_principal *p)
{
	return !p || !e->conf.peer_admitted || e->conf.peer_admitted(e->conf.peer_arg, p);
}
/* May it write to regions? */
static inline bool mce_may_write(const struct mc_principal *p)
{
	return !p || p->roles & MC_MAY_WRITE;
}
/* The earliest, or the latest Unix time in milliseconds that the master's clock may show now. */
uint64_t mce_engine_time(const struct mce_engine *e, bool late);

#endif
