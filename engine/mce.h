/* SPDX-License-Identifier: Apache-2.0
 * mce.h - the transfer engine: move bytes between local memory and registered memory of a peer.
 *
 * A peer is named by its endpoint "host:port" (the one that mce_engine_endpoint() returns there).  As in upstream, its
 * memory is addressed by the owner's virtual address; the region's key guards it.
 * The engine chooses the path per (peer, region), best first:
 *	local	the memory is this engine's own: memcpy
 *	mapped	same host (boot id and network namespace agree, and the peer's unix socket leads to the same
 *		process as the TCP connection; addresses are not evidence) and the region has a descriptor: it is
 *		mapped once, then memcpy
 *	process_vm  same host, and the region has no descriptor: the kernel copies between the two processes
 *	rdma	the peer is on another host and both have NICs (engine/rdma/)
 *	tcp	persistent connections, several I/O threads, pipelined, straight into the destination
 *	upstream  upstream's TCP protocol, the only path to a peer of mce_peer_get_upstream()
 *
 * The statuses of a request, the same on every path:
 *	-ESTALE		no region has this key: it never did, or the region is unregistered
 *	-ERANGE		the transfer is not wholly inside the region; nothing was touched
 *	-EACCES		the region does not allow it, or the request has no capability for it
 *	-MC_ELEASE_EXPIRED  its capability has expired
 *	-EINVAL		the request contradicts itself
 *	-MC_ETRANSFER	the peer cannot be reached, or its connection was lost too often, or the peer's program has
 *			protected the memory, unmapped it, or truncated its file
 *	-MC_EVERSION	the peer speaks another protocol version
 *	-MC_ETIMEDOUT	the waiter's deadline passed
 *	-MC_EINTERNAL	the peer refuses the request for a reason that has no meaning here
 *	-MC_ELIMIT	too many peers are being connected at this time
 *	-ECANCELED	the engine was closed
 * A WRITE that failed with one of the last six may have stored any part of its bytes.  Over TCP it may store more of
 * them for as long as the peer needs to read its socket, so do not reuse the range at once.  (A peer that was stopped
 * for 2 s drops the bytes that arrived meanwhile.)
 *
 * Threads: every function may be called from any thread, but closing the engine and putting the last handle of a peer
 * must not overlap with other uses of them.  A forked child cannot use its parent's engine: its transfers, and its
 * requests for peers and pointers, fail with -MC_EUNAVAILABLE.
 *
 * The engine also speaks upstream's own TCP protocol, as a client and as a server.  That protocol has no keys: every
 * client that can connect to the upstream port may use the regions as their access bits allow.  The engine opens no
 * upstream port unless mce_conf asks for it. */
#ifndef MCE_H
#define MCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct mc_capability;
struct mc_networks;
struct mc_principal;
struct mce_engine;
struct mce_mr;
struct mct_medium;
struct mce_peer;

#define MCE_NUMA_MAX 16u

struct mce_conf {
	/* Makes the connections between engines; NULL: mc_net_default().  Those of upstream's protocol and the messages
	 * between processes of a host are sockets always. */
	const struct mc_net *net;
	/* With a net whose peers prove an identity: is the peer of an incoming connection still admitted?  Called
	 * before the greeting is answered, then again and again, on I/O threads; false: the connection is closed.
	 * NULL: every peer is. */
	bool (*peer_admitted)(void *arg, const struct mc_principal *p);
	void *peer_arg;
	/* Makes the control connections of RDMA, over which keys of regions pass, where @net may send bytes without
	 * encryption; NULL: net. */
	const struct mc_net *control_net;
	/* Hosts that may connect to the ports of our own protocol and of upstream's; borrowed while the engine is open.
	 * NULL: all. */
	const struct mc_networks *networks;
	const char *host;	/* address to listen on and to advertise; NULL: 127.0.0.1 */
	const char *bind_host;	/* address to listen on when it differs, e.g. 0.0.0.0; NULL: host */
	int port;		/* 0: a free port, */
	int port_min, port_max;	/* in this range as long as one is free; 0: in any range */
	unsigned io_threads;	/* TCP threads, 0: 2 for each NUMA node */
	unsigned conns;		/* TCP connections per peer, 0: 2 for each NUMA node */
	uint64_t stripe_bytes;	/* a longer request is split over the connections; 0: 512 KiB */
	bool force_tcp;		/* never local or same-host paths (tests, measurements); upstream: MC_FORCE_TCP */
	/* RDMA: the NICs that are used, "mlx5_0,mlx5_1", in this order; "": all with an active port; NULL: no RDMA.
	 * Without a usable one the engine uses the other paths. */
	const char *rdma_devices;
	const char *rdma_filter;	/* with rdma_devices "": only these of them, "mlx5_0,mlx5_1"; NULL, "": all */
	bool rdma_wanted;	/* the user has asked for it: warn if there is no usable NIC */
	bool has_credential;	/* the process has one: RDMA needs mce_rdma_permission() */
	bool force_rdma;	/* also between processes of one host, which are otherwise never sent to a NIC */
	/* For RDMA with upstream's nodes: this node's name in NIC paths (upstream/setup.h), and a function that sends
	 * a message to a node's handshake service and returns its answer, malloc'ed.  NULL: not with those nodes. */
	const char *upstream_name;
	int (*upstream_setup)(const char *host, int port, const char *text, uint64_t deadline, char **ret_reply);
	const char *io_cpus;	/* "0-3,8": processors of the I/O threads, of those that the process may use;
				 * NULL, "" or none of these: any */
	/* A machine with several NUMA nodes, at most MCE_NUMA_MAX, the nearest to the network first: I/O thread i runs
	 * on the processors numa_cpus[i % numa_nodes], restricted like io_cpus.  The bytes of a region go over
	 * connections of its NUMA node while one of them is up.  numa_of() returns the index of the node that
	 * holds [@addr, @addr + @len); -ENODATA: no page is allocated yet; other negative values: several nodes, or
	 * unknown.  It is called from any thread and must not block.  numa_nodes 0 or 1: memory is uniform.
	 * The strings are not kept. */
	unsigned numa_nodes;
	const char *const *numa_cpus;
	int (*numa_of)(void *arg, const void *addr, uint64_t len);
	void *numa_arg;
	unsigned spin_us;	/* polling before sleep in I/O threads and waits */
	/* Incoming connections, half of them from one address; 0: a quarter of RLIMIT_NOFILE, at most 4096.  From three
	 * quarters on, and when the process has no free descriptor, the longest idle ones are closed for new ones. */
	uint32_t max_peers_in;
	uint64_t progress_timeout_ms; /* a connection that has work and moves no byte for this time is closed;
				 * 0: 30000 (upstream: MC_TCP_PROGRESS_TIMEOUT_SEC) */
	/* Serve upstream's nodes as well.  Port 0: a free one between upstream_port_min and _max (0: 15000
	 * and 17000; upstream: MC_MIN_RPC_PORT, MC_MAX_RPC_PORT).  Listens on bind_host, or like upstream on all
	 * addresses of both families when that is NULL. */
	bool upstream;
	int upstream_port, upstream_port_min, upstream_port_max;
	uint64_t status_timeout_ms; /* the connection to an upstream peer that owes an answer and sends nothing for
				 * this time is closed; 0: 30000 (upstream: MC_TCP_STATUS_TIMEOUT_SEC) */
};

/* Listen and start the I/O threads. */
int mce_engine_open(const struct mce_conf *conf, struct mce_engine **ret);
/* Fails the pending requests (-ECANCELED), closes all peers and unregisters all memory, so their handles become
 * invalid.  Takes up to 5 s while a peer that does not answer is being connected.  NULL is fine. */
void mce_engine_close(struct mce_engine *e);
const char *mce_engine_endpoint(const struct mce_engine *e);
/* Has it NICs that it uses? */
bool mce_engine_has_rdma(const struct mce_engine *e);
/* And some that upstream's nodes can use too, which excludes those of iWARP? */
bool mce_engine_has_upstream_rdma(const struct mce_engine *e);

/* Has the operator allowed RDMA beside a credential (MC_RDMA_WITH_SECURITY)?  1, 0, or -EINVAL with a detail: the value
 * is neither allow nor refuse. */
int mce_rdma_permission(void);
/* May an engine of this configuration use NICs?  1; 0: no, as a line in the log says; -EACCES with a detail: no, and
 * rdma_wanted is set; -EINVAL as above. */
int mce_rdma_check_permission(const struct mce_conf *conf);
enum mce_discovery { MCE_DISCOVERY_UNSET, MCE_DISCOVERY_ON, MCE_DISCOVERY_OFF };
/* Upstream's MC_MS_AUTO_DISC: 1, 0, or neither. */
enum mce_discovery mce_nics_discovery(void);
/* Set rdma_devices and rdma_filter of @conf, whose rdma_wanted is set: @named, the NICs that the user named (NULL, "":
 * none), or those that are discovered and in MC_MS_FILTERS.  MC_MS_AUTO_DISC=1 discovers them in any case, with a
 * warning that has the ignored names; 0 never: without names -EINVAL with a detail if they are wanted, else no RDMA.
 * With has_credential and without permission: -EACCES with a detail if they are wanted, else no RDMA.  The strings are
 * @named or the environment's. */
int mce_nics_choose(const char *named, struct mce_conf *conf);

/* ---- RDMA with upstream's nodes ----------------------------------------------------------------- */

#define MCE_NIC_NAME_MAX 64u
struct mce_nic_desc {
	char name[MCE_NIC_NAME_MAX];
	uint8_t gid[16];
	uint16_t lid;
	/* Set only for this engine's own NICs: */
	int gid_index;
	bool up, iwarp;
};
/* The engine's NICs, at most @max; their number. */
unsigned mce_engine_nics(const struct mce_engine *e, struct mce_nic_desc *ret, unsigned max);
/* The pairs of NICs that connect a peer, at most @max; their number.  @bytes: moved since the connection. */
struct mce_nic_pair {
	char nic[MCE_NIC_NAME_MAX], peer_nic[MCE_NIC_NAME_MAX];
	uint64_t bytes;
};
unsigned mce_peer_nic_pairs(const struct mce_peer *p, struct mce_nic_pair *ret, unsigned max);
/* A region is registered in parts of this many bytes, which have keys of their own; UINT64_MAX without NICs. */
uint64_t mce_mr_nic_part(const struct mce_mr *mr);
/* The keys of the part of a region that begins at byte @off, one for each NIC except for iWARP NICs, which upstream's
 * nodes do not use; 0: not registered there. */
void mce_mr_nic_keys(const struct mce_mr *mr, uint64_t off, uint32_t *rkeys, uint32_t *lkeys);

struct mce_upstream_region {
	uint64_t addr, len;
	const uint32_t *rkeys;	/* one for each NIC */
};
struct mce_upstream_node {
	const char *name;	/* in its NIC paths */
	const char *host;	/* host of its handshake service */
	int port;
	const struct mce_nic_desc *nics;
	unsigned nnics;
	const struct mce_upstream_region *regions;
	size_t nregions;
};
/* A peer that is reached over RDMA only; @node is from its descriptor.  A later call for the same address replaces the
 * earlier descriptor.  The key of a region in requests is its address.  -MC_ENOTSUP without NICs. */
int mce_peer_get_upstream_rdma(struct mce_engine *e, const struct mce_upstream_node *node, struct mce_peer **ret);
/* Answer a message of an upstream node that connects one of its NICs to one of ours; the answer is malloc'ed. */
int mce_engine_upstream_setup(struct mce_engine *e, const char *text, size_t len, char **ret_reply);
/* The port through which upstream's nodes may read and write this engine's regions, -1: none. */
int mce_engine_upstream_port(const struct mce_engine *e);

/* ---- fencing ------------------------------------------------------------------------------------
 *
 * The master gives every session of a client a fence number, larger than all before.  A WRITE carries the number of
 * the session that was granted its range, and so does every connection to an owner.  When the session has ended, the
 * master tells the owners to fence the client's engine up to that number, and reuses the ranges when they have
 * confirmed.  A fenced client can still read.  A number of 0 means that the request or engine takes no part in this. */

void mce_engine_nonce(const struct mce_engine *e, uint8_t ret[16]);
/* The number of this engine's present session: connections are greeted with it.  A WRITE with a lower number fails
 * with -ESTALE from now on, wherever it waits; connections with a lower number carry no WRITE any more. */
void mce_engine_set_fence(struct mce_engine *e, uint64_t fence);
/* Owner's side: the engine @nonce (NULL: every engine) may not write here any more with a number up to @upto: its
 * connections are closed, and new ones with such numbers are for reading.  0: no such write is carried out after
 * return.  -EAGAIN: a process on this host is still copying; call again later.  Any thread but an I/O thread. */
int mce_engine_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto);
/* The largest number that this engine has had, or has seen as an owner. */
uint64_t mce_engine_largest_fence(struct mce_engine *e);
/* Has a peer refused a WRITE of the present number?  Then the client needs a new session. */
bool mce_engine_is_fenced(const struct mce_engine *e);

/* ---- memory ------------------------------------------------------------------------------------ */

#define MCE_ACCESS_READ		0x1u	/* peers may read it */
#define MCE_ACCESS_WRITE	0x2u	/* peers may write it */

struct mce_mr_attr {
	void *base;
	uint64_t len;		/* > 0 */
	unsigned access;	/* MCE_ACCESS_*; 0: only local use (pins for RDMA) */
	/* With peers that prove identities (mce_conf.peer_admitted), those over TCP need a capability for each range
	 * (mce_mr_capability_key()).  Without, and on other paths, no effect. */
	bool guarded;
	int fd;			/* file that the memory maps shared, -1: none; stays the caller's */
	uint64_t fd_offset;	/* page aligned */
	unsigned numa;		/* 1 + index of its NUMA node, 0: ask mce_conf.numa_of() */
	uint32_t nics;		/* bit i: NIC i of the engine is near it; 0: those of its NUMA node */
	/* Not memory, but the bytes of a medium that are not addressable (tiers/tier.h); base is NULL, access is
	 * MCE_ACCESS_READ.  It is read through the medium's buffers, over TCP, and must outlive the region. */
	struct mct_medium *medium;
};

/* Register.  -EEXIST for a range that overlaps a registered one (upstream: ERR_ADDRESS_OVERLAPPED); -EINVAL
 * with a detail.  A region with a descriptor begins on a page, and its file must not become shorter. */
int mce_mr_register(struct mce_engine *e, const struct mce_mr_attr *attr, struct mce_mr **ret);
/* After return no peer can reach the memory through this engine: the call waits for copies of this process, aborts
 * requests that are being served over TCP, and later requests fail, also those of same-host peers.  A same-host peer
 * that is copying at this moment continues in the file's memory and then fails; it no longer uses this address range.
 * NULL is fine.  Not from an I/O thread. */
void mce_mr_unregister(struct mce_mr *mr);
uint64_t mce_mr_rkey(const struct mce_mr *mr);	/* random; a stale key never matches a new region */
/* The random key under which capabilities for a guarded region are signed (common/security/capability.h); offsets in
 * them begin at the region's first byte.  False: it needs none. */
bool mce_mr_capability_key(const struct mce_mr *mr, uint8_t ret[16]);
/* Capabilities expire by the clock of the master: it showed the Unix time @time_ms after mc_now_ms() was @asked_ms
 * here, and before this call.  Before the first call the clock of this host counts. */
void mce_engine_set_time(struct mce_engine *e, uint64_t time_ms, uint64_t asked_ms);
/* The address of its first byte for peers; for a medium one that is not mapped. */
uint64_t mce_mr_base(const struct mce_mr *mr);

/* ---- transfers --------------------------------------------------------------------------------- */

/* Peer handles are cached per endpoint and counted.  Does not connect: the first transfer does. */
int mce_peer_get(struct mce_engine *e, const char *endpoint, struct mce_peer **ret);
void mce_peer_put(struct mce_peer *p);
/* Can no ended WRITE of this engine change the peer's memory any more?  If one can, the lost connections are made
 * again in the background, which settles it: ask again later. */
bool mce_peer_settle(struct mce_peer *p);

/* A peer that speaks only upstream's TCP protocol, at @host:@port; cached like other peers.
 * @proto_version: tcp_proto_version of its segment (0: the segment has none, so 1); 2 and more mean 2.
 * Requests carry the address; rkey is ignored.  Differences:
 *	a request that the peer refuses ends with -ERANGE, whatever the reason; of a refused WRITE longer than
 *	  mce_conf.stripe_bytes the fragments that were inside a region are stored
 *	a WRITE completes when the peer has stored it, also with version 1: a READ of its last byte follows
 *	  it on the same connection, so the peer has to allow that READ
 *	a peer that vanishes ends a WRITE with -MC_ETRANSFER; the engine repeats the WRITE if the peer itself has
 *	  closed the connection */
int mce_peer_get_upstream(struct mce_engine *e, const char *host, int port, unsigned proto_version,
			  struct mce_peer **ret);

enum mce_op { MCE_READ, MCE_WRITE };	/* READ: from the peer into iov */
/* A transport each (engine/transport.h). */
enum mce_path {
	MCE_PATH_NONE, MCE_PATH_LOCAL, MCE_PATH_MAPPED, MCE_PATH_TCP, MCE_PATH_UPSTREAM, MCE_PATH_PROCESS_VM,
	MCE_PATH_RDMA, MCE_PATH_DISK, MCE_PATH_STAGED, MCE_PATHS
};
const char *mce_path_name(enum mce_path path);
/* How far the memory is that a path reaches; the nearest of several replicas is read. */
enum mce_distance {
	MCE_DISTANCE_OWN, MCE_DISTANCE_MAPPED,
	MCE_DISTANCE_HOST,	/* copied by the kernel; also assumed while the path is unknown */
	MCE_DISTANCE_NETWORK
};
enum mce_distance mce_path_distance(enum mce_path path);

/* Sums over the completed requests of a peer, by path ([0]: none); returns the bytes of those that are not
 * complete. */
struct mce_path_stats {
	uint64_t requests, bytes, errors;
};
uint64_t mce_peer_paths(const struct mce_peer *p, struct mce_path_stats ret[MCE_PATHS]);
/* Bytes that connections of NUMA node @numa have carried, or carry, for the peer. */
uint64_t mce_peer_on_numa_node(const struct mce_peer *p, unsigned numa);
const char *mce_peer_endpoint(const struct mce_peer *p);
/* @fn must not call the engine except for the three functions above. */
void mce_peers_each(struct mce_engine *e, void (*fn)(const struct mce_peer *p, void *arg), void *arg);

struct mce_batch;

/* One transfer.  All fields and the memory behind iov belong to the caller; they must stay unchanged and allocated
 * until the request is complete.  The fields from "filled in" on are the engine's. */
struct mce_req {
	enum mce_op op;
	struct mce_peer *peer;
	uint64_t addr;		/* in the peer's address space */
	uint64_t rkey;
	const struct mc_capability *cap;	/* for a guarded region, NULL: none; unchanged as the memory of iov */
	uint64_t fence;		/* WRITE: number of the session that was granted the range; 0: none */
	const struct iovec *iov;
	unsigned iovcnt;
	/* Checksums (common/crc32c.h): when crc is set, crc[i] becomes the CRC of the i-th
	 * MC_CRC_CHUNK bytes of the first crc_len bytes of the transfer, computed from the bytes that were actually
	 * stored (READ) or sent (WRITE).  They are valid when status is 0.  With crc_tail a WRITE
	 * also stores the array itself at addr + crc_len rounded up to 4, when it has more than one
	 * element; iov then holds crc_len bytes exactly. */
	uint32_t *crc;
	uint64_t crc_len;
	bool crc_tail;
	/* Hints for a request without device memory; they change nothing where they cannot be followed.  The path to
	 * offer it to first (MCE_PATH_NONE: the best one; MCE_PATH_TCP also means upstream's protocol,
	 * MCE_PATH_MAPPED any path of one host).  The NICs for RDMA, bits by index of mce_engine_nics() (0: those
	 * near its memory). */
	enum mce_path prefer;
	uint16_t nics;
	/* The caller has ordered its own work on the device memory in iov.  Otherwise copies begin after all work that
	 * the caller has given to the default stream (engine/gpu/gpu_i.h). */
	bool ordered;

	/* filled in */
	int status;		/* 0 or negative, once complete */
	enum mce_path path;	/* the one taken */
	struct mce_batch *batch;
	uint64_t priv[12];
};

/* A group of requests that is waited for together; embedded anywhere. */
struct mce_batch {
	uint32_t left;		/* futex: requests not complete, and a flag for a sleeper */
	uint32_t failed;
	/* For callers that do not wait; set after mce_batch_init().  Called each time the last request has
	 * completed, on the thread that completed it.  Must not block.  The batch must stay allocated until the call
	 * has returned. */
	void (*done)(void *arg);
	void *arg;
};
void mce_batch_init(struct mce_batch *b);
/* Count as a request that is not complete, between several mce_submit() of one batch. */
void mce_batch_hold(struct mce_batch *b);
void mce_batch_release(struct mce_batch *b);
unsigned mce_batch_left(const struct mce_batch *b);

/* Submit @n requests (an array).  They complete in any order; those on local and same-host paths complete
 * in the caller's thread before return.  Returns 0 always: failures are in each request's status. */
int mce_submit(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n);

/* Wait until all are complete.  0, or -MC_ETIMEDOUT at @deadline: then the unfinished requests are
 * cancelled, and the call returns only when the engine no longer uses their memory.  b->failed is the number of
 * failed requests.
 *
 * The destination of a failed WRITE has undefined contents, and may still change while its bytes are in transit.  It
 * no longer changes once a later WRITE of this engine to the same range has succeeded (except over the upstream
 * protocol, which has no means to fence old bytes: there it may change even then). */
int mce_batch_wait(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		   uint64_t deadline);
/* The same, but nothing is cancelled at @until: 0, or -EAGAIN when some are not complete.  The caller must call
 * mce_batch_wait() afterwards. */
int mce_batch_until(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		    uint64_t until);
bool mce_batch_done(const struct mce_batch *b);

/* For callers that watch single requests: the status, -EINPROGRESS until the request is complete. */
static inline int mce_req_status(const struct mce_req *req)
{
	return __atomic_load_n(&req->status, __ATOMIC_ACQUIRE);
}
static inline void mce_req_set_status(struct mce_req *req, int status)
{
	__atomic_store_n(&req->status, status, __ATOMIC_RELEASE);
}
/* Process completions on behalf of a caller that polls the status of @req, which was submitted. */
void mce_req_poll(struct mce_req *req);
/* For callers with a wait of their own: receive small amounts in this thread, until @reqs are complete or @deadline.
 * Returns at once when that would not pay.  All of @reqs were submitted, and no other thread is about to resubmit
 * them.  When requests to other peers join the batch meanwhile, their completion may be noticed up to 50 ms late. */
void mce_batch_lead(struct mce_batch *b, struct mce_req *reqs, unsigned n, uint64_t deadline);

/* A direct pointer for reading peer memory that is local or mapped (connects and maps when needed, within
 * @deadline).  NULL with *ret_err otherwise; -MC_ENOTSUP when the region can only be copied.
 * The bytes are valid until the region is unregistered or the peer ends; after that a mapped pointer shows stale
 * bytes.  It stays readable until mce_peer_put() of the last handle; a local pointer lives as long as the memory. */
const void *mce_peer_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len,
			 uint64_t deadline, int *ret_err);

#endif
