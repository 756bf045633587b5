/* SPDX-License-Identifier: Apache-2.0
 * store_object.c - the public calls for open objects and maps. */
#include <config.h>

#include <errno.h>

#include "client/store_i.h"

int mcs_object_open(struct mcs *s, struct mcs_key key, struct mcs_object **ret, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (!r)
		r = mcs_key_check(key);
	if (r < 0)
		return r;
	do
		r = b->ops->object_open(b, key, ret, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

int mcs_stat_open(struct mcs *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		  int *results, struct mcs_object **ret, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (!n || n > MCS_STAT_OPEN_MAX)
		return mc_fail(-EINVAL, "%u keys at once", n);
	for (unsigned i = 0; i < n && r == 0; i++)
		r = mcs_key_check(keys[i]);
	if (r < 0)
		return r;
	do
		r = b->ops->stat_open(b, keys, n, infos, results, ret, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

const struct mcs_info *mcs_object_info(const struct mcs_object *o)
{
	return o->info;
}

int64_t mcs_object_read(struct mcs_object *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			int64_t timeout_ms)
{
	const struct mcs *s = o->backend->store;
	int r = mcs_check_fork(s);

	return r < 0 ? r : o->backend->ops->object_read(o, offset, iov, iovcnt, mcs_deadline(s, timeout_ms));
}

int mcs_object_read_start(struct mcs_object *o, uint64_t offset, void *buf, size_t len,
			  int64_t timeout_ms, mcs_read_done_fn done, void *arg)
{
	const struct mcs *s = o->backend->store;
	int r = mcs_check_fork(s);

	return r < 0 ? r : o->backend->ops->object_read_start(o, offset, buf, len, mcs_deadline(s, timeout_ms), done,
							      arg);
}

int mcs_object_map(struct mcs_object *o, const void **ret_data, int64_t timeout_ms)
{
	const struct mcs *s = o->backend->store;
	int r = mcs_check_fork(s);

	return r < 0 ? r : o->backend->ops->object_map(o, ret_data, mcs_deadline(s, timeout_ms));
}

int mcs_object_held(struct mcs_object *o)
{
	int r = mcs_check_fork(o->backend->store);

	return r < 0 ? r : o->backend->ops->object_held(o);
}

int mcs_object_offset(struct mcs_object *o, uint64_t *ret_offset)
{
	return o->backend->ops->object_offset(o, ret_offset);
}

int mcs_object_verify(struct mcs_object *o)
{
	int r = mcs_check_fork(o->backend->store);

	return r < 0 ? r : o->backend->ops->object_verify(o);
}

void mcs_object_close(struct mcs_object *o)
{
	if (o && mcs_check_fork(o->backend->store) == 0)
		o->backend->ops->object_close(o);
}

/* ---- maps ---- */

int mcs_map_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		  struct mcs_map *ret, int *results, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (flags & ~MCS_MAP_HOT)
		return mc_fail(-MC_EPARAM, "unknown flags 0x%x", flags);
	for (unsigned i = 0; i < n; i++)
		ret[i] = (struct mcs_map){ 0 };
	if (r < 0)
		return r;
	do
		r = b->ops->map_batch(b, keys, n, flags, ret, results, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

int mcs_map(struct mcs *s, struct mcs_key key, unsigned flags, struct mcs_map *ret, int64_t timeout_ms)
{
	int result = 0, r = mcs_map_batch(s, &key, 1, flags, ret, &result, timeout_ms);

	return r < 0 ? r : result;
}

int mcs_map_held(struct mcs *s, const struct mcs_map *map)
{
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	return map->hold ? mcs_object_held(map->hold) : mc_fail(-MC_EPARAM, "nothing is mapped");
}

void mcs_unmap(struct mcs *s, struct mcs_map *map)
{
	if (!map->hold || mcs_check_fork(s) < 0)
		return;
	mcs_object_close(map->hold);
	*map = (struct mcs_map){ 0 };
}
