/* SPDX-License-Identifier: Apache-2.0
 * node_object.c - open objects through the daemon. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/layout.h"
#include "client/daemon/daemon_i.h"

/* Begins as object.c's own does, so that a handle's objects can be told apart by their handle. */
struct node_object {
	struct mcs *s;
	struct mcs_map map;
	struct mcs_info info;
	int verdict;			/* atomic: of the checksum; 1: not looked at yet */
};

static struct node_object *own(const struct mcs_object *o)
{
	return (struct node_object *)(uintptr_t)o;
}

int mcs_daemon_object_open(struct mcs *s, struct mcs_key key, struct mcs_object **ret,
			 uint64_t deadline)
{
	struct node_object *o = calloc(1, sizeof(*o));
	int result, r;

	if (!o)
		return -ENOMEM;
	r = mcs_daemon_map_batch(s, &key, 1, 0, &o->map, &result, deadline);
	r = r < 0 ? r : result;
	if (r < 0) {
		free(o);
		return mc_fail(r, "node daemon: %s", mc_strerror(r));
	}
	o->s = s;
	o->verdict = 1;
	o->info = mcs_daemon_map_info(&o->map);
	*ret = (struct mcs_object *)(void *)o;
	return 0;
}

const struct mcs_info *mcs_daemon_object_info(const struct mcs_object *o)
{
	return &own(o)->info;
}

const void *mcs_daemon_object_data(const struct mcs_object *o)
{
	return own(o)->map.data;
}

/* Its bytes do not change while it is pinned, so they are looked at once. */
static int look(struct node_object *o)
{
	int verdict = __atomic_load_n(&o->verdict, __ATOMIC_RELAXED);

	if (verdict == 1)
		verdict = mc_crc32c(o->map.data, o->map.size) == o->map.crc32c ? 0 : -MC_ECHECKSUM;
	return verdict;
}

/* After the bytes were looked at or copied: it says something of them only when they were held until then. */
static int settle(struct node_object *o, int verdict)
{
	int r = mcs_daemon_map_held(&o->map);

	if (r < 0)
		return r;
	if (verdict != 1)
		__atomic_store_n(&o->verdict, verdict, __ATOMIC_RELAXED);
	return verdict < 0 ? mc_fail(verdict, "checksum mismatch in mapped object") : 0;
}

int mcs_daemon_object_verify(struct mcs_object *obj)
{
	struct node_object *o = own(obj);

	return settle(o, look(o));
}

int64_t mcs_daemon_object_read(struct mcs_object *obj, uint64_t offset, const struct iovec *iov,
			     int iovcnt)
{
	struct node_object *o = own(obj);
	int64_t room = mcs_iov_len(iov, iovcnt);
	uint64_t left, at = offset;
	int verdict, r;

	if (room < 0)
		return room;
	if (offset >= o->map.size)
		return 0;
	verdict = o->s->conf.verify ? look(o) : 1;
	left = o->map.size - offset < (uint64_t)room ? o->map.size - offset : (uint64_t)room;
	for (int i = 0; i < iovcnt && left; i++) {
		size_t n = iov[i].iov_len < left ? iov[i].iov_len : left;

		memcpy(iov[i].iov_base, (const char *)o->map.data + at, n);
		at += n;
		left -= n;
	}
	r = settle(o, verdict);
	return r < 0 ? r : (int64_t)(at - offset);
}

int mcs_daemon_object_held(const struct mcs_object *o)
{
	return mcs_daemon_map_held(&own(o)->map);
}

void mcs_daemon_object_close(struct mcs_object *obj)
{
	struct node_object *o = own(obj);

	mcs_daemon_unmap(&o->map);
	free(o);
}
