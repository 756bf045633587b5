/* SPDX-License-Identifier: Apache-2.0
 * map_wire.h - messages between same-host engines over the unix socket (SOCK_SEQPACKET, abstract
 * name "mooncake-engine-<nonce>").  One fixed message per packet in native byte order; a longer packet
 * comes from a newer peer, and its tail is ignored.
 *
 *	mapper			owner
 *	HELLO token, fence	WELCOME nonce, its address (base, 0: no hazard page was accepted), the guard's
 *	  (base), and the	  offset (fd_offset, 0: none), and the epoch page's descriptor
 *	  hazard page's fd
 *	FETCH rkey		REGION rkey, status, and the region's descriptor when status is 0
 *				FORGET rkey, whenever a region ends
 *
 * The token is that of the mapper's TCP greeting: it proves that both connections have the same process at the other
 * end.  The epoch page is an array of region keys; a region has ended when its slot no longer holds its key, which a
 * mapper checks with one load.
 *
 * A region without a descriptor is answered with REGION and status "not supported".  If its length is not 0, the
 * mapper may read and write the owner's memory itself (process_vm_readv(2), process_vm_writev(2)): it
 * stores the key in its hazard page, checks that the region is alive, copies, and clears the key.  The owner ends the
 * region in the epoch page and then waits until no hazard page holds its key, so afterwards no mapper copies.
 *
 * A mapper with a fence number (mce_engine_set_fence()) announces its WRITEs to mapped regions in the same way.  When
 * the owner fences it, the owner closes the connection; the mapper closes its end, and then begins no copy any more.
 * So the writes have ended when the mapper has closed and its hazard page is empty, or when its process has ended.
 * A mapper with a number and without a hazard page, or with a fenced number, gets only read-only descriptors.
 *
 * The guard is a word behind the epoch page, in the same file, that shows whether the owner's address space still
 * exists: the id of one of its threads, as in a robust futex.  The kernel clears it, or sets FUTEX_OWNER_DIED, when
 * the thread ends; and when a process executes another program, its threads end before its memory is replaced.
 *
 * Engines of root and of other users share memory, too.  The user gets no descriptor through which root's file could
 * be truncated: the file is sealed against that, or the descriptor is read-only (the user's WRITEs then take another
 * path).  Root maps only sealed files of a user, and copies from no process of a user, because only the user claims
 * which process it is. */
#ifndef MCE_MAP_WIRE_H
#define MCE_MAP_WIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/net/net.h"
#include "engine/engine_i.h"

#define MCE_MAP_VERSION 1u
#define MCE_EPOCH_SLOTS 65536u
#define MCE_EPOCH_BYTES (MCE_EPOCH_SLOTS * sizeof(uint64_t))
#define MCE_GUARD_BYTES 65536u	/* at least a page, for all page sizes */
/* The hazard page: a key for each copy that is being made. */
#define MCE_HAZARD_SLOTS MCE_SLOTS
#define MCE_HAZARD_BYTES (MCE_HAZARD_SLOTS * sizeof(uint64_t))
/* An owner that ends a region waits at most this long for a mapper that is stopped within a copy. */
#define MCE_HAZARD_WAIT_MS 10000

enum mce_map_type { MCE_MAP_HELLO = 1, MCE_MAP_WELCOME, MCE_MAP_FETCH, MCE_MAP_REGION, MCE_MAP_FORGET };

struct mce_map_msg {
	uint16_t version;
	uint16_t type;
	int32_t status;		/* REGION: wire status (common/err.h) */
	uint64_t rkey;		/* HELLO: the token */
	uint64_t base, len;	/* REGION; WELCOME: base; HELLO: base is the fence number, 0: none */
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
	    (m.len == 0 || m.base + m.len < m.base || m.slot >= MCE_EPOCH_SLOTS ||
	     m.fd_offset + m.len < m.fd_offset))
		return -MC_EPROTO;
	*ret = m;
	return 0;
}

/* One packet with a descriptor (-1: none), without blocking.  0, -ENOBUFS when the
 * other side does not read, -errno. */
int mce_map_send(int sock, const struct mce_map_msg *m, int fd);
/* 0 and a message, maybe with a descriptor (else -1) that becomes the caller's; with @ret_fd NULL none is
 * received.  -EAGAIN; -ECONNRESET at the end; -MC_EPROTO. */
int mce_map_recv(int sock, struct mce_map_msg *ret, int *ret_fd);
/* 0 when the process at the other end runs as our user or root, or we are root; else -EACCES.  *@ret_stranger: it runs
 * as another user than ours and root, and is not trusted. */
int mce_map_check_cred(int sock, bool *ret_stranger);
/* Is it safe to map the file?  It cannot be truncated, and is not made of huge pages: none may be free to
 * fill a hole that was punched into it.  Never blocks, whatever kind of file the descriptor refers to. */
bool mce_map_is_sealed(int fd);
/* The abstract name of the engine whose nonce this is. */
void mce_map_address(const uint8_t nonce[16], char ret[MC_ADDR_MAX]);

#endif
