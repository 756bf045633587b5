/* SPDX-License-Identifier: Apache-2.0
 * test_proto_place.c - places of connections whose peers show a credential. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/err.h"
#include "proto/rpc_place.h"

/* Limits of connections count for an address until the hello, then for the credential. */
static void places_of_credentials(void **state)
{
	struct mcp_place place[4], *gone;
	struct mcp_places ps;

	(void)state;
	mcp_places_init(&ps, 100, 2);
	mc_mutex_lock(&ps.lock);
	/* Many holders at one address. */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(mcp_place_take_locked(&ps, "10.0.0.1:7", &place[i], &gone), 0);
		assert_int_equal(mcp_place_move_locked(&ps, i ? "serial-2" : "serial-1", &place[i], &gone), 0);
		assert_null(gone);
	}
	/* A holder at a further address whose connections may not give way: the place stays that of the address. */
	assert_int_equal(mcp_place_take_locked(&ps, "10.0.0.2:7", &place[3], &gone), 0);
	assert_int_equal(mcp_place_move_locked(&ps, "serial-2", &place[3], &gone), -MC_ELIMIT);
	assert_string_equal(place[3].peer->host, "10.0.0.2");
	mc_mutex_unlock(&ps.lock);
	mcp_place_keep(&ps, &place[1], false);
	mc_mutex_lock(&ps.lock);
	assert_int_equal(mcp_place_move_locked(&ps, "serial-2", &place[3], &gone), 0);
	assert_ptr_equal(gone, &place[1]);
	assert_int_equal(place[1].state, MCP_PLACE_NONE);
	/* Twice, and one that has no place any more. */
	assert_int_equal(mcp_place_move_locked(&ps, "serial-2", &place[3], &gone), 0);
	assert_int_equal(mcp_place_move_locked(&ps, "serial-1", &place[1], &gone), 0);
	assert_null(gone);
	assert_int_equal(ps.used, 3);
	for (unsigned i = 0; i < 4; i++)
		mcp_place_leave_locked(&ps, &place[i]);
	assert_int_equal(ps.used, 0);
	for (unsigned i = 0; i < MCP_PEER_BUCKETS; i++)
		assert_null(ps.bucket[i]);
	mc_mutex_unlock(&ps.lock);
	mcp_places_done(&ps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_of_credentials),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
