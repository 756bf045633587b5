/* SPDX-License-Identifier: Apache-2.0
 * daemon_names.c - requests through the daemon about keys: stat, exist, find, remove, prefetch. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "client/daemon/daemon_i.h"

static struct mcs_daemon_req *names_requests(const struct mcs_key *keys, unsigned n, uint8_t op, uint8_t flags)
{
	struct mcs_daemon_req *q = calloc(n ? n : 1, sizeof(*q));

	for (unsigned i = 0; i < n && q; i++) {
		q[i] = (struct mcs_daemon_req){ .op = op, .flags = flags, .key = keys[i] };
		/* The daemon answers for empty and too long keys, but a ring entry has 16 bits for the length. */
		if (mcs_key_check(keys[i]) < 0)
			q[i].key = (struct mcs_key){ "", 0 };
	}
	return q;
}

/* Run all requests; once more when the connection was lost. */
static int names_run(struct mcs_daemon *d, struct mcs_daemon_req *q, unsigned n, uint64_t deadline)
{
	struct mcs_daemon_conn *c;
	bool repeated = false;
	int r = 0;

	for (int tries = 0; tries < 2; tries++) {
		repeated = tries > 0;
		r = mcs_daemon_conn_get(d, deadline, &c);
		if (r < 0)
			return r;
		r = mcs_daemon_run(c, q, n, NULL, deadline);
		mcs_daemon_conn_put(c);
		if (r != -MC_ERPC)
			break;
	}
	/* A retry may miss the key because the first attempt removed it. */
	for (unsigned i = 0; i < n && repeated; i++)
		if (q[i].op == MCFS_RING_REMOVE && q[i].c.result == -MC_ENOOBJECT)
			q[i].c.result = 0;
	return r;
}

static int names_ask(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, uint8_t op, uint8_t flags,
		     uint64_t deadline, struct mcs_daemon_req **ret)
{
	struct mcs_daemon_req *q = names_requests(keys, n, op, flags);
	int r;

	if (!q)
		return -ENOMEM;
	r = names_run(mcs_daemon_of(b), q, n, deadline);
	if (r < 0)
		free(q);
	else
		*ret = q;
	return r;
}

int mcs_daemon_exist(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, uint8_t *present,
		     uint64_t deadline)
{
	struct mcs_daemon_req *q;
	int r = names_ask(b, keys, n, MCFS_RING_EXIST, 0, deadline, &q), count = 0;

	if (r < 0)
		return r;
	for (unsigned i = 0; i < n && r == 0; i++) {
		int64_t one = q[i].c.result;

		/* An invalid key cannot exist; any other failure fails the call. */
		if (one < 0 && one != -MC_EKEY)
			r = mc_fail((int)one, "node daemon: %s", mc_strerror((int)one));
		present[i] = one > 0;
		count += present[i];
	}
	free(q);
	return r < 0 ? r : count;
}

/* The daemon knows the versions: only misses are kept. */
struct daemon_found {
	struct mcs_found base;
	uint8_t present[];
};

int mcs_daemon_find(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_found **ret,
		    uint64_t deadline)
{
	uint64_t half = mcs_session_terms(b->session).lease_ttl_ms * MC_NS_PER_MS / 2;
	struct daemon_found *f = calloc(1, sizeof(*f) + n);
	int r;

	if (!f)
		return -ENOMEM;
	f->base = (struct mcs_found){ mc_now_ns() + half, b };
	r = mcs_daemon_exist(b, keys, n, f->present, deadline);
	if (r < 0)
		free(f);
	else
		*ret = &f->base;
	return r < 0 ? r : 0;
}

int mcs_daemon_get_found(struct mcs_found *found, const unsigned *which, struct mcs_get_item *items, unsigned n,
			 uint64_t deadline)
{
	const struct daemon_found *f = mc_container_of(found, struct daemon_found, base);

	for (unsigned i = 0; i < n; i++)
		if (!f->present[which[i]])
			items[i].result = -MC_ENOOBJECT;
	return mcs_daemon_get_batch(found->backend, items, n, NULL, NULL, deadline);
}

int mcs_daemon_stat_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			  int *results, uint64_t deadline)
{
	struct mcs_daemon_req *q;
	int r = names_ask(b, keys, n, MCFS_RING_STAT, 0, deadline, &q), count = 0;

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

int mcs_daemon_stat(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline)
{
	struct mcs_info info;
	int result = -MC_ENOOBJECT;
	int r = mcs_daemon_stat_batch(b, &key, 1, &info, &result, deadline);

	r = r < 0 ? r : result;
	/* mcs_stat() does not find a directory without a marker, generation 0. */
	if (r == 0 && !info.generation)
		r = -MC_ENOOBJECT;
	if (r == 0)
		*ret = info;
	return r;
}

int mcs_daemon_remove_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			    int *results, uint64_t deadline)
{
	uint8_t f = flags & MCS_REMOVE_FORCE ? MCFS_SQE_FORCE : 0;
	struct mcs_daemon_req *q;
	int r = names_ask(b, keys, n, MCFS_RING_REMOVE, f, deadline, &q), count = 0;

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

int mcs_daemon_prefetch(struct mcs_backend *b, struct mcs_key key, uint64_t deadline)
{
	struct mcs_daemon_req *q;
	int r = names_ask(b, &key, 1, MCFS_RING_PREFETCH, 0, deadline, &q);

	if (r < 0)
		return r;
	r = (int)q->c.result;
	free(q);
	return r < 0 ? mc_fail(r, "node daemon: %s", mc_strerror(r)) : 0;
}
