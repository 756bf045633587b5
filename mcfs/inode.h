/* SPDX-License-Identifier: Apache-2.0
 * inode.h - what the kernel has looked up.
 *
 * For the kernel a file's inode is one version of one key: a name that gets a new version gets a new
 * inode, so that nothing cached under the old one can be taken for it.  Descriptors that read and descriptors that
 * write do not share an inode, nor do two that write: the kernel keeps one size and one set of cached pages per inode.
 * When they would, the open is answered ESTALE, which makes the kernel look the name up once more, and
 * that lookup gets an inode of its own (reopen.h remembers whose it is). */
#ifndef MCFS_INODE_H
#define MCFS_INODE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/list.h"
#include "mcfs/life/compat.h"
#include "mcfs/keymap.h"
#include "mcfs/read/object.h"

struct mcfs_key {
	size_t len;
	char data[MCFS_KEY_MAX + 1];	/* not NUL-ended; room for a directory's '/' */
};

static inline struct mcs_key mcfs_key_of(const struct mcfs_key *k)
{
	return (struct mcs_key){ k->data, k->len };
}
static inline bool mcfs_key_equal(const struct mcfs_key *a, const struct mcfs_key *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

struct mcfs_inode {
	/* constant */
	uint64_t ino;			/* st_ino */
	enum mcs_kind kind;
	/* of the version; generation 0: nothing was committed yet, or a directory that is no view */
	struct mcs_info info;
	bool implied;			/* a directory without a marker of its own */
	uint64_t number;		/* in the book (book.h), 0: the kernel's number is the address */

	/* guarded by the inodes' lock */
	struct mc_list bucket;
	bool hashed;			/* lookups of the key find it */
	uint64_t nlookup;		/* references that the kernel holds */
	unsigned refs;			/* those of open handles */
	unsigned readers, writers;	/* handles */
	struct mcfs_object *object;	/* one reference while there are readers */
	uint64_t listed_ms;		/* when the last whole listing began that the kernel keeps, 0: none */
	bool kernel_size_stale;			/* the kernel may have another size of it than a writer has; stays */
	size_t key_len;
	char *key;			/* a directory's ends in '/', but for a view's; the root's is "" */
};

struct mcfs_inodes {
	pthread_mutex_t lock;
	struct mc_list *bucket;
	size_t nbucket, count;
	struct mcfs_inode root;
	struct mcfs_inode lost;		/* stands for what the book does not know: nothing works on it */
};

int mcfs_inodes_init(struct mcfs_inodes *t);
void mcfs_inodes_done(struct mcfs_inodes *t);	/* frees all that are left */
/* Those that the kernel knows from the daemon before us; the book is loaded, nothing is served yet. */
int mcfs_inodes_restore(struct mcfs_inodes *t);
size_t mcfs_inodes_count(struct mcfs_inodes *t);

/* st_ino of a key, a directory's with its '/': the same on all nodes and for all versions, since programs
 * take a file whose number changes for another file. */
uint64_t mcfs_inode_number(struct mcs_key key);
/* The kernel's number of an inode, and back. */
fuse_ino_t mcfs_inode_nodeid(const struct mcfs_inodes *t, const struct mcfs_inode *in);
struct mcfs_inode *mcfs_inode_at(struct mcfs_inodes *t, fuse_ino_t node);

/* The inode of a version or directory, for a reply that counts as a lookup.  @own: a file's is to be one that nobody
 * else has.  NULL without memory. */
struct mcfs_inode *mcfs_inode_lookup(struct mcfs_inodes *t, struct mcs_key key, enum mcs_kind kind,
				     const struct mcs_info *info, bool implied, bool own);
/* The directory of .mcfs/prefix with the keys that begin with @key; the same. */
struct mcfs_inode *mcfs_inode_view(struct mcfs_inodes *t, struct mcs_key key);
static inline bool mcfs_inode_is_view(const struct mcfs_inode *in)
{
	return in->kind == MCS_DIR && in->info.generation;
}
/* One of its own for a file that has no version yet (@info NULL) or a new one, not found by lookups; the same. */
struct mcfs_inode *mcfs_inode_private(struct mcfs_inodes *t, struct mcs_key key,
				      const struct mcs_info *info);
/* One more reference of the kernel to an inode that is open. */
void mcfs_inode_again(struct mcfs_inodes *t, struct mcfs_inode *in);
void mcfs_inode_forget(struct mcfs_inodes *t, struct mcfs_inode *in, uint64_t n);

/* What its key is at the moment. */
void mcfs_inode_key(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret);
/* The key of @name in directory @dir.  -ENAMETOOLONG, -EINVAL. */
int mcfs_inode_child_key(struct mcfs_inodes *t, const struct mcfs_inode *dir, const char *name,
			 struct mcfs_key *ret);

/* A handle is opened or closed.  Opening gives -ESTALE when a writer and another one would meet, and lookups do not
 * find the inode any more.  A reader takes a reference to the open version, when there is one. */
int mcfs_inode_open_reader(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcfs_object **ret_object);
/* @share: two writers may meet, with the size that is set last.  1: they do, so that nothing of this one may be cached
 * by the kernel. */
int mcfs_inode_open_writer(struct mcfs_inodes *t, struct mcfs_inode *in, bool share);
/* The version that a new reader has opened, for the next ones. */
void mcfs_inode_share(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcfs_object *o);
/* A handle of the daemon before us; nothing is served yet. */
void mcfs_inode_reopen(struct mcfs_inodes *t, struct mcfs_inode *in, bool reader);
void mcfs_inode_close_reader(struct mcfs_inodes *t, struct mcfs_inode *in);
void mcfs_inode_close_writer(struct mcfs_inodes *t, struct mcfs_inode *in);
/* A reference that keeps the inode, without a part in the above. */
void mcfs_inode_ref(struct mcfs_inodes *t, struct mcfs_inode *in);
void mcfs_inode_unref(struct mcfs_inodes *t, struct mcfs_inode *in);
/* Lookups do not find it any more: what it shows is not what everybody sees. */
void mcfs_inode_hide(struct mcfs_inodes *t, struct mcfs_inode *in);
/* The kernel's size of it is not, or not always, what one who has it open is writing. */
void mcfs_inode_set_kernel_size_stale(struct mcfs_inodes *t, struct mcfs_inode *in);
bool mcfs_inode_is_kernel_size_stale(struct mcfs_inodes *t, const struct mcfs_inode *in);
/* Of a directory that is open: when the listing began that the kernel keeps, whole. */
void mcfs_inode_set_listed(struct mcfs_inodes *t, struct mcfs_inode *in, uint64_t began_ms);
uint64_t mcfs_inode_listed(struct mcfs_inodes *t, const struct mcfs_inode *in);
/* The directory @from (with its '/') is now @to. */
void mcfs_inode_move_dir(struct mcfs_inodes *t, struct mcs_key from, struct mcs_key to);

#endif
