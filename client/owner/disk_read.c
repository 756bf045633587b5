/* SPDX-License-Identifier: Apache-2.0
 * disk_read.c - read bytes of a medium that is not addressable: all pieces at once; the medium orders them. */
#include <config.h>

#include "client/owner/disk_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/lock.h"

struct read_all {
	struct mct_medium *m;
	uint64_t off;
	char *buf;
	struct mc_mutex lock;
	struct mc_cond ended;
	size_t left;		/* pieces; guarded by lock, as the status */
	int status;
};

struct read_piece {
	struct mct_read r;
	struct read_all *all;
};

static void piece_read(struct mct_read *r)
{
	struct read_piece *p = mc_container_of(r, struct read_piece, r);
	struct read_all *all = p->all;
	int status = r->status;

	if (status == 0) {
		memcpy(all->buf + (r->off - all->off), r->at, r->len);
		all->m->ops->read_end(all->m, r);
	}
	MC_LOCKED(&all->lock);
	if (status < 0 && all->status == 0)
		all->status = status;
	if (--all->left == 0)
		mc_cond_signal(&all->ended);
}

int mcs_disk_read(struct mct_medium *m, uint64_t off, void *buf, uint64_t len)
{
	size_t n = (size_t)((len + MCT_PIECE_MAX - 1) / MCT_PIECE_MAX);
	auto_free struct read_piece *piece = calloc(n ? n : 1, sizeof(*piece));
	struct read_all all = { .m = m, .off = off, .buf = buf, .left = n };

	if (!piece)
		return -ENOMEM;
	mc_mutex_init(&all.lock);
	mc_cond_init(&all.ended);
	for (size_t i = 0; i < n; i++) {
		uint64_t pos = (uint64_t)i * MCT_PIECE_MAX, left = len - pos;

		piece[i].all = &all;
		piece[i].r = (struct mct_read){
			.off = off + pos, .len = left < MCT_PIECE_MAX ? (uint32_t)left : MCT_PIECE_MAX,
			.done = piece_read,
		};
		m->ops->read_start(m, &piece[i].r);
	}
	mc_mutex_lock(&all.lock);
	while (all.left)
		mc_cond_wait(&all.ended, &all.lock);
	mc_mutex_unlock(&all.lock);
	mc_cond_destroy(&all.ended);
	mc_mutex_destroy(&all.lock);
	return all.status;
}
