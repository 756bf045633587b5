/* SPDX-License-Identifier: Apache-2.0
 * mapped.h - a same-host peer and its regions: shared by mapped.c, which talks with the owner and copies from and to
 * mapped regions, and process_vm.c, which copies where regions cannot be mapped. */
#ifndef MCE_MAPPED_H
#define MCE_MAPPED_H

#include "common/sys/lock.h"
#include "engine/engine_i.h"
#include "engine/shm/map_wire.h"

#define MCE_MAPPING_BUCKETS 1024u

struct mce_mapping {
	struct mce_mapping *next;
	/* constant */
	uint64_t rkey, base, len;
	unsigned access, slot;
	char *at;		/* NULL: it cannot be mapped */
	bool read_only;		/* @at is, whatever the access */
	bool listed;		/* slot is valid: without @at, process_vm can reach the region */
	struct mce_pins *pins;	/* windows of it that are pinned for a GPU (gpu/gpu_i.h), NULL: none */
	/* atomic */
	unsigned missed;	/* consecutive copies that found pages of it inaccessible to the kernel */
	/* guarded by the peer's lock */
	unsigned refs;
	bool dead, given;	/* out of the table; mce_peer_map() has returned pointers into it */
};

enum mce_mapped_state { MCE_MAPPED_NONE, MCE_MAPPED_GREETING, MCE_MAPPED_UP, MCE_MAPPED_DOWN };

struct mce_mapped {
	/* constant after attach */
	struct mce_peer *p;
	struct mce_io *io;
	/* guarded by the peer's lock */
	enum mce_mapped_state state;
	uint8_t tried[16];	/* nonce of the engine that the state is about */
	uint64_t tried_at;	/* mce_peer.introductions then */
	bool stranger;		/* that engine runs as another user than ours and root */
	bool connecting;	/* an attempt is under way */
	uint64_t up_ms;		/* when the state became UP */
	unsigned short_lived;	/* consecutive connections that were lost within SHORT_MS */
	struct mc_evfd evfd;	/* watched when fd >= 0 */
	struct mc_cond news;	/* the I/O thread has received an answer, or the connection is down */
	const uint64_t *epochs;	/* the owner's epoch page; NULL: the connection is down and all mappings are dead */
	bool asked;		/* the resolver waits for an answer to: */
	struct mce_map_msg question;
	struct mce_map_msg reply;
	int reply_fd;
	bool replied;
	struct mce_mapping *bucket[MCE_MAPPING_BUCKETS];
	unsigned n;
	struct mce_mapping *kept;	/* dead, but pointers into them were given out */
	struct mce_vm *vm;	/* the owner's process, NULL: its memory is inaccessible; atomic as a hint */
	struct mce_hazards *hazards;	/* hazard page of the present connection; NULL: none */
	uint64_t fence;		/* the number in its greeting: it carries WRITEs of this number only */
};
static inline struct mce_mapped *mce_mapped_of(const struct mce_peer *p)
{
	return p->tp[MCE_PATH_MAPPED];
}

/* The peer's lock is held.  The region of @req when it is known and alive, and the access to @len bytes is allowed.
 * -EAGAIN: ask the owner first; -MC_ENOTSUP: not over same-host paths; or the status that the request ends with. */
int mce_mapped_find_locked(struct mce_mapped *m, const struct mce_req *req, uint64_t len, struct mce_mapping **ret);
void mce_mapping_unref_locked(struct mce_mapping *mp);	/* refs; the last frees a dead one */
bool mce_mapping_alive_locked(const struct mce_mapped *m, const struct mce_mapping *mp);
/* After a copy: was it a copy of the region's memory?  0; -ESTALE: the region has ended, and its memory may have been
 * reused; -EAGAIN: unknown, because the connection has ended, so make the copy again. */
int mce_mapping_check_locked(const struct mce_mapped *m, const struct mce_mapping *mp);

/* process_vm.c: the process at the other end of the socket @sock, which sent @welcome with @fd, if it lets us read
 * its nonce; counted.  NULL otherwise. */
struct mce_vm *mce_vm_open(int sock, const struct mce_map_msg *welcome, int fd, struct mce_hazards *hazards);
void mce_vm_unref(struct mce_vm *vm);	/* NULL is fine */

/* A hazard page of ours (map_wire.h), counted.  Its file is sealed, so that other processes can rely on its size. */
struct mce_hazards {
	uint32_t refs;		/* atomic */
	uint64_t *slots;
	int fd;			/* until it is sent, then -1 */
};
struct mce_hazards *mce_hazards_new(void);	/* NULL: none can be had */
struct mce_hazards *mce_hazards_ref(struct mce_hazards *h);
void mce_hazards_unref(struct mce_hazards *h);	/* NULL is fine */

#endif
