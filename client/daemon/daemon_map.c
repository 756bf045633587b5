/* SPDX-License-Identifier: Apache-2.0
 * node_map.c - objects as memory: through the daemon, or by an open object of our own. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "client/daemon/daemon_i.h"

/* Begins with its handle, as an open object does: what a map holds can be told apart by that. */
struct hold {
	struct mcs *s;
	struct mcs_daemon_conn *conn;
	uint64_t pin;
	uint8_t flags, replicas, data_type;
};

static void unpin(struct mcs_daemon_conn *c, uint64_t pin)
{
	struct mcs_daemon_req q = { .op = MCFS_RING_UNPIN, .pin = pin };

	/* Of a connection that is lost nothing is left to be given back. */
	if (!mcs_daemon_conn_gone(c))
		(void)mcs_daemon_run(c, &q, 1, NULL, mc_deadline_ms(1000));
}

static struct mcs *handle_of(const struct mcs_map *map)
{
	return *(struct mcs *const *)map->hold;
}

static int take(struct mcs *s, struct mcs_daemon_conn *c, const struct mcfs_cqe *e,
		uint64_t deadline, struct mcs_map *ret)
{
	struct hold *h = malloc(sizeof(*h));
	const void *data;
	int r = -ENOMEM;

	data = h ? mcs_daemon_conn_at(c, e->segment, e->offset, e->size, deadline, &r) : NULL;
	if (!data) {
		free(h);
		unpin(c, e->pin);
		return r;
	}
	*h = (struct hold){ s, mcs_daemon_conn_ref(c), e->pin, e->flags, e->replicas, e->kind >> 4 };
	*ret = (struct mcs_map){
		.data = data, .size = e->size, .generation = e->generation,
		.mtime_ms = e->mtime_ms, .crc32c = e->crc32c, .kind = (enum mcs_kind)(e->kind & 15),
		.hold = h,
	};
	return 0;
}

/* One try; -MC_ERPC: the connection was lost. */
static int map_once(struct mcs *s, struct mcs_daemon_req *q, unsigned n, struct mcs_map *ret,
		    int *results, uint64_t deadline)
{
	struct mcs_daemon_conn *c;
	int r = mcs_daemon_conn_get(s->node, deadline, &c), count = 0;

	if (r < 0)
		return r;
	r = mcs_daemon_run(c, q, n, NULL, deadline);
	for (unsigned i = 0; i < n; i++) {
		results[i] = r == 0 || q[i].c.result != -MC_ERPC ? (int)q[i].c.result : r;
		if (results[i] == 0 && r == 0)
			results[i] = take(s, c, &q[i].c, deadline, &ret[i]);
		count += results[i] == 0;
	}
	mcs_daemon_conn_put(c);
	return r < 0 ? r : count;
}

int mcs_daemon_map_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		       struct mcs_map *ret, int *results, uint64_t deadline)
{
	uint8_t f = flags & MCS_MAP_HOT ? MCFS_SQE_HOT : 0;
	struct mcs_daemon_req one, *q = n == 1 ? &one : calloc(n + 1, sizeof(*q));
	int r = -MC_ERPC;

	if (!q)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		bool ok = mcs_key_check(keys[i]) == 0;

		q[i] = (struct mcs_daemon_req){ .op = MCFS_RING_PIN, .flags = f };
		q[i].key = ok ? keys[i] : (struct mcs_key){ "", 0 };
	}
	for (int tries = 0; tries < 2 && r == -MC_ERPC; tries++)
		r = map_once(s, q, n, ret, results, deadline);
	if (q != &one)
		free(q);
	return r;
}

struct mcs_info mcs_daemon_map_info(const struct mcs_map *map)
{
	const struct hold *h = map->hold;

	return (struct mcs_info){
		.size = map->size, .generation = map->generation, .mtime_ms = map->mtime_ms,
		.crc32c = map->crc32c, .kind = map->kind, .flags = h->flags,
		.replicas = h->replicas, .data_type = (enum mcs_data_type)h->data_type,
	};
}

void mcs_daemon_unmap(struct mcs_map *map)
{
	struct hold *h = map->hold;

	unpin(h->conn, h->pin);
	mcs_daemon_conn_put(h->conn);
	free(h);
}

int mcs_daemon_map_held(const struct mcs_map *map)
{
	const struct hold *h = map->hold;
	struct mcs_daemon_req q = { .op = MCFS_RING_HELD, .pin = h->pin };
	int r = mcs_daemon_conn_gone(h->conn) ? -MC_ERPC :
		mcs_daemon_run(h->conn, &q, 1, NULL, mc_deadline_ms(2000));

	if (r == 0 && q.c.result == 0)
		return 0;
	return mc_fail(-MC_EREPLICA_GONE, "the version is not held any more");
}

/* ---- mcs.h ---- */

static int map_own(struct mcs *s, struct mcs_key key, struct mcs_map *ret, uint64_t deadline)
{
	const struct mcs_info *info;
	const void *data = NULL;
	struct mcs_object *o;
	int r;

	r = mcs_object_open(s, key, &o, mc_deadline_left_ms(deadline));
	if (r < 0)
		return r;
	r = mcs_object_map(o, &data, mc_deadline_left_ms(deadline));
	if (r < 0) {
		mcs_object_close(o);
		return r;
	}
	info = mcs_object_info(o);
	*ret = (struct mcs_map){
		.data = data, .size = info->size, .generation = info->generation,
		.mtime_ms = info->mtime_ms, .crc32c = info->crc32c, .kind = info->kind, .hold = o,
	};
	return 0;
}

int mcs_map_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		  struct mcs_map *ret, int *results, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	int r = mcs_check_fork(s), count = 0;

	if (flags & ~MCS_MAP_HOT)
		return mc_fail(-MC_EPARAM, "unknown flags 0x%x", flags);
	for (unsigned i = 0; i < n; i++)
		ret[i] = (struct mcs_map){ 0 };
	if (r < 0)
		return r;
	if (s->node)
		return MCS_BY_NODE(s, mcs_daemon_map_batch(s, keys, n, flags, ret, results, deadline),
				   mcs_map_batch(alone, keys, n, flags, ret, results, timeout_ms));
	for (unsigned i = 0; i < n; i++) {
		results[i] = map_own(s, keys[i], &ret[i], deadline);
		count += results[i] == 0;
	}
	return count;
}

int mcs_map(struct mcs *s, struct mcs_key key, unsigned flags, struct mcs_map *ret,
	    int64_t timeout_ms)
{
	int result = 0, r = mcs_map_batch(s, &key, 1, flags, ret, &result, timeout_ms);

	if (r < 0)
		return r;
	return result < 0 && s->node ? mc_fail(result, "node daemon: %s", mc_strerror(result)) :
		result;
}

int mcs_map_held(struct mcs *s, const struct mcs_map *map)
{
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (!map->hold)
		return mc_fail(-MC_EPARAM, "nothing is mapped");
	return handle_of(map)->node ? mcs_daemon_map_held(map) : mcs_object_held(map->hold);
}

void mcs_unmap(struct mcs *s, struct mcs_map *map)
{
	if (!map->hold || mcs_check_fork(s) < 0)
		return;
	if (handle_of(map)->node)
		mcs_daemon_unmap(map);
	else
		mcs_object_close(map->hold);
	*map = (struct mcs_map){ 0 };
}

int mcs_prefetch(struct mcs *s, struct mcs_key key, int64_t timeout_ms)
{
	int r = mcs_check_fork(s);

	if (!r)
		r = mcs_key_check(key);
	if (r < 0 || !s->node || mcs_daemon_bypass(s))
		return r;
	r = mcs_daemon_prefetch(s, key, mcs_deadline(s, timeout_ms));
	/* Without a daemon there is no memory to fetch it to. */
	return mcs_daemon_alone(s, r) ? 0 : r;
}
