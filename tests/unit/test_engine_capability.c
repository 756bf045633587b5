/* SPDX-License-Identifier: Apache-2.0
 * test_engine_capability.c - capabilities of clients that prove identities, over TCP; a captured one opens nothing. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "common/err.h"
#include "common/principal.h"
#include "common/security/capability.h"
#include "common/sys/clock.h"
#include "tests/lib/tls_net.h"

#define LEN (4u << 20)
#define SEED 3
#define ALICE 0xa11ceull
#define MALLORY 0xbadull

static bool admit(void *arg, const struct mc_principal *p)
{
	return true;
}

/* The owner with two regions, and the clients of Alice and Mallory, each with a valid credential of its own. */
static struct mce_engine *owner, *alice, *mallory;
static struct mce_mr *mr, *other;
static char *mem, *buf;
static struct mc_credential shown[2];	/* Alice's and Mallory's */

static struct mce_engine *engine_open(const struct mc_net *net)
{
	const struct mce_conf conf = {
		.net = net, .peer_admitted = net ? admit : NULL, .force_tcp = true, .stripe_bytes = 256 << 10,
		.conns = 1,	/* none is made later, when another credential is presented */
	};
	struct mce_engine *e;

	assert_int_equal(mce_engine_open(&conf, &e), 0);
	return e;
}

static struct mce_mr *region(struct mce_engine *e, char *at)
{
	const struct mce_mr_attr attr = {
		.base = at, .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .guarded = true, .fd = -1,
	};
	struct mce_mr *ret;

	assert_int_equal(mce_mr_register(e, &attr, &ret), 0);
	return ret;
}

static int setup(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		tls_net_make(&shown[i], MC_ROLE_CLIENT, "t", "client", UINT64_MAX);
		tls_net_serial(&shown[i], i ? MALLORY : ALICE);
	}
	mem = malloc(2 * LEN);
	buf = malloc(LEN);
	assert_true(mem && buf);
	owner = engine_open(tls_net());
	alice = engine_open(tls_net());
	mallory = engine_open(tls_net());
	mr = region(owner, mem);
	other = region(owner, mem + LEN);
	return 0;
}

static int teardown(void **state)
{
	mce_engine_close(alice);
	mce_engine_close(mallory);
	mce_engine_close(owner);
	free(mem);
	free(buf);
	return 0;
}

static struct mc_capability grant(struct mce_mr *of, uint64_t serial, uint64_t offset, uint64_t len, uint8_t rights)
{
	struct mc_capability c = {
		.offset = offset, .len = len, .generation = 5, .rights = rights,
		.expires_s = (uint32_t)(mc_wall_ms() / 1000) + 60,
	};
	uint8_t key[MC_CAPABILITY_KEY];

	assert_true(mce_mr_capability_key(of, key));
	mc_capability_sign(key, serial, &c);
	return c;
}

/* One transfer between buf and the first region by the client @e, whose connections have the credential @serial. */
static int move(struct mce_engine *e, uint64_t serial, enum mce_op op, uint64_t offset, uint64_t len,
		const struct mc_capability *cap)
{
	struct iovec iov = { buf, len };
	struct mce_req req = { .op = op, .rkey = mce_mr_rkey(mr), .cap = cap, .iov = &iov, .iovcnt = 1 };
	struct mce_batch b;
	int r;

	tls_net_present(&shown[serial == MALLORY]);
	assert_int_equal(mce_peer_get(e, mce_engine_endpoint(owner), &req.peer), 0);
	req.addr = mce_mr_base(mr) + offset;
	mce_batch_init(&b);
	mce_submit(e, &b, &req, 1);
	r = mce_batch_wait(e, &b, &req, 1, SECONDS(30));
	assert_int_equal(r, 0);
	assert_int_equal(req.path, MCE_PATH_TCP);
	mce_peer_put(req.peer);
	return req.status;
}

static int as_alice(enum mce_op op, uint64_t offset, uint64_t len, const struct mc_capability *cap)
{
	return move(alice, ALICE, op, offset, len, cap);
}

static void fill(void)
{
	pattern_fill(mem, LEN, SEED, 0);
	memset(buf, 'x', LEN);
}

static void a_capability_opens_its_range(void **state)
{
	struct mc_capability r = grant(mr, ALICE, 0, LEN, MC_CAPABILITY_READ);
	struct mc_capability w = grant(mr, ALICE, 4096, LEN - 8192, MC_CAPABILITY_WRITE);

	fill();
	/* In several fragments, each of which has the capability. */
	assert_int_equal(as_alice(MCE_READ, 0, LEN, &r), 0);
	pattern_check(buf, LEN, SEED, 0);
	assert_int_equal(as_alice(MCE_READ, LEN - 1, 1, &r), 0);
	memset(buf, 'w', LEN);
	assert_int_equal(as_alice(MCE_WRITE, 4096, LEN - 8192, &w), 0);
	pattern_check(mem, 4096, SEED, 0);
	pattern_check(mem + LEN - 4096, 4096, SEED, LEN - 4096);
	assert_memory_equal(mem + 4096, buf, LEN - 8192);
}

static void a_key_of_the_region_alone_opens_nothing(void **state)
{
	fill();
	assert_int_equal(as_alice(MCE_READ, 0, 1, NULL), -EACCES);
	assert_int_equal(as_alice(MCE_WRITE, 0, LEN, NULL), -EACCES);
	pattern_check(mem, LEN, SEED, 0);
	for (unsigned i = 0; i < LEN; i++)
		assert_int_equal(buf[i], 'x');
}

/* The connection of Mallory is authenticated, and shows the capability as Alice has got it. */
static void a_captured_capability_is_useless_to_another_client(void **state)
{
	struct mc_capability r = grant(mr, ALICE, 0, LEN, MC_CAPABILITY_READ);
	struct mc_capability w = grant(mr, ALICE, 0, LEN, MC_CAPABILITY_WRITE);
	struct mc_capability own = grant(mr, MALLORY, 0, 4096, MC_CAPABILITY_READ);

	fill();
	assert_int_equal(move(mallory, MALLORY, MCE_READ, 0, 4096, &own), 0);
	assert_int_equal(move(mallory, MALLORY, MCE_READ, 0, 4096, &r), -EACCES);
	assert_int_equal(move(mallory, MALLORY, MCE_WRITE, 0, LEN, &w), -EACCES);
	assert_int_equal(move(mallory, MALLORY, MCE_READ, 4096, 1, &own), -EACCES);
	assert_int_equal(as_alice(MCE_READ, 0, 4096, &r), 0);
	pattern_check(mem, LEN, SEED, 0);
}

static void it_is_useless_for_another_range_direction_region_or_generation(void **state)
{
	struct mc_capability r = grant(mr, ALICE, 4096, 1000, MC_CAPABILITY_READ);
	struct mc_capability w = grant(mr, ALICE, 4096, 1000, MC_CAPABILITY_WRITE);
	struct mc_capability elsewhere = grant(other, ALICE, 4096, 1000, MC_CAPABILITY_READ);

	fill();
	assert_int_equal(as_alice(MCE_READ, 4096, 1000, &r), 0);
	assert_int_equal(as_alice(MCE_READ, 4095, 1000, &r), -EACCES);
	assert_int_equal(as_alice(MCE_READ, 4097, 1000, &r), -EACCES);
	assert_int_equal(as_alice(MCE_READ, 4096, 1001, &r), -EACCES);
	assert_int_equal(as_alice(MCE_WRITE, 4096, 1000, &r), -EACCES);
	assert_int_equal(as_alice(MCE_READ, 4096, 1000, &w), -EACCES);
	assert_int_equal(as_alice(MCE_READ, 4096, 1000, &elsewhere), -EACCES);
	r.generation++;
	assert_int_equal(as_alice(MCE_READ, 4096, 1000, &r), -EACCES);
	pattern_check(mem, LEN, SEED, 0);
}

/* A transfer that is partly outside of the range changes no byte, although its first fragments are inside. */
static void a_transfer_is_checked_as_a_whole(void **state)
{
	struct mc_capability w = grant(mr, ALICE, 0, LEN - 1, MC_CAPABILITY_WRITE);

	fill();
	assert_int_equal(as_alice(MCE_WRITE, 0, LEN, &w), -EACCES);
	pattern_check(mem, LEN, SEED, 0);
}

static void it_expires_by_the_clock_of_the_master(void **state)
{
	struct mc_capability r = grant(mr, ALICE, 0, 4096, MC_CAPABILITY_READ);
	struct mc_capability w = grant(mr, ALICE, 0, 4096, MC_CAPABILITY_WRITE);
	uint64_t end_ms = r.expires_s * 1000ull;

	fill();
	/* The master's clock is far from that of this host. */
	mce_engine_set_time(owner, end_ms, mc_now_ms());
	assert_int_equal(as_alice(MCE_READ, 0, 4096, &r), -MC_ELEASE_EXPIRED);
	assert_int_equal(as_alice(MCE_WRITE, 0, 4096, &w), -MC_ELEASE_EXPIRED);
	/* The answer of the master took 30 s: the capabilities may have expired, or not.  A READ is admitted, because
	 * a valid reader must not fail; a WRITE is refused, because its range may belong to another object. */
	mce_engine_set_time(owner, end_ms - 20000, mc_now_ms() - 30000);
	assert_int_equal(as_alice(MCE_READ, 0, 4096, &r), 0);
	memset(buf, 'w', 4096);
	assert_int_equal(as_alice(MCE_WRITE, 0, 4096, &w), -MC_ELEASE_EXPIRED);
	pattern_check(mem, LEN, SEED, 0);
	mce_engine_set_time(owner, end_ms - 20000, mc_now_ms() - 10000);
	assert_int_equal(as_alice(MCE_WRITE, 0, 4096, &w), 0);
	assert_memory_equal(mem, buf, 4096);
	mce_engine_set_time(owner, mc_wall_ms(), mc_now_ms());
}

/* Without identities there is nothing to prove, and requests are as before. */
static void a_region_without_identities_needs_none(void **state)
{
	struct mce_engine *e = engine_open(NULL), *client = engine_open(NULL);
	struct mce_mr *plain = region(e, mem);
	struct mce_peer *peer;
	uint8_t key[MC_CAPABILITY_KEY];
	enum mce_path path;

	fill();
	assert_false(mce_mr_capability_key(plain, key));
	assert_int_equal(mce_peer_get(client, mce_engine_endpoint(e), &peer), 0);
	assert_int_equal(transfer(client, peer, MCE_READ, mce_mr_base(plain), mce_mr_rkey(plain), buf, LEN, &path), 0);
	pattern_check(buf, LEN, SEED, 0);
	mce_peer_put(peer);
	mce_engine_close(client);
	mce_engine_close(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_capability_opens_its_range),
		cmocka_unit_test(a_key_of_the_region_alone_opens_nothing),
		cmocka_unit_test(a_captured_capability_is_useless_to_another_client),
		cmocka_unit_test(it_is_useless_for_another_range_direction_region_or_generation),
		cmocka_unit_test(a_transfer_is_checked_as_a_whole),
		cmocka_unit_test(it_expires_by_the_clock_of_the_master),
		cmocka_unit_test(a_region_without_identities_needs_none),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
