/* SPDX-License-Identifier: Apache-2.0
 * rdma_i.h - declarations that the files of engine/rdma/ share.
 *
 * An engine has a few NICs (device.c) and registers every region on all of them (region.c).  A peer that offers RDMA
 * has a control connection: TCP, greeted like the others, and then JSON messages (control.c, wire.c).  Over it the two
 * sides make endpoints, each a few queue pairs from one of our NICs to one of the peer's (endpoint.c, connect.c; the
 * owner's side is serve.c), and we ask for the keys of regions.  With upstream's nodes, endpoints are made by messages
 * of their handshake service (upstream.c, strangers.c).  Requests wait in a queue of the peer; endpoints with room cut
 * slices off it (queue.c), post them in chains (post.c), and end them as completions arrive (complete.c).
 *
 * The queue pairs of iWARP NICs are connected by the connection manager instead (cm_connect.c): OPEN makes the owner's
 * ones, and the connections find them by a token.
 *
 * When bytes in flight do not move, the control connection decides whether the peer is still there (complete.c): a NIC
 * may repeat its packets to a dead machine for minutes.
 *
 * A WRITE that ended with an error may still be on its way in the network.  Its endpoint is in doubt
 * until the owner has destroyed the queue pairs at its end, and until then no WRITE of this engine goes to the peer.
 * Upstream's nodes do not say that; there the doubt ends with a new connection of the two NICs, or after a while.
 *
 * Locks: mce_rdma.lock and a completion queue's lock come before a peer's lock. */
#ifndef MCE_RDMA_I_H
#define MCE_RDMA_I_H

#include "common/metrics.h"
#include "common/sys/lock.h"
#include "engine/engine_i.h"
#include "engine/rdma/cm.h"
#include "engine/rdma/verbs.h"
#include "engine/tcp/tcp_wire.h"

#define MCE_NICS_MAX 16u
#define MCE_RDMA_QPS_MAX 16u
#define MCE_RDMA_SGE 4u
#define MCE_RDMA_CQS_MAX 64u
/* Work requests that are posted with one doorbell. */
#define MCE_RDMA_CHAIN 16u
/* Bytes in flight on the fastest endpoint of a peer, or two slices if that is more: 100 Gb/s over 300 us. */
#define MCE_RDMA_EP_BYTES (4u << 20)
#define MCE_RDMA_SCALE 256u	/* mce_rdma_ep.scale of the fastest one */
/* Number of endpoints that a slice may lose before its request fails. */
#define MCE_RDMA_TRIES 4u
#define MCE_RDMA_NAME_MAX 64u
/* Bytes of a numeric "host:port" with its final NUL. */
#define MCE_RDMA_CM_MAX 64
/* Maximum number of parts of a region.  A region has more than one part only if the device limits the size of one,
 * or if it is device memory. */
#define MCE_RDMA_PARTS_MAX 512u

/* Settings (tune.c), upstream's MC_* variables. */
struct mce_rdma_tune {
	unsigned port, max_wr, max_inline, qps, cqe, slice, mtu, timeout, retry, max_eps, max_nics;
	int gid_index, tc, sl, pkey, relaxed;
	bool same_host;
	bool cm;		/* connect by the connection manager where the peer does that too */
	bool gpu_direct, peer_memory;	/* NICs access device memory; they prefer peer memory to dma-buf */
	uint64_t max_mr;
};
void mce_rdma_tune_read(struct mce_rdma_tune *t);

struct mce_rdma;

/* ---- NICs (device.c) ---------------------------------------------------------------------------- */

/* How a peer reaches a NIC. */
struct mce_rdma_addr {
	char name[MCE_RDMA_NAME_MAX];
	union ibv_gid gid;
	uint16_t lid;
	unsigned mtu;		/* bytes */
	bool iwarp;		/* reached only by other iWARP NICs, by the connection manager */
	char cm[MCE_RDMA_CM_MAX];	/* where its connection manager listens; "": nowhere */
	unsigned rate;		/* Mb/s of the port, 0: unknown */
};

/* The series of a NIC (nic_metrics.c).  They live as long as the process. */
struct mce_nic_metrics {
	struct mc_metric carried[2];	/* bytes of ended slices: READ, WRITE */
	struct mc_metric failed, endpoints, endpoints_in, up, rate;
};
struct mce_nic_metrics *mce_nic_metrics(const char *name);

struct mce_rdma_qp;

struct mce_rdma_cq {
	struct mce_nic *nic;
	struct ibv_cq *cq;
	uint32_t room;		/* completions that no queue pair has reserved; guarded by the NIC's lock */
	struct mc_mutex lock;
	/* guarded by lock */
	bool armed;		/* the next completion makes an event */
	bool watched;		/* other threads poll it, and the I/O thread checks that periodically */
	unsigned taken;		/* completions that other threads took since that check */
	struct mce_rdma_qp **qp;	/* queue pairs by number; NULL: unused */
	uint32_t nqp, cap;
};

struct mce_nic {
	/* constant after open */
	struct mce_rdma *r;
	unsigned index;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	bool iwarp;		/* it connects by the connection manager, and its WRITEs need a READ (post.c) */
	struct ibv_mr *sink_mr;	/* where these READs go, in mce_rdma.sink; NULL: the NIC is not iWARP */
	struct rdma_cm_id *cm_listener;	/* NULL: the connection manager is not used */
	struct sockaddr_storage cm_addr;	/* an address of its interface, port 0 */
	bool ethernet;		/* the port's link layer */
	bool global;		/* packets have a global header: RoCE, or a routed InfiniBand port */
	unsigned max_wr;	/* slices of a queue pair; on iWARP it has twice as many work requests */
	unsigned max_sge, max_sge_rd;
	unsigned rd_atomic, init_atomic;	/* READs at once that it answers, and that it requests */
	int max_cqe;
	uint64_t max_mr;
	int numa;		/* NUMA node, -1: unknown */
	struct mce_nic_metrics *metrics;
	struct mc_evfd async_evfd, channel_evfd;
	/* guarded by lock; the name is constant */
	struct mc_mutex lock;
	struct mce_rdma_addr addr;
	int gid_index;
	struct mce_rdma_cq *cq[MCE_RDMA_CQS_MAX];
	unsigned ncqs;		/* atomic: read without the lock */
	/* atomic */
	bool up;
	unsigned rate;		/* addr.rate */
	bool late;		/* a slice has failed because the port is inactive, and its event may still come */
	unsigned max_inline;
};

/* Memory for bytes of programs that have not registered theirs, and for checksums: slots of one slice each. */
struct mce_rdma_stage {
	struct mc_mutex lock;
	char *base;
	uint64_t slot, len;	/* bytes of one slot, and of all slots */
	void *free;		/* list through the first word of each slot */
	struct ibv_mr *mr[MCE_NICS_MAX];
	bool starved;		/* a peer waits for a slot */
	bool told;		/* the I/O thread is about to pump the peers */
};

struct mce_rdma {
	/* constant after open */
	struct mce_engine *e;
	const struct mce_verbs *v;
	struct mce_rdma_tune tune;
	unsigned nnics;
	struct mce_nic nic[MCE_NICS_MAX];
	struct mce_io io;	/* handles completions that no thread waits for, events of NICs, ticks */
	struct mce_io ctl;	/* serves control connections; may block for a second */
	struct mce_watcher watcher;
	char *affinity;		/* MC_NIC_PEER_AFFINITY, NULL: none */
	bool picky;		/* atomic: some memory is near to some NICs only */
	unsigned leaders;	/* atomic: waiting threads that poll */
	uint64_t wait_ns;	/* atomic: how long they waited, on average */
	/* the timer of the watched queues; owned by the loop of io */
	struct mc_evtimer look;
	uint64_t look_ns;
	struct mc_mutex lock;	/* comes before a peer's lock */
	struct mc_list peers;	/* mce_rdma_peer.node of the peers that were connected once */
	struct mce_rdma_stage stage;
	/* constant after open; NULL and empty: no NIC uses the connection manager */
	void *sink;		/* a page */
	const struct mce_cm *cm;
	struct rdma_event_channel *cm_channel;	/* for the listeners and the connections that they accepted */
	struct mc_evfd cm_evfd;
	/* mce_conf.upstream_name and upstream_setup */
	char *name;
	int (*setup)(const char *host, int port, const char *text, uint64_t deadline, char **ret_reply);
	/* owned by the loop of ctl */
	struct mc_list guests, strangers;
	unsigned nguests, nstrangers;
	uint32_t next_id;
};
static inline struct mce_rdma *mce_rdma_of(const struct mce_engine *e)
{
	return (struct mce_rdma *)e->service[MCE_PATH_RDMA];
}
static inline bool mce_nic_up(const struct mce_nic *nic)
{
	return __atomic_load_n(&nic->up, __ATOMIC_ACQUIRE);
}
/* Can the NIC be connected to one of the peer's? */
static inline bool mce_rdma_pair_fits(const struct mce_nic *nic, const struct mce_rdma_addr *remote)
{
	return nic->iwarp == remote->iwarp && (!nic->iwarp || remote->cm[0]);
}

/* Has this machine NICs, and the library for them?  If they are @wanted a warning says why not. */
bool mce_nics_exist(bool wanted);
/* Open the NICs of conf->rdma_devices and rdma_filter.  0 also when there is none: then nnics is 0, and when they are
 * wanted a warning says why. */
int mce_nics_open(struct mce_rdma *r, const struct mce_conf *conf);
void mce_nics_close(struct mce_rdma *r);
/* discovery.c: the next name of a comma-separated list without the blanks around it, and the end of it; NULL: there is
 * none.  A name that is too long is cut. */
const char *mce_nics_next(const char *at, char ret[MCE_RDMA_NAME_MAX]);
bool mce_nics_listed(const char *list, const char *name);
/* permission.c: one warning per process: NICs are used beside a credential. */
void mce_rdma_warn_permitted(void);
/* Is its port active at this moment?  The event that says so may not have been handled yet, and connecting over a dead
 * port takes a second. */
bool mce_nic_active(const struct mce_nic *nic);
/* A slice has failed: is our own port inactive, so that the peer is not at fault? */
bool mce_nic_failed(struct mce_nic *nic);
void mce_nic_addr(struct mce_nic *nic, struct mce_rdma_addr *ret, int *ret_gid_index);
/* A completion queue with room for @n completions, which are reserved. */
int mce_nic_cq_take(struct mce_nic *nic, uint32_t n, struct mce_rdma_cq **ret);
void mce_nic_cq_give(struct mce_rdma_cq *cq, uint32_t n);

/* ---- memory (region.c) -------------------------------------------------------------------------- */

struct mce_rdma_region {
	unsigned nparts;
	uint64_t part;		/* bytes of each part but the last */
	bool everywhere;	/* all parts are registered on all NICs */
	struct ibv_mr *mr[];	/* [nic * nparts + part], NULL: not registered on this NIC */
};
void mce_rdma_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr);
void mce_rdma_region_free(struct mce_mr *mr);
/* Find the key of the local byte @addr on a NIC, and how many bytes follow it in the same part.  False: the NIC has
 * none. */
bool mce_rdma_lkey(const struct mce_mr *mr, const struct mce_nic *nic, uint64_t addr, uint32_t *ret_key,
		   uint64_t *ret_room);
void *mce_rdma_stage_take(struct mce_rdma *r);	/* NULL: no slot is free; the peers are pumped when one is released */
void mce_rdma_stage_give(struct mce_rdma *r, void *slot);
/* NULL: it cannot be registered. */
struct ibv_mr *mce_rdma_stage_mr(struct mce_rdma *r, const struct mce_nic *nic);
void mce_rdma_stage_close(struct mce_rdma *r);

/* ---- device memory (gpu.c) ----------------------------------------------------------------------- */

/* The dma-buf of one part of a region. */
struct mce_rdma_dmabuf {
	int fd;
	uint64_t off;	/* offset of the part in the dma-buf, less than a page of the GPU */
};
/* Export each part of a region of device memory, once for all NICs.  An error has a detail. */
int mce_rdma_dmabufs_open(const struct mce_mr *mr, const struct mce_rdma_region *region, struct mce_rdma_dmabuf **ret);
void mce_rdma_dmabufs_close(struct mce_rdma_dmabuf *bufs, unsigned n);	/* NULL is fine */
/* Bytes of one part of device memory, when a NIC can register @max. */
uint64_t mce_rdma_device_part(uint64_t max);

/* Can the NICs move the bytes of a request with device memory now, without the processor? */
bool mce_rdma_direct(const struct mce_rdma *r, struct mce_req *req);

/* A region of a peer. */
struct mce_rdma_remote {
	struct mce_rdma_remote *next;
	uint64_t rkey, base, len, part;
	unsigned access, nnics, nparts;
	bool stale;		/* the peer has refused a key: ask again before use; guarded by the peer's lock */
	uint32_t round;		/* upstream.c: number of the descriptor that has the region */
	uint32_t key[];		/* [nic * nparts + part], 0: not registered there */
};

/* ---- endpoints (endpoint.c) --------------------------------------------------------------------- */

struct mce_rdma_slice {
	struct mc_list node;	/* mce_rdma_peer.free or .retry */
	struct mce_req *req;
	uint64_t off;		/* offset in the transfer; with tail, in the trailer */
	uint32_t len, iov_idx;
	uint64_t iov_off;
	uint8_t tries, nmr;
	bool write, tail;
	void *stage;		/* staging slot with its bytes, NULL: none */
	struct mce_mr *mr[MCE_RDMA_SGE];	/* references to its local memory */
};

/* A connection by the connection manager.  Zero: there is none. */
struct mce_rdma_cm {
	struct rdma_cm_id *id;
	struct rdma_event_channel *channel;	/* NULL: that of the listeners */
};

struct mce_rdma_qp {
	/* constant while it is connected */
	struct mce_rdma_ep *ep;
	struct ibv_qp *qp;
	struct mce_rdma_cq *cq;
	struct mce_rdma_cm cm;
	uint32_t id, depth;	/* depth: slices */
	uint32_t wrs;		/* work requests, and completions that it may have */
	/* guarded by the peer's lock */
	struct mce_rdma_slice **ring;
	uint32_t head, tail;	/* numbers of the next slice to post, and of the next one to end */
};

enum mce_rdma_state {
	MCE_RDMA_EP_UP,
	MCE_RDMA_EP_BROKEN,	/* its queue pairs are in the error state; slices are being flushed */
};

struct mce_rdma_ep {
	struct mc_list node;	/* mce_rdma_peer.eps */
	struct mce_rdma_peer *rp;
	struct mce_nic *nic;
	unsigned remote;	/* index of the peer's NIC */
	uint32_t id;		/* the owner's number of it */
	uint8_t mtu;		/* enum ibv_mtu */
	/* guarded by the peer's lock */
	enum mce_rdma_state state;
	bool doubt;		/* a WRITE on it has failed */
	bool failed;		/* the path between the two NICs is at fault */
	bool settled;		/* the owner has destroyed its end */
	uint64_t up_ms, broken_ms;
	uint64_t bytes, moved;	/* bytes in flight; bytes of ended slices */
	uint64_t seen, seen_ms;	/* `moved` when a tick last saw it change, or nothing in flight, and when */
	uint64_t limit;		/* no slice is posted while as many bytes are in flight */
	uint32_t scale;		/* share of the peer's fastest endpoint / its own share * MCE_RDMA_SCALE (weigh.c) */
	unsigned nqps, next;	/* queue pair that posts next */
	struct mce_rdma_qp qp[MCE_RDMA_QPS_MAX];
};

/* Parameters of the other end of an endpoint. */
struct mce_rdma_far {
	struct mce_rdma_addr addr;
	unsigned nqps;
	uint32_t qpn[MCE_RDMA_QPS_MAX], psn;
};
/* Make a queue pair of a NIC, in the INIT state.  @access: MCE_ACCESS_* of the other side to our regions. */
int mce_rdma_qp_new(struct mce_nic *nic, struct ibv_cq *cq, uint32_t wrs, unsigned access, struct ibv_qp **ret);
/* Connect one queue pair, so that it can receive and send.  May take a second. */
int mce_rdma_qp_connect(struct mce_nic *nic, struct ibv_qp *qp, const struct mce_rdma_addr *to, uint32_t qpn,
			uint32_t psn, unsigned mtu);
void mce_rdma_qp_fail(struct mce_nic *nic, struct ibv_qp *qp);	/* move it to the error state: its work is flushed */
/* Make an endpoint.  @rp: NULL until the endpoint is assigned to a peer.  @two_way: the other side may also read and
 * write through it. */
int mce_rdma_ep_new(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned nqps, bool two_way,
		    struct mce_rdma_ep **ret);
/* Destroy the queue pairs of @ep: after return the NIC uses no memory of its slices, and no completion finds it. */
void mce_rdma_ep_close(struct mce_rdma_ep *ep);
/* Free @ep, which is closed and whose rings and lists are empty. */
void mce_rdma_ep_free(struct mce_rdma_ep *ep);

/* ---- the connection manager (cm_connect.c) -------------------------------------------------------- */

/* Find an address of the NIC and listen there.  An error has a detail. */
int mce_rdma_cm_open(struct mce_nic *nic);
/* All NICs are open: take connections. */
int mce_rdma_cm_start(struct mce_rdma *r);
void mce_rdma_cm_end(struct mce_nic *nic);
/* Connect a queue pair in the INIT state to the one of the owner's endpoint @id with this index.  The connection is
 * qp->cm, also on failure.  Resolver. */
int mce_rdma_cm_dial(struct mce_nic *nic, struct mce_rdma_qp *qp, const struct mce_rdma_addr *to, uint32_t id,
		     uint64_t token, uint32_t index, uint64_t deadline);
/* Its queue pair is destroyed already. */
void mce_rdma_cm_close(const struct mce_rdma *r, struct mce_rdma_cm *c);
/* serve.c, loop of ctl: find the queue pair that OPEN has made for this connection.  -ENOENT: there is none, or it is
 * connected already. */
int mce_rdma_guest_dialled(const struct mce_nic *nic, uint32_t id, uint64_t token, uint32_t index, struct ibv_qp **ret,
			   struct mce_rdma_cm **ret_cm);

/* ---- peers (connect.c, queue.c) ------------------------------------------------------------------ */

/* The way in which endpoints of a peer are made: control.c for our own nodes, upstream.c for upstream's.  The slots
 * run on the resolver thread. */
struct mce_rdma_proto {
	/* With the peer's lock: does the peer offer RDMA? */
	bool (*reachable_locked)(const struct mce_rdma_peer *rp);
	/* Learn the peer's NICs: mce_rdma_peer.remote, and open becomes true. */
	int (*open)(struct mce_rdma_peer *rp, uint64_t deadline);
	void (*close)(struct mce_rdma_peer *rp);	/* the peer is detached */
	/* Close if the results of open are outdated. */
	void (*recheck)(struct mce_rdma_peer *rp);
	/* Does the peer answer?  If not, it is not open any more. */
	void (*ask)(struct mce_rdma_peer *rp, uint64_t deadline);
	/* Set `settled` of the broken endpoints whose other end is destroyed.  Returns at once when the peer is not
	 * open. */
	void (*settle)(struct mce_rdma_peer *rp, uint64_t deadline);
	/* Make a connected endpoint, which is not on the list yet.  It is mce_rdma_peer.trying if the peer may
	 * request the same pair of NICs. */
	int (*ep_open)(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned remote, uint64_t deadline,
		       struct mce_rdma_ep **ret);
	/* Fetch region @rkey.  0 also when the peer is not open any more. */
	int (*region)(struct mce_rdma_peer *rp, uint64_t rkey, uint64_t deadline);
	/* With the peer's lock: an endpoint was lost because the peer, or the path to it, failed; or the last one was
	 * lost because our NIC failed, and so the peer may be another process when it is reached again. */
	void (*lost_locked)(struct mce_rdma_peer *rp);
	bool only_path;		/* no other transport reaches the peer */
};
extern const struct mce_rdma_proto mce_rdma_control, mce_rdma_upstream;

struct mce_rdma_up;

enum mce_rdma_try {
	MCE_TRY_ASKED,		/* a message of the peer for the same pair connects this endpoint or is refused */
	MCE_TRY_ACCEPTING,	/* such a message is connecting it */
	MCE_TRY_ACCEPTED,
	MCE_TRY_FAILED,
	MCE_TRY_ANSWERED,	/* the peer's answer has connected it; a message changes the state to REPLACED */
	MCE_TRY_REPLACED,
};

enum mce_rdma_peer_state {
	MCE_RDMA_NEW,		/* not tried yet */
	MCE_RDMA_UP,		/* some endpoint is up, or will be */
	MCE_RDMA_OFF,		/* RDMA is not used; it is tried again from retry_ms on */
};

#define MCE_RDMA_BUCKETS 64u
struct mce_rdma_peer {
	/* constant after attach */
	struct mce_rdma *r;
	struct mce_peer *p;
	struct mc_list node;	/* mce_rdma.peers */
	const struct mce_rdma_proto *proto;
	struct mce_rdma_up *up;	/* state of upstream.c; NULL: the peer is one of our own nodes */
	/* Guarded by mce_rdma.lock: the endpoint that is being connected, until it is on the list. */
	struct mce_rdma_ep *trying;
	enum mce_rdma_try try;
	bool try_ready;		/* the peer has connected its end */
	uint32_t try_qpn;	/* MCE_TRY_ACCEPTED: the peer's first queue pair */
	/* owned by the resolver */
	bool open;		/* endpoints can be made and settled */
	struct mc_stream stream;	/* control connection; not open: none */
	uint32_t epoch;
	uint64_t silent_ms;	/* the peer's host was lost, and is not tried again before this time */
	/* The peer's NICs; changed under the peer's lock. */
	unsigned nremotes;
	struct mce_rdma_addr remote[MCE_NICS_MAX];
	uint64_t pair_ms[MCE_NICS_MAX][MCE_NICS_MAX];	/* [ours][theirs]: not before this time */
	uint32_t pair_fails[MCE_NICS_MAX][MCE_NICS_MAX];
	/* guarded by the peer's lock */
	enum mce_rdma_peer_state state;
	uint64_t retry_ms;
	uint64_t moved, moved_ms;	/* bytes that its endpoints had moved when a tick saw them change, and when */
	bool suspect;		/* bytes are in flight and do not move: ask the peer whether it is there */
	bool nic_back;		/* a NIC is up again: connect over it without a pause */
	uint64_t again_ms;	/* when a NIC without an endpoint is tried again; 0: there is none */
	bool detaching;
	uint64_t fence;		/* the number in the greeting of the control connection */
	bool read_only;		/* the peer has fenced that number */
	bool fresh;		/* atomic: a request was queued since the last pump */
	struct mc_list queue;	/* requests with bytes to cut */
	struct mc_list retry, free;	/* slices */
	struct mc_list eps;
	unsigned nup;
	struct mce_rdma_remote *bucket[MCE_RDMA_BUCKETS];
	struct mce_rdma_slice **chunk;	/* memory of slices */
	unsigned nchunks;
};
static inline struct mce_rdma_peer *mce_rdma_peer_of(const struct mce_peer *p)
{
	return (struct mce_rdma_peer *)p->tp[MCE_PATH_RDMA];
}

/* connect.c; _locked: with the peer's lock. */
void mce_rdma_kick_locked(struct mce_rdma_peer *rp);	/* start the resolver */
int mce_rdma_attach(struct mce_peer *p);
void mce_rdma_detach(struct mce_peer *p);
int mce_rdma_connect(struct mce_peer *p, uint64_t deadline);
int mce_rdma_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline);
void mce_rdma_new_fence(struct mce_peer *p);
bool mce_rdma_writes_in_doubt(struct mce_peer *p);

/* upstream.c */
int mce_rdma_up_attach(struct mce_rdma_peer *rp);
/* strangers.c, loop of ctl */
void mce_rdma_strangers_end(struct mce_rdma *r);

/* connect.c, for control.c and upstream.c. */
void mce_rdma_ep_settled(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep);
/* Find the first broken endpoint that is not settled; NULL: there is none. */
struct mce_rdma_ep *mce_rdma_ep_unsettled(struct mce_rdma_peer *rp);
void mce_rdma_ep_discard(struct mce_rdma_ep *ep);	/* free an endpoint that is on no list */

/* serve.c */
int mce_rdma_take_connection(struct mce_engine *e, const struct mc_stream *stream, const struct mce_greeting *g);
int mce_rdma_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto);
void mce_rdma_guests_close(struct mce_rdma *r);	/* any thread but its loop */

/* queue.c; _locked: with the peer's lock. */
void mce_rdma_enqueue_locked(struct mce_rdma_peer *rp, struct mce_req *req);
/* Must WRITEs wait, because an endpoint or another transport has a WRITE in doubt? */
bool mce_rdma_write_waits_locked(struct mce_rdma_peer *rp);
/* Has the region a key on the peer's NIC of some endpoint that is up? */
bool mce_rdma_carries_locked(const struct mce_rdma_peer *rp, const struct mce_rdma_remote *rem);
/* End or return the requests of regions that no endpoint can carry any more. */
void mce_rdma_return_stranded_locked(struct mce_rdma_peer *rp, struct mc_list *over);
/* Cut the next slice for an endpoint; NULL: there is none.  Failed requests on the way are appended to @over. */
struct mce_rdma_slice *mce_rdma_cut_locked(struct mce_rdma_ep *ep, struct mc_list *over);
/* The slice has ended; its request is appended to @over when that has ended too. */
void mce_rdma_slice_end_locked(struct mce_rdma_peer *rp, struct mce_rdma_slice *s, int status, struct mc_list *over);
/* The slice was lost with its endpoint: it waits for another, or its request fails after
 * MCE_RDMA_TRIES that count. */
void mce_rdma_slice_lost_locked(struct mce_rdma_peer *rp, struct mce_rdma_slice *s, bool counts, struct mc_list *over);
void mce_rdma_over(struct mc_list *over);	/* without locks: complete the requests */
/* Requests that have nothing in flight go back to the resolver, which offers them to other transports. */
void mce_rdma_return_locked(struct mce_rdma_peer *rp, struct mc_list *over);
/* Fail all waiting requests, or (@outdated_only) only the WRITEs of older sessions. */
void mce_rdma_fail_locked(struct mce_rdma_peer *rp, int status, bool outdated_only, struct mc_list *over);
int mce_rdma_submit(struct mce_peer *p, struct mce_req *req);
unsigned mce_rdma_submit_run(struct mce_peer *p, struct mce_req *reqs, unsigned n);
void mce_rdma_flush(struct mce_peer *p);
void mce_rdma_cancel(struct mce_peer *p, struct mce_req *req, int status);
struct mce_rdma_remote *mce_rdma_remote_find_locked(struct mce_rdma_peer *rp, uint64_t rkey);
/* Replaces an older description of the region. */
void mce_rdma_remote_put_locked(struct mce_rdma_peer *rp, struct mce_rdma_remote *rem);
void mce_rdma_remote_drop_locked(struct mce_rdma_peer *rp, uint64_t rkey);
void mce_rdma_remotes_free(struct mce_rdma_peer *rp);
/* Fail the waiting requests of a region. */
void mce_rdma_fail_region_locked(struct mce_rdma_peer *rp, uint64_t rkey, int status, struct mc_list *over);

/* weigh.c */
void mce_rdma_weigh_locked(struct mce_rdma_peer *rp);	/* after endpoints came up or broke: set scale and limit */
/* Resolver: find a pair of NICs, not connected and not paused, that would use more of one of our NICs: it is faster
 * than the peer's NICs that its endpoints reach, and another of them has room. */
bool mce_rdma_extra_wanted(struct mce_rdma_peer *rp, struct mce_nic **ret_nic, unsigned *ret_remote);
/* When such a pair may be tried, in ms of mc_now_ms(). */
uint64_t mce_rdma_extra_at(const struct mce_rdma_peer *rp, const struct mce_nic *nic, unsigned remote);

/* post.c */
void mce_rdma_pump_locked(struct mce_rdma_peer *rp, struct mc_list *over);
void mce_rdma_pump(struct mce_rdma_peer *rp);

/* complete.c */
void mce_rdma_ep_break_locked(struct mce_rdma_ep *ep);
/* Has the endpoint no slice in flight? */
bool mce_rdma_ep_idle_locked(const struct mce_rdma_ep *ep);
void mce_rdma_poll_nic(struct mce_nic *nic);
void mce_rdma_poll(struct mce_peer *p);
int mce_rdma_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline);
void mce_rdma_channel_ready(struct mc_evfd *evfd, uint32_t events);	/* loop of io */
void mce_rdma_look(struct mc_evtimer *t);
void mce_rdma_tick(struct mce_watcher *w, uint64_t now_ms);	/* loop of io */
void mce_rdma_unstarve(struct mce_rdma *r);	/* loop of io: pump the peers that wait for a staging slot */
/* The queue pair is destroyed, so the NIC uses its slices no more: mark them lost. */
void mce_rdma_qp_drain_locked(struct mce_rdma_qp *qp, struct mc_list *over);

/* ---- control messages (wire.c) ------------------------------------------------------------------ */

enum mce_rdma_op {
	MCE_RDMA_NICS,		/* -> addr[] */
	MCE_RDMA_OPEN,		/* nic (index of the owner's), far -> id, far */
	MCE_RDMA_CLOSE,		/* id: the queue pairs are destroyed when the answer is sent */
	MCE_RDMA_REGION,	/* rkey -> remote */
	MCE_RDMA_OPS
};

struct mce_rdma_msg {
	enum mce_rdma_op op;
	int status;		/* status of an answer */
	uint32_t nic, id;
	bool cm;		/* OPEN: the queue pairs connect by the connection manager */
	uint64_t token;		/* answer to OPEN with cm: their connections bring it */
	bool read_only;		/* answer: the peer's number is fenced, and it can only read */
	struct mce_rdma_far far;
	unsigned naddrs;
	struct mce_rdma_addr addr[MCE_NICS_MAX];
	uint64_t rkey;
	struct mce_rdma_remote *remote;		/* malloc'ed by decode; encode: NULL in requests */
};
#define MCE_RDMA_MSG_MAX (1u << 20)
/* A frame: u32 length, little-endian, and JSON.  Malloc'ed. */
int mce_rdma_encode(const struct mce_rdma_msg *msg, char **ret, size_t *ret_len);
int mce_rdma_decode(const char *text, size_t len, struct mce_rdma_msg *ret);
/* Resolver: send the request and wait for its answer. */
int mce_rdma_call(struct mce_engine *e, struct mc_stream *stream, struct mce_rdma_msg *msg, uint64_t deadline,
		  struct mce_rdma_msg *ret);

#endif
