/* SPDX-License-Identifier: Apache-2.0
 * daemon_object.c - open objects and maps through the daemon: an object is pinned there and mapped here. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/daemon/daemon_i.h"
#include "client/layout.h"
#include "common/crc32c.h"
#include "common/gpu/gpu.h"

#define UNCHECKED 1		/* verdict: the checksum has not been compared yet */

struct daemon_object {
	struct mcs_object base;
	/* constant after open */
	struct mcs_daemon_conn *conn;
	uint64_t pin;
	const void *data;
	struct mcs_info info;
	int verdict;			/* atomic: 0, -MC_ECHECKSUM or UNCHECKED */
};

static struct daemon_object *object_of(struct mcs_object *o)
{
	return mc_container_of(o, struct daemon_object, base);
}

static void object_unpin(struct mcs_daemon_conn *c, uint64_t pin)
{
	struct mcs_daemon_req q = { .op = MCFS_RING_UNPIN, .pin = pin };

	/* The daemon released the pins of a lost connection itself. */
	if (!mcs_daemon_conn_gone(c))
		(void)mcs_daemon_run(c, &q, 1, NULL, mc_deadline_ms(1000));
}

/* Make an object of the pin that the daemon granted with @e; takes the pin also when it fails. */
static int object_new(struct mcs_daemon_conn *c, const struct mcfs_cqe *e, uint64_t deadline,
		      struct daemon_object **ret)
{
	struct daemon_object *o = malloc(sizeof(*o));
	const void *data;
	int r = -ENOMEM;

	data = o ? mcs_daemon_conn_at(c, e->segment, e->offset, e->size, deadline, &r) : NULL;
	if (!data) {
		free(o);
		object_unpin(c, e->pin);
		return r;
	}
	*o = (struct daemon_object){
		.base = { &c->d->base, &o->info },
		.conn = mcs_daemon_conn_ref(c), .pin = e->pin, .data = data, .verdict = UNCHECKED,
		.info = {
			.size = e->size, .generation = e->generation, .mtime_ms = e->mtime_ms,
			.crc32c = e->crc32c, .kind = (enum mcs_kind)(e->kind & 15), .flags = e->flags,
			.replicas = e->replicas, .data_type = (enum mcs_data_type)(e->kind >> 4),
		},
	};
	*ret = o;
	return 0;
}

/* One try; -MC_ERPC: the connection was lost. */
static int map_once(struct mcs_daemon *d, struct mcs_daemon_req *q, unsigned n, struct mcs_map *ret,
		    int *results, uint64_t deadline)
{
	struct mcs_daemon_conn *c;
	struct daemon_object *o = NULL;
	int r = mcs_daemon_conn_get(d, deadline, &c), count = 0;

	if (r < 0)
		return r;
	r = mcs_daemon_run(c, q, n, NULL, deadline);
	for (unsigned i = 0; i < n; i++) {
		results[i] = r == 0 || q[i].c.result != -MC_ERPC ? (int)q[i].c.result : r;
		if (results[i] == 0 && r == 0)
			results[i] = object_new(c, &q[i].c, deadline, &o);
		if (results[i] == 0 && r == 0)
			ret[i] = mcs_map_of(&o->base, o->data);
		count += results[i] == 0;
	}
	mcs_daemon_conn_put(c);
	return r < 0 ? r : count;
}

int mcs_daemon_map_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
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
		r = map_once(mcs_daemon_of(b), q, n, ret, results, deadline);
	if (q != &one)
		free(q);
	if (r >= 0 && n == 1 && results[0] < 0)
		(void)mc_fail(results[0], "node daemon: %s", mc_strerror(results[0]));
	return r;
}

int mcs_daemon_object_open(struct mcs_backend *b, struct mcs_key key, struct mcs_object **ret, uint64_t deadline)
{
	struct mcs_map map = { 0 };
	int result, r;

	r = mcs_daemon_map_batch(b, &key, 1, 0, &map, &result, deadline);
	r = r < 0 ? r : result;
	if (r < 0)
		return mc_fail(r, "node daemon: %s", mc_strerror(r));
	*ret = map.hold;
	return 0;
}

/* The daemon has no request that does both, so nothing is opened. */
int mcs_daemon_stat_open(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			 int *results, struct mcs_object **ret, uint64_t deadline)
{
	int r = mcs_daemon_stat_batch(b, keys, n, infos, results, deadline);

	*ret = NULL;
	return r;
}

int mcs_daemon_object_map(struct mcs_object *o, const void **ret_data, uint64_t deadline)
{
	*ret_data = object_of(o)->data;
	return 0;
}

int mcs_daemon_object_held(struct mcs_object *obj)
{
	struct daemon_object *o = object_of(obj);
	struct mcs_daemon_req q = { .op = MCFS_RING_HELD, .pin = o->pin };
	int r = mcs_daemon_conn_gone(o->conn) ? -MC_ERPC :
		mcs_daemon_run(o->conn, &q, 1, NULL, mc_deadline_ms(2000));

	if (r == 0 && q.c.result == 0)
		return 0;
	return mc_fail(-MC_EREPLICA_GONE, "the version is not held any more");
}

/* Pinned bytes do not change, so the checksum is compared once. */
static int object_check(struct daemon_object *o)
{
	int verdict = __atomic_load_n(&o->verdict, __ATOMIC_RELAXED);

	if (verdict == UNCHECKED)
		verdict = mc_crc32c(o->data, o->info.size) == o->info.crc32c ? 0 : -MC_ECHECKSUM;
	return verdict;
}

/* Call after the bytes were checked or copied: both count only if the pin was held until now. */
static int object_confirm(struct daemon_object *o, int verdict)
{
	int r = mcs_daemon_object_held(&o->base);

	if (r < 0)
		return r;
	if (verdict != UNCHECKED)
		__atomic_store_n(&o->verdict, verdict, __ATOMIC_RELAXED);
	return verdict < 0 ? mc_fail(verdict, "checksum mismatch in mapped object") : 0;
}

int mcs_daemon_object_verify(struct mcs_object *obj)
{
	struct daemon_object *o = object_of(obj);

	return object_confirm(o, object_check(o));
}

int64_t mcs_daemon_object_read(struct mcs_object *obj, uint64_t offset, const struct iovec *iov, int iovcnt,
			       uint64_t deadline)
{
	struct daemon_object *o = object_of(obj);
	int64_t room = mcs_iov_len(iov, iovcnt);
	uint64_t left, at = offset;
	int verdict, r;

	if (room < 0)
		return room;
	if (offset >= o->info.size)
		return 0;
	verdict = obj->backend->store->conf.verify ? object_check(o) : UNCHECKED;
	left = o->info.size - offset < (uint64_t)room ? o->info.size - offset : (uint64_t)room;
	for (int i = 0; i < iovcnt && left; i++) {
		size_t n = iov[i].iov_len < left ? iov[i].iov_len : left;

		r = mc_gpu_memcpy(iov[i].iov_base, (const char *)o->data + at, n);
		if (r < 0)
			return r;
		at += n;
		left -= n;
	}
	r = object_confirm(o, verdict);
	return r < 0 ? r : (int64_t)(at - offset);
}

/* The object is mapped, so the read is done at once. */
int mcs_daemon_object_read_start(struct mcs_object *o, uint64_t offset, void *buf, size_t len, uint64_t deadline,
				 mcs_read_done_fn done, void *arg)
{
	struct iovec iov = { buf, len };

	done(arg, mcs_daemon_object_read(o, offset, &iov, 1, deadline));
	return 0;
}

int mcs_daemon_object_offset(struct mcs_object *o, uint64_t *ret_offset)
{
	return mc_fail(-MC_ENOTSUP, "the object does not lie in this process's segment");
}

void mcs_daemon_object_close(struct mcs_object *obj)
{
	struct daemon_object *o = object_of(obj);

	object_unpin(o->conn, o->pin);
	mcs_daemon_conn_put(o->conn);
	free(o);
}
