/* SPDX-License-Identifier: Apache-2.0
 * fence.c - what outlives the handle of a peer: a WRITE that was given up may still arrive when the handle has gone.
 *
 * The serving side lets go of a connection when it is greeted under the same name by a higher epoch.  So the next
 * handle of that endpoint takes the names of the last one over, and writes nothing before it has greeted there. */
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
	} lane[MCE_TCP_CONNS_MAX];
};

struct mce_fence *mce_fence_new(void)
{
	return calloc(1, sizeof(struct mce_fence));
}

bool mce_fence_fill(struct mce_peer *p)
{
	struct mce_tcp *t = p->tcp;
	bool needed = false;

	if (!t)
		return false;
	MC_LOCKED(&p->lock);
	for (unsigned i = 0; i < t->nlanes; i++) {
		struct mce_tcp_conn *l = &t->lanes[i];
		bool is = mce_tcp_conn_in_doubt_locked(l);

		t->fence->lane[i].epoch = l->epoch;
		t->fence->lane[i].doubt_epoch = is ? l->epoch : 0;
		needed |= is;
	}
	return needed;
}

void mce_fence_keep_locked(struct mce_peer *p)
{
	struct mce_engine *e = p->e;
	struct mce_fence *f = p->tcp->fence;

	p->tcp->fence = NULL;
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

static struct mce_fence *find_locked(struct mce_engine *e, const char *endpoint)
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
	struct mce_fence *f = p->upstream || !p->tcp ? NULL : find_locked(p->e, p->endpoint);
	struct mce_tcp *t = p->tcp;

	if (!f)
		return;
	p->token = f->token;
	for (unsigned i = 0; i < t->nlanes; i++) {
		t->lanes[i].epoch = f->lane[i].epoch;
		t->lanes[i].doubt_epoch = f->lane[i].doubt_epoch;
	}
	t->doubts = true;
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
