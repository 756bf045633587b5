/* SPDX-License-Identifier: Apache-2.0
 * mcfs_ring.h - the protocol between programs and the node's daemon (mcfs, mooncake_client): a unix socket for
 * the greeting and to hand over memory, and rings in shared memory for all other requests.  Most programs use
 * mcs.h, which speaks this protocol.
 *
 * The socket is SOCK_SEQPACKET, one struct mcfs_msg per packet, in native byte order.  Each request of the
 * client is answered by one packet of the same type, in order, with a status.
 *
 *	HELLO				token, nsegments, clock_ns, text: the master's address, NUL,
 *					the name of the node's segments, NUL, the tenant whose keys
 *					these are ("": the default tenant)
 *	SEGMENT id			size, kind, and a read-only descriptor of the segment
 *	BUFFER size, and a memfd	id: from now on operations may name (id, offset, length)
 *	UNBUFFER id			no operation uses the memory any more
 *	RING entries, size of arena	the ring's descriptor: size bytes to map shared
 *
 * A buffer is a memfd that cannot shrink (F_SEAL_SHRINK; the daemon sets the seal if it may).  The daemon does not
 * allocate its pages: a GET or PUT whose ranges contain a page that was never touched, or that is swapped out, is
 * refused with -EFAULT before it begins.  The client touches the pages (MADV_POPULATE_READ) and repeats the
 * request.  The client must run as the daemon's user, as root, or as a user that the daemon's options name.  When the
 * connection ends, also by kill -9, its rings, buffers and pins are freed.  The daemon closes its side when it has
 * released all memory of the client, and sets a ring's `closed` when no request of that ring is running any more.
 * A client that stops waiting for an answer shuts the socket down for writing, and waits for either event before it
 * reuses the memory.
 *
 * A ring has one user at a time on each side.  The client fills the entry at sq_tail & (entries - 1), then
 * increments sq_tail (release), and wakes the daemon (futex on sq_tail) if sq_sleep is set.  Answers arrive at
 * cq_tail in the same way; the client sets cq_head when it has read them, and cq_sleep while it sleeps on cq_tail.
 * Each entry gets one answer, not always in the order of the requests.  The daemon takes no new entries while there
 * is no space for their answers.  It copies an entry, its key and its lists before it checks them: later changes have
 * no effect. */
#ifndef MOONCAKE_MCFS_RING_H
#define MOONCAKE_MCFS_RING_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCFS_RING_MAGIC 0x676e6972u
#define MCFS_RING_VERSION 1u

/* Name of the socket in the abstract name space, by the daemon's port. */
#define MCFS_SOCKET_FORMAT "mooncake_client_%d.sock"
#define MCFS_SOCKET_PORT 50052

enum mcfs_msg_type {
	MCFS_MSG_HELLO = 1, MCFS_MSG_SEGMENT, MCFS_MSG_BUFFER, MCFS_MSG_UNBUFFER, MCFS_MSG_RING
};

struct mcfs_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	int32_t status;		/* answers: 0, or negative as in mcs.h */
	uint32_t id;
	uint64_t size;
	uint64_t token;		/* names the connection in ioctls */
	uint32_t entries;	/* a ring's size: a power of two, 2 to MCFS_RING_ENTRIES_MAX */
	uint32_t nsegments;
	uint64_t clock_ns;	/* the daemon's CLOCK_MONOTONIC; 0: it does not support MCFS_SQE_DEADLINE */
	uint64_t reserved[2];
	char text[192];
};

#define MCFS_RING_ENTRIES_MAX 8192u
#define MCFS_RING_ARENA_MAX (16u << 20)
#define MCFS_RING_KEY_MAX 4096u

struct mcfs_ring {
	uint32_t magic, version;
	uint32_t entries;
	uint32_t reserved;
	uint64_t sq_offset, cq_offset;	/* offsets of the arrays from the beginning of this struct */
	uint64_t arena_offset, arena_size; /* keys and lists of the requests; written by the client */
	/* positions, grouped by the side that writes them, on separate cache lines */
	uint32_t sq_tail __attribute__((aligned(64)));	/* client */
	uint32_t sq_head __attribute__((aligned(64)));	/* daemon */
	uint32_t sq_sleep;				/* daemon */
	uint32_t cq_tail __attribute__((aligned(64)));	/* daemon */
	uint32_t closed;				/* daemon: it has ended */
	uint32_t cq_head __attribute__((aligned(64)));	/* client */
	uint32_t cq_sleep;				/* client */
};

enum mcfs_ring_op {
	MCFS_RING_NOP,		/* result 0 */
	MCFS_RING_GET,		/* read the object from offset on into the buffer; result: number of bytes */
	MCFS_RING_PUT,		/* result 1: stored; 0: the key has a value already */
	MCFS_RING_EXIST,	/* result 1 or 0 */
	MCFS_RING_STAT,		/* result 0 and the answer's fields */
	MCFS_RING_PIN,		/* result 0, and the object's segment and offset, valid until UNPIN */
	MCFS_RING_UNPIN,	/* release `pin` */
	MCFS_RING_REMOVE,
	MCFS_RING_HELD,		/* is `pin` held? 0, or -MCS_EREPLICA_GONE, as mcs_object_held() */
	MCFS_RING_PREFETCH,	/* copy the object to this node; answered when it is there */
	MCFS_RING_OPS
};

#define MCFS_SQE_WHOLE		0x01u	/* GET: an object larger than the buffer is -ENOBUFS */
#define MCFS_SQE_HOT		0x02u	/* PIN: accept the version that the node knew lately (MCS_MAP_HOT) */
#define MCFS_SQE_FORCE		0x04u	/* REMOVE: as MCS_REMOVE_FORCE */
/* All but NOP, UNPIN, HELD: `pin` is an absolute deadline in ns of the daemon's clock (a client
 * in another time namespace has another clock), used instead of timeout_ms.  After it nothing is
 * started and no put committed. The daemon limits it to ten minutes from now. */
#define MCFS_SQE_DEADLINE	0x08u

struct mcfs_sqe {
	uint8_t op;
	uint8_t flags;
	uint16_t key_len;	/* 1 to 4096 */
	uint32_t key;		/* its offset in the arena */
	uint32_t buffer;
	uint32_t nranges;	/* not 0: `at` is the arena offset of that many struct mcfs_ring_range */
	uint64_t at;		/* offset in the buffer */
	uint64_t len;
	uint64_t offset;	/* GET: in the object */
	uint64_t pin;		/* UNPIN, HELD */
	uint32_t timeout_ms;	/* counted from when the daemon sees the entry; 0: its default */
	uint32_t put;		/* PUT: arena offset of a struct mcfs_ring_put; ~0u: none */
	uint64_t tag;		/* returned with the answer */
};

#define MCFS_RING_RANGES_MAX 1024u
struct mcfs_ring_range {
	uint32_t buffer, reserved;
	uint64_t at, len;
};

struct mcfs_ring_put {		/* as in struct mcs_put_opts */
	uint32_t flags, replicas, soft_pin_ms;
	uint8_t kind, soft_pin, data_type;
	uint8_t nof_replicas;		/* with MCS_PUT_NOF in @flags */
	uint32_t group, group_len;	/* in the arena */
	/* In the arena: names that end in NUL, without gaps.  With nof_replicas an empty name, and after it those of
	 * preferred_nof, follow. */
	uint32_t preferred, preferred_len;
};
#define MCFS_RING_PREFERRED_MAX 4096u

struct mcfs_cqe {
	uint64_t tag;
	int64_t result;		/* negative: as in mcs.h */
	/* PIN, STAT */
	uint64_t generation, size, mtime_ms;
	uint64_t offset;	/* PIN: in the segment; STAT: remaining time of the soft pin, in ms */
	uint64_t pin;
	uint32_t crc32c;
	uint8_t segment;	/* PIN */
	uint8_t kind;		/* enum mcs_kind, and enum mcs_data_type in the upper four bits */
	uint8_t flags, replicas; /* as in struct mcs_info */
};

#ifdef __cplusplus
}
#elif __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct mcfs_msg) == 256 && sizeof(struct mcfs_sqe) == 64 &&
	       sizeof(struct mcfs_cqe) == 64 && sizeof(struct mcfs_ring) == 320, "ABI");
#endif

#endif
