/* SPDX-License-Identifier: Apache-2.0
 * mce.h - the transfer engine: move bytes between local memory and registered memory of a peer.
 *
 * A peer is named by its endpoint "host:port" (that of mce_engine_endpoint()).  Its memory is
 * addressed as upstream does it, by the owner's virtual address, and guarded by the region's key.
 * The path is chosen per (peer, region), best first:
 *	local	the memory is this engine's own: memcpy
 *	mapped	same host (boot id and network namespace agree, and the peer's unix socket leads to the same
 *		process as the TCP connection; never the address) and the region has a descriptor: it is
 *		mapped once, then memcpy
 *	tcp	persistent lanes, several I/O threads, pipelined, straight into the destination
 *	upstream  upstream's TCP protocol, the one path to a peer of mce_peer_get_upstream()
 *
 * What a request can end with, the same on every path:
 *	-ESTALE		no region of that key: never was, or is unregistered
 *	-ERANGE		the transfer is not wholly inside the region; nothing was touched
 *	-EACCES		the region does not allow it
 *	-EINVAL		the request contradicts itself
 *	-MC_ETRANSFER	the peer cannot be reached, or was lost too often on the way, or its user has
 *			protected the memory, unmapped it, or cut its file short
 *	-MC_EVERSION	it speaks another protocol
 *	-MC_ETIMEDOUT	the waiter's deadline
 *	-MC_EINTERNAL	the peer refuses it for a reason that has no meaning here
 *	-MC_ELIMIT	too many peers are being connected at this time
 *	-ECANCELED	the engine was closed
 * A WRITE that failed for one of the last six may have stored any part of its bytes, and over TCP may
 * still store some for as long as the peer needs to take what is in its socket: its range should not
 * be given to others at once.  (A peer that stood still for 2 s drops what piled up meanwhile.)
 *
 * Threads: everything may be called from any thread, but closing the engine and putting the last handle
 * of a peer may not overlap with other uses of them.  A forked child has no use of its parent's engine:
 * its transfers, and asking for peers and pointers, fail with -MC_EUNAVAILABLE.
 *
 * Upstream's nodes are spoken to, and listened to, in upstream's own TCP protocol.  It knows no keys, so
 * whoever can connect to the upstream port may use the regions as their access bits say; nothing of it
 * is open unless asked for. */
#ifndef MCE_H
#define MCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct mce_engine;
struct mce_mr;
struct mce_peer;

#define MCE_NUMA_MAX 16u

struct mce_conf {
	const char *host;	/* address to listen on and to advertise; NULL: 127.0.0.1 */
	const char *bind_host;	/* address to listen on when it differs, e.g. 0.0.0.0; NULL: host */
	int port;		/* 0: a free one, */
	int port_min, port_max;	/* of these, as long as there are any; 0: of all */
	unsigned io_threads;	/* TCP threads, 0: 2 for each place */
	unsigned lanes;		/* TCP connections per peer, 0: 2 for each place */
	uint64_t stripe_bytes;	/* a longer request is split over the lanes; 0: 512 KiB */
	bool force_tcp;		/* never local or mapped (tests, measurements); upstream: MC_FORCE_TCP */
	const char *io_cpus;	/* "0-3,8": where the I/O threads run, of those that the process may use;
				 * NULL, "" or none of these: anywhere */
	/* A machine whose processors and memory fall into places (NUMA nodes), at most MCE_NUMA_MAX, the
	 * nearest to the network first: I/O thread i runs on the processors of place_cpus[i % places], as
	 * with io_cpus, and the bytes of a region go over lanes of the place that it lies at, as long as one
	 * of these is up.  place_of(): where [@addr, @addr + @len) lies, -ENODATA: no page of it is there
	 * yet, other negative values: at several places, or nobody knows; from any thread, must not block.
	 * places 0 or 1: memory is all alike.  The texts are not kept. */
	unsigned places;
	const char *const *place_cpus;
	int (*place_of)(void *arg, const void *addr, uint64_t len);
	void *place_arg;
	unsigned spin_us;	/* polling before sleep in I/O threads and waits */
	uint32_t max_peers_in;	/* incoming connections, 0: 4096 */
	uint64_t progress_timeout_ms; /* a lane that moves nothing for so long with work on it is dropped;
				 * 0: 30000 (upstream: MC_TCP_PROGRESS_TIMEOUT_SEC) */
	/* Serve upstream's nodes as well.  Port 0: a free one between upstream_port_min and _max (0: 15000
	 * and 17000; upstream: MC_MIN_RPC_PORT, MC_MAX_RPC_PORT).  Like bind_host, but all addresses of
	 * both families when that is NULL, as upstream does it. */
	bool upstream;
	int upstream_port, upstream_port_min, upstream_port_max;
	uint64_t status_timeout_ms; /* an upstream peer that owes an answer and sends nothing for so long
				 * is given up; 0: 30000 (upstream: MC_TCP_STATUS_TIMEOUT_SEC) */
};

/* Listen and start the I/O threads. */
int mce_engine_open(const struct mce_conf *conf, struct mce_engine **ret);
/* Fails what is under way (-ECANCELED), closes all peers, unregisters all memory: their handles are gone
 * too.  Takes up to 5 s when a peer that does not answer is just being connected.  NULL is fine. */
void mce_engine_close(struct mce_engine *e);
const char *mce_engine_endpoint(const struct mce_engine *e);
/* The port that upstream's nodes may read and write this engine's regions through, -1: none. */
int mce_engine_upstream_port(const struct mce_engine *e);

/* ---- memory ------------------------------------------------------------------------------------ */

#define MCE_ACCESS_READ		0x1u	/* peers may read it */
#define MCE_ACCESS_WRITE	0x2u	/* peers may write it */

struct mce_mr_attr {
	void *base;
	uint64_t len;		/* > 0 */
	unsigned access;	/* MCE_ACCESS_*; 0: only local use (pins for RDMA) */
	int fd;			/* file the memory is a shared mapping of, -1: none; stays the caller's */
	uint64_t fd_offset;	/* page aligned */
	unsigned place;		/* 1 + the place that it lies at, 0: mce_conf.place_of() tells */
};

/* Register.  -EEXIST for a range that overlaps a registered one (upstream: ERR_ADDRESS_OVERLAPPED); -EINVAL
 * with a detail.  A region with a descriptor begins on a page and its file must not become shorter. */
int mce_mr_register(struct mce_engine *e, const struct mce_mr_attr *attr, struct mce_mr **ret);
/* After return no peer can reach the memory through this engine: copies of this process are waited for,
 * requests being served over TCP are refused in the middle, later ones fail, on same-host peers too.  A
 * copy that such a peer is just making goes on in the file's memory and then fails; it no longer uses
 * this address range.  NULL is fine.  Not from an I/O thread. */
void mce_mr_unregister(struct mce_mr *mr);
uint64_t mce_mr_rkey(const struct mce_mr *mr);	/* random; a stale key never matches a new region */

/* ---- transfers --------------------------------------------------------------------------------- */

/* Peer handles are cached per endpoint and counted.  Does not connect: the first transfer does. */
int mce_peer_get(struct mce_engine *e, const char *endpoint, struct mce_peer **ret);
void mce_peer_put(struct mce_peer *p);

/* A peer that speaks upstream's TCP protocol at @host:@port and nothing else, cached like others.
 * @proto_version: what its segment says (tcp_proto_version; 0: it does not, so 1); 2 and more mean 2.
 * Requests carry the address; rkey is ignored.  What differs:
 *	a request that the peer refuses ends with -ERANGE, for whatever reason; of a WRITE longer than
 *	  mce_conf.stripe_bytes the parts that were inside a region are stored then
 *	a WRITE is complete when it is stored there, with version 1 too: a READ of its last byte follows
 *	  it down the same connection, so the peer has to allow that
 *	a peer that vanishes ends a WRITE with -MC_ETRANSFER, or it is repeated when the peer itself has
 *	  closed the connection */
int mce_peer_get_upstream(struct mce_engine *e, const char *host, int port, unsigned proto_version,
			  struct mce_peer **ret);

enum mce_op { MCE_READ, MCE_WRITE };	/* READ: from the peer into iov */
enum mce_path {
	MCE_PATH_NONE, MCE_PATH_LOCAL, MCE_PATH_MAPPED, MCE_PATH_TCP, MCE_PATH_UPSTREAM,
	MCE_PATH_PROCESS_VM,
};

#define MCE_PATHS 6
const char *mce_path_name(enum mce_path path);

/* What has become of the requests to a peer, by the path they took ([0]: none); the result is the bytes
 * of those that are not complete. */
struct mce_path_stats {
	uint64_t requests, bytes, errors;
};
uint64_t mce_peer_paths(const struct mce_peer *p, struct mce_path_stats ret[MCE_PATHS]);
/* Bytes that lanes of @place were given for the peer. */
uint64_t mce_peer_on_numa_node(const struct mce_peer *p, unsigned place);
const char *mce_peer_endpoint(const struct mce_peer *p);
/* @fn must not call the engine but for the three above. */
void mce_peers_each(struct mce_engine *e, void (*fn)(const struct mce_peer *p, void *arg), void *arg);

struct mce_batch;

/* One transfer.  All fields and the memory behind iov belong to the caller and must not change or go
 * away until the request is complete.  The part from "filled in" on is the engine's. */
struct mce_req {
	enum mce_op op;
	struct mce_peer *peer;
	uint64_t addr;		/* in the peer's address space */
	uint64_t rkey;
	const struct iovec *iov;
	unsigned iovcnt;
	/* Checksums (common/crc32c.h): when crc is set, crc[i] becomes the CRC of the i-th
	 * MC_CRC_CHUNK bytes of the first crc_len bytes of the transfer, taken from what was really
	 * stored (READ) or sent (WRITE).  They are valid when status is 0.  With crc_tail a WRITE
	 * also stores the array itself at addr + crc_len rounded up to 4, when it has more than one
	 * element; iov then holds crc_len bytes exactly. */
	uint32_t *crc;
	uint64_t crc_len;
	bool crc_tail;

	/* filled in */
	int status;		/* 0 or negative, once complete */
	enum mce_path path;	/* the one taken */
	struct mce_batch *batch;
	struct mce_req *next;
	uint64_t priv[12];
};

/* A group of requests that is waited for together; embedded anywhere. */
struct mce_batch {
	uint32_t left;		/* futex: requests not complete, and a flag for a sleeper */
	uint32_t failed;
	/* Set after mce_batch_init() by who does not wait: called each time the last request has
	 * completed, on the thread that completed it.  Must not block.  The batch has to stay until it
	 * has run. */
	void (*done)(void *arg);
	void *arg;
};
void mce_batch_init(struct mce_batch *b);
/* Count as a request that is not complete, between several mce_submit() of one batch. */
void mce_batch_hold(struct mce_batch *b);
void mce_batch_release(struct mce_batch *b);
unsigned mce_batch_left(const struct mce_batch *b);

/* Hand over @n requests (an array).  They complete in any order; those on local and mapped paths are
 * done in the caller's thread before return.  0 always: failures are in each request's status. */
int mce_submit(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n);

/* Wait until all are complete.  0, or -MC_ETIMEDOUT at @deadline: then the unfinished requests are
 * cancelled and the call returns only when the engine has let go of their memory. Returns the number
 * of failed requests via b->failed.
 *
 * Where a WRITE was to go that did not end well, anything may lie, and for as long as its bytes are under way it
 * may still change; not any more once a later WRITE of this engine to the same place has succeeded (over the upstream
 * protocol, which has nothing to tell by, it may even then). */
int mce_batch_wait(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		   uint64_t deadline);
/* The same, but at @until nothing is cancelled: 0, or -EAGAIN when some are not complete.  mce_batch_wait() has to
 * follow. */
int mce_batch_until(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		    uint64_t until);
bool mce_batch_done(const struct mce_batch *b);

/* For who looks at single requests: the status, -EINPROGRESS until it is complete; and a look for
 * completions on behalf of who looks again and again, of a request that was submitted. */
static inline int mce_req_status(const struct mce_req *req)
{
	return __atomic_load_n(&req->status, __ATOMIC_ACQUIRE);
}
static inline void mce_req_set_status(struct mce_req *req, int status)
{
	__atomic_store_n(&req->status, status, __ATOMIC_RELEASE);
}
void mce_req_poll(struct mce_req *req);
/* For who waits for @reqs in its own way: receive what is little in this thread, until all are complete or
 * @deadline.  Returns at once when that would not pay.  All were submitted and nobody else is about to submit them
 * again; when requests to other peers join the batch meanwhile, their end may be seen up to 50 ms late. */
void mce_batch_lead(struct mce_batch *b, struct mce_req *reqs, unsigned n, uint64_t deadline);

/* One request, waited for. */
int mce_transfer(struct mce_engine *e, struct mce_req *req, uint64_t deadline);

/* A direct pointer to peer memory that is local or mapped (connects and maps when needed, within
 * @deadline), for reading; NULL with *ret_err otherwise, -MC_ENOTSUP when the region is only to be had
 * over TCP.  Good until the region's unregister or the peer's end, after which a mapped pointer gives
 * stale bytes, and readable until mce_peer_put() of the last handle; a local one is as good as the
 * memory itself. */
const void *mce_peer_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len,
			 uint64_t deadline, int *ret_err);

#endif
