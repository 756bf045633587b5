/* SPDX-License-Identifier: Apache-2.0
 * seat_etcd.c - leases of leaders on etcd: the leader's key is attached to an etcd lease, whose id follows from the
 * key's text, and each change is an etcd transaction. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "meta/seat_i.h"

/* etcd's ids are positive. */
static void lease_id(const char *mine, char ret[24])
{
	uint64_t id = mc_hash(mine, strlen(mine), 0) >> 1;

	snprintf(ret, 24, "%" PRIu64, id ? id : 1);
}

/* A call whose answer does not matter. */
static int call_plain(struct mcd_backend *b, const char *path, json_t *o, const struct mcd_wait *w)
{
	struct mc_web_call c = { .text = NULL };
	int r = mcd_etcd_call(b, path, o, w, &c);

	free(c.text);
	return r;
}

static int lease_grant(struct mcd_backend *b, const char *id, unsigned ttl_ms, const struct mcd_wait *w)
{
	int r = call_plain(b, "/v3/lease/grant",
			   json_pack("{s:s, s:I}", "ID", id, "TTL", (json_int_t)(ttl_ms + 999) / 1000), w);

	/* A repeated request. */
	return r < 0 && strstr(mc_err_detail(r), "lease already exists") ? 0 : r;
}

static int lease_revoke(struct mcd_backend *b, const char *id, const struct mcd_wait *w)
{
	int r = call_plain(b, "/v3/lease/revoke", json_pack("{s:s}", "ID", id), w);

	/* It has expired. */
	return r == -ESTALE ? 0 : r;
}

/* ---- transactions ------------------------------------------------------------------------------ */

struct encoded {
	char *leader_key, *state_key, *mine, *instead, *seen, *state;
};

static void encoded_free(struct encoded *e)
{
	free(e->leader_key);
	free(e->state_key);
	free(e->mine);
	free(e->instead);
	free(e->seen);
	free(e->state);
}

static char *seat_encode(const char *text)
{
	return mcd_base64_encode(text, strlen(text));
}

/* A condition: the key has this value, or (NULL) does not exist. */
static json_t *seat_condition(const char *key, const char *value)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "target", value ? "VALUE" : "VERSION", "result", "EQUAL", "key", key,
			 value ? "value" : "version", value ? value : "0");
}

static json_t *turn_encode(const struct mcd_turn *t, const struct encoded *e, const char *id)
{
	json_t *put, *conditions = json_array(), *puts = json_array();

	(void)json_array_append_new(conditions, seat_condition(e->leader_key, t->take ? e->instead : e->mine));
	(void)json_array_append_new(conditions, seat_condition(e->state_key, e->seen));
	put = json_pack("{s:{s:s, s:s}}", "requestPut", "key", e->state_key, "value", e->state);
	(void)json_array_append_new(puts, put);
	if (t->take) {
		put = json_pack("{s:{s:s, s:s, s:s}}", "requestPut", "key", e->leader_key, "value", e->mine, "lease",
				id);
		(void)json_array_append_new(puts, put);
	}
	return json_pack("{s:o, s:o, s:[{s:{s:s}}, {s:{s:s}}]}", "compare", conditions, "success", puts, "failure",
			 "requestRange", "key", e->leader_key, "requestRange", "key", e->state_key);
}

/* Does answer @i of a failed transaction have this value? */
static bool answer_has(const json_t *responses, size_t i, const char *value)
{
	const json_t *range = json_object_get(json_array_get(responses, i), "response_range");
	const char *is = json_string_value(json_object_get(json_array_get(json_object_get(range, "kvs"), 0), "value"));

	return is && !strcmp(is, value);
}

int mcd_etcd_turn_decode(const char *text, size_t len, const char *mine64, const char *state64)
{
	json_t *o = json_loadb(text, len, 0, NULL), *responses = json_object_get(o, "responses");
	int r = -EAGAIN;

	if (!json_is_object(json_object_get(o, "header")))
		r = mc_fail(-EINVAL, "etcd: invalid answer to txn");
	else if (json_is_true(json_object_get(o, "succeeded")))
		r = 0;
	/* A repeated request: the first one has done it. */
	else if (answer_has(responses, 0, mine64) && answer_has(responses, 1, state64))
		r = 0;
	else
		mc_fail(r, "another master leads, or the state has changed");
	json_decref(o);
	return r;
}

int mcd_etcd_turn(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w)
{
	struct mc_web_call c = { .text = NULL };
	struct encoded e = {
		seat_encode(t->leader_key), seat_encode(t->state_key), seat_encode(t->mine),
		t->instead ? seat_encode(t->instead) : NULL, t->seen ? seat_encode(t->seen) : NULL,
		seat_encode(t->state),
	};
	char id[24];
	int r = 0;

	lease_id(t->mine, id);
	if (!e.leader_key || !e.state_key || !e.mine || (t->instead && !e.instead) || (t->seen && !e.seen) ||
	    !e.state)
		r = mc_fail(-ENOMEM, "no memory for etcd");
	if (r == 0 && t->take)
		r = lease_grant(b, id, t->ttl_ms, w);
	if (r == 0)
		r = mcd_etcd_call(b, "/v3/kv/txn", turn_encode(t, &e, id), w, &c);
	if (r == 0)
		r = mcd_etcd_turn_decode(c.text ? c.text : "", c.len, e.mine, e.state);
	if (r == -EAGAIN && t->take) {
		(void)lease_revoke(b, id, w);
		mc_fail(r, "another master leads, or the state has changed");
	}
	free(c.text);
	encoded_free(&e);
	return r;
}

/* ---- the lease --------------------------------------------------------------------------------- */

int mcd_etcd_prolong(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
		     const struct mcd_wait *w)
{
	struct mc_web_call c = { .text = NULL };
	auto_free char *there = NULL;
	int64_t ttl = 0;
	char id[24];
	int r;

	(void)ttl_ms;
	lease_id(mine, id);
	r = mcd_etcd_call(b, "/v3/lease/keepalive", json_pack("{s:s}", "ID", id), w, &c);
	if (r == 0)
		r = mcd_etcd_keepalive_decode(c.text ? c.text : "", c.len, &ttl);
	free(c.text);
	if (r == -ESTALE || (r == 0 && ttl <= 0))
		return mc_fail(-MC_EOWNER, "the lease is lost");
	/* The lease lives on without its key if a person deletes that. */
	if (r == 0)
		r = b->ops->get(b, leader_key, w, &there);
	if (r == -ENOENT || (r == 0 && strcmp(there, mine) != 0))
		return mc_fail(-MC_EOWNER, "the lease is lost: %s is not ours", leader_key);
	return r;
}

int mcd_etcd_leave(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w)
{
	char id[24];

	(void)leader_key;
	lease_id(mine, id);
	return lease_revoke(b, id, w);
}
