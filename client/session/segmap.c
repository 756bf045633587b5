/* SPDX-License-Identifier: Apache-2.0
 * segmap.c - the cache of segments. */
#include <config.h>

#include "client/session/segmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/session/shared.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/list.h"
#include "common/net/net.h"
#include "common/sys/lock.h"

#define BUCKETS 1024
/* Entries of owners that have ended stay in the cache; at this number all entries are dropped. */
#define ENTRIES_MAX 16384

struct entry {
	struct entry *next;
	struct mcs_seg seg;
};

struct mcs_segmap {
	/* constant */
	struct mce_engine *engine;
	struct mcs_session *session;
	struct mcp_id client;

	struct mc_rwlock lock;
	/* with the lock held */
	struct entry *bucket[BUCKETS];
	unsigned n;		/* also read without the lock */
};

static unsigned segmap_bucket(struct mcp_id id)
{
	return (unsigned)((id.lo ^ id.hi) * 0x9e3779b97f4a7c15ull >> 54) % BUCKETS;
}

int mcs_segmap_open(struct mce_engine *e, struct mcs_session *s, struct mcp_id client,
		    struct mcs_segmap **ret)
{
	struct mcs_segmap *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->engine = e;
	m->session = s;
	m->client = client;
	mc_rwlock_init(&m->lock);
	*ret = m;
	return 0;
}

void mcs_seg_put(struct mcs_seg *seg)
{
	if (!seg || __atomic_sub_fetch(&seg->refs, 1, __ATOMIC_ACQ_REL))
		return;
	mce_peer_put(seg->peer);
	free(seg->place);
	free(mc_container_of(seg, struct entry, seg));
}

static void segmap_drop_all(struct mcs_segmap *m)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		while (m->bucket[i]) {
			struct entry *e = m->bucket[i];

			m->bucket[i] = e->next;
			mcs_seg_put(&e->seg);
		}
	__atomic_store_n(&m->n, 0, __ATOMIC_RELAXED);
}

void mcs_segmap_close(struct mcs_segmap *m)
{
	if (!m)
		return;
	segmap_drop_all(m);
	mc_rwlock_destroy(&m->lock);
	free(m);
}

struct mcs_seg *mcs_segmap_peek(struct mcs_segmap *m, struct mcp_id id)
{
	struct mcs_seg *seg = NULL;
	struct entry *e;

	mc_rwlock_rdlock(&m->lock);
	for (e = m->bucket[segmap_bucket(id)]; e; e = e->next)
		if (mcp_id_eq(e->seg.id, id)) {
			seg = &e->seg;
			__atomic_add_fetch(&seg->refs, 1, __ATOMIC_RELAXED);
			break;
		}
	mc_rwlock_unlock(&m->lock);
	return seg;
}

static int segmap_entry_new(struct mcs_segmap *m, const struct mcp_segment *msg, struct entry **ret)
{
	char endpoint[MC_ADDR_MAX];
	struct entry *e;
	int r;

	if (msg->endpoint.len >= sizeof(endpoint))
		return mc_fail(-MC_EPROTO, "segment's endpoint has %u bytes", msg->endpoint.len);
	memcpy(endpoint, msg->endpoint.data, msg->endpoint.len);
	endpoint[msg->endpoint.len] = '\0';
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->seg = (struct mcs_seg){
		.id = msg->segment, .base = msg->base, .rkey = msg->rkey, .size = msg->size,
		.own = mcp_id_eq(msg->client, m->client), .refs = 1,
	};
	if (mcs_shared_is_place(msg->protocol))
		e->seg.place = strndup(msg->protocol.data, msg->protocol.len);
	r = mce_peer_get(m->engine, endpoint, &e->seg.peer);
	if (r < 0) {
		free(e->seg.place);
		free(e);
		return r;
	}
	*ret = e;
	return 0;
}

/* Add the segment if it is not there yet. */
static int segmap_add(struct mcs_segmap *m, const struct mcp_segment *msg)
{
	unsigned b = segmap_bucket(msg->segment);
	struct mcs_seg *known = mcs_segmap_peek(m, msg->segment);
	struct entry *e = NULL, *pos;
	int r;

	mcs_seg_put(known);
	if (known)
		return 0;
	r = segmap_entry_new(m, msg, &e);
	if (r < 0)
		return r;

	mc_rwlock_wrlock(&m->lock);
	for (pos = m->bucket[b]; pos && !mcp_id_eq(pos->seg.id, msg->segment); pos = pos->next)
		;
	if (!pos) {
		if (m->n >= ENTRIES_MAX)
			segmap_drop_all(m);
		e->next = m->bucket[b];
		m->bucket[b] = e;
		__atomic_add_fetch(&m->n, 1, __ATOMIC_RELAXED);
	}
	mc_rwlock_unlock(&m->lock);
	if (pos)
		mcs_seg_put(&e->seg);
	return 0;
}

/* Ask the master for one segment, or for all while the cache is empty. */
static int segmap_fetch(struct mcs_segmap *m, struct mcp_id id, uint64_t deadline)
{
	bool all = !__atomic_load_n(&m->n, __ATOMIC_RELAXED);
	struct mcp_segments msg = { .segment = all ? (struct mcp_id){ 0, 0 } : id };
	struct mcp_segments_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_segment seg;
	struct mcp_iter it;
	int r;

	r = mcs_call(m->session, MCP_SEGMENTS, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	while (mcp_iter_next(&it, &seg)) {
		int one = segmap_add(m, &seg);

		/* A bad entry of another segment does not fail the lookup of this one. */
		if (one < 0 && mcp_id_eq(seg.segment, id))
			r = one;
	}
	mcp_reply_done(&mem);
	return r;
}

int mcs_segmap_get(struct mcs_segmap *m, struct mcp_id id, uint64_t deadline, struct mcs_seg **ret)
{
	struct mcs_seg *seg = mcs_segmap_peek(m, id);
	int r;

	if (!seg) {
		r = segmap_fetch(m, id, deadline);
		if (r < 0)
			return r;
		seg = mcs_segmap_peek(m, id);
	}
	if (!seg)
		return mc_fail(-MC_ENOSEGMENT, "segment %llu-%llu is not known to the master",
			       (unsigned long long)id.hi, (unsigned long long)id.lo);
	*ret = seg;
	return 0;
}

void mcs_segmap_forget(struct mcs_segmap *m, struct mcp_id id)
{
	struct entry **pos, *e = NULL;

	mc_rwlock_wrlock(&m->lock);
	for (pos = &m->bucket[segmap_bucket(id)]; *pos; pos = &(*pos)->next)
		if (mcp_id_eq((*pos)->seg.id, id)) {
			e = *pos;
			*pos = e->next;
			__atomic_sub_fetch(&m->n, 1, __ATOMIC_RELAXED);
			break;
		}
	mc_rwlock_unlock(&m->lock);
	if (e)
		mcs_seg_put(&e->seg);
}

int mcs_segmap_reach(struct mcs_segmap *m, struct mcp_id id, uint64_t size, uint64_t deadline,
		     struct mcs_seg **ret)
{
	struct mcs_seg *seg;
	int r, tries;

	for (tries = 0; tries < 2; tries++) {
		r = mcs_segmap_get(m, id, deadline, &seg);
		if (r < 0)
			return r;
		if (size <= seg->size) {
			*ret = seg;
			return 0;
		}
		mcs_seg_put(seg);
		mcs_segmap_forget(m, id);
	}
	return mc_fail(-MC_EPROTO, "a replica lies outside of its segment");
}
