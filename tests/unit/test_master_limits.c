/* SPDX-License-Identifier: Apache-2.0
 * test_master_limits.c - limits of objects without bytes, of memory for keys, and of the puts and pins of one
 * connection. */
#include <config.h>

#include <string.h>

#include "tests/unit/test_master_fixture.h"

#define MIB (1u << 20)

static void a_thousand(struct mcm_conf *conf)
{
	conf->max_objects = 1000;
}

static void hundred_puts(struct mcm_conf *conf)
{
	conf->max_session_puts = 100;
}

/* Objects without bytes are evicted as others are: they must not shut out all later puts. */
static void test_max_objects_empty(void **state)
{
	struct fixture fx;
	char key[16];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, a_thousand);
	for (i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(&fx, key, 64, 0), 0);
	}
	assert_int_equal(fx_put(&fx, "marker/", 0, MCP_PUT_COMMIT | MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(&fx, "promised", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx_exist(&fx, "promised", 0), 1);
	assert_int_equal(fx_put(&fx, "soft", 0, MCP_PUT_COMMIT | MCP_PUT_SOFT_PIN), 0);
	fx_advance(&fx, 2000);
	for (i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "e%u", i);
		assert_int_equal(fx_put(&fx, key, 0, MCP_PUT_COMMIT), 0);
		fx_advance(&fx, i % 100 ? 0 : 150);
		assert_in_range(mcm_index_count(&fx.m->index), 1, 1000);
	}
	/* with the directory "marker/" */
	assert_int_equal(mcm_index_count(&fx.m->index), 1000 - 1);
	for (i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "n%u", i);
		assert_int_equal(fx_put(&fx, key, 64, 0), 0);
		fx_advance(&fx, i % 100 ? 0 : 150);
	}
	assert_int_equal(fx.m->index.count, 1000);
	/* Levels as for other objects: these were protected while others could be evicted. */
	assert_int_equal(fx_stat(&fx, "marker/", NULL), 0);
	assert_int_equal(fx_stat(&fx, "promised", NULL), 0);
	assert_int_equal(fx_stat(&fx, "soft", NULL), 0);
	/* A replaced, a renamed and a removed one leave the lists. */
	assert_int_equal(fx_put(&fx, "soft", 64, MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_rename(&fx, "promised", "renamed", 0), 0);
	assert_int_equal(fx_remove(&fx, "renamed", MCP_REMOVE_FORCE), 0);
	fx_down(&fx);
}

/* By default the limit is a part of the machine's memory: long keys count for more. */
static void test_max_objects_of_memory(void **state)
{
	struct mcm_put_request rq = { .copies = 1, .flags = MCP_PUT_COMMIT };
	struct mcp_put_item item = { .size = 0 };
	struct mcm_put_granted g;
	struct fixture fx;
	char key[4096];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_true(fx.m->index.max > 1000000);
	assert_int_equal(fx_put(&fx, "k", 64, 0), 0);
	assert_int_equal(fx.m->index.count, 1);
	memset(key, 'k', sizeof(key));
	item.key = mcp_bytes(key, sizeof(key));
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(fx.m->index.count, 1 + 17);
	/* An unfinished put too. */
	item.size = 64;
	key[0] = 'u';
	rq.flags = 0;
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(fx.m->index.count, 1 + 17 + 17);
	assert_int_equal(mcm_put_revoke(fx.m, fx.s, &(struct mcp_put_done){
		.key = item.key, .generation = g.generation }), 0);
	assert_int_equal(fx.m->index.count, 1 + 17);
	fx.m->index.max = 170;
	rq.flags = MCP_PUT_COMMIT;
	item.size = 0;
	for (i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
		assert_in_range(fx.m->index.count, 1, 170);
	}
	fx_down(&fx);
}

/* A directory counts like an object, as long as it exists. */
static void test_directories_count(void **state)
{
	struct fixture fx;
	char key[600];

	(void)state;
	fx_up(&fx, 1, 16 * MIB, a_thousand);
	assert_int_equal(fx.m->index.count, 0);
	assert_int_equal(fx_put(&fx, "a/b/one", 64, 0), 0);
	assert_int_equal(fx.m->index.count, 3);
	assert_int_equal(fx_put(&fx, "a/b/two", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx.m->index.count, 4);
	assert_int_equal(fx_put(&fx, "a/c/", 0, MCP_PUT_COMMIT | MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx.m->index.count, 6);
	assert_int_equal(fx_rename(&fx, "a/b/one", "d/one", 0), 0);
	assert_int_equal(fx.m->index.count, 7);
	assert_int_equal(fx_remove(&fx, "a/b/two", 0), 0);
	assert_int_equal(fx.m->index.count, 5);
	assert_int_equal(fx_remove(&fx, "a/c/", 0), 0);
	assert_int_equal(fx.m->index.count, 2);
	assert_int_equal(fx_remove(&fx, "d/one", 0), 0);
	assert_int_equal(fx.m->index.count, 0);
	/* an unfinished put has no directory yet */
	assert_int_equal(fx_start(&fx, fx.s, "x/y", 64, 0, NULL), 0);
	assert_int_equal(fx.m->index.count, 1);
	fx_down(&fx);
	/* a limit of memory: a long name counts for more, the whole path does not count again */
	fx_up(&fx, 1, 16 * MIB, NULL);
	memset(key, 'k', sizeof(key));
	key[300] = key[302] = '/';
	key[304] = '\0';
	assert_int_equal(fx_put(&fx, key, 64, 0), 0);
	assert_int_equal(fx.m->index.count, 2 + 2 + 1);
	fx_down(&fx);
}

/* Whatever keys clients put, and whatever was there before, directories do not fill the memory. */
static void test_deep_keys_stay_within_the_limit(void **state)
{
	struct mcp_remove_match rq = { .flags = MCP_REMOVE_FORCE };
	uint64_t bytes, most = 0, first = 0, removed;
	struct fixture fx;
	char key[4096];
	unsigned i, at;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, a_thousand);
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "small%u", i);
		assert_int_equal(fx_put(&fx, key, 64, 0), 0);
	}
	fx_advance(&fx, 2000);
	for (i = 0; i < 3000; i++) {
		at = (unsigned)snprintf(key, sizeof(key), "h%u", i);
		while (at < 1000) {
			key[at++] = '/';
			key[at++] = 'x';
		}
		key[at] = '\0';
		assert_int_equal(fx_put(&fx, key, i % 2 ? 64 : 0, i % 2 ? 0 : MCP_PUT_COMMIT), 0);
		fx_advance(&fx, i % 100 ? 0 : 150);
		if (fx.m->index.count > most)
			most = fx.m->index.count;
		assert_in_range(fx.m->names.count, 1, 1000 + 200);
		bytes = mcm_index_bytes(&fx.m->index) + mcm_names_bytes(&fx.m->names);
		if (i == 200)
			first = bytes;
		/* chunks of the shards' memory are taken a few at a time */
		assert_true(!first || bytes < 2 * first + MIB);
	}
	/* the directories of the last put come after its admission */
	assert_in_range(most, 1000, 1000 + MCM_NAMES_DEPTH);
	/* they end with their objects */
	assert_int_equal(mcm_remove_match(fx.m, &rq, &removed), 0);
	assert_int_equal(fx.m->names.count, 1);
	assert_int_equal(fx.m->index.count, 0);
	fx_down(&fx);
}

/* The keys of one session's unfinished puts are limited, whatever their number. */
static void test_keys_of_unfinished_puts(void **state)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .size = 1 };
	struct mcm_put_granted g[16];
	struct fixture fx;
	char key[4096];
	unsigned i, n;
	int r = 0;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, hundred_puts);
	memset(key, 'k', sizeof(key));
	item.key = mcp_bytes(key, sizeof(key));
	for (n = 0; n < 16 && r == 0; n++) {
		key[0] = (char)n;
		r = mcm_put_start(fx.m, fx.s, &rq, &item, &g[n]);
	}
	/* 100 puts of 256 bytes each */
	assert_int_equal(r, -MC_ELIMIT);
	assert_non_null(strstr(mc_err_detail(r), "keys"));
	assert_int_equal(n - 1, 100 * 256 / 4096);
	/* Puts with short keys are not affected, and a put that ends makes room. */
	assert_int_equal(fx_start(&fx, fx.s, "short", 1, 0, NULL), 0);
	key[0] = 1;
	assert_int_equal(mcm_put_revoke(fx.m, fx.s, &(struct mcp_put_done){
		.key = item.key, .generation = g[1].generation }), 0);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g[1]), 0);
	for (i = 0; i < 200 && r == 0; i++)
		r = fx_start(&fx, fx.s, "other", 1, 0, NULL);
	assert_int_equal(r, -MC_ELIMIT);
	fx_down(&fx);
}

static void half_of_the_pool(struct mcm_conf *conf)
{
	conf->max_session_pinned_ratio = 0.5;
}

/* One connection pins a share of the pool; objects in its client's own segments do not count. */
static void test_pinned_bytes(void **state)
{
	struct mcp_object o[8], more;
	struct mcm_session *other, *third;
	struct fixture fx;
	char key[16];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, half_of_the_pool);
	other = fx_session(&fx, 2);
	third = fx_session(&fx, 3);
	for (i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(&fx, key, 2 * MIB, 0), 0);
	}
	for (i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_pin(&fx, other, key, i % 2 ? MCP_GET_HOLD : MCP_GET_LEASE, &o[i], NULL), 0);
	}
	assert_int_equal(fx_pin(&fx, other, "k4", MCP_GET_LEASE, &more, NULL), -MC_ELIMIT);
	assert_non_null(strstr(mc_err_detail(-MC_ELIMIT), "max_session_pinned_ratio"));
	assert_int_equal(fx_pin(&fx, other, "k4", MCP_GET_HOLD, &more, NULL), -MC_ELIMIT);
	/* Another pin of the same version costs nothing. */
	assert_int_equal(fx_pin(&fx, other, "k3", MCP_GET_LEASE, &o[4], NULL), 0);
	/* Another connection has a limit of its own. */
	assert_int_equal(fx_pin(&fx, third, "k4", MCP_GET_LEASE, &more, NULL), 0);
	fx_release(&fx, third, more.pin);
	fx_release(&fx, other, o[3].pin);
	assert_int_equal(fx_pin(&fx, other, "k4", MCP_GET_LEASE, &more, NULL), -MC_ELIMIT);
	fx_release(&fx, other, o[4].pin);
	assert_int_equal(fx_pin(&fx, other, "k4", MCP_GET_LEASE, &more, NULL), 0);
	for (i = 0; i < 3; i++)
		fx_release(&fx, other, o[i].pin);
	fx_release(&fx, other, more.pin);
	/* An object larger than the limit can be read alone. */
	assert_int_equal(fx_remove(&fx, "k5", 0), 0);
	assert_int_equal(fx_put(&fx, "large", 9 * MIB, 0), 0);
	assert_int_equal(fx_put(&fx, "small", 64, 0), 0);
	assert_int_equal(fx_pin(&fx, other, "large", MCP_GET_LEASE, &o[0], NULL), 0);
	assert_int_equal(fx_pin(&fx, other, "small", MCP_GET_LEASE, &o[1], NULL), -MC_ELIMIT);
	/* An expired lease counts no more. */
	for (i = 0; i < 3; i++) {
		fx_advance(&fx, 5000);
		(void)fx_beat(&fx, fx.s->client);
	}
	assert_int_equal(fx_pin(&fx, other, "small", MCP_GET_LEASE, &o[1], NULL), 0);
	/* The owner may pin all of its own segment. */
	assert_int_equal(fx_pin(&fx, fx.s, "large", MCP_GET_HOLD, &o[0], NULL), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "small", MCP_GET_HOLD, &o[1], NULL), 0);
	assert_int_equal(fx.s->pinned.bytes, 0);
	assert_int_equal(fx.s->pinned.count, 2);
	fx_down(&fx);
}

static void small_limits(struct mcm_conf *conf)
{
	conf->max_session_puts = 3;
	conf->max_session_pins = 3;
	conf->max_session_pinned_ratio = 0.5;
}

/* A session of client @client with the identity @p. */
static struct mcm_session *session_of(struct fixture *fx, uint64_t client, const struct mc_principal *p)
{
	struct mcm_session *s = fx_session(fx, client);

	assert_int_equal(mcm_account_open(fx->m, s, p), 0);
	return s;
}

/* Of one identity all sessions and client ids have the limits together; others are not affected. */
static void one_identity(const struct mc_principal *p, const struct mc_principal *another)
{
	struct mcm_session *a, *b, *other;
	struct mcm_put_granted g;
	struct mcp_object o[4];
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, small_limits);
	fx.m->security = (struct mcm_security *)&fx;	/* it is only compared with NULL */
	a = session_of(&fx, 2, p);
	b = session_of(&fx, 3, p);
	other = session_of(&fx, 4, another);
	assert_int_equal(fx_put(&fx, "k1", 5 * MIB, 0), 0);
	assert_int_equal(fx_put(&fx, "k2", 5 * MIB, 0), 0);
	assert_int_equal(fx_put(&fx, "x", 64, 0), 0);
	/* puts */
	assert_int_equal(fx_start(&fx, a, "a", 1, 0, &g), 0);
	assert_int_equal(fx_start(&fx, a, "b", 1, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, b, "c", 1, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, a, "d", 1, 0, NULL), -MC_ELIMIT);
	assert_int_equal(fx_start(&fx, b, "d", 1, 0, NULL), -MC_ELIMIT);
	assert_int_equal(fx_start(&fx, other, "d", 1, 0, NULL), 0);
	assert_int_equal(mcm_put_end(fx.m, a, &(struct mcp_put_done){ .key = fx_bytes("a"),
					      .generation = g.generation }), 0);
	assert_int_equal(fx_start(&fx, b, "d2", 1, 0, &g), 0);
	assert_int_equal(fx_start(&fx, a, "e", 1, 0, NULL), -MC_ELIMIT);
	assert_int_equal(mcm_put_revoke(fx.m, b, &(struct mcp_put_done){ .key = fx_bytes("d2"),
						 .generation = g.generation }), 0);
	assert_int_equal(fx_start(&fx, a, "e", 1, 0, NULL), 0);
	/* pins, and their bytes */
	assert_int_equal(fx_pin(&fx, a, "k1", MCP_GET_LEASE, &o[0], NULL), 0);
	assert_int_equal(fx_pin(&fx, b, "k2", MCP_GET_HOLD, &o[1], NULL), -MC_ELIMIT);
	assert_int_equal(fx_pin(&fx, other, "k2", MCP_GET_LEASE, &o[1], NULL), 0);
	assert_int_equal(fx_pin(&fx, b, "x", MCP_GET_LEASE, &o[1], NULL), 0);
	assert_int_equal(fx_pin(&fx, b, "x", MCP_GET_LEASE, &o[2], NULL), 0);
	assert_int_equal(fx_pin(&fx, a, "x", MCP_GET_LEASE, &o[3], NULL), -MC_ELIMIT);
	fx_release(&fx, a, o[0].pin);
	assert_int_equal(fx_pin(&fx, b, "k2", MCP_GET_LEASE, &o[3], NULL), 0);
	/* A session that ends holds nothing any more; the last one ends the account. */
	fx_session_end(&fx, b);
	assert_int_equal(fx_pin(&fx, a, "k2", MCP_GET_LEASE, &o[0], NULL), 0);
	assert_int_equal(fx_start(&fx, a, "f", 1, 0, NULL), 0);
	assert_int_equal(a->share->account->puts, 3);
	assert_int_equal(a->share->account->pins, 1);
	assert_int_equal(a->share->account->pinned_bytes, 5 * MIB);
	fx_session_end(&fx, a);
	fx_session_end(&fx, other);
	for (unsigned i = 0; i < MCM_ACCOUNT_BUCKETS; i++)
		assert_null(fx.m->accounts[i]);
	fx.m->security = NULL;
	fx_down(&fx);
}

static void test_identities(void **state)
{
	const struct mc_principal first = { .source = MC_PRINCIPAL_CREDENTIAL, .serial = 5 };
	const struct mc_principal second = { .source = MC_PRINCIPAL_CREDENTIAL, .serial = 5 + MCM_ACCOUNT_BUCKETS };
	const struct mc_principal root = { .source = MC_PRINCIPAL_USER };
	const struct mc_principal user = { .source = MC_PRINCIPAL_USER, .uid = 1 };
	struct mcm_session *s;
	struct fixture fx;

	(void)state;
	one_identity(&first, &second);
	one_identity(&root, &user);
	/* Without security each connection has limits of its own. */
	fx_up(&fx, 1, 16 * MIB, small_limits);
	s = session_of(&fx, 2, &user);
	assert_null(s->share);
	fx_down(&fx);
}

/* The table of pinned objects against an array that is counted. */
static void test_pinned_table(void **state)
{
	static unsigned pins[3000];
	struct mcm_pinned p = { 0 };
	uint64_t bytes = 0;
	unsigned i, slot, count = 0;

	(void)state;
	for (i = 0; i < 200000; i++) {
		slot = (unsigned)(rnd() % 3000);
		if (!pins[slot] || rnd() % (i < 100000 ? 3 : 2)) {
			assert_int_equal(mcm_pinned_reserve(&p), 0);
			mcm_pinned_add(&p, slot + 1, slot);
			bytes += pins[slot] ? 0 : slot;
			count += !pins[slot]++;
		}
		slot = (unsigned)(rnd() % 3000);
		if (pins[slot]) {
			mcm_pinned_drop(&p, slot + 1);
			bytes -= --pins[slot] ? 0 : slot;
			count -= !pins[slot];
		}
		assert_int_equal(p.bytes, bytes);
		assert_int_equal(p.count, count);
		assert_int_equal(mcm_pinned_has(&p, slot + 1), pins[slot] != 0);
	}
	for (slot = 0; slot < 3000; slot++)
		assert_int_equal(mcm_pinned_has(&p, slot + 1), pins[slot] != 0);
	mcm_pinned_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_max_objects_empty),
		cmocka_unit_test(test_max_objects_of_memory), cmocka_unit_test(test_directories_count),
		cmocka_unit_test(test_deep_keys_stay_within_the_limit),
		cmocka_unit_test(test_keys_of_unfinished_puts),
		cmocka_unit_test(test_pinned_bytes),
		cmocka_unit_test(test_identities),
		cmocka_unit_test(test_pinned_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
