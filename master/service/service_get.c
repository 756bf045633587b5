/* SPDX-License-Identifier: Apache-2.0
 * service_get.c - GET, RELEASE, RENEW, EXIST. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/op_metrics.h"
#include "master/ops/ops.h"
#include "master/ops/pin.h"
#include "master/security/capability.h"
#include "master/service/service_i.h"
#include "master/session.h"

#define DESCRIBE_MAX 4096u	/* keys of one request */

MCM_OP_METRICS(gets, "get_replica_list", "batch_get_replica_list")
MCM_OP_METRICS(exists, "exist_key", "batch_exist_key")

/* Session locked: pins are added.  @names: memory for the groups' names, NULL: not requested. */
static unsigned get_items(struct mcm *m, struct mcm_session *s, struct mcm_scope sc,
			  const struct mcp_get *rq, struct mcp_object *obj,
			  struct mcp_replica *part, char *names, struct mcm_attrs_memory *mem)
{
	char buf[MCM_KEY_MAX];
	unsigned failed = 0, copies, i;
	struct mcp_iter it;
	struct mcp_key key;
	int r;

	mcp_iter_init(&it, &rq->keys, &mcp_desc_key);
	for (i = 0; i < rq->keys.count; i++, obj++) {
		if (i % MCM_PREFETCH_MAX == 0)
			mcm_serve_prefetch(m, it, offsetof(struct mcp_key, key));
		mcp_iter_next(&it, &key);
		key.key = mcm_scope_key(sc, key.key, buf);
		r = mcm_get_attrs(m, s, rq->flags, key.key, obj, part, &copies, mem);
		if (r < 0) {
			memset(obj, 0, sizeof(*obj));
			obj->status = mc_err_to_wire(r);
			failed++;
			continue;
		}
		obj->replicas = mcp_seq(part, copies);
		part += copies;
		mem->attrs += obj->attrs.count;
		if (names) {
			obj->group = mcp_bytes(names, mcm_get_group(m, key.key, names));
			names += obj->group.len;
		}
	}
	return failed;
}

/* Memory for the attributes of all keys, of which only the needed part is used. */
static struct mcm_attrs_memory get_attrs_memory(const struct mcp_get *rq)
{
	size_t attrs = (rq->keys.count + 1) * sizeof(struct mcp_attrs);
	bool xattrs = rq->flags & MCP_GET_XATTRS;
	char *p = mcm_scratch(MCM_SCRATCH_ATTRS, attrs + (xattrs ? sizeof(struct mcm_xattrs_memory) : 0), 1);

	return (struct mcm_attrs_memory){
		(struct mcp_attrs *)(void *)p, p && xattrs ? (struct mcm_xattrs_memory *)(void *)(p + attrs) : NULL
	};
}

int mcm_serve_get(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcm_session *ms = mcp_session_get(s);
	struct mcp_get_reply reply = { 0 };
	struct mcp_object *obj;
	struct mcp_replica *part;
	struct mcm_attrs_memory mem;
	char *names = NULL;
	struct mcm_scope sc;
	struct mcp_get rq;
	unsigned failed;
	int r;

	r = mcp_decode(&mcp_desc_get, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, false, &sc);
	if (r == 0 && rq.flags & MCP_GET_XATTRS && rq.keys.count != 1)
		r = mc_fail(-MC_EPARAM, "extended attributes of %u keys, not of one", rq.keys.count);
	if (r == 0 && rq.flags & MCP_GET_DESCRIBE && rq.keys.count > DESCRIBE_MAX)
		r = mc_fail(-MC_EPARAM, "too many keys to describe: count=%u maximum=%u",
			    rq.keys.count, DESCRIBE_MAX);
	if (r < 0)
		return r;
	obj = mcm_scratch(MCM_SCRATCH_ITEMS, rq.keys.count, sizeof(*obj));
	part = mcm_scratch(MCM_SCRATCH_PARTS, (size_t)rq.keys.count * MCM_REPLICA_MAX, sizeof(*part));
	mem = get_attrs_memory(&rq);
	if (rq.flags & MCP_GET_DESCRIBE)
		names = mcm_scratch(MCM_SCRATCH_TEXT, rq.keys.count, MCP_GROUP_MAX);
	if (!obj || !part || !mem.attrs || (rq.flags & MCP_GET_DESCRIBE && !names))
		return -ENOMEM;
	mc_mutex_lock(&ms->lock);
	failed = get_items(arg, ms, sc, &rq, obj, part, names, &mem);
	mc_mutex_unlock(&ms->lock);
	mcm_op_count(&gets, rq.keys.count, failed);
	if (((struct mcm *)arg)->security)
		mcm_capabilities_read(arg, ms->identity, rq.flags, obj, rq.keys.count);
	reply.objects = mcp_seq(obj, rq.keys.count);
	return mcp_answer(answer, &mcp_desc_get_reply, &reply);
}

int mcm_serve_capabilities(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcm_session *ms = mcp_session_get(s);
	struct mcp_replica part[MCM_REPLICA_MAX];
	struct mcp_capabilities_reply reply;
	struct mcp_capabilities rq;
	struct mcp_object obj;
	unsigned copies;
	int r;

	r = mcp_decode(&mcp_desc_capabilities, body, len, &rq);
	if (r < 0)
		return r;
	mc_mutex_lock(&ms->lock);
	r = mcm_get_pinned(arg, ms, rq.pin, &obj, part, &copies);
	mc_mutex_unlock(&ms->lock);
	if (r < 0)
		return r;
	obj.replicas = mcp_seq(part, copies);
	if (((struct mcm *)arg)->security)
		mcm_capabilities_read(arg, ms->identity, MCP_GET_HOLD, &obj, 1);
	reply.generation = obj.generation;
	reply.replicas = obj.replicas;
	return mcp_answer(answer, &mcp_desc_capabilities_reply, &reply);
}

static void each_pin(struct mcm *m, struct mcm_session *s, const struct mcp_seq *pins,
		     void (*fn)(struct mcm *m, struct mcm_session *s, uint64_t pin))
{
	struct mcp_iter it;
	struct mcp_pin pin;

	mc_mutex_lock(&s->lock);
	mcp_iter_init(&it, pins, &mcp_desc_pin);
	while (mcp_iter_next(&it, &pin))
		fn(m, s, pin.pin);
	mc_mutex_unlock(&s->lock);
}

int mcm_serve_release(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg)
{
	struct mcp_release rq;
	int r;

	(void)answer;
	r = mcp_decode(&mcp_desc_release, body, len, &rq);
	if (r == 0)
		each_pin(arg, mcp_session_get(s), &rq.pins, mcm_pin_release);
	return r;
}

int mcm_serve_renew(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg)
{
	struct mcp_renew rq;
	int r;

	(void)answer;
	r = mcp_decode(&mcp_desc_renew, body, len, &rq);
	if (r == 0)
		each_pin(arg, mcp_session_get(s), &rq.pins, mcm_pin_renew);
	return r;
}

int mcm_serve_bad_copy(struct mcp_session *s, const void *body, size_t len,
		       struct mcp_answer *answer, void *arg)
{
	struct mcm_session *ms = mcp_session_get(s);
	struct mcp_bad_copy rq;
	int r;

	(void)answer;
	r = mcp_decode(&mcp_desc_bad_copy, body, len, &rq);
	if (r < 0)
		return r;
	mc_mutex_lock(&ms->lock);
	mcm_pin_bad_copy(arg, ms, rq.pin, rq.segment, mcp_session_principal(s)->roles & MC_MAY_WRITE);
	mc_mutex_unlock(&ms->lock);
	return 0;
}

int mcm_serve_tier(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_tier_reply reply = { 0 };
	char buf[MCM_KEY_MAX], shared[MCM_LINK_KEY_MAX];
	struct mcp_status *st;
	struct mcm_scope sc;
	struct mcp_tier rq;
	struct mcp_iter it;
	struct mcp_key key;
	uint32_t n = 0;
	int r;

	r = mcp_decode(&mcp_desc_tier, body, len, &rq);
	if (r == 0 && rq.medium >= MCP_MEDIA)
		r = mc_fail(-MC_EPARAM, "unknown medium %u", rq.medium);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, false, &sc);
	if (r < 0)
		return r;
	st = mcm_scratch(MCM_SCRATCH_ITEMS, rq.keys.count, sizeof(*st));
	if (!st)
		return -ENOMEM;
	mcp_iter_init(&it, &rq.keys, &mcp_desc_key);
	for (; mcp_iter_next(&it, &key); n++) {
		r = mcm_offload_tier(arg, mcm_link_resolve(arg, mcm_scope_key(sc, key.key, buf), shared), rq.medium);
		st[n].status = r < 0 ? mc_err_to_wire(r) : 0;
	}
	reply.results = mcp_seq(st, n);
	return mcp_answer(answer, &mcp_desc_tier_reply, &reply);
}

int mcm_serve_exist(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg)
{
	struct mcp_exist_reply reply = { 0 };
	struct mcp_bytes *keys;
	struct mcp_exist rq;
	struct mcp_iter it;
	struct mcp_bytes key;
	struct mcm_scope sc;
	uint8_t *present;
	uint32_t n = 0;
	char *text;
	int r;

	r = mcp_decode(&mcp_desc_exist, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, false, &sc);
	if (r < 0)
		return r;
	keys = mcm_scratch(MCM_SCRATCH_ITEMS, rq.keys.count, sizeof(*keys));
	present = mcm_scratch(MCM_SCRATCH_BYTES, rq.keys.count, 1);
	/* Enough for all prefixes: each key has more bytes of encoding in the message. */
	text = mcm_scratch(MCM_SCRATCH_TEXT, rq.keys.raw_len, 1);
	if (!keys || !present || !text)
		return -ENOMEM;
	mcp_iter_init(&it, &rq.keys, &mcp_desc_key);
	for (; mcp_iter_next_bytes(&it, &key); n++) {
		keys[n] = mcm_scope_key(sc, key, text);
		text += keys[n].data == text ? keys[n].len : 0;
	}
	r = mcm_exist(arg, rq.flags, keys, n, present);
	mcm_op_count(&exists, n, r < 0 ? n : 0);
	if (r < 0)
		return r;
	reply.present = mcp_bytes(present, n);
	return mcp_answer(answer, &mcp_desc_exist_reply, &reply);
}
