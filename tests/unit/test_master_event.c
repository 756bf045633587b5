/* SPDX-License-Identifier: Apache-2.0
 * test_master_event.c - the ring of events: order, prefixes, and watchers that are too slow. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)

static struct mcp_event ev[512];
static char text[1 << 20];
static uint64_t since, lost;

static int read_on(struct fixture *fx, const char *prefix, uint32_t types)
{
	return mcm_events_read(fx->m, since, types, MCM_TENANT_DEFAULT, fx_bytes(prefix), ev, 512, text, sizeof(text),
			       &since, &lost);
}

static void expect(unsigned i, enum mcp_event_type type, const char *key, const char *to)
{
	assert_int_equal(ev[i].type, type);
	assert_int_equal(ev[i].key.len, strlen(key));
	assert_memory_equal(ev[i].key.data, key, strlen(key));
	assert_int_equal(ev[i].to.len, strlen(to));
	assert_memory_equal(ev[i].to.data, to, strlen(to));
}

static void events_are_read_in_order(void **state)
{
	struct fixture fx;
	uint64_t before;

	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "unseen", 100, 0), 0);
	since = UINT64_MAX;
	assert_int_equal(read_on(&fx, "", 0), 0);
	assert_int_equal(lost, 0);
	before = since;
	assert_int_equal(fx_put(&fx, "a/1", 100, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx_put(&fx, "a/1", 300, MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_rename(&fx, "a/1", "c", 0), 0);
	assert_int_equal(fx_remove(&fx, "c", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_remove(&fx, "c", MCP_REMOVE_FORCE), -MC_ENOOBJECT);
	assert_int_equal(read_on(&fx, "", 0), 5);
	assert_int_equal(lost, 0);
	expect(0, MCP_EVENT_PUT, "a/1", "");
	expect(1, MCP_EVENT_PUT, "b", "");
	expect(2, MCP_EVENT_PUT, "a/1", "");
	expect(3, MCP_EVENT_RENAME, "a/1", "c");
	expect(4, MCP_EVENT_REMOVE, "c", "");
	assert_int_equal(ev[2].size, 300);
	assert_true(ev[2].generation > ev[0].generation);
	assert_int_equal(ev[4].sequence, ev[0].sequence + 4);
	assert_int_equal(read_on(&fx, "", 0), 0);
	/* Read again from an earlier number. */
	since = before;
	assert_int_equal(read_on(&fx, "a/", 0), 3);
	since = before;
	assert_int_equal(read_on(&fx, "c", 0), 2);
	since = before;
	assert_int_equal(read_on(&fx, "", 1u << MCP_EVENT_REMOVE), 1);
	since = before;
	assert_int_equal(mcm_events_read(fx.m, since, 0, MCM_TENANT_DEFAULT, fx_bytes(""), ev, 2, text, sizeof(text),
					 &since, &lost), 2);
	assert_int_equal(mcm_events_read(fx.m, since, 0, MCM_TENANT_DEFAULT, fx_bytes(""), ev, 9, text, 4, &since,
					 &lost), 1);
	assert_int_equal(read_on(&fx, "", 0), 2);
	fx_down(&fx);
}

static void evictions_are_told(void **state)
{
	struct fixture fx;
	unsigned i, evicted = 0, n = 0;
	char key[16];
	int r;

	fx_up(&fx, 1, MIB, NULL);
	since = UINT64_MAX;
	assert_int_equal(read_on(&fx, "", 0), 0);
	for (i = 0; i < 200; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 10000, 0), 0);
	}
	while ((r = read_on(&fx, "", 0)) > 0)
		for (i = 0; i < (unsigned)r; i++, n++)
			evicted += ev[i].type == MCP_EVENT_EVICT;
	assert_int_equal(n, 200 + evicted);
	assert_true(evicted > 90);
	assert_int_equal(mcm_index_count(&fx.m->index), 200 - evicted);
	fx_down(&fx);
}

static void a_late_watcher_is_told_how_much_it_missed(void **state)
{
	struct fixture fx;
	uint64_t seen = 0;
	unsigned i;
	int r;

	fx_up(&fx, 1, MIB, NULL);
	since = UINT64_MAX;
	assert_int_equal(read_on(&fx, "", 0), 0);
	for (i = 0; i < MCM_EVENTS_MAX + 1000; i++)
		assert_int_equal(fx_put(&fx, "k", 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT), 0);
	r = read_on(&fx, "", 0);
	assert_int_equal(lost, 1000);
	do {
		seen += (unsigned)r;
		r = read_on(&fx, "", 0);
		assert_int_equal(lost, 0);
	} while (r);
	assert_int_equal(seen, MCM_EVENTS_MAX);
	/* A number that this master has not reached: another master has issued it. */
	since += 10;
	read_on(&fx, "", 0);
	assert_int_equal(lost, 1);
	/* Without a reader for a minute, recording stops; later events are missed. */
	fx_advance(&fx, MCM_EVENTS_IDLE_MS + 1000);
	mcm_events_tick(fx.m);
	assert_false(mcm_events_on(&fx.m->events));
	assert_int_equal(fx_put(&fx, "x", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(read_on(&fx, "", 0), 0);
	assert_true(lost > 0);
	assert_int_equal(fx_put(&fx, "y", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(read_on(&fx, "", 0), 1);
	assert_int_equal(lost, 0);
	fx_down(&fx);
}

static void long_keys_wrap_the_ring(void **state)
{
	static char key[MCP_KEY_MAX + 1];
	uint64_t last = 0, gaps = 0, seen = 0, total = 20000;
	struct fixture fx;
	int r;

	fx_up(&fx, 1, MIB, NULL);
	since = UINT64_MAX;
	assert_int_equal(read_on(&fx, "", 0), 0);
	last = since;
	for (unsigned i = 0; i < total; i++) {
		memset(key, 'a' + (int)(i % 26), sizeof(key) - 1);
		key[1 + rnd() % (sizeof(key) - 1)] = 0;
		assert_int_equal(fx_put(&fx, key, 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT), 0);
		if (i % 9999 == 0 || i == total - 1) {
			while ((r = read_on(&fx, "", 0)) > 0 || lost) {
				gaps += lost;
				last += lost;
				for (int j = 0; j < r; j++) {
					const char *k = ev[j].key.data;

					assert_int_equal(ev[j].sequence, ++last);
					assert_int_equal(k[0], k[ev[j].key.len - 1]);
				}
				seen += (unsigned)r;
			}
		}
	}
	assert_int_equal(seen + gaps, total);
	assert_true(gaps > 0);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_are_read_in_order),
		cmocka_unit_test(evictions_are_told),
		cmocka_unit_test(a_late_watcher_is_told_how_much_it_missed),
		cmocka_unit_test(long_keys_wrap_the_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
