/* SPDX-License-Identifier: Apache-2.0
 * inode.c - table of inodes. The kernel's node id of an inode is its address, since the kernel only names
 * inodes that it references. With a handoff table the node id is the index in that table, because addresses do
 * not outlive the process. */
#include <config.h>
#include "mcfs/inode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "mcfs/life/handoff.h"

#define FIRST_BUCKETS 4096u
#define ROOT_INO FUSE_ROOT_ID
/* Smaller numbers belong to the root and the control files. */
#define FIRST_INO 4096u

int mcfs_inodes_init(struct mcfs_inodes *t)
{
	memset(t, 0, sizeof(*t));
	t->bucket = malloc(FIRST_BUCKETS * sizeof(*t->bucket));
	if (!t->bucket)
		return -ENOMEM;
	t->nbucket = FIRST_BUCKETS;
	for (size_t i = 0; i < t->nbucket; i++)
		mc_list_init(&t->bucket[i]);
	t->root.ino = ROOT_INO;
	t->root.kind = MCS_DIR;
	t->root.key = strdup("");
	t->root.nlookup = 1;
	if (!t->root.key) {
		free(t->bucket);
		return -ENOMEM;
	}
	mc_list_init(&t->root.bucket);
	mc_list_init(&t->moved);
	mc_cond_init(&t->move_ended);
	t->lost.kind = MCS_OBJECT;
	t->lost.ino = FIRST_INO;
	t->lost.info.generation = 1;
	t->lost.nlookup = 1;
	t->lost.key = t->root.key;
	return -mc_mutex_init(&t->lock);
}

static void inode_unmove(struct mcfs_inode *in)
{
	if (in->moved_key)
		mc_list_remove(&in->moved);
	free(in->moved_key);
	in->moved_key = NULL;
}

static void inode_free(struct mcfs_inode *in)
{
	inode_unmove(in);
	free(in->key);
	free(in);
}

/* Hidden inodes stay in their bucket, so that the end of a mount frees all inodes. */
void mcfs_inodes_done(struct mcfs_inodes *t)
{
	struct mc_list *pos, *tmp;

	for (size_t i = 0; i < t->nbucket; i++) {
		mc_list_for_each_safe(pos, tmp, &t->bucket[i]) {
			struct mcfs_inode *in = mc_container_of(pos, struct mcfs_inode, bucket);

			inode_free(in);
		}
	}
	free(t->bucket);
	free(t->root.key);
	mc_cond_destroy(&t->move_ended);
	mc_mutex_destroy(&t->lock);
}

size_t mcfs_inodes_count(struct mcfs_inodes *t)
{
	MC_LOCKED(&t->lock);
	return t->count;
}

fuse_ino_t mcfs_inode_nodeid(const struct mcfs_inodes *t, const struct mcfs_inode *in)
{
	if (in == &t->root)
		return FUSE_ROOT_ID;
	return in->number ? in->number : (fuse_ino_t)(uintptr_t)in;
}

struct mcfs_inode *mcfs_inode_at(struct mcfs_inodes *t, fuse_ino_t node)
{
	struct mcfs_inode *in;

	if (node == FUSE_ROOT_ID)
		return &t->root;
	if (!mcfs_handoff_is_number(node))
		return (struct mcfs_inode *)(uintptr_t)node;
	in = mcfs_handoff_at(node);
	return in ? in : &t->lost;
}

static bool has_number(const struct mcs_attrs *attrs)
{
	return attrs->set & MCS_ATTR_INO && attrs->ino >= FIRST_INO;
}

uint64_t mcfs_inode_number(struct mcs_key key, const struct mcs_attrs *attrs)
{
	uint64_t ino = has_number(attrs) ? attrs->ino : mc_hash(key.data, key.len, 0);

	return ino < FIRST_INO ? ino + FIRST_INO : ino;
}

uint64_t mcfs_inode_new_number(void)
{
	return mc_random_u64() | FIRST_INO;
}

static uint64_t hash_of(struct mcs_key key, uint64_t generation)
{
	return mc_hash(key.data, key.len, generation);
}

static struct mc_list *bucket_of(struct mcfs_inodes *t, uint64_t hash)
{
	return &t->bucket[hash & (t->nbucket - 1)];
}

static struct mcs_key key_of(const struct mcfs_inode *in)
{
	return (struct mcs_key){ in->key, in->key_len };
}

/* If growing fails, lookups only become slower. */
static void inodes_grow(struct mcfs_inodes *t)
{
	size_t old = t->nbucket, n = old * 2;
	struct mc_list *more = malloc(n * sizeof(*more)), *was = t->bucket, *pos, *tmp;

	if (!more)
		return;
	for (size_t i = 0; i < n; i++)
		mc_list_init(&more[i]);
	t->bucket = more;
	t->nbucket = n;
	for (size_t i = 0; i < old; i++) {
		mc_list_for_each_safe(pos, tmp, &was[i]) {
			struct mcfs_inode *in = mc_container_of(pos, struct mcfs_inode, bucket);

			mc_list_remove(pos);
			mc_list_push_back(bucket_of(t, hash_of(key_of(in), in->info.generation)), pos);
		}
	}
	free(was);
}

static struct mcfs_inode *inodes_find(struct mcfs_inodes *t, struct mcs_key key, enum mcs_kind kind,
			       uint64_t generation)
{
	struct mc_list *pos, *head = bucket_of(t, hash_of(key, generation));

	mc_list_for_each(pos, head) {
		struct mcfs_inode *in = mc_container_of(pos, struct mcfs_inode, bucket);

		if (in->hashed && in->info.generation == generation && in->kind == kind &&
		    in->key_len == key.len && memcmp(in->key, key.data, key.len) == 0)
			return in;
	}
	return NULL;
}

/* Record the inode in the handoff table: the next daemon needs the kernel's references. */
static bool inode_note_handoff(struct mcfs_inode *in)
{
	struct mcfs_handoff_entry e = {
		.type = MCFS_HANDOFF_INODE, .info = in->info, .nlookup = in->nlookup,
		.implied = in->implied, .hashed = in->hashed, .key = in->key, .key_len = in->key_len,
	};

	if (!mcfs_handoff())
		return true;
	e.info.kind = in->kind;
	in->number = mcfs_handoff_add(&e, in);
	return in->number;
}

static void inodes_insert(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	if (t->count >= t->nbucket)
		inodes_grow(t);
	mc_list_push_front(bucket_of(t, hash_of(key_of(in), in->info.generation)), &in->bucket);
	t->count++;
}

static struct mcfs_inode *inode_make(struct mcs_key key, enum mcs_kind kind, const struct mcs_info *info,
			       bool hashed)
{
	struct mcfs_inode *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->key = malloc(key.len + 1);
	if (!in->key) {
		free(in);
		return NULL;
	}
	memcpy(in->key, key.data, key.len);
	in->key_len = key.len;
	in->kind = kind;
	if (info)
		in->info = *info;
	in->ino = mcfs_inode_number(key, &in->attrs);
	in->hashed = hashed;
	in->nlookup = 1;
	return in;
}

static struct mcfs_inode *inodes_add(struct mcfs_inodes *t, struct mcs_key key, enum mcs_kind kind,
			      const struct mcs_info *info, bool hashed, bool implied)
{
	struct mcfs_inode *in = inode_make(key, kind, info, hashed);

	if (!in)
		return NULL;
	in->implied = implied;
	if (!inode_note_handoff(in)) {
		inode_free(in);
		return NULL;
	}
	inodes_insert(t, in);
	return in;
}

int mcfs_inodes_restore(struct mcfs_inodes *t)
{
	struct mcfs_handoff_entry e;
	uint64_t number = 0;

	MC_LOCKED(&t->lock);
	while ((number = mcfs_handoff_next(number, &e))) {
		struct mcs_key key = { e.key, e.key_len };
		struct mcfs_inode *in;

		if (e.type != MCFS_HANDOFF_INODE)
			continue;
		/* The table does not record whether a file's inode was hidden: the next lookup of a
		 * file gets a new inode. */
		in = inode_make(key, e.info.kind, &e.info, e.hashed && e.info.kind == MCS_DIR);
		if (!in)
			return -ENOMEM;
		in->implied = e.implied;
		in->nlookup = e.nlookup;
		in->number = number;
		mcfs_handoff_bind(number, in);
		inodes_insert(t, in);
	}
	return 0;
}

static void set_lookups(struct mcfs_inode *in, uint64_t n)
{
	in->nlookup = n;
	mcfs_handoff_set_nlookup(in->number, n);
}

/* ---- attributes ---- */

static void inode_describe(struct mcfs_inode *in, const struct mcs_attrs *attrs)
{
	in->attrs = *attrs;
	in->known = true;
	in->gone = false;
	if (has_number(attrs))
		__atomic_store_n(&in->ino, attrs->ino, __ATOMIC_RELAXED);
}

bool mcfs_inode_attrs(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcs_attrs *ret, bool *ret_gone)
{
	MC_LOCKED(&t->lock);
	*ret = in->attrs;
	*ret_gone = in->gone;
	return in->known;
}

void mcfs_inode_set_attrs(struct mcfs_inodes *t, struct mcfs_inode *in, const struct mcs_attrs *attrs)
{
	MC_LOCKED(&t->lock);
	inode_describe(in, attrs);
}

void mcfs_inode_set_gone(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	in->gone = true;
}

uint64_t mcfs_inode_version(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret)
{
	MC_LOCKED(&t->lock);
	ret->len = in->moved_key ? in->moved_len : in->key_len;
	memcpy(ret->data, in->moved_key ? in->moved_key : in->key, ret->len);
	return in->moved_key ? in->moved_generation : in->info.generation;
}

/* Without memory the inode keeps the old name: changes through its descriptors fail with ESTALE. */
static void inode_move(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcs_key to, uint64_t now)
{
	char *key = malloc(to.len + 1);

	if (!key)
		return;
	memcpy(key, to.data, to.len);
	if (!in->moved_key)
		mc_list_push_back(&t->moved, &in->moved);
	free(in->moved_key);
	in->moved_key = key;
	in->moved_len = to.len;
	in->moved_generation = now;
}

/* Only descriptors use an inode after a rename, since each path is looked up again. */
void mcfs_inode_move_file(struct mcfs_inodes *t, struct mcs_key from, uint64_t generation, struct mcs_key to,
			  uint64_t now)
{
	struct mc_list *pos, *tmp, *head;

	MC_LOCKED(&t->lock);
	mc_list_for_each(pos, &t->moved) {
		struct mcfs_inode *in = mc_container_of(pos, struct mcfs_inode, moved);

		if (in->moved_generation == generation && in->moved_len == from.len &&
		    memcmp(in->moved_key, from.data, from.len) == 0)
			inode_move(t, in, to, now);
	}
	head = bucket_of(t, hash_of(from, generation));
	mc_list_for_each_safe(pos, tmp, head) {
		struct mcfs_inode *in = mc_container_of(pos, struct mcfs_inode, bucket);

		if (in->readers && !in->moved_key && in->info.generation == generation && in->key_len == from.len &&
		    memcmp(in->key, from.data, from.len) == 0)
			inode_move(t, in, to, now);
	}
}

/* ---- lookups ---- */

struct mcfs_inode *mcfs_inode_lookup(struct mcfs_inodes *t, struct mcs_key key, struct mcs_info *info, bool listed,
				     bool implied, bool own)
{
	static const struct mcs_info none;
	/* A directory keeps its inode when its marker changes. */
	const struct mcs_info *version = info->kind == MCS_DIR ? &none : info;
	struct mcfs_inode *in;

	own = own && info->kind == MCS_OBJECT;
	MC_LOCKED(&t->lock);
	in = own ? NULL : inodes_find(t, key, info->kind, version->generation);
	if (in) {
		/* A directory was renamed there and back: the version has the name that it had. */
		inode_unmove(in);
		set_lookups(in, in->nlookup + 1);
	} else {
		in = inodes_add(t, key, info->kind, version, !own, implied);
	}
	if (in && listed && in->known && in->attrs.ctime_ns > info->attrs.ctime_ns)
		info->attrs = in->attrs;
	else if (in)
		inode_describe(in, &info->attrs);
	return in;
}

struct mcfs_inode *mcfs_inode_view(struct mcfs_inodes *t, struct mcs_key key)
{
	static const struct mcs_info view = { .kind = MCS_DIR, .generation = 1 };
	struct mcfs_inode *in;

	MC_LOCKED(&t->lock);
	in = inodes_find(t, key, MCS_DIR, view.generation);
	if (in) {
		set_lookups(in, in->nlookup + 1);
		return in;
	}
	return inodes_add(t, key, MCS_DIR, &view, true, false);
}

struct mcfs_inode *mcfs_inode_private(struct mcfs_inodes *t, struct mcs_key key,
				      const struct mcs_info *info)
{
	MC_LOCKED(&t->lock);
	return inodes_add(t, key, MCS_OBJECT, info, false, false);
}

static void drop_unused(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	if (in->nlookup || in->refs || in == &t->root)
		return;
	mcfs_handoff_remove(in->number);
	mc_list_remove(&in->bucket);
	t->count--;
	inode_free(in);
}

void mcfs_inode_forget(struct mcfs_inodes *t, struct mcfs_inode *in, uint64_t n)
{
	MC_LOCKED(&t->lock);
	if (in == &t->root || in == &t->lost)
		return;
	set_lookups(in, in->nlookup - (n < in->nlookup ? n : in->nlookup));
	drop_unused(t, in);
}

void mcfs_inode_key(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret)
{
	MC_LOCKED(&t->lock);
	ret->len = in->key_len;
	memcpy(ret->data, in->key, in->key_len);
}

void mcfs_inode_open_key(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret)
{
	bool moved;

	MC_LOCKED(&t->lock);
	moved = in->moved_key && in->moved_generation == in->info.generation;
	ret->len = moved ? in->moved_len : in->key_len;
	memcpy(ret->data, moved ? in->moved_key : in->key, ret->len);
}

int mcfs_inode_child_key(struct mcfs_inodes *t, const struct mcfs_inode *dir, const char *name,
			 struct mcfs_key *ret)
{
	int n;

	mcfs_inode_key(t, dir, ret);
	n = mcfs_name_decode(name, dir == &t->root, ret->data + ret->len, MCFS_KEY_MAX - ret->len);
	if (n < 0)
		return n;
	ret->len += (size_t)n;
	return 0;
}

/* ---- handles ---- */

int mcfs_inode_open_reader(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcfs_object **ret_object)
{
	MC_LOCKED(&t->lock);
	if (in->writers) {
		in->hashed = false;
		return -ESTALE;
	}
	in->readers++;
	in->refs++;
	*ret_object = in->object ? mcfs_object_ref(in->object) : NULL;
	return 0;
}

int mcfs_inode_open_writer(struct mcfs_inodes *t, struct mcfs_inode *in, bool share)
{
	bool shared;

	MC_LOCKED(&t->lock);
	if (in->readers || (in->writers && !share)) {
		in->hashed = false;
		return -ESTALE;
	}
	shared = in->writers > 0;
	in->kernel_size_stale |= shared;
	in->writers++;
	in->refs++;
	return shared;
}

void mcfs_inode_reopen(struct mcfs_inodes *t, struct mcfs_inode *in, bool reader)
{
	MC_LOCKED(&t->lock);
	in->readers += reader;
	in->writers += !reader;
	in->refs++;
}

void mcfs_inode_share(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcfs_object *o)
{
	MC_LOCKED(&t->lock);
	if (!in->object)
		in->object = mcfs_object_ref(o);
}

void mcfs_inode_close_reader(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	struct mcfs_object *o = NULL;

	mc_mutex_lock(&t->lock);
	if (!--in->readers) {
		o = in->object;
		in->object = NULL;
	}
	in->refs--;
	drop_unused(t, in);
	mc_mutex_unlock(&t->lock);
	/* May send a request to the master, so call it without the lock. */
	mcfs_object_unref(o);
}

void mcfs_inode_close_writer(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	in->writers--;
	in->refs--;
	drop_unused(t, in);
}

void mcfs_inode_ref(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	in->refs++;
}

void mcfs_inode_unref(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	in->refs--;
	drop_unused(t, in);
}

void mcfs_inode_hide(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	in->hashed = false;
}

void mcfs_inode_set_kernel_size_stale(struct mcfs_inodes *t, struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	in->kernel_size_stale = true;
}

bool mcfs_inode_is_kernel_size_stale(struct mcfs_inodes *t, const struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	return in->kernel_size_stale;
}

void mcfs_inode_set_listed(struct mcfs_inodes *t, struct mcfs_inode *in, uint64_t began_ms)
{
	MC_LOCKED(&t->lock);
	in->listed_ms = began_ms;
}

uint64_t mcfs_inode_listed(struct mcfs_inodes *t, const struct mcfs_inode *in)
{
	MC_LOCKED(&t->lock);
	return in->listed_ms;
}

/* ---- renamed directories ---- */

void mcfs_inode_move_begin(struct mcfs_inodes *t)
{
	MC_LOCKED(&t->lock);
	t->moves_begun++;
}

void mcfs_inode_move_end(struct mcfs_inodes *t)
{
	MC_LOCKED(&t->lock);
	t->moves_ended++;
	mc_cond_broadcast(&t->move_ended);
}

bool mcfs_inode_moved_since(struct mcfs_inodes *t, uint64_t moves, uint64_t deadline)
{
	uint64_t begun;
	int r = 0;

	MC_LOCKED(&t->lock);
	begun = t->moves_begun;
	while (t->moves_ended < begun && r == 0)
		r = mc_cond_wait_until(&t->move_ended, &t->lock, deadline);
	return t->moves != moves;
}

struct move {
	struct mcs_key from, to;
};

static bool is_in(const char *key, size_t len, struct mcs_key dir)
{
	return len >= dir.len && memcmp(key, dir.data, dir.len) == 0;
}

/* The new key, from malloc(); NULL: no memory, or it is too long for a key. */
static char *moved_key(const struct move *mv, const char *key, size_t len, size_t *ret_len)
{
	char *p;

	*ret_len = len - mv->from.len + mv->to.len;
	p = *ret_len <= MCFS_KEY_MAX ? malloc(*ret_len + 1) : NULL;
	if (!p)
		return NULL;
	memcpy(p, mv->to.data, mv->to.len);
	memcpy(p + mv->to.len, key + mv->from.len, len - mv->from.len);
	return p;
}

static void inode_unhash(struct mcfs_inode *in)
{
	in->hashed = false;
	mcfs_handoff_set_hashed(in->number, false);
}

/* @in is in no bucket. */
static void inode_set_key(struct mcfs_inodes *t, const struct move *mv, struct mcfs_inode *in)
{
	size_t len;
	char *key = moved_key(mv, in->key, in->key_len, &len);

	if (key) {
		(void)mcfs_handoff_set_key(in->number, key, len);
		free(in->key);
		in->key = key;
		in->key_len = len;
		__atomic_store_n(&in->ino, mcfs_inode_number(key_of(in), &in->attrs), __ATOMIC_RELAXED);
	} else {
		/* The kernel looks the name up again when its entry times out. */
		inode_unhash(in);
	}
	mc_list_push_front(bucket_of(t, hash_of(key_of(in), in->info.generation)), &in->bucket);
}

static void file_set_moved(struct mcfs_inodes *t, const struct move *mv, struct mcfs_inode *in)
{
	uint64_t generation = in->moved_key ? in->moved_generation : in->info.generation;
	size_t len;
	char *key = moved_key(mv, in->moved_key ? in->moved_key : in->key,
			      in->moved_key ? in->moved_len : in->key_len, &len);

	if (key)
		inode_move(t, in, (struct mcs_key){ key, len }, generation);
	free(key);
}

/* An inode that gets another key is collected in @found, because its new bucket may be visited later.  File locks
 * belong to the key, so a file with handles keeps it. */
static void inode_visit(struct mcfs_inodes *t, const struct move *mv, struct mcfs_inode *in, struct mc_list *found)
{
	if (mcfs_inode_is_view(in))
		return;
	if (in->moved_key) {
		if (is_in(in->moved_key, in->moved_len, mv->from))
			file_set_moved(t, mv, in);
	} else if (is_in(in->key, in->key_len, mv->from)) {
		if (in->readers) {
			file_set_moved(t, mv, in);
		} else if (!in->writers) {
			mc_list_remove(&in->bucket);
			mc_list_push_back(found, &in->bucket);
		}
	} else if (in->kind == MCS_DIR && in->hashed && is_in(in->key, in->key_len, mv->to)) {
		/* a directory that was replaced, or removed before */
		inode_unhash(in);
	}
}

void mcfs_inode_move_dir(struct mcfs_inodes *t, struct mcs_key from, struct mcs_key to)
{
	const struct move mv = { from, to };
	struct mc_list *pos, *tmp, found;

	mc_list_init(&found);
	MC_LOCKED(&t->lock);
	__atomic_store_n(&t->moves, t->moves + 1, __ATOMIC_RELEASE);
	for (size_t i = 0; i < t->nbucket; i++)
		mc_list_for_each_safe(pos, tmp, &t->bucket[i])
			inode_visit(t, &mv, mc_container_of(pos, struct mcfs_inode, bucket), &found);
	mc_list_for_each_safe(pos, tmp, &found) {
		struct mcfs_inode *in = mc_container_of(pos, struct mcfs_inode, bucket);

		mc_list_remove(pos);
		inode_set_key(t, &mv, in);
	}
}
