/* SPDX-License-Identifier: Apache-2.0
 * setup.h - the message by which two of upstream's nodes connect a pair of their RDMA NICs: the body of a handshake of
 * type "connection", and its answer.  A NIC is named by a path, "segment name@device".
 *
 * In releases from 0.3.13 on both have "ready_ack": false, and when the sender has connected its end it sends the same
 * message with true: before that the receiver sends nothing through the connection.  The answer to that is empty. */
#ifndef MCE_SETUP_H
#define MCE_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCE_SETUP_PATH_MAX 512u
#define MCE_SETUP_QPS_MAX 16u

struct mce_setup {
	char local[MCE_SETUP_PATH_MAX];		/* the NIC of the sender */
	char peer[MCE_SETUP_PATH_MAX];		/* and that of the receiver */
	uint8_t gid[16];
	bool has_gid;
	uint16_t lid;
	unsigned mtu;				/* bytes; a member of ours that upstream ignores, 0: absent */
	unsigned nqps;
	uint32_t qpn[MCE_SETUP_QPS_MAX];	/* packets are numbered from 0 */
	bool has_ready_ack, ready_ack;
	char reply[256];			/* why the receiver refuses, "": it does not */
};

/* Malloc'ed JSON text. */
int mce_setup_encode(const struct mce_setup *s, char **ret_text);
/* -MC_EPROTO for a text that is not such a message. */
int mce_setup_decode(const char *text, size_t len, struct mce_setup *ret);

/* "00:00:...:0a": the text of a GID in descriptors and messages. */
#define MCE_GID_TEXT_MAX 48u
void mce_gid_print(const uint8_t gid[16], char ret[MCE_GID_TEXT_MAX]);
int mce_gid_parse(const char *text, uint8_t ret[16]);

#endif
