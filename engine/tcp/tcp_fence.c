/* SPDX-License-Identifier: Apache-2.0
 * tcp_fence.c - records that outlive the handle of a peer: a cancelled WRITE may still arrive after the handle was
 * freed.
 *
 * The serving side closes a connection when it is greeted under the same name with a higher epoch.  So the next
 * handle of that endpoint takes over the names of the last one, and writes nothing before it has greeted there. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "engine/tcp/tcp_client.h"

struct mce_fence {
	struct mc_list node;	/* mce_engine.fences */
	char endpoint[MC_ADDR_MAX];
	uint64_t token;
	struct {
		uint32_t epoch, doubt_epoch;
	} conn[MCE_TCP_CONNS_MAX];
};

struct mce_fence *mce_fence_new(void)
{
	return calloc(1, sizeof(struct mce_fence));
}

void mce_tcp_note_doubts(struct mce_peer *p)
{
	struct mce_tcp *t = mce_tcp_of(p);

	MC_LOCKED(&p->lock);
	t->noted = false;
	for (unsigned i = 0; i < t->nconns; i++) {
		struct mce_tcp_conn *conn = &t->conns[i];
		bool is = mce_tcp_conn_in_doubt_locked(conn);

		t->fence->conn[i].epoch = conn->epoch;
		t->fence->conn[i].doubt_epoch = is ? conn->epoch : 0;
		t->noted |= is;
	}
}

void mce_tcp_keep_doubts(struct mce_peer *p)
{
	struct mce_engine *e = p->e;
	struct mce_fence *f;

	if (!mce_tcp_of(p)->noted)
		return;
	f = TAKE_PTR(mce_tcp_of(p)->fence);
	strcpy(f->endpoint, p->endpoint);
	f->token = p->token;
	mc_list_push_back(&e->fences, &f->node);
	if (e->nfences++ < MCE_FENCES_MAX)
		return;
	f = mc_list_first(&e->fences, struct mce_fence, node);
	mc_list_remove(&f->node);
	free(f);
	e->nfences--;
}

static struct mce_fence *fence_find_locked(struct mce_engine *e, const char *endpoint)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &e->fences) {
		struct mce_fence *f = mc_container_of(pos, struct mce_fence, node);

		if (!strcmp(f->endpoint, endpoint))
			return f;
	}
	return NULL;
}

void mce_fence_take_locked(struct mce_peer *p)
{
	struct mce_tcp *t = mce_tcp_of(p);
	struct mce_fence *f = fence_find_locked(p->e, p->endpoint);

	if (!f)
		return;
	p->token = f->token;
	for (unsigned i = 0; i < t->nconns; i++) {
		t->conns[i].epoch = f->conn[i].epoch;
		t->conns[i].doubt_epoch = f->conn[i].doubt_epoch;
	}
	p->doubts = true;
	mc_list_remove(&f->node);
	p->e->nfences--;
	free(f);
}

void mce_fences_close(struct mce_engine *e)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &e->fences)
		free(mc_container_of(pos, struct mce_fence, node));
	mc_list_init(&e->fences);
	e->nfences = 0;
}
