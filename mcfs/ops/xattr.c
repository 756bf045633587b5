/* SPDX-License-Identifier: Apache-2.0
 * xattr.c - the pool's facts about a file, as user.mooncake.* attributes; other user.* attributes are in user_xattr.c.
 * All other namespaces are refused with EOPNOTSUPP: ls reads two of them for every file, and remembers this error for
 * the whole mount. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "common/err.h"
#include "common/options/options.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

#define SPACE "user.mooncake."
#define VALUE_MAX 64
#define WHERE_MAX 2048u
#define REPLICAS_MAX 64u

struct file_facts {
	struct mcfs_key key;
	struct mcs_info info;
	bool writing;
	bool local;
	size_t group_len, where_len;
	char group[MCFS_KEY_MAX];
	char where[WHERE_MAX];	/* one line per replica */
};

/* Each getter fills @buf, which has room for a key, and returns the length. */
static size_t get_key(const struct file_facts *f, char *buf)
{
	memcpy(buf, f->key.data, f->key.len);
	return f->key.len;
}

static size_t get_size(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%" PRIu64, f->info.size);
}

static size_t get_crc(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "crc32c:%08" PRIx32, f->info.crc32c);
}

static size_t get_generation(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%" PRIu64, f->info.generation);
}

static size_t get_state(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%s", f->writing ? "writing" : "complete");
}

static size_t get_replicas(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%u", f->info.replicas);
}

static size_t get_tier(const struct file_facts *f, char *buf)
{
	static const struct { unsigned flag; const char *name; } tier[] = {
		{ MCS_IN_MEMORY, "memory" }, { MCS_IN_FAR_MEMORY, "far" }, { MCS_ON_DISK, "disk" },
		{ MCS_ON_SHARED, "shared" },
	};
	size_t n = 0;

	for (unsigned i = 0; i < sizeof(tier) / sizeof(tier[0]); i++)
		if (f->info.flags & tier[i].flag)
			n += (size_t)sprintf(buf + n, "%s%s", n ? "+" : "", tier[i].name);
	/* A file without bytes has no copy. */
	return n ? n : (size_t)sprintf(buf, "memory");
}

static size_t get_pin(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%s", f->info.flags & MCS_PUT_HARD_PIN ? "hard" :
			       f->info.flags & MCS_PUT_SOFT_PIN ? "soft" : "none");
}

/* Has this node a copy? One of several replicas is enough. */
static size_t get_locality(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%s", f->local ? "local" : "remote");
}

static size_t get_where(const struct file_facts *f, char *buf)
{
	memcpy(buf, f->where, f->where_len);
	return f->where_len;
}

static size_t get_group(const struct file_facts *f, char *buf)
{
	memcpy(buf, f->group, f->group_len);
	return f->group_len;
}

/* ---- attributes that can be set on a file being written ---- */

static int set_pin(struct mcfs_writer *w, const char *value, struct mcfs_op *op)
{
	if (strcmp(value, "hard") == 0)
		return mcfs_writer_set_pin(w, MCS_PUT_HARD_PIN, op);
	if (strcmp(value, "soft") == 0)
		return mcfs_writer_set_pin(w, MCS_PUT_SOFT_PIN, op);
	if (strcmp(value, "none") == 0)
		return mcfs_writer_set_pin(w, 0, op);
	return -EINVAL;
}

static int set_replicas(struct mcfs_writer *w, const char *value, struct mcfs_op *op)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	if (!*value || *end || n < 1 || n > REPLICAS_MAX)
		return -EINVAL;
	return mcfs_writer_set_replicas(w, (unsigned)n, op);
}

static int set_size(struct mcfs_writer *w, const char *value, struct mcfs_op *op)
{
	uint64_t size;

	if (mc_parse_size(value, &size) < 0)
		return -EINVAL;
	return mcfs_writer_truncate(w, size, op->ctx.pid, op);
}

static const struct attribute {
	const char *name;
	size_t (*get)(const struct file_facts *f, char *buf);
	bool committed;		/* absent while the file is being written */
	/* NULL: read-only */
	int (*set)(struct mcfs_writer *w, const char *value, struct mcfs_op *op);
} attributes[] = {
	{ SPACE "key", get_key, false, NULL },
	{ SPACE "state", get_state, false, NULL },
	{ SPACE "size", get_size, false, set_size },
	{ SPACE "crc", get_crc, true, NULL },
	{ SPACE "generation", get_generation, true, NULL },
	{ SPACE "replicas", get_replicas, false, set_replicas },
	{ SPACE "tier", get_tier, true, NULL },
	{ SPACE "locality", get_locality, true, NULL },
	{ SPACE "pin", get_pin, false, set_pin },
	{ SPACE "where", get_where, true, NULL },
	{ SPACE "group", get_group, true, NULL },
};
#define NATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

static const struct attribute *xattr_find(const char *name)
{
	for (size_t i = 0; i < NATTRIBUTES; i++)
		if (strcmp(attributes[i].name, name) == 0)
			return &attributes[i];
	return NULL;
}

/* Omit replicas that do not fit; user.mooncake.replicas still counts them. */
static void xattr_add_replica(struct file_facts *f, const struct mcs_replica *at)
{
	char *to = f->where + f->where_len;
	size_t left = WHERE_MAX - f->where_len;
	int n = snprintf(to, left, "%s%s segment=%s address=0x%" PRIx64 " size=%" PRIu64 " state=%s%s",
			 f->where_len ? "\n" : "", at->segment, at->segment_id, at->address, at->size,
			 at->state, at->on_disk ? " tier=disk" : "");

	if (n > 0 && (size_t)n < left)
		f->where_len += (size_t)n;
}

static int xattr_learn_committed(struct mcfs_op *op, struct file_facts *ret)
{
	const char *host = mcs_hostname(op->fs->store);
	struct mcs_key key = mcfs_key_of(&ret->key);
	struct mcs_replicas where;
	int r = mcs_replicas(op->fs->store, &key, 1, 0, &where, mcfs_op_left_ms(op));

	if (r < 0)
		return r;
	ret->info = where.info;
	ret->info.replicas = where.n;
	for (unsigned i = 0; i < where.n; i++) {
		ret->local = ret->local || strcmp(where.replica[i].segment, host) == 0;
		xattr_add_replica(ret, &where.replica[i]);
	}
	ret->group_len = where.group.len < sizeof(ret->group) ? where.group.len : sizeof(ret->group);
	if (ret->group_len)
		memcpy(ret->group, where.group.data, ret->group_len);
	r = where.result;
	mcs_replicas_free(&where, 1);
	return r;
}

static int xattr_learn(struct mcfs_op *op, struct mcfs_inode *in, struct file_facts *ret)
{
	struct mcfs *fs = op->fs;
	struct mcfs_writer *w = mcfs_handle_writer_seen(fs, in);
	uint64_t version = w ? 0 : in->info.generation;
	int r;

	memset(&ret->info, 0, sizeof(ret->info));
	ret->local = false;
	ret->group_len = ret->where_len = 0;
	mcfs_inode_key(&fs->inodes, in, &ret->key);
	ret->writing = w && mcfs_writer_pending(w);
	if (w) {
		r = mcfs_writer_lock(w, op->deadline);
		if (r < 0) {
			mcfs_writer_unref(w);
			return r;
		}
		ret->info.size = w->stage.size;
		ret->info.flags = w->put_flags;
		ret->info.replicas = w->replicas ? w->replicas : 1;
		mc_mutex_unlock(&w->lock);
	}
	mcfs_writer_unref(w);
	if (ret->writing)
		return 0;
	r = xattr_learn_committed(op, ret);
	/* The descriptor has an older version, while the master only knows the newest. A path is
	 * looked up again. */
	if (r == 0 && version && ret->info.generation != version)
		return mc_fail(-ESTALE, "the file was replaced");
	return r;
}

void mcfs_do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	const struct attribute *a = xattr_find(name);
	struct mcfs_inode *in;
	struct file_facts facts;
	char buf[MCFS_KEY_MAX + 1];
	struct mcfs_op op;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_getxattr, ino, NULL))
		return;
	if (mcfs_is_user_xattr(name)) {
		mcfs_user_xattr_get(&op, name, size);
		return;
	}
	in = op.in;
	if (strncmp(name, "user.", strlen("user.")) != 0)
		r = -EOPNOTSUPP;
	else if (!a || !in || in->kind == MCS_DIR)
		r = -ENODATA;
	else
		r = xattr_learn(&op, in, &facts);
	if (r == 0 && a->committed && facts.writing)
		r = -ENODATA;
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		(void)mcfs_reply_xattr(&op, buf, a->get(&facts, buf), size);
}

/* Only names that a copy of the file can set: mv, cp -a, rsync -X and tar --xattrs try to set every listed name. */
void mcfs_do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct mcs_xattr *user = NULL;
	struct mcfs_op op;
	char *buf = NULL;
	unsigned nuser = 0;
	size_t n = 0;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_listxattr, ino, NULL))
		return;
	if (op.in)
		r = mcfs_user_xattrs(&op, op.in, &user, &nuser);
	if (r == 0) {
		n = mcfs_user_xattr_names(user, nuser, NULL);
		buf = malloc(n + 1);
		r = buf ? 0 : -ENOMEM;
	}
	if (r == 0)
		(void)mcfs_user_xattr_names(user, nuser, buf);
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		(void)mcfs_reply_xattr(&op, buf, n, size);
	free(user);
	free(buf);
}

static int xattr_set(struct mcfs_op *op, const struct attribute *a, const char *value, size_t size)
{
	struct mcfs_writer *w;
	char text[VALUE_MAX + 1];
	int r;

	if (!a)
		return -EOPNOTSUPP;
	if (!a->set || !op->in || op->in->kind != MCS_OBJECT)
		return -EPERM;
	if (size > VALUE_MAX || memchr(value, '\0', size))
		return -EINVAL;
	memcpy(text, value, size);
	text[size] = '\0';
	/* A version never changes: only a file that is being written can be set. */
	w = mcfs_handle_writer_seen(op->fs, op->in);
	if (w && a->set == set_size)
		mcfs_handle_changes(op->fs, w);
	r = w ? a->set(w, text, op) : -EPERM;
	if (w && a->set == set_size)
		mcfs_handle_changes(op->fs, w);
	mcfs_writer_unref(w);
	return r;
}

void mcfs_do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size, int flags)
{
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_setxattr, ino, NULL))
		return;
	if (mcfs_is_user_xattr(name))
		r = mcfs_user_xattr_set(&op, name, value, size, (flags & XATTR_CREATE ? MCS_XATTR_CREATE : 0) |
					(flags & XATTR_REPLACE ? MCS_XATTR_REPLACE : 0));
	else if (xattr_find(name) && flags & XATTR_CREATE)
		r = -EEXIST;
	else
		r = xattr_set(&op, xattr_find(name), value, size);
	(void)mcfs_reply_err(&op, r);
}

void mcfs_do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct mcfs_op op;

	if (!mcfs_op_begin(&op, req, MCFS_OP_removexattr, ino, NULL))
		return;
	(void)mcfs_reply_err(&op, mcfs_is_user_xattr(name) ?
			     mcfs_user_xattr_set(&op, name, NULL, 0, MCS_XATTR_REMOVE) : -EOPNOTSUPP);
}
