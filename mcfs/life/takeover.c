/* SPDX-License-Identifier: Apache-2.0
 * takeover.c - taking over the mount of a dead daemon, from the descriptors that it stored
 * (fdstore.h). */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "mcfs/life/handoff.h"
#include "mcfs/life/fdstore.h"
#include "mcfs/handle.h"
#include "mcfs/life/life.h"
#include "mcfs/mcfs.h"

/* The mount may have been unmounted or aborted meanwhile. */
static bool is_alive(int fuse)
{
	struct pollfd p = { .fd = fuse, .events = POLLIN };

	return poll(&p, 1, 0) >= 0 && !(p.revents & (POLLERR | POLLHUP | POLLNVAL));
}

/* @segment: negative, also if it is kept. */
static void takeover_discard(int fuse, int handoff, int segment)
{
	(void)mcfs_fdstore_drop(MCFS_FD_FUSE);
	mcfs_handoff_close();
	if (fuse >= 0)
		close(fuse);
	if (handoff >= 0)
		close(handoff);
	if (segment < 0)
		return;
	(void)mcfs_fdstore_drop(MCFS_FD_HANDOFF);
	(void)mcfs_fdstore_drop(MCFS_FD_SEGMENT);
	close(segment);
}

static bool take_segment(struct mcfs *fs, const struct mcfs_handoff_head *head, int segment)
{
	if (segment < 0 || !head || !head->segment_size)
		return false;
	fs->segment_fd = segment;
	memcpy(fs->segment_identity, head->segment_identity, sizeof(fs->segment_identity));
	fs->conf.global_segment_size = head->segment_size;
	return true;
}

int mcfs_takeover_begin(struct mcfs *fs)
{
	int fuse = mcfs_fdstore_take(MCFS_FD_FUSE), handoff = mcfs_fdstore_take(MCFS_FD_HANDOFF);
	int segment = mcfs_fdstore_take(MCFS_FD_SEGMENT), r;
	struct mcfs_handoff_head *head;
	bool kept;

	if (!fs->conf.supervise || (fuse < 0 && handoff < 0 && segment < 0))
		return 0;
	r = handoff < 0 ? mc_fail(-ENOENT, "there is no handoff table") : mcfs_handoff_load(handoff);
	head = mcfs_handoff();
	kept = take_segment(fs, head, segment);
	if (r == 0 && (fuse < 0 || !is_alive(fuse)))
		r = mc_fail(-ENOTCONN, "its mount has ended");
	if (r == 0 && (!head->init_len || (head->segment_size && !kept)))
		r = mc_fail(-EINVAL, "previous daemon died before FUSE_INIT");
	if (r < 0) {
		mc_warn("mcfs", "cannot take over the previous daemon's mount, creating a new one: %s objects=%s",
			mc_err_detail(r), kept ? "kept" : "none");
		takeover_discard(fuse, handoff, kept ? -1 : segment);
		return 0;
	}
	free(fs->mountpoint);
	fs->mountpoint = strndup(head->mountpoint, sizeof(head->mountpoint) - 1);
	if (!fs->mountpoint)
		return -ENOMEM;
	head->takeovers++;
	fs->taken_over = true;
	fs->fuse_fd = fuse;
	if (!kept)
		fs->conf.global_segment_size = 0;
	mc_warn("mcfs", "taking over the mount of a dead daemon dir=%s takeovers=%u",
		fs->mountpoint, head->takeovers);
	return 0;
}

int mcfs_takeover_handoff(struct mcfs *fs)
{
	if (!fs->conf.supervise || fs->taken_over)
		return 0;
	/* The table that has the words now is about to go. */
	if (fs->store && fs->conf.global_segment_size)
		(void)mcs_segment_identity(fs->store, fs->segment_identity);
	mcfs_handoff_close();
	if (fs->handoff_fd >= 0)
		close(fs->handoff_fd);
	fs->handoff_fd = -1;
	return mcfs_handoff_new(&fs->handoff_fd);
}

int mcfs_takeover_keep(struct mcfs *fs)
{
	struct mcfs_handoff_head *head = mcfs_handoff();
	uint64_t size = 0;
	int r = 0, fd;

	if (head && fs->conf.global_segment_size)
		r = mcs_segment_identity(fs->store, head->segment_identity);
	if (r < 0 || !head || fs->taken_over)
		return r;
	(void)strncpy(head->mountpoint, fs->mountpoint, sizeof(head->mountpoint) - 1);
	head->connection = fs->connection;
	fd = fs->conf.global_segment_size ? mcs_segment_fd(fs->store, &size) : -1;
	if (fd >= 0) {
		r = mcfs_fdstore_keep(MCFS_FD_SEGMENT, fd);
		head->segment_size = size;
	}
	if (r == 0)
		r = mcfs_fdstore_keep(MCFS_FD_HANDOFF, fs->handoff_fd);
	if (r == 0)
		r = mcfs_fdstore_keep(MCFS_FD_FUSE, fuse_session_fd(fs->session));
	if (r < 0)
		return r;
	close(fs->handoff_fd);
	fs->handoff_fd = -1;
	return 0;
}

int mcfs_takeover_restore(struct mcfs *fs)
{
	int r;

	if (!fs->taken_over)
		return 0;
	r = mcfs_inodes_restore(&fs->inodes);
	return r < 0 ? r : mcfs_handles_restore(fs);
}
