/* SPDX-License-Identifier: Apache-2.0
 * upstream_wire.h - messages of upstream's TCP protocol.  Little-endian.
 *
 *	request: { u64 size, u64 addr, u8 op, 7 ignored bytes }, for a WRITE followed by size bytes
 *	version 1: the answer to a READ is its bytes, a WRITE has no answer
 *	version 2: the answer is a status { u32 code, u32 magic }, for a READ followed by its bytes.  A
 *	WRITE's status is sent when its last byte is stored.
 *
 * A client may send requests without waiting for answers; they are carried out, and answered, in order.  A
 * refused request ends the connection, in version 2 after its status. */
#ifndef MCE_UPSTREAM_WIRE_H
#define MCE_UPSTREAM_WIRE_H

#include <stdbool.h>

#include "engine/tcp/tcp_wire.h"

#define MCE_UP_REQ_SIZE 24u
#define MCE_UP_STATUS_SIZE 8u
#define MCE_UP_MAGIC 0x4d435456u
#define MCE_UP_V2 0x80u

enum mce_up_op { MCE_UP_READ, MCE_UP_WRITE };
enum mce_up_code { MCE_UP_OK, MCE_UP_REFUSED };

struct mce_up_req {
	uint64_t size, addr;
	uint8_t op;		/* enum mce_up_op */
	bool v2;
};

static inline void mce_up_req_pack(uint8_t b[MCE_UP_REQ_SIZE], const struct mce_up_req *q)
{
	memset(b, 0, MCE_UP_REQ_SIZE);
	mce_put64(b, q->size);
	mce_put64(b + 8, q->addr);
	b[16] = q->op | (q->v2 ? MCE_UP_V2 : 0);
}

/* Each unpack: bytes of the message, 0 when more are needed, -MC_EPROTO. */

static inline int mce_up_req_unpack(const uint8_t *b, size_t n, struct mce_up_req *ret)
{
	if (n < MCE_UP_REQ_SIZE)
		return 0;
	ret->size = mce_get64(b);
	ret->addr = mce_get64(b + 8);
	ret->v2 = b[16] & MCE_UP_V2;
	ret->op = b[16] & (uint8_t)~MCE_UP_V2;
	return ret->op > MCE_UP_WRITE ? -MC_EPROTO : (int)MCE_UP_REQ_SIZE;
}

static inline void mce_up_status_pack(uint8_t b[MCE_UP_STATUS_SIZE], uint32_t code)
{
	mce_put32(b, code);
	mce_put32(b + 4, MCE_UP_MAGIC);
}

static inline int mce_up_status_unpack(const uint8_t *b, size_t n, uint32_t *ret_code)
{
	if (n < MCE_UP_STATUS_SIZE)
		return 0;
	if (mce_get32(b + 4) != MCE_UP_MAGIC)
		return -MC_EPROTO;
	*ret_code = mce_get32(b);
	return (int)MCE_UP_STATUS_SIZE;
}

#endif
