/* SPDX-License-Identifier: Apache-2.0
 * node_names.c - what moves no bytes, through the daemon. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "client/daemon/daemon_i.h"

static struct mcs_daemon_req *requests(const struct mcs_key *keys, unsigned n, uint8_t op,
				     uint8_t flags)
{
	struct mcs_daemon_req *q = calloc(n ? n : 1, sizeof(*q));

	for (unsigned i = 0; i < n && q; i++)
		q[i] = (struct mcs_daemon_req){ .op = op, .flags = flags, .key = keys[i] };
	return q;
}

/* Run those that have valid keys, the others are answered here; once more when the connection is lost. */
static int run(struct mcs *s, struct mcs_daemon_req *q, unsigned n, uint64_t deadline)
{
	struct mcs_daemon_conn *c;
	bool repeated = false;
	int r = 0;

	for (int tries = 0; tries < 2; tries++) {
		repeated = tries > 0;
		r = mcs_daemon_conn_get(s->node, deadline, &c);
		if (r < 0)
			return r;
		r = mcs_daemon_run(c, q, n, NULL, deadline);
		mcs_daemon_conn_put(c);
		if (r != -MC_ERPC)
			break;
	}
	/* What is not there the second time may have been removed the first time. */
	for (unsigned i = 0; i < n && repeated; i++)
		if (q[i].op == MCFS_RING_REMOVE && q[i].c.result == -MC_ENOOBJECT)
			q[i].c.result = 0;
	return r;
}

/* Keys that cannot be are moved out of the way: the daemon answers for what is too long or empty, but the
 * ring has only 16 bits for the length. */
static void cut_keys(struct mcs_daemon_req *q, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (mcs_key_check(q[i].key) < 0)
			q[i].key = (struct mcs_key){ "", 0 };
}

static int ask(struct mcs *s, const struct mcs_key *keys, unsigned n, uint8_t op, uint8_t flags,
	       uint64_t deadline, struct mcs_daemon_req **ret)
{
	struct mcs_daemon_req *q = requests(keys, n, op, flags);
	int r;

	if (!q)
		return -ENOMEM;
	cut_keys(q, n);
	r = run(s, q, n, deadline);
	if (r < 0)
		free(q);
	else
		*ret = q;
	return r;
}

int mcs_daemon_exist(struct mcs *s, const struct mcs_key *keys, unsigned n, uint8_t *present,
		   uint64_t deadline)
{
	struct mcs_daemon_req *q;
	int r = ask(s, keys, n, MCFS_RING_EXIST, 0, deadline, &q), count = 0;

	if (r < 0)
		return r;
	for (unsigned i = 0; i < n && r == 0; i++) {
		int64_t one = q[i].c.result;

		/* What cannot be a key cannot exist; any other failure is one of all. */
		if (one < 0 && one != -MC_EKEY)
			r = mc_fail((int)one, "node daemon: %s", mc_strerror((int)one));
		present[i] = one > 0;
		count += present[i];
	}
	free(q);
	return r < 0 ? r : count;
}

int mcs_daemon_stat_batch(struct mcs *s, const struct mcs_key *keys, unsigned n,
			struct mcs_info *infos, int *results, uint64_t deadline)
{
	struct mcs_daemon_req *q;
	int r = ask(s, keys, n, MCFS_RING_STAT, 0, deadline, &q), count = 0;

	if (r < 0)
		return r;
	for (unsigned i = 0; i < n; i++) {
		const struct mcfs_cqe *e = &q[i].c;

		results[i] = (int)e->result;
		if (results[i] < 0)
			continue;
		count++;
		infos[i] = (struct mcs_info){
			.size = e->size, .generation = e->generation, .mtime_ms = e->mtime_ms,
			.crc32c = e->crc32c, .kind = (enum mcs_kind)(e->kind & 15),
			.flags = e->flags, .replicas = e->replicas,
			.data_type = (enum mcs_data_type)(e->kind >> 4),
			.soft_pin_ms = (uint32_t)e->offset,
		};
	}
	free(q);
	return count;
}

int mcs_daemon_remove_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
			  int *results, uint64_t deadline)
{
	uint8_t f = flags & MCS_REMOVE_FORCE ? MCFS_SQE_FORCE : 0;
	struct mcs_daemon_req *q;
	int r = ask(s, keys, n, MCFS_RING_REMOVE, f, deadline, &q), count = 0;

	if (r < 0)
		return r;
	for (unsigned i = 0; i < n; i++) {
		if (results)
			results[i] = (int)q[i].c.result;
		count += q[i].c.result == 0;
	}
	free(q);
	return count;
}

int mcs_daemon_prefetch(struct mcs *s, struct mcs_key key, uint64_t deadline)
{
	struct mcs_daemon_req *q;
	int r = ask(s, &key, 1, MCFS_RING_PREFETCH, 0, deadline, &q);

	if (r < 0)
		return r;
	r = (int)q->c.result;
	free(q);
	return r < 0 ? mc_fail(r, "node daemon: %s", mc_strerror(r)) : 0;
}
