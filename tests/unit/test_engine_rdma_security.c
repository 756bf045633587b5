/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_security.c - RDMA between peers that prove identities, on fake NICs: which peers reach a region, and
 * when their access ends.  With RDMA_IWARP defined the connection manager connects the queue pairs. */
#include <config.h>

#include "test_engine_rdma_pair.h"

#include <errno.h>

#include "common/metrics.h"
#include "common/principal.h"
#include "tests/lib/tls_net.h"

#define ALICE 0xa11ceull
#define LEN 65536u

/* The owner's list: the peers that it admits. */
static struct {
	uint64_t revoked;	/* atomic: serial number of a credential */
	bool others;		/* atomic: also other tenants than "alice" */
} list;

static bool admit(void *arg, const struct mc_principal *p)
{
	return p->serial != __atomic_load_n(&list.revoked, __ATOMIC_SEQ_CST) &&
		(__atomic_load_n(&list.others, __ATOMIC_SEQ_CST) || !*p->tenant || !strcmp(p->tenant, "alice"));
}

static bool admit_all(void *arg, const struct mc_principal *p)
{
	return true;
}

/* The credential that the user's connections present. */
static struct mc_credential shown;

static void present(uint32_t role, const char *tenant, uint64_t serial)
{
	tls_net_make(&shown, role, tenant, "user", UINT64_MAX);
	tls_net_serial(&shown, serial);
	tls_net_present(&shown);
}

static void secure_open(struct pair *p)
{
	struct mce_conf owner = rdma_conf, user = rdma_conf;

	memset(&list, 0, sizeof(list));
	nics_new(2);
	owner.net = user.net = tls_net();
	owner.peer_admitted = admit;
	user.peer_admitted = admit_all;
	owner.has_credential = user.has_credential = true;
	owner.rdma_devices = "fake0";
	user.rdma_devices = "fake1";
	/* shorter ticks */
	owner.progress_timeout_ms = 1000;
	pair_open_as(p, &owner, &user);
}

static int64_t metric(const char *name)
{
	int64_t v = 0;

	(void)mc_metrics_lookup(name, "", &v);
	return v;
}

static int64_t peers_in(void)
{
	return metric("mooncake_transfer_rdma_peers_in");
}

static void wait_peers_in(int64_t n)
{
	uint64_t until = soon();

	while (peers_in() != n) {
		assert_true(mc_now_ns() < until);
		usleep(1000);
	}
}

/* ---- the permission ---- */

static int chosen(const char *permission, bool credential, bool wanted, struct mce_conf *ret)
{
	int r;

	*ret = (struct mce_conf){ .rdma_wanted = wanted, .has_credential = credential };
	if (permission)
		setenv("MC_RDMA_WITH_SECURITY", permission, 1);
	r = mce_nics_choose("fake0", ret);
	unsetenv("MC_RDMA_WITH_SECURITY");
	return r;
}

static void a_credential_needs_the_permission(void **state)
{
	static const char *const refusals[] = { NULL, "", "refuse" };
	struct mce_conf c;

	nics_new(1);
	mce_verbs_replace(fake_verbs());
	for (unsigned i = 0; i < 3; i++) {
		/* Wanted: an error with the remedy.  Else NICs are left out. */
		assert_int_equal(chosen(refusals[i], true, true, &c), -EACCES);
		assert_non_null(strstr(mc_err_detail(-EACCES), "--rdma_with_security=allow"));
		assert_null(c.rdma_devices);
		assert_int_equal(chosen(refusals[i], true, false, &c), 0);
		assert_null(c.rdma_devices);
		assert_int_equal(chosen(refusals[i], false, true, &c), 0);
		assert_string_equal(c.rdma_devices, "fake0");
		assert_int_equal(chosen(refusals[i], false, false, &c), 0);
		assert_string_equal(c.rdma_devices, "fake0");
	}
	for (unsigned wanted = 0; wanted < 2; wanted++) {
		assert_int_equal(chosen("allow", true, wanted, &c), 0);
		assert_string_equal(c.rdma_devices, "fake0");
		assert_int_equal(chosen("allowed", true, wanted, &c), -EINVAL);
		assert_non_null(strstr(mc_err_detail(-EINVAL), "rdma_with_security=allowed"));
		assert_null(c.rdma_devices);
	}
	mce_verbs_replace(NULL);
	fake_reset(0);
}

/* A peer without NICs, because its operator refuses them, and one with NICs use TCP, in both directions. */
static void a_refusing_peer_uses_tcp(void **state)
{
	struct mce_conf allows = rdma_conf, refuses = rdma_conf;
	struct pair p;

	tls_net_present(NULL);
	for (unsigned i = 0; i < 2; i++) {
		nics_new(2);
		allows.net = refuses.net = tls_net();
		allows.peer_admitted = refuses.peer_admitted = admit_all;
		refuses.rdma_devices = NULL;
		pair_open_as(&p, i ? &allows : &refuses, i ? &refuses : &allows);
		assert_int_equal(round_trip(&p, 0, p.user.mem, LEN, 1), MCE_PATH_TCP);
		assert_int_equal(peers_in(), 0);
		pair_close(&p);
	}
}

/* ---- peers ---- */

static void a_proven_peer_reads_and_writes(void **state)
{
	struct pair p;

	present(MC_ROLE_CLIENT, "alice", ALICE);
	secure_open(&p);
	assert_int_equal(round_trip(&p, 0, p.user.mem, LEN, 1), MCE_PATH_RDMA);
	assert_int_equal(peers_in(), 1);
	pair_close(&p);
}

/* The user's connection is that of a reader: its queue pairs read only, whatever it asks for. */
static void a_reader_cannot_write(void **state)
{
	enum mce_path path;
	struct pair p;

	present(MC_ROLE_READER, "alice", ALICE);
	secure_open(&p);
	assert_int_equal(move(&p, MCE_READ, 0, p.user.mem, LEN, &path), 0);
	assert_int_equal(path, MCE_PATH_RDMA);
	pattern_check(p.user.mem, LEN, 1, 0);
	memset(p.user.mem, 'x', LEN);
	assert_true(move(&p, MCE_WRITE, 0, p.user.mem, LEN, NULL) < 0);
	pattern_check(p.owner.mem, LEN, 1, 0);
	settle(&p);
	pair_close(&p);
}

/* ---- the end of an identity ---- */

static void a_revocation_ends_the_queue_pairs(void **state)
{
	int64_t cut = metric("mooncake_transfer_rdma_peers_revoked_total"), all;
	struct side other;
	struct mce_conf conf = rdma_conf;
	struct pair p, q;
	enum mce_path path;

	present(MC_ROLE_CLIENT, "alice", ALICE);
	secure_open(&p);
	settle(&p);
	/* Another peer, with a credential of its own. */
	conf.net = tls_net();
	conf.peer_admitted = admit_all;
	conf.rdma_devices = "fake1";
	side_open(&other, &conf, REGION, 0, 2);
	q = p;
	q.user = other;
	assert_int_equal(mce_peer_get(other.e, mce_engine_endpoint(p.owner.e), &q.peer), 0);
	present(MC_ROLE_CLIENT, "alice", ALICE + 1);
	settle(&q);
	assert_int_equal(peers_in(), 2);
	all = fake_live_objects();

	__atomic_store_n(&list.revoked, ALICE, __ATOMIC_SEQ_CST);
	wait_peers_in(1);
	/* The owner's end has no queue pair of it any more, before the peer has sent anything. */
	assert_true(fake_live_objects() < all);
	present(MC_ROLE_CLIENT, "alice", ALICE);
	memset(p.user.mem, 'x', LEN);
	assert_true(move(&p, MCE_READ, 0, p.user.mem, LEN, NULL) < 0);
	assert_true(p.user.mem[0] == 'x' && !memcmp(p.user.mem, p.user.mem + 1, LEN - 1));
	assert_true(move(&p, MCE_WRITE, 0, p.user.mem, LEN, NULL) < 0);
	pattern_check(p.owner.mem, LEN, 1, 0);
	assert_int_equal(metric("mooncake_transfer_rdma_peers_revoked_total"), cut + 1);
	/* The other one has kept its connection, which it cannot make again. */
	__atomic_store_n(&list.revoked, ALICE, __ATOMIC_SEQ_CST);
	assert_int_equal(move(&q, MCE_READ, 0, other.mem, LEN, &path), 0);
	assert_int_equal(path, MCE_PATH_RDMA);
	pattern_check(other.mem, LEN, 1, 0);
	/* With a new credential the first one gets in again. */
	present(MC_ROLE_CLIENT, "alice", ALICE + 2);
	settle(&p);
	mce_peer_put(q.peer);
	side_close(&other);
	pair_close(&p);
}

/* Before the tick that ends the connection, too: no key is told. */
static void a_revoked_peer_gets_no_key(void **state)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_REGION };
	struct mce_rdma_peer *rp;
	struct pair p;

	present(MC_ROLE_CLIENT, "alice", ALICE);
	secure_open(&p);
	settle(&p);
	rp = mce_rdma_peer_of(p.peer);
	out.rkey = mce_mr_rkey(p.owner.mr);
	assert_int_equal(mce_rdma_call(p.user.e, &rp->stream, &out, soon(), &in), 0);
	assert_int_equal(in.status, 0);
	assert_non_null(in.remote);
	free(in.remote);
	__atomic_store_n(&list.revoked, ALICE, __ATOMIC_SEQ_CST);
	assert_true(mce_rdma_call(p.user.e, &rp->stream, &out, soon(), &in) < 0);
	pair_close(&p);
}

/* ---- tenants ---- */

static void another_tenant_gets_neither_queue_pairs_nor_keys(void **state)
{
	struct pair p;

	present(MC_ROLE_CLIENT, "bob", ALICE);
	secure_open(&p);
	memset(p.user.mem, 'x', LEN);
	assert_true(move(&p, MCE_READ, 0, p.user.mem, LEN, NULL) < 0);
	assert_true(p.user.mem[0] == 'x' && !memcmp(p.user.mem, p.user.mem + 1, LEN - 1));
	assert_int_equal(peers_in(), 0);
	/* It was the tenant. */
	__atomic_store_n(&list.others, true, __ATOMIC_SEQ_CST);
	settle(&p);
	/* The owner serves another tenant now. */
	__atomic_store_n(&list.others, false, __ATOMIC_SEQ_CST);
	wait_peers_in(0);
	assert_true(move(&p, MCE_READ, 0, p.user.mem, LEN, NULL) < 0);
	present(MC_ROLE_CLIENT, "alice", ALICE);
	settle(&p);
	pair_close(&p);
}

/* A description of the region @of as the owner tells it, under the key @rkey, with the keys of the owner's NIC. */
static struct mce_rdma_remote *stolen(struct mce_mr *of, uint64_t rkey)
{
	struct mce_rdma_remote *rem = calloc(1, sizeof(*rem) + sizeof(rem->key[0]));
	const struct mce_rdma_region *region = of->service[MCE_PATH_RDMA];

	*rem = (struct mce_rdma_remote){
		.rkey = rkey, .base = of->base, .len = of->len, .part = of->len, .nnics = 1, .nparts = 1,
		.access = MCE_ACCESS_READ | MCE_ACCESS_WRITE,
	};
	rem->key[0] = region->mr[0]->rkey;
	return rem;
}

/* Two engines on one NIC, as those of two tenants' nodes: a peer of one knows all keys of the other. */
static void a_key_opens_nothing_in_another_engine(void **state)
{
	static const enum mce_op ops[] = { MCE_READ, MCE_WRITE };
	struct mce_conf conf = rdma_conf;
	struct mce_rdma_peer *rp;
	struct mce_req req;
	struct iovec iov;
	struct side bobs;
	struct pair p;

	present(MC_ROLE_CLIENT, "alice", ALICE);
	secure_open(&p);
	settle(&p);
	conf.net = tls_net();
	conf.rdma_devices = "fake0";
	side_open(&bobs, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 3);
	rp = mce_rdma_peer_of(p.peer);
	iov = (struct iovec){ p.user.mem, LEN };
	for (unsigned i = 0; i < 2; i++) {
		uint64_t wrs = fake_wrs(1);

		mc_mutex_lock(&p.peer->lock);
		mce_rdma_remote_put_locked(rp, stolen(bobs.mr, 77));
		mc_mutex_unlock(&p.peer->lock);
		memset(p.user.mem, 'x', LEN);
		req = req_of(&p, ops[i], 0, &iov, 1);
		req.addr = bobs.mr->base;
		req.rkey = 77;
		assert_true(mce_transfer(p.user.e, &req, SECONDS(20)) < 0);
		/* The NIC was asked. */
		assert_true(fake_wrs(1) > wrs);
		assert_true(p.user.mem[0] == 'x' && !memcmp(p.user.mem, p.user.mem + 1, LEN - 1));
		pattern_check(bobs.mem, LEN, 3, 0);
		settle(&p);
	}
	side_close(&bobs);
	pair_close(&p);
}

/* ---- the control connection ---- */

/* Where the net for data may send plain bytes, control connections use the other one. */
static void control_connections_have_a_net_of_their_own(void **state)
{
	struct mce_conf owner = rdma_conf, user = rdma_conf;
	struct pair p;

	tls_net_present(NULL);
	for (unsigned i = 0; i < 2; i++) {
		nics_new(2);
		owner.net = user.net = tls_net();
		/* The owner refuses plain connections. */
		user.control_net = i ? mc_net_plain() : tls_net();
		owner.peer_admitted = user.peer_admitted = admit_all;
		pair_open_as(&p, &owner, &user);
		assert_int_equal(round_trip(&p, 0, p.user.mem, LEN, 1), i ? MCE_PATH_TCP : MCE_PATH_RDMA);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_credential_needs_the_permission),
		cmocka_unit_test(a_refusing_peer_uses_tcp),
		cmocka_unit_test(a_proven_peer_reads_and_writes),
		cmocka_unit_test(a_reader_cannot_write),
		cmocka_unit_test(a_revocation_ends_the_queue_pairs),
		cmocka_unit_test(a_revoked_peer_gets_no_key),
		cmocka_unit_test(another_tenant_gets_neither_queue_pairs_nor_keys),
		cmocka_unit_test(a_key_opens_nothing_in_another_engine),
		cmocka_unit_test(control_connections_have_a_net_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
