/* SPDX-License-Identifier: Apache-2.0
 * test_proto_budget.c - requests of which only a part has come: what they may hold together, and who gives way. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/metrics.h"
#include "proto/rpc_budget.h"

/* ---- the room ---- */

static struct mcp_budget room;
static struct mcp_reservation share[64];

static int room_up(void **state)
{
	memset(&room, 0, sizeof(room));
	memset(share, 0, sizeof(share));
	mcp_budget_init(&room, 6400);
	for (unsigned i = 0; i < 64; i++)
		mc_list_init(&share[i].link);
	return 0;
}

static int room_down(void **state)
{
	for (unsigned i = 0; i < 64; i++)
		mcp_budget_release(&room, &share[i]);
	assert_int_equal(room.used, 0);
	assert_int_equal(room.parked, 0);
	assert_int_equal(room.waiting, 0);
	assert_true(mc_list_empty(&room.small));
	assert_true(mc_list_empty(&room.large));
	mcp_budget_done(&room);
	return 0;
}

static int take(unsigned i, uint64_t has, uint64_t whole)
{
	return mcp_budget_reserve(&room, &share[i], has, whole);
}

static void those_who_wait_have_their_turn(void **state)
{
	/* Three quarters are for large ones. */
	assert_int_equal(take(0, 10, 1600), 0);
	assert_int_equal(take(1, 10, 1600), 0);
	assert_int_equal(take(2, 10, 1600), 0);
	assert_int_equal(take(3, 10, 1600), 1);
	/* One that would fit does not overtake; small ones do. */
	mcp_budget_release(&room, &share[0]);
	assert_false(mcp_reservation_waits(&share[3]));
	assert_int_equal(take(4, 10, 1600), 1);
	assert_int_equal(take(5, 10, 200), 1);
	assert_int_equal(take(6, 10, 100), 0);
	mcp_budget_release(&room, &share[6]);
	mcp_budget_release(&room, &share[1]);
	assert_false(mcp_reservation_waits(&share[4]));
	assert_true(mcp_reservation_waits(&share[5]));
	/* One that goes on with its next request stands behind them. */
	assert_int_equal(take(2, 10, 1600), 1);
	assert_false(mcp_reservation_waits(&share[5]));
	mcp_budget_release(&room, &share[5]);
	assert_false(mcp_reservation_waits(&share[2]));
	assert_int_equal(room.used, 4800);
	/* One that waits may give up. */
	assert_int_equal(take(7, 10, 1600), 1);
	mcp_budget_release(&room, &share[7]);
	assert_int_equal(room.waiting, 0);
}

static void those_who_wait_are_limited_too(void **state)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_int_equal(take(i, 1000, 1600), 0);
	for (; i < 9; i++)
		assert_int_equal(take(i, 1000, 1600), 1);
	assert_int_equal(take(i, 1000, 1600), -ENOBUFS);
	assert_int_equal(take(i, 400, 1600), 1);
	assert_int_equal(take(i + 1, 1, 1600), -ENOBUFS);
	/* A quarter is left for small ones, which then wait, too. */
	for (i = 20; i < 36; i++)
		assert_int_equal(take(i, 50, 100), 0);
	assert_int_equal(take(i, 0, 100), 1);
	mcp_budget_release(&room, &share[20]);
	assert_false(mcp_reservation_waits(&share[i]));
}

/* ---- a server with room for three ---- */

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

static int begin(void)
{
	int fd = raw_hello(fx.path, MCP_CHANNEL_CONTROL);

	raw_send(fd, request.data, request.len - REST);
	return fd;
}

static void ends(int fd)
{
	struct mcp_frame f;

	raw_send(fd, request.data + request.len - REST, REST);
	assert_true(raw_recv_frame(fd, &f, NULL));
	assert_int_equal(f.id, 5);
	assert_int_equal(f.status, 0);
}

static bool is_closed(int fd)
{
	struct mcp_frame f;

	return !raw_recv_frame(fd, &f, NULL);
}

/* What does not go on gives way to those who wait, and only then. */
static void who_stands_still_gives_way(void **state)
{
	struct mcp_client *c = fixture_client(fx.path);
	int64_t before, after;
	int fd[5];

	assert_int_equal(mc_metrics_lookup("mooncake_rpc_requests_given_up_total", "", &before), 0);
	for (unsigned i = 0; i < 3; i++) {
		fd[i] = begin();
		wait_unfinished(i + 1);
	}
	fd[3] = begin();
	/* What is whole needs no room. */
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	/* An honest one ends; the next has its turn. */
	ends(fd[0]);
	ends(fd[3]);
	wait_unfinished(2);
	close(fd[3]);
	fd[3] = begin();
	wait_unfinished(3);
	fd[4] = begin();
	assert_true(is_closed(fd[1]));
	ends(fd[4]);
	ends(fd[2]);
	ends(fd[3]);
	assert_int_equal(mc_metrics_lookup("mooncake_rpc_requests_given_up_total", "", &after), 0);
	assert_int_equal(after - before, 1);
	for (unsigned i = 0; i < 5; i++)
		close(fd[i]);
	mcp_client_close(c);
	fixture_wait(&fx.closed, fx.opened);
	wait_unfinished(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(those_who_wait_have_their_turn, room_up, room_down),
		cmocka_unit_test_setup_teardown(those_who_wait_are_limited_too, room_up, room_down),
		cmocka_unit_test_setup_teardown(who_stands_still_gives_way, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
