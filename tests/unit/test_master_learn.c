/* SPDX-License-Identifier: Apache-2.0
 * The policy `learn`: chains, reuse, and the estimate of hit ratios with other pool sizes. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <stdio.h>
#include <string.h>

#include "master/ops/uses.h"

#define KIB 1024u
#define BLOCK (4 * KIB)
#define CHAIN_MAX 64u

static const char *policy;

static void tune(struct mcm_conf *conf)
{
	static char name[16];

	strcpy(name, policy);
	conf->eviction_policy = name;
	conf->eviction_high_watermark_ratio = 1;
	conf->default_kv_lease_ttl = 0;
	conf->client_ttl = 3600 * 1000;
	conf->index_seed = 1;
}

/* @blocks: of each of @segments. */
static void up(struct fixture *fx, const char *name, unsigned segments, unsigned blocks)
{
	policy = name;
	rnd_seed(7);
	fx_up(fx, segments, blocks * BLOCK, tune);
}

struct hits {
	unsigned asked, found, usable;
};

/* A request as of an engine: blocks @first .. @first + @n - 1 of a text, in this order.  Those that the pool does
 * not have are put. */
static void request(struct fixture *fx, const char *text, unsigned n, struct hits *h)
{
	static char name[CHAIN_MAX][40];
	struct mcp_bytes key[CHAIN_MAX];
	uint8_t present[CHAIN_MAX];
	unsigned prefix = 0;

	assert_true(n <= CHAIN_MAX);
	for (unsigned i = 0; i < n; i++) {
		snprintf(name[i], sizeof(name[i]), "%s/%u", text, i);
		key[i] = fx_bytes(name[i]);
	}
	assert_int_equal(mcm_exist(fx->m, 0, key, n, present), 0);
	while (prefix < n && present[prefix])
		prefix++;
	for (unsigned i = 0; i < n; i++) {
		h->found += present[i];
		if (!present[i])
			assert_int_equal(fx_put(fx, name[i], BLOCK, 0), 0);
	}
	h->asked += n;
	h->usable += prefix;
}

/* Conversations: a third of them goes on, with ever more blocks; the others end after one request. */
static struct hits chat(struct fixture *fx, unsigned requests)
{
	enum { OPEN = 64 };
	struct { unsigned id, turns; } open[OPEN] = { { 0 } };
	struct hits h = { 0 };
	unsigned next = 0;
	char text[32];

	for (unsigned i = 0; i < requests; i++) {
		unsigned at = (unsigned)(rnd() % OPEN), old = rnd() % 2;

		if (!old || !open[at].turns) {
			/* one request only */
			snprintf(text, sizeof(text), "once-%u", next++);
			request(fx, text, 12, &h);
			if (rnd() % 4 == 0) {
				open[at].id = next;
				open[at].turns = 1;
				snprintf(text, sizeof(text), "chat-%u", next++);
				request(fx, text, 6, &h);
			}
			continue;
		}
		snprintf(text, sizeof(text), "chat-%u", open[at].id);
		request(fx, text, 6 + 4 * ++open[at].turns, &h);
		if (open[at].turns == 10)
			open[at].turns = 0;
	}
	return h;
}

static double usable(struct hits h)
{
	return 100.0 * h.usable / h.asked;
}

/* ---- tests ---- */

static void values_follow_the_reuse(void **state)
{
	static struct mcm_model md;

	(void)state;
	mcm_model_init(&md);
	assert_true(mcm_model_value(&md, 1, 10) > mcm_model_value(&md, 1, 1000));
	/* Objects of class 1 are used at age 100, those of class 2 never. */
	for (unsigned i = 0; i < 10000; i++)
		for (unsigned b = 0; b <= mcm_model_bin(1000); b++) {
			md.reached[2][b]++;
			md.reached[1][b] += b <= mcm_model_bin(100);
			md.used[1][b] += b == mcm_model_bin(100);
		}
	mcm_model_learn(&md);
	assert_true(mcm_model_value(&md, 1, 50) > 20 * mcm_model_value(&md, 2, 50));
	/* The nearer the use, the more it is worth to wait for it. */
	assert_true(mcm_model_value(&md, 1, 80) > mcm_model_value(&md, 1, 8));
	/* A class of which nothing is known is like the average one. */
	assert_true(mcm_model_value(&md, 3, 50) < mcm_model_value(&md, 1, 50));
	assert_true(mcm_model_value(&md, 3, 50) > mcm_model_value(&md, 2, 50));
	assert_true(mcm_model_value(&md, 1, UINT32_MAX) >= 0);
}

/* A block without the one before it is of no use: conversations lose blocks from their ends. */
static void chains_are_evicted_from_their_ends(void **state)
{
	struct hits h = { 0 };
	struct fixture fx;
	char text[32];

	(void)state;
	for (unsigned segments = 1; segments <= 4; segments *= 4) {
		up(&fx, "learn", segments, 400 / segments);
		for (unsigned i = 0; i < 200; i++) {
			snprintf(text, sizeof(text), "text-%u", i);
			request(&fx, text, 20, &h);
		}
		memset(&h, 0, sizeof(h));
		for (unsigned i = 0; i < 200; i++) {
			bool gone = false;

			for (unsigned k = 0; k < 20; k++) {
				snprintf(text, sizeof(text), "text-%u/%u", i, k);
				if (!fx_exist(&fx, text, MCP_EXIST_PEEK))
					gone = true;
				else
					h.found++;
				h.usable += fx_exist(&fx, text, MCP_EXIST_PEEK) && !gone;
			}
		}
		assert_in_range(h.found, 390, 400);
		/* A segment evicts its own objects: of several small ones, not each has an end all the time. */
		assert_in_range(h.usable, h.found * (segments == 1 ? 97 : 70) / 100, h.found);
		fx_down(&fx);
	}
}

static void conversations_that_go_on_stay(void **state)
{
	double by_lru, by_learn;
	struct fixture fx;

	(void)state;
	up(&fx, "lru", 1, 1000);
	by_lru = usable(chat(&fx, 8000));
	fx_down(&fx);
	up(&fx, "learn", 1, 1000);
	by_learn = usable(chat(&fx, 8000));
	fx_down(&fx);
	assert_true(by_learn > by_lru + 5);
}

/* Keys without an order, equally likely: nothing can be learned. */
static void without_anything_to_learn_it_is_like_lru(void **state)
{
	static const char *const name[] = { "lru", "learn" };
	struct hits h[2] = { { 0 } };
	struct fixture fx;
	char text[32];

	(void)state;
	for (unsigned p = 0; p < 2; p++) {
		up(&fx, name[p], 1, 500);
		for (unsigned i = 0; i < 40000; i++) {
			snprintf(text, sizeof(text), "key-%u", (unsigned)(rnd() % 1000));
			request(&fx, text, 1, &h[p]);
		}
		fx_down(&fx);
	}
	assert_true(usable(h[1]) > usable(h[0]) - 1);
}

/* The master's estimates for pools of other sizes, against pools of these sizes. */
static void the_estimate_agrees_with_real_pools(void **state)
{
	static const double factor[MCM_SIZES] = MCM_SIZE_FACTORS;
	struct mcm_curve curve;
	struct fixture fx;

	(void)state;
	for (unsigned p = 0; p < 2; p++) {
		up(&fx, p ? "learn" : "lru", 1, 800);
		(void)chat(&fx, 8000);
		mcm_sample_curve(&fx.m->learn.sample, fx.m->learn.clock, &curve);
		fx_down(&fx);
		for (unsigned i = 0; i < MCM_SIZES; i++) {
			double guess = 100 * (p ? curve.learn[i] : curve.lru[i]), real;

			if (!p && i != MCM_SIZE_NOW)
				continue;

			up(&fx, p ? "learn" : "lru", 1, (unsigned)(800 * factor[i]));
			real = usable(chat(&fx, 8000));
			fx_down(&fx);
			assert_true(guess - real < 2.5 && real - guess < 2.5);
		}
	}
}

/* Pins, soft pins, leases, groups and removals while objects are evicted: puts do not fail while objects are evictable,
 * and none is evicted that may not be. */
static void protected_objects_stay(void **state)
{
	struct hits h = { 0 };
	struct mcp_object o;
	struct fixture fx;
	char text[32];

	(void)state;
	up(&fx, "learn", 2, 200);
	request(&fx, "pinned", 8, &h);
	request(&fx, "removed", 8, &h);
	assert_int_equal(fx_remove(&fx, "removed/3", 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "pinned/7", MCP_GET_HOLD, &o, NULL), 0);
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(text, sizeof(text), "once-%u", i);
		request(&fx, text, 7, &h);
		snprintf(text, sizeof(text), "once-%u/%u", i, i % 7);
		if (i % 3 == 0)
			assert_int_equal(fx_remove(&fx, text, 0), 0);
	}
	assert_int_equal(fx_exist(&fx, "pinned/7", MCP_EXIST_PEEK), 1);
	assert_int_equal(fx_exist(&fx, "removed/7", MCP_EXIST_PEEK), 0);
	fx_release(&fx, fx.s, o.pin);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "more-%u", i);
		request(&fx, text, 7, &h);
	}
	assert_int_equal(fx_exist(&fx, "pinned/7", MCP_EXIST_PEEK), 0);
	/* One object as large as the pool: all others go, chains or not. */
	assert_int_equal(fx_put(&fx, "large", 199 * BLOCK, 0), 0);
	fx_down(&fx);
}

static void the_model_survives_a_restart(void **state)
{
	struct mcm_learned before, after;
	float reached[MCM_AGE_BINS], used[MCM_AGE_BINS], again[MCM_AGE_BINS], unused[MCM_AGE_BINS];
	struct hits h = { 0 };
	struct fixture fx;
	uint32_t slot = 0;
	unsigned class;

	(void)state;
	jx_up(&fx, 1, 400 * BLOCK);
	for (unsigned i = 0; i < 3; i++)
		request(&fx, "text", 20, &h);
	(void)chat(&fx, 2000);
	request(&fx, "text", 20, &h);
	for (class = 0; class < MCM_CLASSES; class++) {
		mcm_sample_save(&fx.m->learn.sample, class, reached, used);
		if (reached[0] > 100)
			break;
	}
	assert_true(class < MCM_CLASSES);
	while (mcm_object(&fx.m->index, ++slot)->key_len != strlen("text/0") ||
	       memcmp(mcm_shard_key(&fx.m->index, slot), "text/0", 6) != 0)
		;
	before = *(struct mcm_learned *)mcm_slab_at(&fx.m->learn.learned, slot);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_again(&fx);
	mcm_sample_save(&fx.m->learn.sample, class, again, unused);
	/* Starting forgets as little as learning. */
	assert_true(again[0] > 0.9f * reached[0] && again[0] <= reached[0]);
	slot = 0;
	while (mcm_object(&fx.m->index, ++slot)->key_len != strlen("text/0") ||
	       memcmp(mcm_shard_key(&fx.m->index, slot), "text/0", 6) != 0)
		;
	after = *(struct mcm_learned *)mcm_slab_at(&fx.m->learn.learned, slot);
	assert_int_equal(after.traits & 0xfff, before.traits & 0xfff);
	assert_true(fx.m->learn.objects >= 20 && fx.m->learn.objects <= 400);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_follow_the_reuse),
		cmocka_unit_test(chains_are_evicted_from_their_ends),
		cmocka_unit_test(conversations_that_go_on_stay),
		cmocka_unit_test(without_anything_to_learn_it_is_like_lru),
		cmocka_unit_test(the_estimate_agrees_with_real_pools),
		cmocka_unit_test(protected_objects_stay),
		cmocka_unit_test(the_model_survives_a_restart),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
