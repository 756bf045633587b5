/* SPDX-License-Identifier: Apache-2.0
 * mapped.h - what is known of a same-host peer and its regions: shared by mapped.c, which talks with the
 * owner and copies where regions can be mapped, and process_vm.c, which copies where they cannot. */
#ifndef MCE_MAPPED_H
#define MCE_MAPPED_H

#include "engine/engine_i.h"
#include "engine/shm/map_wire.h"

#define MCE_MAPPING_BUCKETS 1024u

struct mce_mapping {
	struct mce_mapping *next;
	/* constant */
	uint64_t rkey, base, len;
	unsigned access, slot;
	char *at;		/* NULL: it is not to be mapped */
	bool read_only;		/* @at is, whatever the access */
	bool listed;		/* slot is valid: without @at it is to be had by process_vm */
	/* atomic */
	unsigned missed;	/* copies that found pages of it out of the kernel's reach, in a row */
	/* guarded by the peer's lock */
	unsigned refs;
	bool dead, given;
};

enum mce_mapped_state { MCE_MAPPED_NONE, MCE_MAPPED_GREETING, MCE_MAPPED_UP, MCE_MAPPED_DOWN };

struct mce_mapped {
	/* constant after attach */
	struct mce_peer *p;
	struct mce_io *io;
	/* guarded by the peer's lock */
	enum mce_mapped_state state;
	uint8_t tried[16];	/* nonce of the engine that the state is about */
	bool stranger;		/* that one is of another user, who is not root */
	bool connecting;	/* a try is under way */
	uint64_t up_ms;		/* when the state became UP */
	unsigned short_lived;	/* connections in a row that did not stay so for long */
	struct mc_evfd evfd;	/* watched when fd >= 0 */
	pthread_cond_t news;	/* what the I/O thread received */
	const uint64_t *life;	/* NULL: the connection is down, and all mappings are dead */
	bool asked;		/* an answer is waited for: */
	struct mce_map_msg question;
	struct mce_map_msg reply;
	int reply_fd;
	bool replied;
	struct mce_mapping *bucket[MCE_MAPPING_BUCKETS];
	unsigned n;
	struct mce_mapping *kept;	/* dead, but pointers into them were given out */
	struct mce_vm *vm;	/* the owner's process, NULL: its memory is out of reach; atomic as a hint */
	uint64_t *busy;		/* our busy page while we greet, then the vm's; NULL: none */
	int busy_fd;
};

/* The peer's lock is held.  The region of @rkey when it is known and alive and @access to the range is allowed.
 * -EAGAIN: ask the owner first; -MC_ENOTSUP: not over same-host paths; or what the request ends with. */
int mce_mapped_find_locked(struct mce_mapped *m, uint64_t rkey, uint64_t addr, uint64_t len,
			   unsigned access, struct mce_mapping **ret);
void mce_mapping_unref_locked(struct mce_mapping *mp);	/* refs; the last frees a dead one */
bool mce_mapping_alive_locked(const struct mce_mapped *m, const struct mce_mapping *mp);
/* Was a copy of its memory?  0; -ESTALE: the region has ended, and its memory may be used for something else by now;
 * -EAGAIN: nobody knows here any more, as with the connection's end, so the copy is to be made again. */
int mce_mapping_check_locked(const struct mce_mapped *m, const struct mce_mapping *mp);

/* process_vm.c: the process at the other end of the socket @sock, which sent @welcome with @fd, when it lets us read
 * its nonce: counted, and *@busy is its own then.  NULL otherwise. */
struct mce_vm *mce_vm_open(int sock, const struct mce_map_msg *welcome, int fd, uint64_t **busy);
void mce_vm_unref(struct mce_vm *vm);	/* NULL is fine */
/* A page of zeros that others may trust not to be cut short; the descriptor, or -1. */
int mce_vm_busy_page(uint64_t **ret);

#endif
