/* SPDX-License-Identifier: Apache-2.0
 * map_wire.h - what same-host engines say to each other over the unix socket (SOCK_SEQPACKET, abstract
 * name "mooncake-engine-<nonce>").  One fixed message per packet in native byte order; a longer packet
 * is a newer peer's and its tail is ignored.
 *
 *	mapper			owner
 *	HELLO token, and the	WELCOME nonce, its address (base, 0: no busy page was taken), the guard's place
 *	  busy page's descriptor   (fd_offset, 0: none), and the life page's descriptor
 *	FETCH rkey		REGION rkey, status, and the region's descriptor when status is 0
 *				FORGET rkey, whenever a region ends
 *
 * The token is the one that the mapper said in its TCP greeting: it proves that both connections have
 * the same process at the other end.  The life page is an array of region keys; a region is over when
 * its place does not hold its key any more, which costs a mapper one load to see.
 *
 * A region that has no descriptor is REGION with status "not supported".  When its length is given too, the
 * mapper may read and write the owner's memory itself (process_vm_readv(2), process_vm_writev(2)): it
 * puts the key on its busy page, sees that the region lives, copies, and takes the key off.  The owner ends the
 * region on the life page and then waits until no busy page has it, so afterwards nobody copies.
 *
 * The guard is a word behind the life page, in the same file, that tells whether the owner's address space is still
 * there: the number of a thread of it, as in a robust futex.  The kernel takes it off, or sets FUTEX_OWNER_DIED, when
 * the thread ends; and when a process executes another program its threads end before its memory is exchanged.
 *
 * Engines of root's and of other users share memory, too.  The user gets no descriptor with which he could cut root's
 * file short: it is sealed against that, or for reading only (what he writes takes another path).  Root maps nothing
 * of a user's that is not sealed, and copies from no user's process: which one that is, is his word. */
#ifndef MCE_MAP_WIRE_H
#define MCE_MAP_WIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/err.h"

#define MCE_MAP_VERSION 1u
#define MCE_LIFE_SLOTS 65536u
#define MCE_LIFE_BYTES (MCE_LIFE_SLOTS * sizeof(uint64_t))
#define MCE_GUARD_BYTES 65536u	/* a page, whatever its size */
/* The busy page: a key for each copy that is being made. */
#define MCE_BUSY_SLOTS 64u
#define MCE_BUSY_BYTES (MCE_BUSY_SLOTS * sizeof(uint64_t))

enum mce_map_type { MCE_MAP_HELLO = 1, MCE_MAP_WELCOME, MCE_MAP_FETCH, MCE_MAP_REGION, MCE_MAP_FORGET };

struct mce_map_msg {
	uint16_t version;
	uint16_t type;
	int32_t status;		/* REGION: wire status (common/err.h) */
	uint64_t rkey;		/* HELLO: the token */
	uint64_t base, len;	/* REGION; WELCOME: base */
	uint64_t fd_offset;	/* REGION, WELCOME */
	uint32_t access;
	uint32_t slot;
	uint8_t nonce[16];	/* WELCOME */
};
_Static_assert(sizeof(struct mce_map_msg) == 64, "layout is shared between processes");

/* A packet of @n bytes.  0, or -MC_EPROTO. */
static inline int mce_map_msg_unpack(const void *buf, size_t n, struct mce_map_msg *ret)
{
	struct mce_map_msg m;

	if (n < sizeof(m))
		return -MC_EPROTO;
	memcpy(&m, buf, sizeof(m));
	if (m.version < MCE_MAP_VERSION || m.type < MCE_MAP_HELLO || m.type > MCE_MAP_FORGET)
		return -MC_EPROTO;
	if (m.type == MCE_MAP_REGION && (m.status == 0 || m.len) &&
	    (m.len == 0 || m.base + m.len < m.base || m.slot >= MCE_LIFE_SLOTS ||
	     m.fd_offset + m.len < m.fd_offset))
		return -MC_EPROTO;
	*ret = m;
	return 0;
}

/* One packet with a descriptor (-1: none), without blocking.  0, -ENOBUFS when the
 * other side does not read, -errno. */
int mce_map_send(int sock, const struct mce_map_msg *m, int fd);
/* 0 and a message, maybe with a descriptor (else -1) that becomes the caller's, unless @ret_fd is NULL: then none is
 * taken.  -EAGAIN; -ECONNRESET at the end; -MC_EPROTO. */
int mce_map_recv(int sock, struct mce_map_msg *ret, int *ret_fd);
/* Is the process at the other end ours, root's, or are we root?  *@ret_stranger: it is of another user who is not
 * root, and trusted with nothing. */
int mce_map_check_cred(int sock, bool *ret_stranger);
/* Nobody can kill who has the file mapped: it cannot become shorter, and is not of huge pages, of which there may be
 * none left for a hole that was made in it.  Waits for nobody, whatever the descriptor is of. */
bool mce_map_is_sealed(int fd);

#endif
