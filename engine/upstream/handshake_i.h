/* SPDX-License-Identifier: Apache-2.0
 * handshake_i.h - internals of the handshake daemon.  Only the loop's thread uses the fields that change. */
#ifndef MCE_HANDSHAKE_I_H
#define MCE_HANDSHAKE_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/net/evloop.h"
#include "common/list.h"
#include "engine/upstream/handshake.h"

#define MCE_HANDSHAKE_HEAD 8		/* bytes of the length field */
#define MCE_HANDSHAKE_LEGACY 0xff	/* our name for a frame without a type */

/* Largest frame, of MC_HANDSHAKE_MAX_LENGTH. */
size_t mce_handshake_max(void);

/* The type of a frame's body, and the offset of its text.  -MC_EPROTO for an empty body. */
int mce_handshake_parse(const uint8_t *body, size_t len, unsigned *ret_type, size_t *ret_at);
/* A whole frame, malloc'ed; type MCE_HANDSHAKE_LEGACY leaves the type out. */
int mce_handshake_frame(unsigned type, const char *text, uint8_t **ret, size_t *ret_len);

struct mce_handshake {
	/* constant after open */
	struct mce_handshake_conf conf;
	struct mc_evloop *loop;
	int port;
	size_t max_len;
	/* used only by the loop's thread */
	struct mc_evfd listener;
	struct mc_evtimer pause;	/* no descriptors are left: accept again later */
	struct mc_list conns;		/* longest silent first */
	unsigned nconns;
	size_t held;			/* bytes in buffers of all connections */
};

/* Serve a new connection; takes over @fd. */
void mce_handshake_accept(struct mce_handshake *h, int fd);
/* Close all connections, after the loop is freed. */
void mce_handshake_drop_all(struct mce_handshake *h);

#endif
