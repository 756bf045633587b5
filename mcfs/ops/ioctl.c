/* SPDX-License-Identifier: Apache-2.0
 * ioctl.c - commands of mooncake/mcfs_ioctl.h. Programs also send terminal commands: every open()
 * in Python calls TCGETS, and only ENOTTY tells it "this is a file". Therefore match the whole
 * command number, with direction and size. */
#include <config.h>

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "mcfs/handle.h"
#include "mcfs/control/local_service.h"
#include "mcfs/ops/ops.h"
#include <mooncake/mcfs_ioctl.h>

/* One call; @arg is a copy of the caller's argument, and returns the result. */
struct call {
	struct mcfs_op *op;
	struct mcfs_handle *h;
	void *arg;
};

/* ---- permissions ---- */

static bool is_owner(const struct mcfs_op *op)
{
	return !op->ctx.uid || op->ctx.uid == op->fs->uid || op->ctx.uid == geteuid();
}

/* The kernel does not look up keys passed to ioctl, so check the modes here. With attributes, files and the directories
 * above them have modes of their own. */
static int may_read(const struct call *c)
{
	if (is_owner(c->op) || (!c->op->fs->conf.attrs && c->op->fs->file_mode & 0004))
		return 0;
	return mc_fail(-EACCES, "keys in ioctl need the owner of the mount, or the option noattrs");
}

static int may_write(const struct call *c)
{
	const struct mcfs *fs = c->op->fs;

	if (fs->conf.ro || !fs->conf.rw)
		return -EROFS;
	if (is_owner(c->op) || (!fs->conf.attrs && fs->dir_mode & 0002))
		return 0;
	return mc_fail(-EACCES, "keys in ioctl need the owner of the mount, or the option noattrs");
}

static int check_key(uint32_t version, uint32_t len)
{
	if (version != MCFS_IOC_VERSION)
		return mc_fail(-EPROTONOSUPPORT, "unknown version of the ioctl structs version=%u", version);
	return len && len <= MCFS_IOC_KEY_MAX ? 0 : mc_fail(-EINVAL, "key length out of range bytes=%u", len);
}

/* The descriptor's pins, created on first use. */
static int pins_of(struct call *c, struct mcn_pins **ret)
{
	struct mcn_pins *now = __atomic_load_n(&c->h->pins, __ATOMIC_ACQUIRE), *mine;
	int r;

	if (!now) {
		r = mcn_pins_new(mcfs_service_node(c->op->fs), false, &mine);
		if (r < 0)
			return r;
		if (__atomic_compare_exchange_n(&c->h->pins, &now, mine, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			now = mine;
		else
			mcn_pins_free(mine);
	}
	*ret = now;
	return 0;
}

/* ---- commands ---- */

static int do_info(struct call *c)
{
	struct mcn *n = mcfs_service_node(c->op->fs);
	struct mcfs_ioc_info *a = c->arg;
	const char *addr = mcn_address(n);
	struct mcn_counts counts;
	uint64_t size;

	mcn_count(n, &counts);
	a->version = MCFS_IOC_VERSION;
	a->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
	for (unsigned i = 0; i < MCN_SEGMENTS; i++)
		a->nsegments += mcn_segment(n, i, &size) >= 0 && size;
	if (mcn_segment(n, 0, &size) >= 0)
		a->segment_size = size;
	a->connections = counts.connections;
	a->buffers = counts.buffers;
	a->pins = counts.pins;
	a->features = (*addr ? MCFS_FEATURE_SOCKET : 0) |
		(mcfs_compat_passthrough() ? MCFS_FEATURE_PASSTHROUGH : 0) |
		(mcfs_compat_shared_mmap() ? MCFS_FEATURE_SHARED_MMAP : 0);
	if (strlen(addr) < sizeof(a->socket))
		strcpy(a->socket, addr);
	return 0;
}

static void fill_extent(struct mcfs_ioc_extent *a, const struct mcn_extent *p)
{
	*a = (struct mcfs_ioc_extent){
		.version = MCFS_IOC_VERSION, .segment = p->segment, .offset = p->offset,
		.length = p->size, .generation = p->generation, .crc32c = p->crc32c,
	};
}

/* The object is not in local memory: fetch a copy, if the key still has this version. */
static int fetch_extent(struct call *c, struct mcfs_ioc_extent *a, uint64_t generation)
{
	struct mcn_extent extent;
	struct mcn_pins *pins;
	struct mcfs_key key;
	int r = pins_of(c, &pins);

	if (r < 0)
		return r;
	mcfs_inode_key(&c->op->fs->inodes, c->h->inode, &key);
	r = mcn_pin(pins, mcfs_key_of(&key), false, mcfs_op_left_ms(c->op), &extent);
	if (r < 0)
		return r;
	if (extent.generation != generation) {
		(void)mcn_unpin(pins, extent.pin);
		return -ESTALE;
	}
	fill_extent(a, &extent);
	return 0;
}

static int do_extent(struct call *c)
{
	struct mcfs_ioc_extent *a = c->arg;
	const struct mcs_info *info;
	uint64_t offset = 0;
	int r;

	/* Only the owner may access the memory, as with segments/. */
	if (!is_owner(c->op))
		return -EACCES;
	if (c->h && c->h->type == MCFS_READ) {
		r = mcfs_handle_continue(c->op->fs, c->h, c->op->deadline);
		if (r < 0)
			return r;
	}
	if (!c->h || c->h->type != MCFS_READ || !c->h->object)
		return mc_fail(-EINVAL, "only a file that is open for reading has an extent");
	info = mcfs_object_info(c->h->object);
	__atomic_store_n(&c->h->located, true, __ATOMIC_RELEASE);
	r = info->size ? mcfs_object_offset(c->h->object, &offset) : 0;
	if (r < 0)
		return fetch_extent(c, a, info->generation);
	fill_extent(a, &(struct mcn_extent){
		.offset = offset, .size = info->size, .generation = info->generation,
		.crc32c = info->crc32c,
	});
	return 0;
}

static int do_stat(struct call *c)
{
	struct mcfs_ioc_stat *a = c->arg;
	struct mcs_info info;
	int r = check_key(a->version, a->key_len);

	if (r == 0)
		r = may_read(c);
	if (r == 0)
		r = mcs_stat(c->op->fs->store, (struct mcs_key){ a->key, a->key_len }, &info,
			     mcfs_op_left_ms(c->op));
	if (r < 0)
		return r;
	a->size = info.size;
	a->generation = info.generation;
	a->mtime_ms = info.mtime_ms;
	a->crc32c = info.crc32c;
	a->kind = (uint32_t)info.kind;
	a->flags = info.flags;
	a->replicas = info.replicas;
	return 0;
}

static int do_exist(struct call *c)
{
	struct mcs_key key[MCFS_IOC_EXIST_MAX];
	struct mcfs_ioc_exist *a = c->arg;
	size_t at = 0;
	int r = may_read(c);

	if (r < 0)
		return r;
	if (a->version != MCFS_IOC_VERSION)
		return -EPROTONOSUPPORT;
	if (a->n > MCFS_IOC_EXIST_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < a->n; i++) {
		if (a->key_len[i] > sizeof(a->keys) - at)
			return -EINVAL;
		key[i] = (struct mcs_key){ a->keys + at, a->key_len[i] };
		at += a->key_len[i];
	}
	return mcs_exist(c->op->fs->store, key, a->n, a->present, mcfs_op_left_ms(c->op));
}

/* Pin the memory that a GET or PUT names. Until it is released, the caller is not answered, even if
 * it is killed: the memory was passed as a descriptor, so a parent or another worker may have
 * mapped it too, and would reuse it as soon as the caller is dead. The kernel treats direct I/O of
 * a killed process in the same way. */
static int begin_io(struct call *c, const struct mcfs_ioc_io *a, void **ret_hold, struct iovec *ret)
{
	int r;
	const struct mcn_io io = {
		.token = a->token, .uid = c->op->ctx.uid, .buffer = a->buffer, .at = a->at,
		.len = a->len,
	};

	r = mcn_io_begin(mcfs_service_node(c->op->fs), &io, ret_hold, ret);
	if (r < 0 || mcfs_op_claim(c->op, MCFS_FOR_GOOD))
		return r;
	mcn_io_end(mcfs_service_node(c->op->fs), *ret_hold);
	return -EINTR;
}

static int do_get(struct call *c)
{
	struct mcfs_ioc_io *a = c->arg;
	struct iovec iov;
	int64_t n;
	void *hold;
	int r = check_key(a->version, a->key_len);

	if (r == 0 && a->flags)
		r = -EINVAL;
	if (r == 0)
		r = may_read(c);
	if (r == 0)
		r = begin_io(c, a, &hold, &iov);
	if (r < 0)
		return r;
	n = mcs_get_range(c->op->fs->store, (struct mcs_key){ a->key, a->key_len }, a->offset, &iov,
			  1, mcfs_op_left_ms(c->op));
	mcn_io_end(mcfs_service_node(c->op->fs), hold);
	if (n < 0)
		return (int)n;
	a->len = (uint64_t)n;
	return 0;
}

static int check_put(struct call *c, const struct mcfs_ioc_io *a)
{
	int r = check_key(a->version, a->key_len);

	if (r == 0 && (a->flags & ~(MCFS_IO_UPSERT | MCFS_IO_EXCL)))
		r = -EINVAL;
	if (r == 0)
		r = may_write(c);
	if (r == 0 && (a->flags & MCFS_IO_UPSERT) && mcfs_live(&c->op->fs->conf.immutable))
		r = -EPERM;
	return r;
}

static int do_put(struct call *c)
{
	struct mcfs_ioc_io *a = c->arg;
	struct mcs_put_opts opts = {
		.flags = (a->flags & MCFS_IO_UPSERT ? MCS_PUT_UPSERT : 0) |
			(a->flags & MCFS_IO_EXCL ? MCS_PUT_EXCL : 0),
		.replicas = a->replicas,
	};
	struct iovec iov;
	void *hold;
	int r = check_put(c, a);

	if (r == 0)
		r = begin_io(c, a, &hold, &iov);
	if (r < 0)
		return r;
	r = mcs_put(c->op->fs->store, (struct mcs_key){ a->key, a->key_len }, &iov, 1, &opts,
		    mcfs_op_left_ms(c->op));
	mcn_io_end(mcfs_service_node(c->op->fs), hold);
	return r;
}

static int do_remove(struct call *c)
{
	const struct mcfs_ioc_key *a = c->arg;
	int r = check_key(a->version, a->key_len);

	if (r == 0 && (a->flags & ~MCS_REMOVE_FORCE))
		r = -EINVAL;
	if (r == 0)
		r = may_write(c);
	if (r == 0 && c->op->fs->rm == MCFS_RM_DENY)
		r = mc_fail(-EPERM, "removing is disabled: rm=deny");
	if (r == 0 && !mcfs_op_claim(c->op, MCFS_UNLESS_KILLED))
		r = -EINTR;
	return r < 0 ? r : mcs_remove(c->op->fs->store, (struct mcs_key){ a->key, a->key_len },
				      c->op->fs->rm == MCFS_RM_FORCE ? a->flags : 0, mcfs_op_left_ms(c->op));
}

static int do_prefetch(struct call *c)
{
	const struct mcfs_ioc_key *a = c->arg;
	int r = check_key(a->version, a->key_len);

	if (r == 0 && a->flags)
		r = -EINVAL;
	if (r == 0)
		r = may_read(c);
	return r < 0 ? r : mcn_prefetch(mcfs_service_node(c->op->fs),
					(struct mcs_key){ a->key, a->key_len }, false,
					mcfs_op_left_ms(c->op));
}

static int do_pin(struct call *c)
{
	struct mcfs_ioc_pin *a = c->arg;
	struct mcn_extent extent;
	struct mcn_pins *pins;
	int r = check_key(a->version, a->key_len);

	if (r == 0)
		r = is_owner(c->op) ? pins_of(c, &pins) : -EACCES;
	if (r == 0)
		r = mcn_pin(pins, (struct mcs_key){ a->key, a->key_len }, false,
			    mcfs_op_left_ms(c->op), &extent);
	if (r < 0)
		return r;
	/* After EINTR the caller does not know the pin's number, so release it. */
	if (!mcfs_op_claim(c->op, MCFS_UNLESS_KILLED)) {
		(void)mcn_unpin(pins, extent.pin);
		return -EINTR;
	}
	a->pin = extent.pin;
	fill_extent(&a->extent, &extent);
	return 0;
}

static int do_unpin(struct call *c)
{
	const struct mcfs_ioc_unpin *a = c->arg;
	struct mcn_pins *pins = __atomic_load_n(&c->h->pins, __ATOMIC_ACQUIRE);

	if (a->version != MCFS_IOC_VERSION)
		return -EPROTONOSUPPORT;
	return pins ? mcn_unpin(pins, a->pin) : -EINVAL;
}

static int do_buffers(struct call *c)
{
	struct mcn_buffer_info info[MCFS_IOC_BUFFERS_MAX];
	struct mcfs_ioc_buffers *a = c->arg;

	a->version = MCFS_IOC_VERSION;
	a->n = mcn_buffers(mcfs_service_node(c->op->fs), c->op->ctx.uid, info, MCFS_IOC_BUFFERS_MAX);
	for (uint32_t i = 0; i < a->n; i++) {
		a->buffer[i].token = info[i].token;
		a->buffer[i].size = info[i].size;
		a->buffer[i].id = info[i].id;
		a->buffer[i].uid = info[i].uid;
		a->buffer[i].pid = info[i].pid;
	}
	return 0;
}

static int do_reserve(struct call *c)
{
	const struct mcfs_ioc_reserve *a = c->arg;
	int r;

	if (a->version != MCFS_IOC_VERSION)
		return -EPROTONOSUPPORT;
	if (!c->h || c->h->type != MCFS_WRITE)
		return mc_fail(-EBADF, "space can be reserved only for a file that is open for writing");
	r = mcfs_handle_continue(c->op->fs, c->h, c->op->deadline);
	return r < 0 ? r : mcfs_writer_allocate(c->h->writer, a->size, true, c->op->ctx.pid, c->op);
}

static const struct command {
	unsigned cmd;
	int (*run)(struct call *c);
} commands[] = {
	{ MCFS_IOC_INFO, do_info },
	{ MCFS_IOC_EXTENT, do_extent },
	{ MCFS_IOC_STAT, do_stat },
	{ MCFS_IOC_EXIST, do_exist },
	{ MCFS_IOC_GET, do_get },
	{ MCFS_IOC_PUT, do_put },
	{ MCFS_IOC_REMOVE, do_remove },
	{ MCFS_IOC_PREFETCH, do_prefetch },
	{ MCFS_IOC_PIN, do_pin },
	{ MCFS_IOC_UNPIN, do_unpin },
	{ MCFS_IOC_BUFFERS, do_buffers },
	{ MCFS_IOC_RESERVE, do_reserve },
};

static const struct command *ioctl_find(unsigned cmd, size_t in_size, size_t out_size)
{
	size_t size = _IOC_SIZE(cmd);

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (commands[i].cmd != cmd)
			continue;
		/* The kernel passes buffers of the command's size; reject smaller ones. */
		if (((_IOC_DIR(cmd) & _IOC_WRITE) && in_size < size) ||
		    ((_IOC_DIR(cmd) & _IOC_READ) && out_size < size))
			return NULL;
		return &commands[i];
	}
	return NULL;
}

static void ioctl_run(struct mcfs_op *op, const struct command *cmd, struct mcfs_handle *h,
		const void *in_buf)
{
	size_t size = _IOC_SIZE(cmd->cmd);
	struct call c = { .op = op, .h = h, .arg = calloc(1, size) };
	int r = -ENOMEM;

	if (c.arg) {
		if (_IOC_DIR(cmd->cmd) & _IOC_WRITE)
			memcpy(c.arg, in_buf, size);
		r = cmd->run(&c);
	}
	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else
		(void)mcfs_reply_ioctl(op, r, c.arg, _IOC_DIR(cmd->cmd) & _IOC_READ ? size : 0);
	free(c.arg);
}

void mcfs_do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in_buf, size_t in_size,
		   size_t out_size)
{
	const struct command *found = ioctl_find(cmd, in_size, out_size);
	struct mcfs_op op;

	if (!found) {
		if (mcfs_op_begin(&op, req, MCFS_OP_ioctl, 0, NULL))
			(void)mcfs_reply_err(&op, -ENOTTY);
		return;
	}
	if (mcfs_op_begin(&op, req, MCFS_OP_ioctl, ino, fi))
		ioctl_run(&op, found, fi ? mcfs_handle_of(fi) : NULL, in_buf);
}
