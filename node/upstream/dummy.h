/* SPDX-License-Identifier: Apache-2.0
 * dummy.h - upstream's clients of this daemon: their names, and the memory that they share.
 *
 * A client names itself with a UUID of its own choice in every request.  Only requests of its user, or of root, reach
 * it.  Addresses in requests are those of the client's address space.  Any thread may call these functions, except
 * where noted. */
#ifndef MCN_UP_DUMMY_H
#define MCN_UP_DUMMY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "node/upstream/wire.h"

#define MCN_UP_DUMMIES_MAX 1024u
#define MCN_UP_UID_DUMMIES (MCN_UP_DUMMIES_MAX - 64)	/* per user, so that other users always get a share */
#define MCN_UP_DUMMY_MEMORIES 256u
#define MCN_UP_UID_MEMORIES 3072u			/* less than MCN_UP_MAPPINGS_MAX */
#define MCN_UP_UID_BYTES ((uint64_t)16 << 40)		/* address space, not memory */
/* A client whose process cannot be watched (of another PID namespace) is dropped when no request has named it for this
 * time, as in upstream. */
#define MCN_UP_SILENCE_MS 10000

struct mcn_up_dummies;
struct mcn_up_shared;

int mcn_up_dummies_new(struct mcn_up_dummies **ret);
void mcn_up_dummies_free(struct mcn_up_dummies *all);	/* no call is running; NULL is allowed */
unsigned mcn_up_dummies_count(struct mcn_up_dummies *all);

/* The request of a client to share memory. */
struct mcn_up_share {
	struct mcn_up_uuid id;
	uint64_t base, size;		/* in the client's address space */
	bool local;			/* results of gets without an address are stored here */
	uid_t uid;
	pid_t pid;			/* 0: unknown */
};
/* Map @fd, which the caller keeps.  Memory that the client shares already is 0 too; other memory that it has shared at
 * these addresses is not its any more.  *ret_new: this is the client's first memory. */
int mcn_up_dummy_share(struct mcn_up_dummies *all, const struct mcn_up_share *s, int fd, bool *ret_new);
/* -MCS_EPARAM: there is no such client or memory.  Running operations keep the mapping until they end. */
int mcn_up_dummy_unshare(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t base);
/* The client leaves. */
int mcn_up_dummy_drop(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid);
bool mcn_up_dummy_shares(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t base);
bool mcn_up_dummy_known(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid);
/* The client lives.  False: it has to share its memory again, because it was dropped, or the daemon has restarted.  A
 * client that has no memory to share is told that once. */
bool mcn_up_dummy_ping(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid);
/* Drop the clients whose process has ended; of those that cannot be watched, the silent ones. */
void mcn_up_dummies_sweep(struct mcn_up_dummies *all);

/* ---- memory ---- */

/* The memory of an operation, by address.  At most @max of them may be held at a time. */
struct mcn_up_holds {
	struct mcn_up_shared **v;
	unsigned n, max;
};
/* *ret is @len bytes at the client's address @addr, until mcn_up_release().  -MCS_EPARAM: no client, or not shared;
 * -EFAULT: the client has freed a part. */
int mcn_up_hold(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t addr, uint64_t len,
		struct mcn_up_holds *h, void **ret);
/* Release all.  False: some of the memory vanished meanwhile, so bytes read from it or written to it are void. */
bool mcn_up_release(struct mcn_up_dummies *all, struct mcn_up_holds *h);

/* A buffer of the client's local memory; @addr is the client's. */
struct mcn_up_buffer {
	uint64_t addr, ticket;		/* ticket 0: none */
};
/* Allocate @len bytes.  Freed by mcn_up_buffer_free() or _cancel(), or the end of the client's process: a client that
 * was dropped while it lives has the buffer when it shares the same file again.  -MCS_ENOSPACE: none is free. */
int mcn_up_buffer_alloc(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t len,
			struct mcn_up_buffer *ret);
/* -MCS_EPARAM: there is no such client.  An unknown buffer is 0, as in upstream. */
int mcn_up_buffer_free(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t addr);
/* Free this buffer only, of which the client knows nothing yet. */
void mcn_up_buffer_cancel(struct mcn_up_dummies *all, const struct mcn_up_buffer *b);

#endif
