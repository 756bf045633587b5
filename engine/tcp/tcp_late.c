/* SPDX-License-Identifier: Apache-2.0
 * tcp_late.c - answers to READs whose bytes arrive later, on a thread of their source. */
#include <config.h>

#include <errno.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/tcp/tcp_server.h"

void mce_late_queue_init(struct mce_late_queue *q)
{
	mc_mutex_init(&q->lock);
	mc_list_init(&q->list);
}

void mce_late_end(struct mce_late_read *r)
{
	struct mce_mr *mr = r->mr;

	r->end(r);
	if (mr)
		mce_mr_unref(mr);
}

void mce_late_begin(struct mce_late_read *r, struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint32_t len)
{
	r->c = c;
	r->mr = mr;
	r->id = id;
	r->len = len;
	mc_list_init(&r->node);
	c->reading++;
	mce_serve_conn_ref(c);
}

static void late_answer(struct mce_late_read *r)
{
	struct mce_serve_conn *c = r->c;
	int status = r->status < 0 ? -EIO : mce_mr_dead(r->mr) ? -ESTALE : 0;

	/* Only this error says nothing about the bytes. */
	if (r->status == -MC_EUNAVAILABLE)
		status = r->status;
	c->reading--;
	if (r->copied) {
		mce_mr_unref(r->mr);
		r->mr = NULL;
	}
	if (c->closed) {
		mce_late_end(r);
	} else {
		c->proto->late_answer(c, r, status);
		mce_serve_conn_resume(c);
	}
	mce_serve_conn_unref(c);
}

static void late_run(void *arg)
{
	struct mce_late_queue *q = arg;
	struct mc_list *pos;

	do {
		mc_mutex_lock(&q->lock);
		q->posted = false;
		pos = mc_list_empty(&q->list) ? NULL : q->list.next;
		if (pos)
			mc_list_remove(pos);
		mc_mutex_unlock(&q->lock);
		if (pos)
			late_answer(mc_container_of(pos, struct mce_late_read, node));
	} while (pos);
}

void mce_late_arrived(struct mce_late_read *r, int status, const void *at)
{
	struct mce_late_queue *q = mce_serve_late_queue(r->c);
	struct mce_io *io = r->c->io;

	r->status = status;
	r->at = at;
	MC_LOCKED(&q->lock);
	mc_list_push_back(&q->list, &r->node);
	if (q->posted)
		return;
	/* The answer must not be lost, so wait until there is memory. */
	while (mc_evloop_post(io->loop, late_run, q) == -ENOMEM)
		mc_sleep_ms(1);
	q->posted = true;
}
