/* SPDX-License-Identifier: Apache-2.0
 * test_proto_budget.c - incomplete requests: the limit of their memory, and which connections are
 * closed for others. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/metrics.h"
#include "proto/rpc_budget.h"

/* ---- the budget ---- */

static struct mcp_budget budget;
static struct mcp_reservation res[64];

static int budget_up(void **state)
{
	memset(&budget, 0, sizeof(budget));
	memset(res, 0, sizeof(res));
	mcp_budget_init(&budget, 6400);
	for (unsigned i = 0; i < 64; i++)
		mc_list_init(&res[i].link);
	return 0;
}

static int budget_down(void **state)
{
	for (unsigned i = 0; i < 64; i++)
		mcp_budget_release(&budget, &res[i]);
	assert_int_equal(budget.used, 0);
	assert_int_equal(budget.parked, 0);
	assert_int_equal(budget.waiting, 0);
	assert_true(mc_list_empty(&budget.small));
	assert_true(mc_list_empty(&budget.large));
	mcp_budget_done(&budget);
	return 0;
}

static int reserve(unsigned i, uint64_t has, uint64_t whole)
{
	return mcp_budget_reserve(&budget, &res[i], has, whole);
}

static void waiting_requests_are_admitted_in_order(void **state)
{
	/* Large requests may use three quarters of the budget. */
	assert_int_equal(reserve(0, 10, 1600), 0);
	assert_int_equal(reserve(1, 10, 1600), 0);
	assert_int_equal(reserve(2, 10, 1600), 0);
	assert_int_equal(reserve(3, 10, 1600), 1);
	/* A large request that would fit does not overtake; a small one does. */
	mcp_budget_release(&budget, &res[0]);
	assert_false(mcp_reservation_waits(&res[3]));
	assert_int_equal(reserve(4, 10, 1600), 1);
	assert_int_equal(reserve(5, 10, 200), 1);
	assert_int_equal(reserve(6, 10, 100), 0);
	mcp_budget_release(&budget, &res[6]);
	mcp_budget_release(&budget, &res[1]);
	assert_false(mcp_reservation_waits(&res[4]));
	assert_true(mcp_reservation_waits(&res[5]));
	/* A connection that sends its next request is queued behind them. */
	assert_int_equal(reserve(2, 10, 1600), 1);
	assert_false(mcp_reservation_waits(&res[5]));
	mcp_budget_release(&budget, &res[5]);
	assert_false(mcp_reservation_waits(&res[2]));
	assert_int_equal(budget.used, 4800);
	/* A waiting request may be abandoned. */
	assert_int_equal(reserve(7, 10, 1600), 1);
	mcp_budget_release(&budget, &res[7]);
	assert_int_equal(budget.waiting, 0);
}

static void waiting_requests_are_limited_too(void **state)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_int_equal(reserve(i, 1000, 1600), 0);
	for (; i < 9; i++)
		assert_int_equal(reserve(i, 1000, 1600), 1);
	assert_int_equal(reserve(i, 1000, 1600), -ENOBUFS);
	assert_int_equal(reserve(i, 400, 1600), 1);
	assert_int_equal(reserve(i + 1, 1, 1600), -ENOBUFS);
	/* A quarter is left for small requests; when it is used up, they wait too. */
	for (i = 20; i < 36; i++)
		assert_int_equal(reserve(i, 50, 100), 0);
	assert_int_equal(reserve(i, 0, 100), 1);
	mcp_budget_release(&budget, &res[20]);
	assert_false(mcp_reservation_waits(&res[i]));
}

/* ---- a server with memory for three requests ---- */

#define LEN 95000u
#define REST 10u

static struct mcp_buf request;

static void narrow(struct mcp_server_conf *conf)
{
	conf->max_frame = 100000;
}

static int start(void **state)
{
	struct mcp_rename rq = { 0 };
	char *name = calloc(1, LEN);

	memset(name, 'x', LEN);
	rq.from = mcp_bytes(name, LEN);
	assert_int_equal(mcp_frame_append(&request, (struct mcp_frame){ .type = MCP_RENAME, .id = 5 },
					  mcp_desc_of(MCP_RENAME, false), &rq), 0);
	free(name);
	fixture_start(&fx, narrow);
	return 0;
}

static int stop(void **state)
{
	fixture_stop(&fx);
	mcp_buf_free(&request);
	return 0;
}

static void wait_unfinished(unsigned requests)
{
	uint64_t end = mc_deadline_ms(10000);
	int64_t bytes = -1;

	while (bytes != (int64_t)(requests * request.len) && mc_now_ns() < end) {
		assert_int_equal(mc_metrics_lookup("mooncake_rpc_unfinished_bytes", "", &bytes), 0);
		usleep(1000);
	}
	assert_int_equal(bytes, requests * request.len);
}

static struct mc_stream *begin(void)
{
	struct mc_stream *raw = raw_hello(fx.path, MCP_CHANNEL_CONTROL);

	raw_send(raw, request.data, request.len - REST);
	return raw;
}

static void ends(struct mc_stream *raw)
{
	struct mcp_frame f;

	raw_send(raw, request.data + request.len - REST, REST);
	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(f.id, 5);
	assert_int_equal(f.status, 0);
}

static bool is_closed(struct mc_stream *raw)
{
	struct mcp_frame f;

	return !raw_recv_frame(raw, &f, NULL);
}

/* A connection that does not complete its request is closed when another one waits, and only then. */
static void a_stalled_request_is_closed_for_a_waiting_one(void **state)
{
	struct mcp_client *c = fixture_client(fx.path);
	int64_t before, after;
	struct mc_stream *raw[5];

	assert_int_equal(mc_metrics_lookup("mooncake_rpc_requests_given_up_total", "", &before), 0);
	for (unsigned i = 0; i < 3; i++) {
		raw[i] = begin();
		wait_unfinished(i + 1);
	}
	raw[3] = begin();
	/* A complete request needs no reservation. */
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	/* A completed request lets the next one in. */
	ends(raw[0]);
	ends(raw[3]);
	wait_unfinished(2);
	raw_close(raw[3]);
	raw[3] = begin();
	wait_unfinished(3);
	raw[4] = begin();
	assert_true(is_closed(raw[1]));
	ends(raw[4]);
	ends(raw[2]);
	ends(raw[3]);
	assert_int_equal(mc_metrics_lookup("mooncake_rpc_requests_given_up_total", "", &after), 0);
	assert_int_equal(after - before, 1);
	for (unsigned i = 0; i < 5; i++)
		raw_close(raw[i]);
	mcp_client_close(c);
	fixture_wait(&fx.closed, fx.opened);
	wait_unfinished(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(waiting_requests_are_admitted_in_order, budget_up, budget_down),
		cmocka_unit_test_setup_teardown(waiting_requests_are_limited_too, budget_up, budget_down),
		cmocka_unit_test_setup_teardown(a_stalled_request_is_closed_for_a_waiting_one, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
