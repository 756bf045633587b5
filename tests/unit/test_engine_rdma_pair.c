/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_pair.c - two engines of this process on fake NICs. */
#include <config.h>

#include "test_engine_rdma_pair.h"

const struct mce_conf rdma_conf = { .rdma_devices = "", .force_rdma = true, .force_tcp = true };

void nics_new(unsigned nics)
{
	fake_reset(nics);
#ifdef RDMA_IWARP
	for (unsigned i = 0; i < nics; i++)
		fake_iwarp(i);
#endif
}

void pair_open_as(struct pair *p, const struct mce_conf *owner, const struct mce_conf *user)
{
	memset(p, 0, sizeof(*p));
	mce_verbs_replace(fake_verbs());
	mce_cm_replace(fake_cm());
	side_open(&p->owner, owner, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	side_open(&p->user, user, REGION, 0, 2);
	mce_engine_nonce(p->user.e, p->nonce);
	assert_int_equal(mce_peer_get(p->user.e, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

void pair_open_on(struct pair *p, const char *owner_nics, const char *user_nics)
{
	struct mce_conf owner = rdma_conf, user = rdma_conf;

	owner.rdma_devices = owner_nics;
	user.rdma_devices = user_nics;
	pair_open_as(p, &owner, &user);
}

void pair_open(struct pair *p, unsigned nics)
{
	nics_new(nics);
	pair_open_on(p, "", "");
}

void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	side_close(&p->user);
	side_close(&p->owner);
	assert_int_equal(fake_live_objects(), 0);
	assert_int_equal(fake_cm_live(), 0);
	fake_reset(0);
	mce_verbs_replace(NULL);
	mce_cm_replace(NULL);
}

struct mce_req req_of(struct pair *p, enum mce_op op, uint64_t off, struct iovec *iov, unsigned iovcnt)
{
	return (struct mce_req){
		.op = op, .peer = p->peer, .addr = (uintptr_t)p->owner.mem + off, .rkey = mce_mr_rkey(p->owner.mr),
		.iov = iov, .iovcnt = iovcnt,
	};
}

int move(struct pair *p, enum mce_op op, uint64_t off, void *mem, uint64_t len, enum mce_path *ret_path)
{
	struct iovec iov = { mem, len };
	struct mce_req req = req_of(p, op, off, &iov, 1);
	int r = mce_transfer(p->user.e, &req, SECONDS(20));

	if (ret_path)
		*ret_path = req.path;
	return r;
}

enum mce_path round_trip(struct pair *p, uint64_t off, char *mem, uint64_t len, uint64_t seed)
{
	enum mce_path out, in;

	pattern_fill(mem, len, seed, 0);
	assert_int_equal(move(p, MCE_WRITE, off, mem, len, &out), 0);
	pattern_check(p->owner.mem + off, len, seed, 0);
	memset(mem, 0, len);
	assert_int_equal(move(p, MCE_READ, off, mem, len, &in), 0);
	pattern_check(mem, len, seed, 0);
	return out == in ? in : MCE_PATH_NONE;
}

void settle(struct pair *p)
{
	uint64_t until = mc_deadline_ms(20000);
	enum mce_path path = MCE_PATH_NONE;

	while (path != MCE_PATH_RDMA) {
		assert_int_equal(move(p, MCE_READ, REGION - 4096, p->user.mem, 4096, &path), 0);
		assert_true(mc_now_ns() < until);
		usleep(1000);
	}
}

uint64_t soon(void)
{
	return mc_deadline_ms(10000);
}
