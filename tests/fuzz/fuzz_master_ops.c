/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_ops.c - a master that receives any requests in any order.  Input: operations of one
 * byte and their arguments; a string is a length byte and its bytes, or (length 0xff) one of a few
 * keys that the operations share.  At the end the totals must be consistent
 * (test_master_fixture.c), and after the sessions have ended nothing may be held. */
#include <config.h>

#include <string.h>

#include "../unit/test_master_fixture.h"
#include "common/log.h"

#define ENTRIES 1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p, *end;
};

static struct fixture fx;
static struct mcm_session *session[2];
static uint64_t recent[8];	/* generations and pins in the order of their creation */
static unsigned n_recent;

static uint64_t number(struct input *in, unsigned bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | (in->p < in->end ? *in->p++ : 0);
	return v;
}

static struct mcp_bytes string(struct input *in)
{
	static const char *const shared[] = {
		"a", "b", "dir/", "dir/x", "dir/y", "dir/sub/z", "//", "dir/sub/",
	};
	size_t len = number(in, 1), left = (size_t)(in->end - in->p);
	struct mcp_bytes s;

	if (len == 0xff)
		return fx_bytes(shared[number(in, 1) % 8]);
	s = mcp_bytes(in->p, len < left ? len : left);
	in->p += s.len;
	return s;
}

static void remember(uint64_t v)
{
	recent[n_recent++ % 8] = v;
}

/* A generation or pin; usually an existing one. */
static uint64_t token(struct input *in)
{
	uint64_t which = number(in, 1);

	return which < 0xf0 ? recent[which % 8] : number(in, 8);
}

static void op_put(struct input *in, struct mcm_session *s)
{
	struct mcm_put_request rq = { .flags = (uint32_t)number(in, 1) & 0xf };
	struct mcp_put_item item = { .kind = (uint8_t)number(in, 1) };
	struct mcm_put_granted g;
	struct mcp_put_done done;

	rq.copies = 1 + number(in, 1) % MCM_REPLICA_MAX;
	rq.soft_ms = (uint32_t)number(in, 2);
	item.size = number(in, 1) & 1 ? number(in, 8) : number(in, 2);
	item.key = string(in);
	if (mcm_put_start(fx.m, s, &rq, &item, &g) < 0)
		return;
	remember(g.generation);
	done = (struct mcp_put_done){ .key = item.key, .generation = g.generation };
	if (number(in, 1) & 1)
		(void)mcm_put_end(fx.m, s, &done);
}

static void op_finish(struct input *in, struct mcm_session *s, bool end)
{
	struct mcp_put_done done = { .generation = token(in) };

	done.key = string(in);
	if (end)
		(void)mcm_put_end(fx.m, s, &done);
	else
		(void)mcm_put_revoke(fx.m, s, &done);
}

static void op_get(struct input *in, struct mcm_session *s)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	uint32_t flags = (uint32_t)number(in, 1);
	struct mcp_object o;
	unsigned n;

	mc_mutex_lock(&s->lock);
	if (mcm_get(fx.m, s, flags, string(in), &o, replica, &n) == 0)
		remember(o.pin);
	mc_mutex_unlock(&s->lock);
}

static void op_pin(struct input *in, struct mcm_session *s, bool renew)
{
	mc_mutex_lock(&s->lock);
	if (renew)
		mcm_pin_renew(fx.m, s, token(in));
	else
		mcm_pin_release(fx.m, s, token(in));
	mc_mutex_unlock(&s->lock);
}

/* Both keys then give the same object. */
static void op_link(struct mcp_bytes from, struct mcp_bytes to)
{
	const struct mcp_link_name rq = { .from = from, .to = to, .ino = 1 };
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object a, b;
	uint64_t ino, generation;
	unsigned n;

	if (mcm_link(fx.m, &rq, &ino, &generation) == 0 &&
	    (mcm_get(fx.m, fx.s, 0, from, &a, replica, &n) < 0 || mcm_get(fx.m, fx.s, 0, to, &b, replica, &n) < 0 ||
	     a.generation != generation || b.generation != generation))
		abort();
}

static void op_names(struct input *in, unsigned op)
{
	static struct mcp_entry entry[ENTRIES];
	static struct mcp_attrs attrs[ENTRIES];
	struct mcm_list_page pg = { 0 };
	struct mcp_bytes key;
	uint8_t present;
	uint64_t out;

	if (op == 0) {
		(void)mcm_remove(fx.m, (uint32_t)number(in, 1), string(in));
	} else if (op == 1) {
		key = string(in);
		mcm_exist(fx.m, (uint32_t)number(in, 1), &key, 1, &present);
	} else if (op == 2) {
		struct mcp_rename rq = { .flags = (uint32_t)number(in, 1) };

		rq.from = string(in);
		rq.to = string(in);
		if (rq.flags & 0x80)
			op_link(rq.from, rq.to);
		else
			(void)mcm_rename(fx.m, &rq, &out, &out);
	} else if (op == 3) {
		struct mcp_list rq = { .flags = (uint32_t)number(in, 1), .limit = number(in, 1) % 5 };

		rq.prefix = string(in);
		rq.cursor = string(in);
		if (mcm_list(fx.m, &rq, &pg) == 0 && pg.names.count <= ENTRIES)
			(void)mcm_list_entries(fx.m, &rq, &pg, attrs, entry);
		mcm_names_page_done(&pg.names);
	} else {
		struct mcp_remove_match rq = { .flags = (uint32_t)number(in, 1) };

		rq.prefix = string(in);
		rq.pattern = string(in);
		(void)mcm_remove_match(fx.m, &rq, &out);
	}
}

static void op_mount(struct input *in)
{
	struct mcp_mount rq = {
		.segment = { 7, number(in, 1) % 4 }, .client = { 7, 1 + number(in, 1) % 2 },
		.epoch = number(in, 1) % 3, .size = number(in, 3),
	};
	struct mcp_mount_reply reply;
	uint64_t lost;

	rq.name = string(in);
	rq.endpoint = string(in);
	rq.protocol = string(in);
	if (number(in, 1) & 1)
		(void)mcm_mount(fx.m, rq.client, NULL, &rq, &reply);
	else
		(void)mcm_unmount(fx.m, rq.client, rq.segment, &lost);
}

static void one(struct input *in)
{
	unsigned op = (unsigned)number(in, 1), who = op >> 7;

	switch (op % 16) {
	case 0:
	case 1:
	case 2:
		op_put(in, session[who]);
		break;
	case 3:
		op_finish(in, session[who], true);
		break;
	case 4:
		op_finish(in, session[who], false);
		break;
	case 5:
	case 6:
		op_get(in, session[who]);
		break;
	case 7:
		op_pin(in, session[who], false);
		break;
	case 8:
		op_pin(in, session[who], true);
		break;
	case 9:
		op_mount(in);
		break;
	case 10:
		fx_advance(&fx, number(in, 2));
		if (who)
			fx_confirm(&fx);
		break;
	default:
		op_names(in, op % 16 - 11);
		break;
	}
}

static void small(struct mcm_conf *conf)
{
	conf->max_session_pins = 20;
	conf->max_session_puts = 20;
	conf->client_ttl = 20000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mc_log_conf quiet = { .program = "fuzz", .levels = "err" };
	struct input in = { data, data + (size < 4096 ? size : 4096) };
	unsigned i;

	(void)mc_log_open(&quiet);
	fx_up(&fx, 2, 65536, small);
	session[0] = fx.s;
	session[1] = fx_session(&fx, 2);
	while (in.p < in.end)
		one(&in);
	fx_down(&fx);
	for (i = 0; i < 8; i++)
		recent[i] = 0;
	if (fx_metric("mooncake_master_pins") || fx_metric("mooncake_master_unfinished_puts") ||
	    fx_metric("mooncake_master_zombies"))
		abort();
	return 0;
}
