/* SPDX-License-Identifier: Apache-2.0
 * rdma_thief.c - a client of a pool with security that uses its credential and its queue pairs without the calls of the
 * store.  The credential is in MC_CREDENTIAL.
 *
 *	rdma_thief MASTER NIC tell	write a pattern to the first segment that the master tells, over RDMA; print
 *					"ENDPOINT BASE RKEY KEY": its owner's address, its address and key, and the key
 *					of the owner's NIC for it
 *	rdma_thief MASTER NIC check	is the pattern still there?
 *	rdma_thief MASTER NIC steal ENDPOINT BASE RKEY KEY
 *					attack that segment of another tenant in all ways that a client has that knows
 *					these four; fails if one of them reads or writes a byte
 *	rdma_thief MASTER NIC hold	read the first segment over RDMA, again and again; print "reads"; when a read
 *					fails, try for 3 s more, and print "ends" if all of these fail */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/direct/direct.h"
#include "client/session/security.h"
#include "client/store_i.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"
#include "tests/lib/transfer.h"

#define LEN 4096u
#define DEADLINE mc_deadline_ms(20000)
#define FORGED 77u

static void die(const char *what, int err)
{
	printf("%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

struct target {
	char endpoint[MC_ADDR_MAX];
	uint64_t base, rkey;
	uint32_t key;
};

static struct mcs *store;
static struct mce_engine *engine;
static char mine[LEN];

static void first_segment(struct target *ret)
{
	struct mcp_segments msg = { 0 };
	struct mcp_segments_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_segment seg;
	struct mcp_iter it;
	int r = mcs_call(store->session, MCP_SEGMENTS, &msg, &reply, &mem, DEADLINE);

	if (r < 0)
		die("segments", r);
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	if (!mcp_iter_next(&it, &seg) || seg.endpoint.len >= sizeof(ret->endpoint))
		die("segments", -ENOENT);
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->endpoint, seg.endpoint.data, seg.endpoint.len);
	ret->base = seg.base;
	ret->rkey = seg.rkey;
	mcp_reply_done(&mem);
}

static struct mce_peer *peer_of(const char *endpoint)
{
	struct mce_peer *p;
	int r = mce_peer_get(engine, endpoint, &p);

	if (r < 0)
		die(endpoint, r);
	return p;
}

/* One transfer of LEN bytes; mine is full of @fill before. */
static int move_with(char fill, struct mce_peer *p, enum mce_op op, uint64_t base, uint64_t rkey,
		     enum mce_path *ret_path)
{
	struct iovec iov = { mine, LEN };
	struct mce_req req = { .op = op, .peer = p, .addr = base, .rkey = rkey, .iov = &iov, .iovcnt = 1 };
	int r;

	memset(mine, fill, LEN);
	r = mce_transfer(engine, &req, DEADLINE);
	*ret_path = req.path;
	return r;
}

static int move(struct mce_peer *p, enum mce_op op, uint64_t base, uint64_t rkey, enum mce_path *ret_path)
{
	return move_with('x', p, op, base, rkey, ret_path);
}

static void must_fail(const char *how, enum mce_op op, struct mce_peer *p, uint64_t base, uint64_t rkey)
{
	enum mce_path path;
	int r = move(p, op, base, rkey, &path);

	if (r == 0)
		die(how, -EEXIST);
	for (unsigned i = 0; i < LEN; i++)
		if (mine[i] != 'x')
			die(how, -EEXIST);
	printf("%s, %s: %s\n", how, op == MCE_WRITE ? "write" : "read", mc_strerror(r));
}

/* Read the segment over RDMA.  The key of the owner's NIC, of which there is one. */
static uint32_t nic_key(const struct target *t)
{
	struct mce_peer *p = peer_of(t->endpoint);
	struct mce_rdma_remote *rem;
	enum mce_path path = MCE_PATH_NONE;
	uint32_t key;
	int r = 0;

	/* The first transfers may be over TCP, for which there is no capability. */
	for (unsigned i = 0; i < 100 && path != MCE_PATH_RDMA; i++) {
		r = move(p, MCE_READ, t->base, t->rkey, &path);
		if (path != MCE_PATH_RDMA)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 100 * MC_NS_PER_MS }, NULL);
	}
	if (r < 0 || path != MCE_PATH_RDMA)
		die("no read over RDMA", r < 0 ? r : -ENODEV);
	mc_mutex_lock(&p->lock);
	rem = mce_rdma_remote_find_locked(mce_rdma_peer_of(p), t->rkey);
	key = rem && rem->nnics == 1 && rem->nparts == 1 ? rem->key[0] : 0;
	mc_mutex_unlock(&p->lock);
	return key;
}

/* The tenant's own use of its segment. */
static void pattern(const struct target *t, bool write)
{
	struct mce_peer *p = peer_of(t->endpoint);
	enum mce_path path;
	int r = write ? move_with('b', p, MCE_WRITE, t->base, t->rkey, &path) : 0;

	if (r == 0)
		r = move(p, MCE_READ, t->base, t->rkey, &path);
	for (unsigned i = 0; i < LEN && r == 0; i++)
		r = mine[i] == 'b' ? 0 : -EBADMSG;
	if (r < 0)
		die("the own segment", r);
}

/* ---- attacks ----------------------------------------------------------------------------------- */

static int ticket(const char *endpoint, struct mc_credential *ret)
{
	struct mcp_node_ticket msg = { .endpoint = mcp_bytes(endpoint, (uint32_t)strlen(endpoint)) };
	struct mcp_node_ticket_reply reply;
	struct mcp_reply mem = { 0 };
	int r = mcs_call(store->session, MCP_NODE_TICKET, &msg, &reply, &mem, DEADLINE);

	if (r < 0)
		return r;
	r = mc_credential_set(ret, reply.identity.data, reply.identity.len, reply.key.data, reply.key.len);
	mcp_reply_done(&mem);
	return r;
}

static int present_held(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	*ret = *(struct mc_credential *)arg;
	return 0;
}

/* Show the ticket for the own node at the other one. */
static void use_own_ticket(const char *own, const char *endpoint)
{
	struct mc_credential *held = mc_credential_new();
	struct mc_tls_conf conf = { .present = present_held, .arg = held };
	struct mc_tls *tls = NULL;
	struct mc_stream s;
	char buf[256] = { 0 };
	int r = held ? ticket(own, held) : -ENOMEM;

	if (r == 0)
		r = mc_tls_new(&conf, &tls);
	if (r < 0)
		die("own ticket", r);
	r = mc_net_connect(mc_tls_net(tls), endpoint, DEADLINE, &s);
	if (r == 0) {
		r = mce_move_all(engine, &s, buf, sizeof(buf), true, DEADLINE);
		if (r == 0)
			r = mce_move_all(engine, &s, buf, 1, false, DEADLINE);
		mc_stream_close(&s);
	}
	/* A peer that is let in gets no answer to a wrong greeting either, but is not refused in the handshake. */
	if (r != -EACCES && r != -ECONNRESET && r != -MC_EPROTO)
		die("the ticket for another node", r);
	printf("the ticket for another node: %s\n", mc_strerror(r));
	mc_tls_free(tls);
	mc_credential_free(held);
}

static int64_t lost_endpoints(void)
{
	int64_t n = 0;

	(void)mc_metrics_lookup("mooncake_transfer_rdma_errors_total", "", &n);
	return n;
}

/* Over the queue pairs to the own node: a description of the other segment, as if the own node had told it.  @key: of
 * the NIC. */
static void use_own_queue_pairs(const char *how, enum mce_op op, const struct target *own, const struct target *t,
				uint32_t key)
{
	struct mce_rdma_remote *rem = calloc(1, sizeof(*rem) + sizeof(rem->key[0]));
	struct mce_peer *p = peer_of(own->endpoint);
	int64_t lost;

	/* An earlier refusal may have ended the queue pairs. */
	if (!rem || !nic_key(own))
		die("own segment", -ENODEV);
	*rem = (struct mce_rdma_remote){
		.rkey = FORGED, .base = t->base, .len = LEN, .part = LEN, .nnics = 1, .nparts = 1,
		.access = MCE_ACCESS_READ | MCE_ACCESS_WRITE,
	};
	rem->key[0] = key;
	mc_mutex_lock(&p->lock);
	mce_rdma_remote_put_locked(mce_rdma_peer_of(p), rem);
	mc_mutex_unlock(&p->lock);
	lost = lost_endpoints();
	must_fail(how, op, p, t->base, FORGED);
	if (lost_endpoints() == lost)
		die("no NIC was asked", -ENODEV);
}

static void steal(const struct target *t)
{
	struct mc_credential *c = mc_credential_new();
	struct target own;
	int r;

	first_segment(&own);
	if (!strcmp(own.endpoint, t->endpoint))
		die("the master told the other tenant's segment", -EEXIST);
	own.key = nic_key(&own);
	r = c ? ticket(t->endpoint, c) : -ENOMEM;
	if (r == 0 || r == -ENOMEM)
		die("the master gives a ticket", r ? r : -EEXIST);
	printf("ticket: %s\n", mc_strerror(r));
	must_fail("no ticket", MCE_READ, peer_of(t->endpoint), t->base, t->rkey);
	must_fail("no ticket", MCE_WRITE, peer_of(t->endpoint), t->base, t->rkey);
	use_own_ticket(own.endpoint, t->endpoint);
	for (enum mce_op op = MCE_READ; op <= MCE_WRITE; op++) {
		use_own_queue_pairs("own queue pairs, stolen key", op, &own, t, t->key);
		use_own_queue_pairs("own queue pairs, own key", op, &own, t, own.key);
	}
	mc_credential_free(c);
}

static void hold(void)
{
	struct target own;
	struct mce_peer *p;
	enum mce_path path;
	uint64_t until;

	first_segment(&own);
	(void)nic_key(&own);
	p = peer_of(own.endpoint);
	puts("reads");
	fflush(stdout);
	while (move(p, MCE_READ, own.base, own.rkey, &path) == 0)
		(void)nanosleep(&(struct timespec){ .tv_nsec = 20 * MC_NS_PER_MS }, NULL);
	for (until = mc_deadline_ms(3000); mc_now_ns() < until; )
		if (move(p, MCE_READ, own.base, own.rkey, &path) == 0)
			die("a later read succeeds", -EEXIST);
	puts("ends");
}

int main(int argc, char **argv)
{
	struct target t = { .base = 0 };
	struct mcs_conf conf;
	int r;

	if (argc < 4 || (!strcmp(argv[3], "steal") && argc != 8))
		return 2;
	mcs_conf_init(&conf);
	conf.master = argv[1];
	conf.protocol = "rdma";
	conf.rdma_devices = argv[2];
	conf.daemon = "off";
	conf.setup_timeout_ms = 60000;
	r = mcs_open(&conf, &store);
	if (r < 0)
		die("open", r);
	engine = mcs_direct_of(store->backend)->engine;
	if (!strcmp(argv[3], "tell") || !strcmp(argv[3], "check")) {
		first_segment(&t);
		t.key = nic_key(&t);
		pattern(&t, argv[3][0] == 't');
		printf("%s %" PRIu64 " %" PRIu64 " %" PRIu32 "\n", t.endpoint, t.base, t.rkey, t.key);
	} else if (!strcmp(argv[3], "steal")) {
		snprintf(t.endpoint, sizeof(t.endpoint), "%s", argv[4]);
		t.base = strtoull(argv[5], NULL, 10);
		t.rkey = strtoull(argv[6], NULL, 10);
		t.key = (uint32_t)strtoul(argv[7], NULL, 10);
		steal(&t);
	} else {
		hold();
	}
	/* Its peers hold references; the end of the process frees all. */
	fflush(stdout);
	_exit(0);
}
