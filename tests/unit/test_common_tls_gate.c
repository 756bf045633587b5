/* SPDX-License-Identifier: Apache-2.0
 * test_common_tls_gate.c - limits for peers that have not proved an identity. */
#include <config.h>

#include "common/security/tls_gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "common/log.h"
#include "common/sys/clock.h"

#define MAX 64u			/* of the gate, by the limit of descriptors */
#define CONNS (4 * MAX)

struct conn {
	struct mc_stream s;
	struct mc_tls_unproven u;
	char peer[MC_ADDR_MAX];
	bool down;
};

static struct mc_tls_gate *gate;
static struct conn conn[CONNS];

static void conn_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	*ret = (struct mc_stream_peer){ .local = false };
	strcpy(ret->name, ((struct conn *)s->state)->peer);
}

static void conn_shutdown(struct mc_stream *s, int how)
{
	((struct conn *)s->state)->down = true;
}

static struct conn *conn_make(unsigned i, const char *peer)
{
	static const struct mc_stream_ops ops = { .peer = conn_peer, .shutdown = conn_shutdown };
	struct conn *c = &conn[i];

	memset(c, 0, sizeof(*c));
	c->s = (struct mc_stream){ .ops = &ops, .fd = -1, .state = c };
	snprintf(c->peer, sizeof(c->peer), "%s", peer);
	return c;
}

static bool admit(const char *peer)
{
	struct conn *c = conn_make(0, peer);
	uint16_t slot;

	return mc_tls_gate_admit(gate, &c->s, &slot);
}

static struct conn *begin(unsigned i, const char *peer)
{
	struct conn *c = conn_make(i, peer);
	uint16_t slot;

	assert_true(mc_tls_gate_admit(gate, &c->s, &slot));
	mc_tls_gate_enter(gate, &c->u, slot, &c->s);
	return c;
}

static unsigned count_down(unsigned from, unsigned to)
{
	unsigned n = 0;

	for (; from < to; from++)
		n += conn[from].down;
	return n;
}

static int setup(void **state)
{
	struct rlimit lim;

	(void)mc_log_open(&(struct mc_log_conf){ .levels = "err" });
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	lim.rlim_cur = 4 * MAX;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	return mc_tls_gate_new("test", 1, &gate);
}

static int teardown(void **state)
{
	for (unsigned i = 0; i < CONNS; i++)
		mc_tls_gate_leave(gate, &conn[i].u, false);
	memset(conn, 0, sizeof(conn));
	mc_tls_gate_free(gate);
	return 0;
}

static void the_oldest_of_an_address_gives_way(void **state)
{
	begin(0, "10.0.0.2:5");
	for (unsigned i = 1; i <= MAX / 2; i++)
		begin(i, "10.0.0.1:5");
	assert_int_equal(count_down(0, CONNS), 0);
	begin(MAX / 2 + 1, "10.0.0.1:6");
	begin(MAX / 2 + 2, "10.0.0.1:7");
	assert_int_equal(count_down(0, CONNS), 2);
	assert_true(conn[1].down && conn[2].down);
	/* Each that proves its identity makes room. */
	mc_tls_gate_leave(gate, &conn[3].u, true);
	begin(MAX / 2 + 3, "10.0.0.1:8");
	assert_int_equal(count_down(0, CONNS), 2);
}

static void the_address_with_the_most_gives_way(void **state)
{
	char peer[32];
	unsigned n = 0;

	for (; n < MAX / 4; n++)
		begin(n, "10.0.0.1:5");
	for (; n < MAX / 2; n++)
		begin(n, "[fe80::1%eth0]:5");
	/* The two hosts of one network count together. */
	begin(n++, "[2001:db8::1]:5");
	for (; n < MAX; n++)
		begin(n, n % 2 ? "[2001:db8::2]:5" : "[2001:db8::3]:5");
	assert_int_equal(count_down(0, CONNS), 0);
	for (unsigned i = 0; i < 4; i++, n++) {
		snprintf(peer, sizeof(peer), "10.0.1.%u:5", i);
		begin(n, peer);
	}
	assert_int_equal(count_down(MAX / 2, MAX / 2 + 4), 4);
	assert_int_equal(count_down(0, CONNS), 4);
}

static void connections_of_many_addresses_are_limited(void **state)
{
	char peer[32];

	for (unsigned i = 0; i < CONNS; i++) {
		snprintf(peer, sizeof(peer), "10.0.%u.1:5", i);
		begin(i, peer);
	}
	assert_int_equal(count_down(0, CONNS), CONNS - MAX);
}

static void handshakes_that_fail_are_limited_per_address(void **state)
{
	uint64_t begun = mc_now_ns();
	unsigned n = 0;

	while (admit("10.0.0.1:5"))
		n++;
	assert_in_range(n, MC_TLS_BURST, MC_TLS_BURST + 1 + (mc_now_ns() - begun) * MC_TLS_RATE / MC_NS_PER_SEC);
	assert_true(admit("10.0.0.2:5"));
	assert_true(admit("memory"));
	while (!admit("10.0.0.1:5"))
		assert_true(mc_now_ns() - begun < 20 * MC_NS_PER_SEC);
}

static void a_proved_identity_costs_nothing(void **state)
{
	for (unsigned i = 0; i < 4 * MC_TLS_BURST; i++) {
		struct conn *c = begin(0, "10.0.0.1:5");

		mc_tls_gate_leave(gate, &c->u, true);
		mc_tls_gate_leave(gate, &c->u, false);
	}
	assert_int_equal(count_down(0, CONNS), 0);
}

#define GATE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		GATE(the_oldest_of_an_address_gives_way),
		GATE(the_address_with_the_most_gives_way),
		GATE(connections_of_many_addresses_are_limited),
		GATE(handshakes_that_fail_are_limited_per_address),
		GATE(a_proved_identity_costs_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
