/* SPDX-License-Identifier: Apache-2.0
 * xattr.c - what the pool knows about a file, as user.mooncake.* attributes.
 * All other namespaces are refused for good: ls asks for two of them for every file, and remembers such
 * a refusal for the whole mount. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

#define SPACE "user.mooncake."

struct file_facts {
	struct mcfs_key key;
	struct mcs_info info;
	bool writing;
};

/* Each fills @buf, whose size fits a key, and gives the length. */
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

static size_t get_pin(const struct file_facts *f, char *buf)
{
	return (size_t)sprintf(buf, "%s", f->info.flags & MCS_PUT_HARD_PIN ? "hard" :
			       f->info.flags & MCS_PUT_SOFT_PIN ? "soft" : "none");
}

static const struct attribute {
	const char *name;
	size_t (*get)(const struct file_facts *f, char *buf);
	bool committed;		/* a file that is being written has none */
} attributes[] = {
	{ SPACE "key", get_key, false },
	{ SPACE "state", get_state, false },
	{ SPACE "size", get_size, false },
	{ SPACE "crc", get_crc, true },
	{ SPACE "generation", get_generation, true },
	{ SPACE "replicas", get_replicas, true },
	{ SPACE "pin", get_pin, true },
};
#define NATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

static const struct attribute *find(const char *name)
{
	for (size_t i = 0; i < NATTRIBUTES; i++)
		if (strcmp(attributes[i].name, name) == 0)
			return &attributes[i];
	return NULL;
}

static int learn(struct mcfs_op *op, struct mcfs_inode *in, struct file_facts *ret)
{
	struct mcfs *fs = op->fs;
	struct mcfs_writer *w = mcfs_handle_writer_seen(fs, in);

	memset(&ret->info, 0, sizeof(ret->info));
	mcfs_inode_key(&fs->inodes, in, &ret->key);
	ret->writing = w && mcfs_writer_pending(w);
	if (w)
		ret->info.size = __atomic_load_n(&w->shown_size, __ATOMIC_RELAXED);
	mcfs_writer_unref(w);
	if (ret->writing)
		return 0;
	return mcs_stat(fs->store, mcfs_key_of(&ret->key), &ret->info, mcfs_op_left_ms(op));
}

void mcfs_do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	const struct attribute *a = find(name);
	struct mcfs_inode *in;
	struct file_facts facts;
	char buf[MCFS_KEY_MAX + 1];
	struct mcfs_op op;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_getxattr, ino, NULL))
		return;
	in = op.in;
	if (strncmp(name, "user.", strlen("user.")) != 0)
		r = -EOPNOTSUPP;
	else if (!a || !in || in->kind == MCS_DIR)
		r = -ENODATA;
	else
		r = learn(&op, in, &facts);
	if (r == 0 && a->committed && facts.writing)
		r = -ENODATA;
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		(void)mcfs_reply_xattr(&op, buf, a->get(&facts, buf), size);
}

void mcfs_do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct mcfs_inode *in;
	struct file_facts facts;
	struct mcfs_op op;
	char buf[512];
	size_t n = 0;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_listxattr, ino, NULL))
		return;
	in = op.in;
	if (in && in->kind != MCS_DIR)
		r = learn(&op, in, &facts);
	else
		in = NULL;
	for (size_t i = 0; i < NATTRIBUTES && in && r == 0; i++) {
		if (attributes[i].committed && facts.writing)
			continue;
		memcpy(buf + n, attributes[i].name, strlen(attributes[i].name) + 1);
		n += strlen(attributes[i].name) + 1;
	}
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		(void)mcfs_reply_xattr(&op, buf, n, size);
}

void mcfs_do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size, int flags)
{
	struct mcfs_op op;

	if (mcfs_op_begin(&op, req, MCFS_OP_setxattr, 0, NULL))
		(void)mcfs_reply_err(&op, -EOPNOTSUPP);
}

void mcfs_do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct mcfs_op op;

	if (mcfs_op_begin(&op, req, MCFS_OP_removexattr, 0, NULL))
		(void)mcfs_reply_err(&op, -EOPNOTSUPP);
}
