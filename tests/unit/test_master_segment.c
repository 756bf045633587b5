/* SPDX-License-Identifier: Apache-2.0
 * Segments that grow, and mount requests that are invalid. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#include "master/admin/admin.h"
#include "master/admin/stats.h"

#define MIB (1ull << 20)
#define KIB 1024u

static struct mcp_id id_of(uint64_t n)
{
	return (struct mcp_id){ 7, n };
}

static struct mcm_segment *segment(struct fixture *fx, uint64_t id)
{
	return mcm_segments_find(&fx->m->segments, id_of(id));
}

static void test_grows(void **state)
{
	struct mcp_mount_reply reply;
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", MIB - 64 * KIB, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), 0);
	assert_int_equal(fx_put(&fx, "large", MIB - 64 * KIB, 0), -MC_ENOSPACE);
	assert_int_equal(fx_put(&fx, "huge", 2 * MIB, 0), -MC_ETOOBIG);
	/* The last range is free: it is enlarged. */
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 2 * MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(reply.objects, 1);
	assert_int_equal(segment(&fx, 1)->size, 2 * MIB);
	assert_int_equal(fx_put(&fx, "large", MIB - 64 * KIB, 0), 0);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	fx_check(&fx);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 4 * MIB, &reply), 0);
	fx_check(&fx);
	assert_int_equal(fx_put(&fx, "more", 2 * MIB - 64 * KIB, 0), 0);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	assert_int_equal(fx_stat(&fx, "large", NULL), 0);
	fx_release(&fx, fx.s, o.pin);
	fx_down(&fx);
}

/* The whole segment is pinned, so that the search for a run pauses; nevertheless the new space is
 * found. */
static void test_grows_when_full(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	char key[16];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	mc_clock_real();
	for (i = 0; i < 16; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 64 * KIB, 0), 0);
		assert_int_equal(fx_pin(&fx, fx.s, key, MCP_GET_HOLD, &o, NULL), 0);
	}
	for (i = 0; i < 3; i++)
		assert_int_equal(fx_put(&fx, "new", 64 * KIB, 0), -MC_ENOSPACE);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 2 * MIB, NULL), 0);
	assert_int_equal(fx_put(&fx, "new", 64 * KIB, 0), 0);
	fx_down(&fx);
}

static void test_does_not_shrink(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 2 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", KIB, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, NULL), -MC_EPARAM);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 0, NULL), -MC_EPARAM);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 1ull << 63, NULL), -MC_EPARAM);
	assert_int_equal(segment(&fx, 1)->size, 2 * MIB);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	/* Another base is other memory: the objects are gone. */
	assert_int_equal(fx_mount(&fx, 1, 1, 202, MIB, NULL), 0);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	while (mcm_evict_background(fx.m))
		;
	fx_down(&fx);
}

static int mount(struct fixture *fx, uint64_t client, uint64_t id, const char *name, uint64_t base,
		 uint64_t size)
{
	struct mcp_mount rq = {
		.segment = id_of(id), .client = id_of(client), .epoch = 1, .size = size, .base = base,
		.rkey = 5, .name = fx_bytes(name), .endpoint = fx_bytes("h:1"),
		.protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, id_of(client), NULL, &rq, &reply);
}

/* Bytes behind the last whole granule are not used. */
static void test_too_big_by_a_little(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB + MCM_GRANULE - 1, NULL);
	assert_int_equal(fx_start(&fx, fx.s, "k", MIB - 64, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, fx.s, "l", MIB - 32, 0, NULL), -MC_ETOOBIG);
	fx_down(&fx);
}

static void test_overlaps(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	fx_session(&fx, 2);
	assert_int_equal(mount(&fx, 1, 1, "a", 16 * MIB, MIB), 0);
	assert_int_equal(fx_put(&fx, "x", KIB, 0), 0);
	assert_int_equal(mount(&fx, 1, 2, "b", 16 * MIB, MIB), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount(&fx, 1, 2, "b", 17 * MIB - 1, MIB), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount(&fx, 1, 2, "b", 15 * MIB + 1, MIB), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount(&fx, 1, 2, "b", 1, 100 * MIB), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount(&fx, 1, 2, "b", UINT64_MAX - 10, MIB), -MC_EPARAM);
	assert_int_equal(fx.m->segments.n_live, 1);
	/* Adjacent memory, and the same addresses in another process. */
	assert_int_equal(mount(&fx, 1, 2, "b", 17 * MIB, MIB), 0);
	assert_int_equal(mount(&fx, 2, 3, "c", 16 * MIB, MIB), 0);
	/* It would overlap its neighbour. */
	assert_int_equal(mount(&fx, 1, 1, "a", 16 * MIB, 2 * MIB), -MC_ESEGMENT_EXISTS);
	assert_int_equal(segment(&fx, 1)->size, MIB);
	assert_int_equal(fx_stat(&fx, "x", NULL), 0);
	fx_down(&fx);
}

static void test_names(void **state)
{
	struct mcm_session *other;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	other = fx_session(&fx, 2);
	assert_int_equal(mount(&fx, 1, 1, "host:1", 0, MIB), 0);
	/* One client may contribute several pieces of memory under its name. */
	assert_int_equal(mount(&fx, 1, 2, "host:1", 0, MIB), 0);
	assert_int_equal(mount(&fx, 2, 3, "host:1", 0, MIB), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount(&fx, 2, 1, "host:2", 0, MIB), -MC_EOWNER);
	assert_int_equal(fx.m->segments.n_live, 2);
	/* The first client has disconnected: another process started in its place gets the name. */
	fx_session_end(&fx, fx.s);
	assert_int_equal(mount(&fx, 2, 3, "host:1", 0, MIB), 0);
	(void)other;
	fx_down(&fx);
}

/* A process is killed and started again at the same address: its old memory is dropped at once,
 * whatever its ids. */
static void test_replaced(void **state)
{
	struct mcm_session *second, *third;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	assert_int_equal(mount(&fx, 1, 1, "host:1", 0, MIB), 0);
	assert_int_equal(mount(&fx, 1, 2, "host:1", 0, MIB), 0);
	assert_int_equal(mount(&fx, 1, 3, "host:other", 0, MIB), 0);
	assert_int_equal(fx_put(&fx, "a", KIB, 0), 0);
	assert_int_equal(fx_put(&fx, "b", KIB, 0), 0);
	assert_int_equal(fx_put(&fx, "c", KIB, 0), 0);
	second = fx_session(&fx, 2);
	fx_session_end(&fx, fx.s);
	assert_int_equal(fx.m->segments.n_live, 3);
	assert_int_equal(mount(&fx, 2, 4, "host:1", 0, MIB), 0);
	assert_int_equal(fx.m->segments.n_live, 2);
	assert_int_equal(mcm_load_relaxed(&fx.m->segments.capacity), 2 * MIB);
	assert_null(segment(&fx, 1));
	assert_non_null(segment(&fx, 3));
	while (mcm_evict_background(fx.m))
		;
	assert_int_equal(mcm_index_count(&fx.m->index), mcm_load_relaxed(&segment(&fx, 3)->objects));
	/* A process that listens at another address is a different one, and the old one may
	 * return. */
	fx_session_end(&fx, second);
	third = fx_session(&fx, 3);
	snprintf(segment(&fx, 4)->endpoint, MCM_NAME_MAX, "elsewhere:1");
	assert_int_equal(mount(&fx, 3, 5, "host:1", 0, MIB), 0);
	assert_non_null(segment(&fx, 4));
	fx_session_end(&fx, third);
	fx.s = fx_session(&fx, 1);
	fx_check(&fx);
	fx_down(&fx);
}

static int call_from(struct fixture *fx, uint64_t client, const char *name, const char *host)
{
	struct mcp_register rq = { .client = id_of(client), .name = fx_bytes(name) };

	return mcm_client_register(fx->m, &rq, fx_bytes(host));
}

static int call_yourself(struct fixture *fx, uint64_t client, const char *name)
{
	struct mcp_register rq = { .client = id_of(client), .name = fx_bytes(name) };

	return mcm_client_register(fx->m, &rq, mcp_bytes("local", 5));
}

/* Two programs with the same id: the second is refused, the first is not affected. */
static void test_fenced(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(call_yourself(&fx, 1, "first:1"), 0);
	assert_int_equal(mcm_client_opened(fx.m, id_of(1)), 0);
	assert_int_equal(call_yourself(&fx, 1, "second:1"), -MC_EOWNER);
	assert_non_null(strstr(mc_err_detail(-MC_EOWNER), "first:1"));
	/* Further connections of the first program are accepted. */
	assert_int_equal(call_yourself(&fx, 1, "first:1"), 0);
	/* A program at another address that knows id and name is not the first program. */
	assert_int_equal(call_from(&fx, 1, "first:1", "10.0.0.9"), -MC_EOWNER);
	assert_non_null(strstr(mc_err_detail(-MC_EOWNER), "another address"));
	assert_int_equal(call_yourself(&fx, 1, "first:1"), 0);
	mcm_client_closed(fx.m, id_of(1));
	/* When the first program's connections have ended, it may come from another address. */
	assert_int_equal(call_from(&fx, 1, "first:1", "10.0.0.9"), 0);
	assert_int_equal(fx_put(&fx, "a", KIB, 0), 0);
	assert_false(fx_beat(&fx, id_of(1)));
	assert_int_equal(call_yourself(&fx, 9, "nobody:1"), -MC_ENOCLIENT);
	assert_int_equal(call_yourself(&fx, 1, "b\xc3\x28 d"), -MC_EPARAM);
	fx_down(&fx);
}

#define OWNERS 4000u
/* Segments examined per request: hash chains and, for a re-mount, the own name. */
#define LOOKS 24u

static uint64_t looked_before;

/* At most LOOKS segments were examined since the last call. */
static void few_looks(void)
{
	uint64_t now = fx_held_sum(MCM_HOLD_SEGMENTS);

	assert_in_range(now - looked_before, 0, LOOKS);
	looked_before = now;
}

static int offer(struct fixture *fx, uint64_t client, uint64_t epoch, uint64_t size)
{
	char name[32];
	struct mcp_mount rq = {
		.segment = id_of(client), .client = id_of(client), .epoch = epoch, .size = size,
		.base = MIB, .endpoint = fx_bytes("h:1"), .protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply reply;

	/* Several segments on each host. */
	snprintf(name, sizeof(name), "host-%u:%u", (unsigned)client % 1000, (unsigned)client);
	rq.name = fx_bytes(name);
	return mcm_mount(fx->m, id_of(client), NULL, &rq, &reply);
}

/* Memory mappings of the process; the kernel's default limit is 65530. */
static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	assert_non_null(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* Mount, re-mount, growth and unmount cost the same with thousands of owners as with a few. */
static void test_thousands_of_owners(void **state)
{
	struct fixture fx;
	unsigned mapped;
	uint64_t i, lost;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	looked_before = fx_held_sum(MCM_HOLD_SEGMENTS);
	mapped = mappings();
	for (i = 10; i < 10 + OWNERS; i++) {
		assert_int_equal(mcm_client_opened(fx.m, id_of(i)), 0);
		assert_int_equal(offer(&fx, i, 1, MIB), 0);
		few_looks();
	}
	assert_int_equal(fx.m->segments.n_live, OWNERS);
	assert_int_equal(fx.m->clients.owners, OWNERS);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* Their mappings are adjacent. */
	assert_in_range(mappings(), 1, mapped + OWNERS / 10);
#else
	assert_true(mapped > 0);
#endif
	fx_check(&fx);
	looked_before = fx_held_sum(MCM_HOLD_SEGMENTS);
	for (i = 10; i < 10 + OWNERS; i++) {
		assert_int_equal(offer(&fx, i, 1, i % 3 ? MIB : 2 * MIB), 0);
		few_looks();
	}
	/* Other memory under the same id, and an owner that disconnects without unmounting. */
	assert_int_equal(offer(&fx, 10, 2, 2 * MIB), 0);
	mcm_client_closed(fx.m, id_of(11));
	assert_false(mcm_segment_allocatable(segment(&fx, 11)));
	assert_true(mcm_segment_allocatable(segment(&fx, 12)));
	fx_check(&fx);
	while (mcm_evict_background(fx.m))
		;
	looked_before = fx_held_sum(MCM_HOLD_SEGMENTS);
	for (i = 12; i < 10 + OWNERS; i++) {
		assert_int_equal(mcm_unmount(fx.m, id_of(i), id_of(i), &lost), 0);
		few_looks();
	}
	assert_int_equal(fx.m->segments.largest, 2 * MIB);
	assert_int_equal(mcm_unmount(fx.m, id_of(10), id_of(10), &lost), 0);
	assert_int_equal(fx.m->segments.largest, MIB);
	assert_int_equal(fx.m->clients.owners, 1);
	fx_check(&fx);
	fx_down(&fx);
}

/* ---- display ---- */

struct shown {
	struct mcm_segments *ss;
	char text[400000];
	size_t len;
	bool locked;		/* a line was printed while a mount had to wait */
};

static ssize_t take_text(void *arg, const char *p, size_t len)
{
	struct shown *sh = arg;

	if (mc_rwlock_trywrlock(&sh->ss->lock))
		sh->locked = true;
	else
		mc_rwlock_unlock(&sh->ss->lock);
	assert_true(sh->len + len < sizeof(sh->text));
	memcpy(sh->text + sh->len, p, len);
	sh->len += len;
	return (ssize_t)len;
}

static FILE *shows(struct shown *sh, struct fixture *fx)
{
	FILE *f = fopencookie(sh, "w", (cookie_io_functions_t){ .write = take_text });

	memset(sh, 0, sizeof(*sh));
	sh->ss = &fx->m->segments;
	assert_non_null(f);
	setvbuf(f, NULL, _IONBF, 0);
	return f;
}

static unsigned times(const char *text, const char *part)
{
	unsigned n = 0;

	while ((text = strstr(text, part))) {
		text++;
		n++;
	}
	return n;
}

/* The body of the response to @path. */
static void serve(struct shown *sh, struct fixture *fx, const char *path)
{
	struct mc_http_request rq = { .method = "GET", .path = path, .status = 200, .out = shows(sh, fx) };
	const struct mc_http_route *r = mcm_http_routes;

	while (strcmp(r->path, path) || !r->method)
		r++;
	r->handle(&rq, fx->m);
	assert_int_equal(rq.status, 200);
	fclose(rq.out);
}

/* Display of segments prints nothing under their lock and examines few at a time; segments of the
 * same name are merged. */
static void test_shown(void **state)
{
	struct mcp_mount rq = { .client = { 7, 1 }, .epoch = 5, .size = MIB, .endpoint = fx_bytes("h:1"),
				.protocol = fx_bytes("tcp") };
	static struct shown sh;
	struct mcp_mount_reply reply;
	struct fixture fx;
	char name[32];
	uint64_t lost;
	FILE *f;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	fx.m->ready = true;
	for (unsigned i = 1; i <= 700; i++) {
		snprintf(name, sizeof(name), "host-%u", 1000 + (i > 600 ? i - 600 : i));
		rq.segment = id_of(i);
		rq.base = i * MIB;
		rq.name = fx_bytes(name);
		assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &rq, &reply), 0);
	}
	assert_int_equal(mcm_unmount(fx.m, id_of(1), id_of(300), &lost), 0);
	fx_held_reset(MCM_HOLD_SEGMENTS);
	f = shows(&sh, &fx);
	mcm_stats_print_segments(fx.m, f);
	fclose(f);
	assert_false(sh.locked);
	assert_int_equal(times(sh.text, "\nsegment_total_capacity_bytes{"), 599);
	assert_int_equal(times(sh.text, "\nmooncake_master_segment_objects{"), 599);
	assert_int_equal(times(sh.text, "segment_total_capacity_bytes{segment=\"host-1001\"} 2097152\n"), 1);
	assert_int_equal(times(sh.text, "segment_total_capacity_bytes{segment=\"host-1101\"} 1048576\n"), 1);
	assert_null(strstr(sh.text, "\"host-1300\""));
	serve(&sh, &fx, "/get_all_segments");
	assert_false(sh.locked);
	assert_int_equal(times(sh.text, "\n"), 599);
	assert_int_equal(times(sh.text, "host-1100\n"), 1);
	serve(&sh, &fx, "/get_segments_detail");
	assert_false(sh.locked);
	assert_int_equal(times(sh.text, "\"segment_name\""), 699);
	assert_in_range(fx_held_most(MCM_HOLD_SEGMENTS), 1, 256);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_grows_when_full),
		cmocka_unit_test(test_does_not_shrink),
		cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_too_big_by_a_little),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_fenced),
		cmocka_unit_test(test_thousands_of_owners),
		cmocka_unit_test(test_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
