/* SPDX-License-Identifier: Apache-2.0
 * local_service.c - the service for local programs, and the memory segments as files. */
#include <config.h>
#include "mcfs/control/local_service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "mcfs/life/handoff.h"
#include "mcfs/handle.h"

struct mcfs_service {
	struct mcn *node;		/* constant */
	struct mc_mutex lock;
	/* guarded by lock */
	int backing[MCN_SEGMENTS];	/* the kernel's id of the backing file, 0: not registered yet */
};

static int start_node(struct mcfs *fs, const char *master, struct mcn **ret)
{
	struct mcn_conf conf = {
		.store = fs->store,
		.master = master,
		.tenant = mcs_tenant(fs->store),
		.port = (int)fs->conf.port,
		.path = fs->conf.socket,
		.uids = fs->conf.allow_uids,
		.hot_size = fs->conf.hot_cache_size > fs->conf.local_buffer_size ?
			fs->conf.hot_cache_size : fs->conf.local_buffer_size,
		.hot_ms = (unsigned)fs->conf.hot_ttl,
		.spin_us = (unsigned)fs->conf.ring_spin_us,
	};
	int r = mcn_start(&conf, ret);

	if (r != -EADDRINUSE || !conf.port || mc_options_origin(fs->options, "port") != MC_ORIGIN_DEFAULT)
		return r;
	mc_info("mcfs", "another daemon of this host uses the port, local programs connect to it port=%d", conf.port);
	conf.port = 0;
	return mcn_start(&conf, ret);
}

int mcfs_service_start(struct mcfs *fs, const char *master)
{
	struct mcfs_service *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	r = start_node(fs, master, &s->node);
	if (r < 0) {
		mc_mutex_destroy(&s->lock);
		free(s);
		return r;
	}
	fs->service = s;
	return 0;
}

void mcfs_service_stop(struct mcfs *fs)
{
	if (!fs->service)
		return;
	mcn_stop(fs->service->node);
	mc_mutex_destroy(&fs->service->lock);
	free(fs->service);
	fs->service = NULL;
}

struct mcn *mcfs_service_node(const struct mcfs *fs)
{
	return fs->service->node;
}

void mcfs_service_forget_backing(struct mcfs *fs)
{
	MC_LOCKED(&fs->service->lock);
	memset(fs->service->backing, 0, sizeof(fs->service->backing));
}

/* ---- files ---- */

static uint64_t segment_size(const struct mcfs *fs, fuse_ino_t ino)
{
	uint64_t size;

	return mcn_segment(fs->service->node, (unsigned)(ino - MCFS_CONTROL_SEGMENT), &size) < 0 ? 0 :
		size;
}

int mcfs_service_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret)
{
	uint64_t size = 0;

	if (mcfs_is_segment(ino)) {
		size = segment_size(fs, ino);
		if (!size)
			return -ENOENT;
	} else if (ino != MCFS_CONTROL_SEGMENTS && ino != MCFS_CONTROL_CTL) {
		return -ENOENT;
	}
	mcfs_stat_entry(fs, ino, ino == MCFS_CONTROL_SEGMENTS ? MCS_DIR : MCS_OBJECT, size,
			mc_wall_ns() / MC_NS_PER_MS, ret);
	/* Segments contain all objects, so only the owner may read them. */
	if (mcfs_is_segment(ino))
		ret->st_mode = S_IFREG | 0400;
	else if (ino == MCFS_CONTROL_CTL)
		ret->st_mode = S_IFREG | 0666;
	else
		ret->st_mode &= ~(mode_t)0222;
	return 0;
}

const char *mcfs_service_segment_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino)
{
	static const char *const names[MCN_SEGMENTS] = { "0", "1" };

	/* A node that contributes no memory has only the second segment. */
	if (!segment_size(fs, MCFS_CONTROL_SEGMENT))
		i++;
	if (i >= MCN_SEGMENTS || !segment_size(fs, MCFS_CONTROL_SEGMENT + i))
		return NULL;
	*ret_ino = MCFS_CONTROL_SEGMENT + i;
	return names[i];
}

void mcfs_service_lookup_segment(struct mcfs_op *op, const char *name)
{
	struct fuse_entry_param e = { 0 };
	const char *have;
	uint64_t ino;

	for (unsigned i = 0; (have = mcfs_service_segment_name(op->fs, i, &ino)); i++) {
		if (strcmp(have, name) != 0 || mcfs_service_stat(op->fs, ino, &e.attr) < 0)
			continue;
		e.ino = ino;
		(void)mcfs_reply_entry(op, &e);
		return;
	}
	(void)mcfs_reply_err(op, -ENOENT);
}

/* The kernel's backing id of a segment, registered once. */
static int backing_of(struct mcfs_op *op, unsigned id)
{
	struct mcfs_service *s = op->fs->service;
	uint64_t size;
	int fd;

	MC_LOCKED(&s->lock);
	if (s->backing[id] > 0)
		return s->backing[id];
	fd = mcn_segment(s->node, id, &size);
	if (fd < 0)
		return fd;
	/* While a file is open, the kernel requires the same backing id for it, also after a takeover. */
	if (id == 0 && mcfs_handoff() && mcfs_handoff()->backing > 0)
		s->backing[id] = mcfs_handoff()->backing;
	else
		s->backing[id] = mcfs_compat_backing(fd);
	if (id == 0 && mcfs_handoff() && s->backing[id] > 0)
		mcfs_handoff()->backing = s->backing[id];
	return s->backing[id];
}

void mcfs_service_open_segment(struct mcfs_op *op, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs *fs = op->fs;
	struct mcfs_handle *h;
	int id;

	/* A file that is opened for writing could be mapped writable in spite of all seals. */
	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		(void)mcfs_reply_err(op, -EACCES);
		return;
	}
	id = backing_of(op, (unsigned)(ino - MCFS_CONTROL_SEGMENT));
	if (id < 0) {
		mc_debug("mcfs", "a segment cannot be opened as a file: %s", mc_err_detail(id));
		(void)mcfs_reply_err(op, -EOPNOTSUPP);
		return;
	}
	h = mcfs_handle_new(fs, MCFS_TEXT);
	if (!h) {
		(void)mcfs_reply_err(op, -ENOMEM);
		return;
	}
	fi->fh = mcfs_handle_number(fs, h);
	fi->noflush = 1;
	if (!fi->fh) {
		mcfs_handle_unref(fs, h);
		(void)mcfs_reply_err(op, -ENOMEM);
		return;
	}
	if (mcfs_reply_open_backing(op, fi, id) < 0)
		mcfs_handle_unref(fs, h);
}
