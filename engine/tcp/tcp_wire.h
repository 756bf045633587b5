/* SPDX-License-Identifier: Apache-2.0
 * tcp_wire.h - the wire protocol of connections between our engines.  Little-endian, layouts at fixed offsets; every
 * frame contains its own length, and fields that a newer peer appends are skipped.
 *
 * The first eight bytes distinguish our protocol from upstream's on the same port: upstream would read
 * them as a length above 2^63, which neither its data header nor its handshake frame can have.
 *
 *	client: GREETING, then requests; the server answers each, in any order
 *	server: GREETING, then responses
 *
 * Where both greetings have MCE_FEATURE_ACK_UPTO, WRITEs are numbered in the order in which they are sent, and
 * one ACK_UPTO answers all WRITEs up to a number that have no answer of their own yet: they are stored.  A refused
 * WRITE has its own ACK, which is sent before any ACK_UPTO that covers its number.
 *
 * A connection is named by (token, conn).  When a greeting has a higher epoch, the server ends the older connection
 * of that name before it answers the greeting: after that it carries out no request of the old
 * connection, so its WRITEs may be repeated.
 *
 * A greeting's fence is the client's number of mce_engine_set_fence().  A client sends a WRITE only on a connection
 * that was greeted with the number of that WRITE.  When the number is fenced, the server closes its connections; on
 * new ones with that number it refuses WRITEs with "put is no longer open".
 *
 * Capabilities (common/security/capability.h): a region that is registered with mce_mr_attr.guarded is read and written
 * only with one.  The owner checks that it is genuine for the serial number of the credential with which the peer
 * made the connection, that it has not expired, and that all of [whole, whole + whole_len) is in its range, for each
 * request: also for each fragment.  A client adds it to the header where both greetings have MCE_FEATURE_CAPS. */
#ifndef MCE_TCP_WIRE_H
#define MCE_TCP_WIRE_H

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/security/capability.h"
#include "engine/engine_i.h"

#define MCE_WIRE_VERSION 1u
#define MCE_WIRE_VERSION_MIN 1u
/* Bits of a greeting's features; a feature is used when both sides have it. */
#define MCE_FEATURE_ACK_UPTO 1ull
#define MCE_WIRE_FEATURES MCE_FEATURE_ACK_UPTO
/* Sent by engines whose connections prove identities (mce_conf.peer_admitted). */
#define MCE_FEATURE_CAPS 4ull
/* Server: it has NICs.  Client, on connection MCE_CONTROL_CONN: after the greetings this is a control connection
 * (engine/rdma/rdma_i.h). */
#define MCE_FEATURE_RDMA 2ull
#define MCE_CONTROL_CONN 0xffff0000u

static inline uint64_t mce_wire_features(const struct mce_engine *e)
{
	return MCE_WIRE_FEATURES | (mce_proves_identities(e) ? MCE_FEATURE_CAPS : 0);
}

/* Limits of one connection.  The server announces its own in the greeting; the client keeps to the lesser. */
#define MCE_WIRE_LEN_MAX (16u << 20)	/* bytes of one request */
#define MCE_READ_MAX (1u << 20)		/* bytes of one READ: it may need a buffer of its owner's medium */
#define MCE_WIRE_WINDOW 256u		/* requests under way */

#define MCE_GREETING_SIZE 128u
#define MCE_GREETING_MAX 4096u
#define MCE_MAGIC_SIZE 8u
static const uint8_t mce_wire_magic[MCE_MAGIC_SIZE] = { 'M', 'C', 'E', 'L', 'A', 'N', 'E', 0xf1 };

struct mce_greeting {
	uint32_t size;		/* bytes of the whole greeting, set by unpack */
	uint16_t version, version_min;
	int32_t status;		/* server: 0 or a wire status, then it closes */
	uint64_t features;
	uint64_t token;		/* client */
	uint32_t conn, epoch;	/* client */
	struct mce_id id;
	uint32_t len_max;	/* server */
	uint32_t window;	/* server */
	uint64_t fence;		/* client; 0: none */
};

/* Sizes of headers as they are sent, and the minimum that is accepted.  Whole cache lines are sent, so that payloads
 * stay aligned in the kernel's buffers: unaligned copies cost up to half as much again. */
#define MCE_REQ_SIZE 64u
#define MCE_REQ_MIN 48u
#define MCE_REQ_SEQ 56u		/* with the number */
#define MCE_REQ_CAP 64u		/* where the capability begins */
#define MCE_REQ_CAP_MIN 112u	/* with the capability */
#define MCE_REQ_CAP_SIZE 128u	/* the same, as it is sent */
#define MCE_RESP_SIZE 64u
#define MCE_RESP_MIN 24u
#define MCE_HDR_MAX 256u

enum mce_frame {
	MCE_FRAME_READ = 1,
	MCE_FRAME_WRITE,
	MCE_FRAME_DATA,
	MCE_FRAME_ACK,
	MCE_FRAME_ACK_UPTO,
};

/* READ, WRITE; a WRITE is followed by len bytes.  The request may be a fragment of a transfer: all of [whole,
 * whole + whole_len) has to be in the region, so that a transfer that is partly outside changes no byte. */
struct mce_wire_req {
	uint8_t type;
	uint16_t hlen;		/* bytes of this header, set by unpack */
	uint32_t len;
	uint64_t id, addr, rkey;
	uint64_t whole, whole_len;
	uint64_t seq;		/* WRITE: its number, from 1; 0: the client does not number them */
};

struct mce_wire_resp {	/* DATA, followed by len bytes; ACK; ACK_UPTO */
	uint8_t type;
	uint16_t hlen;
	uint32_t len;
	uint64_t id;		/* id of the request; ACK_UPTO: the number of the last finished WRITE */
	int32_t status;		/* 0 or a wire status, then len is 0 */
};

static inline void mce_put16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, 2);
}
static inline void mce_put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}
static inline void mce_put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, 8);
}
static inline uint16_t mce_get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, 2);
	return le16toh(v);
}
static inline uint32_t mce_get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}
static inline uint64_t mce_get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return le64toh(v);
}

static inline void mce_greeting_pack(uint8_t b[MCE_GREETING_SIZE], const struct mce_greeting *g)
{
	memset(b, 0, MCE_GREETING_SIZE);
	memcpy(b, mce_wire_magic, MCE_MAGIC_SIZE);
	mce_put32(b + 8, MCE_GREETING_SIZE);
	mce_put16(b + 12, g->version);
	mce_put16(b + 14, g->version_min);
	mce_put32(b + 16, (uint32_t)g->status);
	mce_put64(b + 24, g->features);
	mce_put64(b + 32, g->token);
	mce_put32(b + 40, g->conn);
	mce_put32(b + 44, g->epoch);
	memcpy(b + 48, g->id.nonce, 16);
	memcpy(b + 64, g->id.boot, 16);
	mce_put64(b + 80, g->id.netns_dev);
	mce_put64(b + 88, g->id.netns_ino);
	mce_put32(b + 96, g->len_max);
	mce_put32(b + 100, g->window);
	mce_put64(b + 104, g->fence);
}

/* Each unpack: bytes of the frame, 0 when more are needed, -MC_EPROTO. */

static inline int mce_greeting_unpack(const uint8_t *b, size_t n, struct mce_greeting *ret)
{
	size_t known = n < MCE_MAGIC_SIZE ? n : MCE_MAGIC_SIZE;
	uint32_t size;

	if (memcmp(b, mce_wire_magic, known))
		return -MC_EPROTO;
	if (n < 12)
		return 0;
	size = mce_get32(b + 8);
	if (size < MCE_GREETING_SIZE || size > MCE_GREETING_MAX)
		return -MC_EPROTO;
	if (n < size)
		return 0;
	ret->size = size;
	ret->version = mce_get16(b + 12);
	ret->version_min = mce_get16(b + 14);
	ret->status = (int32_t)mce_get32(b + 16);
	ret->features = mce_get64(b + 24);
	ret->token = mce_get64(b + 32);
	ret->conn = mce_get32(b + 40);
	ret->epoch = mce_get32(b + 44);
	memcpy(ret->id.nonce, b + 48, 16);
	memcpy(ret->id.boot, b + 64, 16);
	ret->id.netns_dev = mce_get64(b + 80);
	ret->id.netns_ino = mce_get64(b + 88);
	ret->len_max = mce_get32(b + 96);
	ret->window = mce_get32(b + 100);
	ret->fence = mce_get64(b + 104);
	return (int)size;
}

static inline void mce_req_pack(uint8_t b[MCE_REQ_SIZE], const struct mce_wire_req *q)
{
	b[0] = q->type;
	b[1] = 0;
	mce_put16(b + 2, MCE_REQ_SIZE);
	mce_put32(b + 4, q->len);
	mce_put64(b + 8, q->id);
	mce_put64(b + 16, q->addr);
	mce_put64(b + 24, q->rkey);
	mce_put64(b + 32, q->whole);
	mce_put64(b + 40, q->whole_len);
	mce_put64(b + MCE_REQ_MIN, q->seq);
	memset(b + MCE_REQ_SEQ, 0, MCE_REQ_SIZE - MCE_REQ_SEQ);
}

static inline int mce_req_unpack(const uint8_t *b, size_t n, struct mce_wire_req *ret)
{
	uint16_t hlen;

	if (n < MCE_REQ_MIN)
		return 0;
	hlen = mce_get16(b + 2);
	ret->type = b[0];
	ret->hlen = hlen;
	ret->len = mce_get32(b + 4);
	ret->id = mce_get64(b + 8);
	ret->addr = mce_get64(b + 16);
	ret->rkey = mce_get64(b + 24);
	ret->whole = mce_get64(b + 32);
	ret->whole_len = mce_get64(b + 40);
	ret->seq = hlen >= MCE_REQ_SEQ && n >= MCE_REQ_SEQ ? mce_get64(b + MCE_REQ_MIN) : 0;
	if (hlen < MCE_REQ_MIN || hlen > MCE_HDR_MAX || ret->len > MCE_WIRE_LEN_MAX ||
	    (ret->type != MCE_FRAME_READ && ret->type != MCE_FRAME_WRITE))
		return -MC_EPROTO;
	return n < hlen ? 0 : hlen;
}

/* Add a capability to a packed header. */
static inline void mce_req_pack_cap(uint8_t b[MCE_REQ_CAP_SIZE], const struct mc_capability *c)
{
	uint8_t *p = b + MCE_REQ_CAP;

	mce_put16(b + 2, MCE_REQ_CAP_SIZE);
	mce_put64(p, c->offset);
	mce_put64(p + 8, c->len);
	mce_put64(p + 16, c->generation);
	mce_put32(p + 24, c->expires_s);
	mce_put32(p + 28, c->rights);
	memcpy(p + 32, c->mac, MC_CAPABILITY_MAC);
	memset(b + MCE_REQ_CAP_MIN, 0, MCE_REQ_CAP_SIZE - MCE_REQ_CAP_MIN);
}

/* The capability in a whole header of @hlen bytes; false: it has none. */
static inline bool mce_req_unpack_cap(const uint8_t *b, uint16_t hlen, struct mc_capability *ret)
{
	const uint8_t *p = b + MCE_REQ_CAP;

	if (hlen < MCE_REQ_CAP_MIN)
		return false;
	ret->offset = mce_get64(p);
	ret->len = mce_get64(p + 8);
	ret->generation = mce_get64(p + 16);
	ret->expires_s = mce_get32(p + 24);
	ret->rights = (uint8_t)mce_get32(p + 28);
	memcpy(ret->mac, p + 32, MC_CAPABILITY_MAC);
	return true;
}

static inline void mce_resp_pack(uint8_t b[MCE_RESP_SIZE], const struct mce_wire_resp *q)
{
	b[0] = q->type;
	b[1] = 0;
	mce_put16(b + 2, MCE_RESP_SIZE);
	mce_put32(b + 4, q->len);
	mce_put64(b + 8, q->id);
	mce_put32(b + 16, (uint32_t)q->status);
	mce_put32(b + 20, 0);
	memset(b + MCE_RESP_MIN, 0, MCE_RESP_SIZE - MCE_RESP_MIN);
}

static inline int mce_resp_unpack(const uint8_t *b, size_t n, struct mce_wire_resp *ret)
{
	uint16_t hlen;

	if (n < MCE_RESP_MIN)
		return 0;
	hlen = mce_get16(b + 2);
	ret->type = b[0];
	ret->hlen = hlen;
	ret->len = mce_get32(b + 4);
	ret->id = mce_get64(b + 8);
	ret->status = (int32_t)mce_get32(b + 16);
	if (hlen < MCE_RESP_MIN || hlen > MCE_HDR_MAX || ret->len > MCE_WIRE_LEN_MAX ||
	    ret->type < MCE_FRAME_DATA || ret->type > MCE_FRAME_ACK_UPTO ||
	    (ret->len && (ret->type != MCE_FRAME_DATA || ret->status)) ||
	    (ret->type == MCE_FRAME_ACK_UPTO && ret->status))
		return -MC_EPROTO;
	return n < hlen ? 0 : hlen;
}

#endif
