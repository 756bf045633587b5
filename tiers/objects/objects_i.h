/* SPDX-License-Identifier: Apache-2.0
 * objects_i.h - shared by the files of the tier "s3". */
#ifndef MCT_OBJECTS_I_H
#define MCT_OBJECTS_I_H

#include <stdatomic.h>

#include "common/sys/lock.h"
#include "common/sys/thread.h"
#include "tiers/keyed.h"
#include "tiers/objects/objects.h"

#define MCT_OBJECTS_THREADS 16u
/* Ranges that wait for their deletion, 80 bytes each: about as many as are deleted between two sweeps. */
#define MCT_OBJECTS_DELETES_MAX (1u << 17)
#define MCT_OBJECTS_BUCKETS (1u << 13)

/* Bytes of a range: a longer one is not ours. */
#define MCT_OBJECTS_RANGE_MAX (1ull << 40)

/* The bytes of an object, by the fields of its names. */
struct mct_objects_range {
	uint64_t off, len, generation, order;
};

/* Ranges that do not overlap, ascending. */
struct mct_objects_index {
	struct mct_objects_range *at;
	size_t n, cap;
};

struct mct_objects;
struct mct_objects_delete;
struct mct_objects_keys;

/* The form of parts (seal.c). */
struct mct_objects_form {
	/* As the functions of tiers/keyed.h; @total: bytes of the part.  -MC_ECHECKSUM: it was changed;
	 * -MC_EUNAVAILABLE: there is no key yet.  Any thread. */
	int (*put)(struct mct_objects *o, const char *name, const void *data, size_t len);
	int (*get)(struct mct_objects *o, const char *name, uint64_t total, uint64_t off, void *buf, size_t len);
	/* As mct_tier_ops.unlock. */
	int (*unlock)(struct mct_objects *o, mct_keys_fn keys, void *arg);
	/* identity_lock held: before and after the identity with another folder is written. */
	int (*renew)(struct mct_objects *o, uint64_t folder);
	void (*renewed)(struct mct_objects *o, uint64_t folder, bool done);
	/* identity_lock held, before the identity is written again because it was deleted, with the files that belong
	 * to it. */
	int (*restore)(struct mct_objects *o);
};

struct mct_objects_seal {
	struct mct_objects_keys *keys;	/* NULL: the plain form */
	/* guarded by identity_lock */
	struct mct_wrap wrap, next;	/* key of the folder; the one that renew has made */
	bool fresh;			/* the medium has no bytes to lose */
	uint32_t said;			/* the log has that the key is not wrapped with this secret */
	uint64_t left;			/* a folder whose identity may be stored, 0: none */
};

struct mct_objects {
	struct mct_medium medium;
	/* constant after open */
	char *path;			/* as configured */
	char *prefix;			/* "" or ends in '/' */
	struct mct_keyed *keyed;
	const struct mct_objects_form *form;
	struct mct_objects_seal seal;
	struct mc_thread thread[MCT_OBJECTS_THREADS];
	unsigned nthreads;
	/* atomic */
	atomic_bool stopping;		/* also ends calls to the server */
	atomic_bool sweep_stops;	/* ends sweeps; calls to the server go on */
	uint64_t size;
	bool failing;			/* the last put or read has failed, which is in the log */
	bool complete;			/* the store was listed by a sweep: it has no range that the index lacks */
	uint64_t hold_ns;		/* when the identity is read again before copies are written */
	atomic_bool taken;		/* the store has the identity of another process */
	atomic_bool strange;		/* the store has no identity, and maybe not the ranges of the index */
	uint64_t pause_ns;		/* the server did not answer: transfers fail at once until then */
	/* guarded by identity_lock, which is held while the identity is read or written; before lock */
	struct mc_mutex identity_lock;
	/* words that the store has, as far as this process knows (all 0: none), and those of the last put */
	uint64_t stored[MCT_IDENTITY], tried[MCT_IDENTITY];
	uint64_t ours_ns;		/* begin of the last request that has found the identity of this process */
	uint64_t absent_ns;		/* reads do not look for it again before */
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond work;
	uint64_t words[MCT_IDENTITY], folder;
	struct mct_objects_index index;
	struct mc_list reads;		/* struct mct_read that no thread has taken */
	struct mc_list writes, running;	/* struct mct_objects_write that no thread, or that one has taken */
	struct mc_list deletes;		/* struct mct_objects_delete that no thread has taken */
	struct mct_objects_delete *queued[MCT_OBJECTS_BUCKETS];	/* these, and those that a thread has taken */
	unsigned n_queued;
	unsigned writing, deleting;	/* threads that write or delete */
};

static inline struct mct_objects *mct_objects_of(const struct mct_medium *m)
{
	return (struct mct_objects *)m;
}

/* ---- names.c ---- */

/* The name of a part.  The prefix was checked when the medium was opened. */
void mct_objects_name(const struct mct_objects *o, uint64_t folder, const struct mct_objects_range *r, uint64_t part,
		      char ret[MCT_KEYED_NAME_MAX]);
/* False: it is not such a name. */
bool mct_objects_name_parse(const struct mct_objects *o, const char *name, uint64_t *ret_folder,
			    struct mct_objects_range *ret, uint64_t *ret_part);
/* Bytes of part @part. */
static inline uint64_t mct_objects_part_len(const struct mct_objects_range *r, uint64_t part)
{
	uint64_t left = r->len - part * MCT_OBJECTS_PART;

	return left < MCT_OBJECTS_PART ? left : MCT_OBJECTS_PART;
}
static inline uint64_t mct_objects_parts(const struct mct_objects_range *r)
{
	return (r->len + MCT_OBJECTS_PART - 1) / MCT_OBJECTS_PART;
}
/* The folder of ranges that are written with these identity words. */
uint64_t mct_objects_folder(const uint64_t words[MCT_IDENTITY]);

/* ---- seal.c ---- */

/* Choose the form; after the identity and the folder are known, find its key: -EACCES with a detail: the store has
 * another form; close. */
int mct_objects_seal_open(struct mct_objects *o, bool seal);
int mct_objects_seal_found(struct mct_objects *o);
void mct_objects_seal_close(struct mct_objects *o);

/* ---- index.c ---- */

/* Number of the first range that ends behind @off. */
size_t mct_objects_index_find(const struct mct_objects_index *ix, uint64_t off);
/* The range that has all of these bytes; NULL. */
const struct mct_objects_range *mct_objects_index_have(const struct mct_objects_index *ix, uint64_t off, uint64_t len);
/* Add a range instead of those that it overlaps, for which @replaced is called.  -EEXIST: one of these is newer, and
 * nothing changes; -ENOMEM. */
int mct_objects_index_add(struct mct_objects_index *ix, const struct mct_objects_range *r,
			  void (*replaced)(void *arg, const struct mct_objects_range *r), void *arg);
/* Remove exactly this range.  False: it is not there. */
bool mct_objects_index_remove(struct mct_objects_index *ix, const struct mct_objects_range *r);

/* ---- queue.c: the threads that call the store ---- */

/* A write, in its priv[]. */
struct __attribute__((may_alias)) mct_objects_write {
	struct mc_list node;
	uint64_t order;
};
_Static_assert(sizeof(struct mct_objects_write) <= sizeof(((struct mct_write *)0)->priv), "priv[] is too small");

int mct_objects_queue_start(struct mct_objects *o);
/* Reads and writes that are not begun fail; deletes are forgotten. */
void mct_objects_queue_stop(struct mct_objects *o);
void mct_objects_read_start(struct mct_medium *m, struct mct_read *r);
void mct_objects_read_end(struct mct_medium *m, struct mct_read *r);
void mct_objects_write_start(struct mct_medium *m, struct mct_write *w);
/* Lock held: delete the parts of a range in the background.  False: it waits for that already, or too many do, and a
 * sweep has to find it later. */
bool mct_objects_delete_locked(struct mct_objects *o, uint64_t folder, const struct mct_objects_range *r);
/* Lock held: is the range being deleted, or will it be? */
bool mct_objects_is_deleted_locked(const struct mct_objects *o, uint64_t folder, const struct mct_objects_range *r);

/* ---- sweep.c ---- */

/* Fill the index from the names in the store. */
int mct_objects_load(struct mct_objects *o);
int mct_objects_sweep(struct mct_medium *m, const uint64_t *off, size_t n, mct_used_fn used, void *arg);

/* ---- objects.c ---- */

/* Does the store have the identity of this process?  -ESTALE: it has another one, from now on.  It is written again if
 * it is gone and the store has just listed @listed ranges of the index, which are half of them or more: else the name
 * of the store may lead to another one, and the error is -MC_EUNAVAILABLE. */
int mct_objects_identity_check(struct mct_objects *o, size_t listed);
/* The same without a write, identity_lock held.  -ENOENT: there is none. */
int mct_objects_identity_find(struct mct_objects *o);
/* The same without a write: is this the store of this process, at a time after @since?  Calls at the same time are one
 * request, and while the identity is absent there is one request in a second. */
int mct_objects_identity_look(struct mct_objects *o, uint64_t since);

#endif
