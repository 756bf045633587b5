/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_nics.c - several RDMA NICs on fake devices: which are used, their shares of the bytes by their
 * rates, and their metrics. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "engine/engine_i.h"
#include "engine/rdma/rdma_i.h"
#include "tests/lib/fake_verbs.h"

#define REGION (32u << 20)
#define MIB (1u << 20)
#define ROUNDS 8

struct pair {
	struct side owner, user;
	struct mce_peer *peer;
};

static void pair_open(struct pair *p, const char *owner_nics, const char *user_nics)
{
	struct mce_conf conf = { .force_rdma = true, .force_tcp = true, .rdma_devices = owner_nics };

	memset(p, 0, sizeof(*p));
	side_open(&p->owner, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	conf.rdma_devices = user_nics;
	side_open(&p->user, &conf, REGION, 0, 2);
	assert_int_equal(mce_peer_get(p->user.e, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	side_close(&p->user);
	side_close(&p->owner);
	assert_int_equal(fake_live_objects(), 0);
	fake_reset(0);
}

static int move(struct pair *p, enum mce_op op, uint64_t len, enum mce_path *ret_path)
{
	return transfer(p->user.e, p->peer, op, (uintptr_t)p->owner.mem, mce_mr_rkey(p->owner.mr), p->user.mem, len,
			ret_path);
}

/* Wait until @n pairs of NICs are connected, and no more is to come. */
static unsigned pairs_settle(struct pair *p, unsigned n, struct mce_nic_pair *ret)
{
	uint64_t until = mc_deadline_ms(20000);
	enum mce_path path;

	while (mce_peer_nic_pairs(p->peer, ret, MCE_NICS_MAX) < n && mc_now_ns() < until) {
		assert_int_equal(move(p, MCE_READ, 4096, &path), 0);
		usleep(1000);
	}
	usleep(20000);
	return mce_peer_nic_pairs(p->peer, ret, MCE_NICS_MAX);
}

struct background {
	struct pair *p;
	uint64_t len;
	int r;
};

static void *background_main(void *arg)
{
	struct background *b = arg;

	b->r = move(b->p, MCE_WRITE, b->len, NULL);
	return NULL;
}

/* Bytes in flight between two NICs. */
static uint64_t in_flight(struct pair *p, const struct mce_nic_pair *pair)
{
	const struct mce_rdma_peer *rp = mce_rdma_peer_of(p->peer);
	struct mc_list *pos;
	uint64_t n = 0;

	MC_LOCKED(&p->peer->lock);
	mc_list_for_each(pos, &rp->eps) {
		const struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (!strcmp(ep->nic->addr.name, pair->nic) && !strcmp(rp->remote[ep->remote].name, pair->peer_nic))
			n += ep->bytes;
	}
	return n;
}

/* Write @len bytes while no NIC works, and return in @ret the bytes in flight of each pair, after the last post. */
static void write_in_flight(struct pair *p, uint64_t len, const struct mce_nic_pair *pair, unsigned n, uint64_t *ret)
{
	struct background b = { .p = p, .len = len };
	uint64_t sum, last = 0, until = mc_deadline_ms(20000);
	pthread_t thread;

	for (unsigned i = 0; i < FAKE_NICS_MAX; i++)
		fake_stop(i, true);
	assert_int_equal(pthread_create(&thread, NULL, background_main, &b), 0);
	for (unsigned same = 0; same < 10; usleep(1000)) {
		sum = 0;
		for (unsigned i = 0; i < n; i++)
			sum += ret[i] = in_flight(p, &pair[i]);
		same = sum && sum == last ? same + 1 : 0;
		last = sum;
		assert_true(mc_now_ns() < until);
	}
	for (unsigned i = 0; i < FAKE_NICS_MAX; i++)
		fake_stop(i, false);
	pthread_join(thread, NULL);
	assert_int_equal(b.r, 0);
}

/* The bytes of writes, of 4 MiB and of 24 MiB, are shared in these proportions, within 15 %. */
static void shares_are(struct pair *p, unsigned n, const struct mce_nic_pair *pair, const unsigned *want)
{
	uint64_t got[MCE_NICS_MAX], sum, total = 0;

	for (unsigned i = 0; i < n; i++)
		total += want[i];
	for (unsigned mib = 4; mib <= 24; mib += 20) {
		write_in_flight(p, (uint64_t)mib * MIB, pair, n, got);
		sum = 0;
		for (unsigned i = 0; i < n; i++)
			sum += got[i];
		for (unsigned i = 0; i < n; i++) {
			double share = (double)got[i] / (double)sum, rate = (double)want[i] / (double)total;

			if (share < rate * 0.85 || share > rate * 1.15)
				fail_msg("%u MiB: %s to %s carries %.3f of the bytes, not %.3f", mib, pair[i].nic,
					 pair[i].peer_nic, share, rate);
		}
	}
}

/* speed and width of a port */
#define RATE_100G 32, 2
#define RATE_400G 128, 2

static void bytes_follow_the_rates(void **state)
{
	static const unsigned want[] = { 1, 4 };
	struct mce_nic_pair pair[MCE_NICS_MAX];
	uint64_t before[2], moved[2];
	struct pair p;

	fake_reset(2);
	fake_rate(0, RATE_100G);
	fake_rate(1, RATE_400G);
	pair_open(&p, "", "");
	assert_int_equal(pairs_settle(&p, 2, pair), 2);
	assert_string_equal(pair[0].nic, pair[0].peer_nic);
	shares_are(&p, 2, pair, want);
	/* the bytes that have arrived after a few requests */
	for (unsigned i = 0; i < 2; i++)
		before[i] = fake_bytes(i);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t got[2];

		write_in_flight(&p, 4 * MIB, pair, 2, got);
	}
	for (unsigned i = 0; i < 2; i++)
		moved[i] = fake_bytes(i) - before[i];
	assert_int_equal(moved[0] + moved[1], ROUNDS * 4 * MIB);
	assert_in_range(moved[0], ROUNDS * 4 * MIB / 5 * 85 / 100, ROUNDS * 4 * MIB / 5 * 115 / 100);
	pair_close(&p);
}

static void an_unknown_rate_counts_as_equal(void **state)
{
	static const unsigned want[] = { 1, 1 };
	struct mce_nic_pair pair[MCE_NICS_MAX];
	struct pair p;

	fake_reset(2);
	fake_rate(1, RATE_400G);
	pair_open(&p, "", "");
	assert_int_equal(pairs_settle(&p, 2, pair), 2);
	shares_are(&p, 2, pair, want);
	pair_close(&p);
}

/* The slower of two NICs limits their pair. */
static void the_slower_end_counts(void **state)
{
	static const unsigned want[] = { 1, 4 };
	struct mce_nic_pair pair[MCE_NICS_MAX];
	struct pair p;

	fake_reset(4);
	fake_rate(0, RATE_400G);
	fake_rate(1, RATE_400G);
	fake_rate(2, RATE_100G);
	fake_rate(3, RATE_400G);
	pair_open(&p, "fake2,fake3", "fake0,fake1");
	assert_int_equal(pairs_settle(&p, 2, pair), 2);
	assert_string_equal(pair[0].peer_nic, "fake2");
	shares_are(&p, 2, pair, want);
	pair_close(&p);
}

/* One NIC that is as fast as four of the peer's is connected to all of them. */
static void a_fast_nic_uses_several_slow_ones(void **state)
{
	static const unsigned want[] = { 1, 1, 1, 1 };
	struct mce_nic_pair pair[MCE_NICS_MAX];
	struct pair p;

	fake_reset(5);
	for (unsigned i = 0; i < 4; i++)
		fake_rate(i, RATE_100G);
	fake_rate(4, RATE_400G);
	pair_open(&p, "fake0,fake1,fake2,fake3", "fake4");
	assert_int_equal(pairs_settle(&p, 4, pair), 4);
	shares_are(&p, 4, pair, want);
	/* one of them fails, and comes back */
	fake_port(2, false);
	assert_int_equal(move(&p, MCE_WRITE, 4 * MIB, NULL), 0);
	assert_int_equal(pairs_settle(&p, 3, pair), 3);
	fake_port(2, true);
	assert_int_equal(move(&p, MCE_WRITE, 4 * MIB, NULL), 0);
	pair_close(&p);
}

/* Four NICs share the one of the peer; an idle NIC of the peer is not needed for that. */
static void slow_nics_share_a_fast_one(void **state)
{
	static const unsigned want[] = { 1, 1, 1, 1 };
	struct mce_nic_pair pair[MCE_NICS_MAX];
	struct pair p;

	fake_reset(5);
	for (unsigned i = 0; i < 4; i++)
		fake_rate(i, RATE_100G);
	fake_rate(4, RATE_400G);
	pair_open(&p, "fake4", "fake0,fake1,fake2,fake3");
	assert_int_equal(pairs_settle(&p, 4, pair), 4);
	shares_are(&p, 4, pair, want);
	pair_close(&p);
}

static void a_rate_that_peers_send_is_checked(void **state)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_NICS, .naddrs = 2 };
	char *frame, *at;
	size_t len;

	for (unsigned i = 0; i < 2; i++) {
		snprintf(out.addr[i].name, sizeof(out.addr[i].name), "fake%u", i);
		out.addr[i].mtu = 4096;
	}
	out.addr[1].rate = 400000;
	assert_int_equal(mce_rdma_encode(&out, &frame, &len), 0);
	assert_int_equal(mce_rdma_decode(frame + 4, len - 4, &in), 0);
	/* a peer of an older version sends none */
	assert_int_equal(in.addr[0].rate, 0);
	assert_int_equal(in.addr[1].rate, 400000);
	at = memmem(frame + 4, len - 4, "400000", 6);
	assert_non_null(at);
	memcpy(at, "-40000", 6);
	assert_int_equal(mce_rdma_decode(frame + 4, len - 4, &in), -MC_EPROTO);
	memcpy(at, "\"4000\"", 6);
	assert_int_equal(mce_rdma_decode(frame + 4, len - 4, &in), -MC_EPROTO);
	free(frame);
}

/* ---- which NICs ---- */

/* The rates that the verbs report for widths and speeds. */
static void rates_are_computed(void **state)
{
	static const struct { uint8_t speed, width; unsigned mbps; } port[] = {
		{ 0, 0, 0 }, { 1, 2, 10000 }, { 4, 2, 40000 }, { 8, 2, 40000 }, { 16, 2, 56000 }, { 32, 1, 25000 },
		{ 32, 2, 100000 }, { 64, 2, 200000 }, { 128, 2, 400000 }, { 128, 4, 800000 }, { 64, 16, 100000 },
		{ 32, 8, 300000 }, { 3, 2, 0 }, { 32, 3, 0 }, { 32, 32, 0 },
	};
	const struct mce_conf conf = { .rdma_devices = "" };
	struct side one;

	for (unsigned i = 0; i < sizeof(port) / sizeof(port[0]); i++) {
		fake_reset(1);
		fake_rate(0, port[i].speed, port[i].width);
		side_open(&one, &conf, 0, 0, 1);
		assert_int_equal(mce_rdma_of(one.e)->nic[0].addr.rate, port[i].mbps);
		side_close(&one);
	}
	fake_reset(0);
}

static int chosen(const char *disc, const char *filters, const char *named, bool wanted, struct mce_conf *ret)
{
	int r;

	*ret = (struct mce_conf){ .rdma_wanted = wanted };
	if (disc)
		setenv("MC_MS_AUTO_DISC", disc, 1);
	if (filters)
		setenv("MC_MS_FILTERS", filters, 1);
	r = mce_nics_choose(named, ret);
	unsetenv("MC_MS_AUTO_DISC");
	unsetenv("MC_MS_FILTERS");
	return r;
}

static void discovery_overrides_names(void **state)
{
	static const char *const none[] = { NULL, "" };
	struct mce_conf c;

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(chosen(NULL, NULL, none[i], true, &c), 0);
		assert_string_equal(c.rdma_devices, "");
		assert_null(c.rdma_filter);
		assert_int_equal(chosen(NULL, "a,b", none[i], true, &c), 0);
		assert_string_equal(c.rdma_devices, "");
		assert_non_null(c.rdma_filter);
		/* names are required */
		assert_int_equal(chosen("0", "a,b", none[i], true, &c), -EINVAL);
		assert_int_equal(chosen("0", NULL, none[i], false, &c), 0);
		assert_null(c.rdma_devices);
	}
	assert_int_equal(chosen(NULL, "a,b", "c", true, &c), 0);
	assert_string_equal(c.rdma_devices, "c");
	assert_null(c.rdma_filter);
	assert_int_equal(chosen("0", "a,b", "c", true, &c), 0);
	assert_string_equal(c.rdma_devices, "c");
	assert_null(c.rdma_filter);
	assert_int_equal(chosen("1", "a,b", "c", true, &c), 0);
	assert_string_equal(c.rdma_devices, "");
	assert_non_null(c.rdma_filter);
	assert_int_equal(chosen("1", NULL, "c", false, &c), 0);
	assert_string_equal(c.rdma_devices, "");
	assert_null(c.rdma_filter);
	/* taken as unset */
	assert_int_equal(chosen("yes", NULL, "c", true, &c), 0);
	assert_string_equal(c.rdma_devices, "c");
}

static void nics_of(const char *list, const char *filter, const char *want)
{
	struct mce_conf conf = { .rdma_devices = list, .rdma_filter = filter };
	struct mce_nic_desc nic[MCE_NICS_MAX];
	struct side s;
	char got[256] = "";
	unsigned n;

	fake_reset(4);
	side_open(&s, &conf, 0, 0, 1);
	n = mce_engine_nics(s.e, nic, MCE_NICS_MAX);
	for (unsigned i = 0; i < n; i++) {
		strcat(got, nic[i].name);
		strcat(got, " ");
	}
	assert_string_equal(got, want);
	side_close(&s);
	fake_reset(0);
}

static void a_filter_limits_discovery(void **state)
{
	char longer[3 * MCE_RDMA_NAME_MAX];

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = 0;
	nics_of("", NULL, "fake0 fake1 fake2 fake3 ");
	nics_of("", "", "fake0 fake1 fake2 fake3 ");
	/* the order is that of discovery; names without a device are only missed */
	nics_of("", "fake3, fake1 ,nosuch,fake", "fake1 fake3 ");
	nics_of("", ",,fake2,", "fake2 ");
	nics_of("", longer, "");
	/* a list has an order of its own, and no filter */
	nics_of("fake3 , fake1", "fake0", "fake3 fake1 ");
	nics_of(" , ", NULL, "");
}

/* ---- metrics ---- */

static int64_t metric(const char *name, const char *labels)
{
	auto_free char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int64_t v;

	assert_int_equal(mc_metrics_print(f), 0);
	fclose(f);
	assert_int_equal(mc_metrics_lookup(name, labels, &v), 0);
	return v;
}

/* The sum of both NICs' counters of a verb. */
static int64_t verb_bytes(const char *verb)
{
	char labels[64];
	int64_t sum = 0;

	for (unsigned i = 0; i < 2; i++) {
		snprintf(labels, sizeof(labels), "nic=\"fake%u\",verb=\"%s\"", i, verb);
		sum += metric("mooncake_transfer_nic_verb_bytes_total", labels);
	}
	return sum;
}

static void each_nic_has_its_metrics(void **state)
{
	struct mce_nic_pair pair[MCE_NICS_MAX];
	int64_t all, in, out, failed;
	struct pair p;

	fake_reset(2);
	fake_rate(0, RATE_100G);
	pair_open(&p, "", "");
	assert_int_equal(pairs_settle(&p, 2, pair), 2);
	assert_int_equal(metric("mooncake_transfer_nic_up", "nic=\"fake0\""), 1);
	assert_int_equal(metric("mooncake_transfer_nic_rate_megabits", "nic=\"fake0\""), 100000);
	assert_int_equal(metric("mooncake_transfer_nic_rate_megabits", "nic=\"fake1\""), 0);
	assert_int_equal(metric("mooncake_transfer_nic_endpoints", "nic=\"fake0\""), 1);
	assert_int_equal(metric("mooncake_transfer_nic_endpoints_in", "nic=\"fake1\""), 1);
	in = verb_bytes("read");
	out = verb_bytes("write");
	assert_int_equal(move(&p, MCE_WRITE, 3 * MIB, NULL), 0);
	assert_int_equal(move(&p, MCE_READ, 5 * MIB, NULL), 0);
	assert_int_equal(verb_bytes("read") - in, 5 * MIB);
	assert_int_equal(verb_bytes("write") - out, 3 * MIB);
	all = metric("mooncake_transfer_nic_bytes_total", "nic=\"fake0\"") +
		metric("mooncake_transfer_nic_bytes_total", "nic=\"fake1\"");
	assert_int_equal(all, verb_bytes("read") + verb_bytes("write"));
	/* a failure, and a port that is down */
	failed = metric("mooncake_transfer_nic_failed_slices_total", "nic=\"fake0\"");
	fake_wc_error(0, IBV_WC_REM_OP_ERR, 1);
	assert_int_equal(move(&p, MCE_WRITE, 8 * MIB, NULL), 0);
	assert_int_equal(metric("mooncake_transfer_nic_failed_slices_total", "nic=\"fake0\""), failed + 1);
	fake_port(1, false);
	for (unsigned i = 0; i < 5000 && metric("mooncake_transfer_nic_endpoints", "nic=\"fake1\""); i++)
		usleep(1000);
	assert_int_equal(metric("mooncake_transfer_nic_endpoints", "nic=\"fake1\""), 0);
	assert_int_equal(metric("mooncake_transfer_nic_up", "nic=\"fake1\""), 0);
	pair_close(&p);
	assert_int_equal(metric("mooncake_transfer_nic_endpoints", "nic=\"fake0\""), 0);
	assert_int_equal(metric("mooncake_transfer_nic_endpoints_in", "nic=\"fake0\""), 0);
}

static int replace(void **state)
{
	(void)state;
	mce_verbs_replace(fake_verbs());
	return 0;
}

static int restore(void **state)
{
	(void)state;
	mce_verbs_replace(NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_follow_the_rates),
		cmocka_unit_test(an_unknown_rate_counts_as_equal),
		cmocka_unit_test(the_slower_end_counts),
		cmocka_unit_test(a_fast_nic_uses_several_slow_ones),
		cmocka_unit_test(slow_nics_share_a_fast_one),
		cmocka_unit_test(a_rate_that_peers_send_is_checked),
		cmocka_unit_test(rates_are_computed),
		cmocka_unit_test(discovery_overrides_names),
		cmocka_unit_test(a_filter_limits_discovery),
		cmocka_unit_test(each_nic_has_its_metrics),
	};

	return cmocka_run_group_tests(tests, replace, restore);
}
