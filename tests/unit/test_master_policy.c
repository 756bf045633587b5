/* SPDX-License-Identifier: Apache-2.0
 * Eviction policies: the purpose of each. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#include "master/space/evict_lists.h"

#define KIB 1024u
#define OBJECTS 256u		/* objects of 4 KiB that fit */

static char *policy;

static void tune(struct mcm_conf *conf)
{
	conf->eviction_policy = policy;
	conf->eviction_high_watermark_ratio = 1.0;
	conf->client_ttl = 3600 * 1000;
}

static void up(struct fixture *fx, const char *name)
{
	static char text[16];

	strcpy(text, name);
	policy = text;
	fx_up(fx, 1, OBJECTS * 4 * KIB, tune);
}

static void put(struct fixture *fx, const char *kind, unsigned i)
{
	char key[32];

	sprintf(key, "%s-%u", kind, i);
	assert_int_equal(fx_put(fx, key, 4 * KIB, 0), 0);
}

static void read_it(struct fixture *fx, const char *kind, unsigned i)
{
	struct mcp_object o;
	char key[32];

	sprintf(key, "%s-%u", kind, i);
	assert_int_equal(fx_pin(fx, fx->s, key, MCP_GET_LEASE, &o, NULL), 0);
	fx_release(fx, fx->s, o.pin);
}

static bool there(struct fixture *fx, const char *kind, unsigned i)
{
	char key[32];

	sprintf(key, "%s-%u", kind, i);
	return fx_exist(fx, key, MCP_EXIST_PEEK);
}

static unsigned count(struct fixture *fx, const char *kind, unsigned n)
{
	unsigned i, sum = 0;

	for (i = 0; i < n; i++)
		sum += there(fx, kind, i);
	return sum;
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(mcm_evict_ops_find("lru")->name, "lru");
	assert_string_equal(mcm_evict_ops_find("fifo")->name, "fifo");
	assert_null(mcm_evict_ops_find("s3fifo"));
	assert_null(mcm_evict_ops_find("mru"));
	assert_null(mcm_evict_ops_find(""));
}

/* The first in is the first out, however often it is read. */
static void test_fifo(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	unsigned i;

	(void)state;
	up(&fx, "fifo");
	for (i = 0; i < OBJECTS; i++)
		put(&fx, "a", i);
	for (i = 0; i < 10; i++)
		read_it(&fx, "a", i);
	for (i = 0; i < 10; i++) {
		put(&fx, "b", i);
		assert_false(there(&fx, "a", i));
		assert_true(there(&fx, "a", i + 1));
	}
	/* An object that was skipped because it was pinned is the next victim as soon as it is
	 * unpinned. */
	assert_int_equal(fx_pin(&fx, fx.s, "a-10", MCP_GET_LEASE, &o, NULL), 0);
	put(&fx, "b", 10);
	assert_true(there(&fx, "a", 10));
	assert_false(there(&fx, "a", 11));
	fx_release(&fx, fx.s, o.pin);
	put(&fx, "b", 11);
	assert_false(there(&fx, "a", 10));
	assert_true(there(&fx, "a", 12));
	fx_down(&fx);
}

/* Hits of a skewed stream of reads that contains scans; a miss puts the object. */
static unsigned hits(const char *name)
{
	unsigned i, n = 0, scan = 0;
	struct fixture fx;

	up(&fx, name);
	rnd_seed(4711);
	for (i = 0; i < 20000; i++) {
		/* The product of two numbers: small ones are much more frequent. */
		unsigned k = (unsigned)(rnd() % 1000 * (rnd() % 1000) / 1000);

		if (i % 4 == 3) {
			put(&fx, "scan", scan++);
			continue;
		}
		if (there(&fx, "key", k)) {
			n++;
			read_it(&fx, "key", k);
		} else {
			put(&fx, "key", k);
		}
	}
	fx_down(&fx);
	return n;
}

static void test_hit_ratio(void **state)
{
	unsigned fifo = hits("fifo"), lru = hits("lru");

	(void)state;
	printf("hits of 15000: fifo %u, lru %u\n", fifo, lru);
	assert_true(lru > fifo);
}

/* ---- a policy of this file, unknown to the master: an object that is put again after its eviction
 * stays ---- */

#define HISTORY 65536u

struct learner {
	struct mcm_lists lists;
	uint32_t list[2];	/* put for the first time; put again: MCM_LIST_CLASS */
	uint8_t *gone;		/* by hash, common to all segments */
};

static void *learner_shared_new(struct mcm_learn *learn)
{
	(void)learn;
	return calloc(HISTORY, 1);
}

static void learner_shared_free(void *shared)
{
	free(shared);
}

static void learner_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest)
{
	bool back = mcm_range(v->a, range)->policy & MCM_LIST_CLASS;

	(void)newest;
	mcm_list_tail(l, v->a, ((struct learner *)l)->list[back], range);
}

static int learner_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct learner *le = state;
	int r = mcm_lists_init(&le->lists, a, lease_ticks, learner_requeue);

	le->gone = shared;
	if (r == 0)
		r = mcm_list_new(a, &le->list[0]);
	return r < 0 ? r : mcm_list_new(a, &le->list[1]);
}

static void learner_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	struct learner *le = state;

	if (fresh && mcm_load_relaxed(&le->gone[mcm_load_relaxed(&mcm_evict_owner(v, range)->hash) % HISTORY]))
		mcm_range(v->a, range)->policy |= MCM_LIST_CLASS;
	mcm_lists_insert(&le->lists, v, range, fresh);
}

static void learner_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
}

static unsigned learner_victims(void *state, const struct mcm_evict_view *v, unsigned level,
				uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct learner *le = state;
	struct mcm_selection h = mcm_selection_begin(&le->lists, v, level, want, ret, max);
	unsigned i;
	uint32_t id;

	for (i = 0; i < 2; i++)
		while ((id = mcm_selection_next(&h, &le->lists, v, le->list[i])))
			mcm_selection_take(&h, &le->lists, v, id);
	return mcm_selection_end(&h, &le->lists, v, level, ret_more);
}

static void learner_evicted(void *shared, const struct mcm_victim *victim, uint32_t hash)
{
	(void)victim;
	mcm_store_relaxed(&((uint8_t *)shared)[hash % HISTORY], 1);
}

static const struct mcm_evict_ops learner = {
	.name = "learner", .state_size = sizeof(struct learner), .shared_new = learner_shared_new,
	.shared_free = learner_shared_free, .init = learner_init, .insert = learner_insert,
	.remove = learner_remove, .victims = learner_victims, .retry = mcm_lists_retry,
	.evicted = learner_evicted,
};

static void test_one_more(void **state)
{
	struct mcm_segments *ss;
	struct fixture fx;
	unsigned i;

	(void)state;
	policy = (char []){ "lru" };
	fx_up(&fx, 0, 0, tune);
	ss = &fx.m->segments;
	ss->evict->shared_free(ss->evict_shared);
	fx.m->evict = ss->evict = &learner;
	ss->evict_shared = learner.shared_new(&fx.m->learn);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, OBJECTS * 4 * KIB, NULL), 0);
	for (i = 0; i < 2 * OBJECTS; i++)
		put(&fx, "first", i);
	assert_false(there(&fx, "first", 0));
	for (i = 0; i < 20; i++)
		put(&fx, "first", i);
	for (i = 0; i < 4 * OBJECTS; i++)
		put(&fx, "scan", i);
	/* Objects that were evicted once outlive later ones; almost nothing of the rest is left. */
	assert_int_equal(count(&fx, "first", 20), 20);
	assert_in_range(count(&fx, "first", 2 * OBJECTS), 20, 30);
	assert_true(fx.m->evict == &learner);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_fifo),
		cmocka_unit_test(test_hit_ratio),
		cmocka_unit_test(test_one_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
