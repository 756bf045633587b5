/* SPDX-License-Identifier: Apache-2.0
 * object.c - open objects: one version, pinned, read in parts or mapped. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/object.h"
#include "client/layout.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/metrics.h"

/* A larger trailer (of an object over 64 GiB) is not kept, but fetched for each read. */
#define TRAILER_KEPT ((uint64_t)4 << 20)
#define VERIFY_STEP ((size_t)1 << 20)
/* A master that restarted keeps all objects for three heartbeat periods, in which owners come
 * back.  The maximum period of an owner is two fifths of its time to live. */
#define RETURN_BEATS 3

MC_GAUGE(open_objects, "mooncake_client_open_objects", "", "objects held open")
MC_COUNTER(repins, "mooncake_client_repins_total", "",
	   "open objects pinned again after the connection to the master was lost")
MC_COUNTER(renewed, "mooncake_client_capabilities_renewed_total", "",
	   "open objects for which the master was asked for new capabilities")
MC_COUNTER(bytes, "mooncake_client_object_bytes_total", "", "bytes read from open objects")

/* Look up @n keys, at most MCS_STAT_OPEN_MAX.  *ret_epoch 0: it is not known which connection
 * the pins belong to. */
static int object_ask_once(struct mcs_direct *s, const struct mcs_key *keys, unsigned n, uint32_t flags,
		    struct mcs_version *ret, int *results, uint64_t *ret_epoch, uint64_t deadline)
{
	struct mcp_key list[MCS_STAT_OPEN_MAX];
	struct mcp_get msg = { .flags = flags, .keys = mcp_seq(list, n), .tenant = s->base.tenant };
	uint64_t asked_ns = mc_now_ns();
	struct mcp_reply mem = { 0 };
	struct mcp_get_reply reply;
	struct mcp_object obj;
	struct mcp_iter it;
	bool hold = flags & MCP_GET_HOLD;
	uint64_t epoch;
	int r;

	for (unsigned i = 0; i < n; i++)
		list[i].key = mcp_bytes(keys[i].data, (uint32_t)keys[i].len);
	r = mcs_call_pins(s->base.session, MCP_GET, &msg, &reply, &mem, deadline, hold, &epoch);
	/* If the master still grants the pin, nothing here will release it. */
	if (r == -MC_ETIMEDOUT && hold)
		mcs_session_taint(s->base.session, epoch ? epoch : mcs_direct_epoch(s));
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < n; i++) {
		results[i] = mcp_iter_next(&it, &obj) ?
			mcs_version_decode(&obj, epoch, asked_ns, &ret[i]) :
			mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys");
		if (!results[i] && ret[i].pin.id)
			mcs_leases_granted(1);
	}
	mcp_reply_done(&mem);
	*ret_epoch = epoch;
	return 0;
}

/* The caller must release the pins. */
static int object_ask_many(struct mcs_direct *s, const struct mcs_key *keys, unsigned n, uint32_t flags,
			   struct mcs_version *ret, int *results, uint64_t deadline)
{
	for (;;) {
		uint64_t epoch = 0;
		int r = object_ask_once(s, keys, n, flags, ret, results, &epoch, deadline);

		if (r < 0 || epoch)
			return r;
		/* On another connection the same numbers may be other pins, so do not release
		 * them: end the connection that may have granted them. */
		for (unsigned i = 0; i < n; i++) {
			if (results[i] < 0 || !ret[i].pin.id)
				continue;
			mcs_leases_release(&s->leases, ret[i].pin);
			mcs_session_taint(s->base.session, mcs_direct_epoch(s));
		}
	}
}

static int object_ask(struct mcs_direct *s, struct mcs_key key, uint32_t flags, struct mcs_version *ret,
		      uint64_t deadline)
{
	int result, r = object_ask_many(s, &key, 1, flags, ret, &result, deadline);

	return r < 0 ? r : result;
}

/* Look up the segments, so that reads work without the master from now on. */
static void object_find_segments(struct mcs_direct *s, const struct mcs_version *v, uint64_t deadline)
{
	for (unsigned i = 0; i < v->n; i++) {
		struct mcs_seg *seg;

		/* A read looks up a segment again that is not found now. */
		if (!mcs_segmap_get(s->segmap, v->replica[i].segment, deadline, &seg))
			mcs_seg_put(seg);
	}
}

/* Takes the pin of @v, also when it fails. */
static int object_new(struct mcs_direct *s, struct mcs_key key, const struct mcs_version *v, uint64_t deadline,
		      struct mcs_object **ret)
{
	struct mcs_direct_object *o = calloc(1, sizeof(*o) + key.len);

	if (!o) {
		mcs_leases_release(&s->leases, v->pin);
		return -ENOMEM;
	}
	o->v = *v;
	MC_FAULT_POINT("client.object.after_open");
	object_find_segments(s, &o->v, deadline);
	o->base = (struct mcs_object){ &s->base, &o->v.info };
	o->v.lease_ms = 0;	/* held, not leased */
	for (unsigned i = 0; i < v->n; i++)
		o->guarded |= v->replica[i].expires_s != 0;
	o->caps_ns = v->asked_ns;
	o->caps_generation = v->info.generation;
	o->pin = o->v.pin;
	o->refs = 1;
	memcpy(o->key_bytes, key.data, key.len);
	o->key = (struct mcs_key){ o->key_bytes, key.len };
	mc_mutex_init(&o->lock);
	mc_mutex_lock(&s->lock);
	mc_list_push_back(&s->objects, &o->link);
	mc_mutex_unlock(&s->lock);
	mc_metric_add(&open_objects, 1);
	/* The background thread may have gone through the list just before. */
	if (o->v.pin.epoch != mcs_direct_epoch(s))
		mcs_background_connected(s->background);
	*ret = &o->base;
	return 0;
}

/* As object_ask_many(), but wait for owners that may return to a restarted master. */
static int object_ask_patient(struct mcs_direct *s, const struct mcs_key *keys, unsigned n, uint32_t flags,
			      struct mcs_version *ret, int *results, uint64_t deadline)
{
	struct mcs_patience owner = { 0 };

	for (;;) {
		int r = object_ask_many(s, keys, n, flags, ret, results, deadline);
		bool again = false;

		for (unsigned i = 0; i < n && r >= 0; i++)
			again |= results[i] == -MC_ENOTREADY;
		if (!again || !mcs_session_await_owner(s->base.session, &owner, deadline))
			return r;
		for (unsigned i = 0; i < n; i++)
			if (results[i] >= 0)
				mcs_leases_release(&s->leases, ret[i].pin);
	}
}

int mcs_direct_object_open(struct mcs_backend *b, struct mcs_key key, struct mcs_object **ret, uint64_t deadline)
{
	struct mcs_direct *s = mcs_direct_of(b);
	struct mcs_version v;
	int result, r = object_ask_patient(s, &key, 1, MCP_GET_HOLD, &v, &result, deadline);

	r = r < 0 ? r : result;
	return r < 0 ? r : object_new(s, key, &v, deadline, ret);
}

int mcs_direct_stat_open(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			 int *results, struct mcs_object **ret, uint64_t deadline)
{
	struct mcs_direct *s = mcs_direct_of(b);
	struct mcs_version v[MCS_STAT_OPEN_MAX];
	struct mcs_object *o = NULL;
	int r, count = 0;

	r = object_ask_patient(s, keys, n, MCP_GET_HOLD | MCP_GET_DIRS, v, results, deadline);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < n; i++) {
		if (results[i] < 0)
			continue;
		infos[i] = v[i].info;
		count++;
		if (i)
			mcs_leases_release(&s->leases, v[i].pin);
		else if (v[i].info.generation)
			results[i] = object_new(s, keys[i], &v[i], deadline, &o);
	}
	*ret = o;
	return count;
}

static void object_unref(struct mcs_direct_object *o, bool unlink)
{
	struct mcs_direct *s = mcs_direct_object_owner(o);
	bool last;

	mc_mutex_lock(&s->lock);
	if (unlink)
		mc_list_remove(&o->link);
	last = !--o->refs;
	mc_mutex_unlock(&s->lock);
	if (!last)
		return;
	mcs_leases_release(&s->leases, o->pin);
	mcs_seg_put(o->mapped);
	mc_mutex_destroy(&o->lock);
	free(o->trailer);
	free(o);
}

void mcs_direct_object_unref(struct mcs_direct_object *o)
{
	object_unref(o, false);
}

void mcs_direct_object_close(struct mcs_object *o)
{
	mc_metric_add(&open_objects, -1);
	object_unref(mcs_direct_object_of(o), true);
}

/* ---- capabilities ---- */

/* With the object's lock: take the capabilities of replicas that the object had when it was opened. */
static void object_take_capability(struct mcs_direct_object *o, const struct mcp_replica *rep)
{
	for (unsigned i = 0; i < o->v.n; i++) {
		struct mcp_replica *to = &o->v.replica[i];

		if (!mcp_id_eq(to->segment, rep->segment) || to->offset != rep->offset)
			continue;
		to->expires_s = rep->expires_s;
		to->mac = rep->mac;
	}
}

/* Ask for new ones.  The pin names the version also when the key has another one by now. */
static int object_renew(struct mcs_direct_object *o, uint64_t deadline)
{
	struct mcs_direct *s = mcs_direct_object_owner(o);
	struct mcp_capabilities_reply reply;
	struct mcp_reply mem = { 0 };
	uint64_t epoch, asked_ns = mc_now_ns();
	struct mcp_capabilities msg;
	struct mcp_replica rep;
	struct mcs_pin pin;
	struct mcp_iter it;
	int r;

	mc_mutex_lock(&o->lock);
	pin = o->pin;
	mc_mutex_unlock(&o->lock);
	if (!pin.id)
		return -MC_EREPLICA_GONE;
	msg.pin = pin.id;
	r = mcs_call_pins(s->base.session, MCP_CAPABILITIES, &msg, &reply, &mem, deadline, false, &epoch);
	if (r < 0)
		return r;
	/* On another connection the number may be another pin. */
	if (epoch == pin.epoch) {
		mc_mutex_lock(&o->lock);
		mcp_iter_init(&it, &reply.replicas, &mcp_desc_replica);
		while (mcp_iter_next(&it, &rep))
			object_take_capability(o, &rep);
		o->caps_generation = reply.generation;
		o->caps_ns = asked_ns;
		mc_mutex_unlock(&o->lock);
		mc_metric_add(&renewed, 1);
	}
	mcp_reply_done(&mem);
	return epoch == pin.epoch ? 0 : -MC_EREPLICA_GONE;
}

/* The object was pinned again: @v has new capabilities. */
static void object_repinned(struct mcs_direct_object *o, const struct mcs_version *v)
{
	MC_LOCKED(&o->lock);
	o->pin = v->pin;
	if (!o->guarded)
		return;
	for (unsigned i = 0; i < v->n; i++)
		object_take_capability(o, &v->replica[i]);
	o->caps_generation = v->info.generation;
	o->caps_ns = v->asked_ns;
}

static bool object_is_old(struct mcs_direct_object *o)
{
	MC_LOCKED(&o->lock);
	return mc_now_ns() - o->caps_ns > MCP_CAPABILITY_HELD_S / 2 * MC_NS_PER_SEC;
}

static const struct mcs_version *object_copy_version(struct mcs_direct_object *o, struct mcs_scratch *sc)
{
	struct mcs_version *v = mcs_scratch_raw(sc, 1, sizeof(*v));

	if (!v)
		return NULL;
	mc_mutex_lock(&o->lock);
	*v = o->v;
	v->info.generation = o->caps_generation;
	mc_mutex_unlock(&o->lock);
	return v;
}

const struct mcs_version *mcs_direct_object_version(struct mcs_direct_object *o, struct mcs_scratch *sc)
{
	if (!o->guarded)
		return &o->v;
	return object_is_old(o) ? NULL : object_copy_version(o, sc);
}

/* ---- after a new connection ---- */

/* May owners still come back to a master that restarted?  They may do so after their readers. */
static bool repin_owners_return(struct mcs_direct *s)
{
	uint32_t beat = mcs_session_terms(s->base.session).client_ttl_ms / 5 * 2;

	return mcs_session_young(s->base.session, (uint64_t)RETURN_BEATS * beat);
}

/* The next object that was not asked for on this connection, or with @again not since @began_ns;
 * with a reference. */
static struct mcs_direct_object *repin_next(struct mcs_direct *s, uint64_t epoch, bool again, uint64_t began_ns)
{
	struct mc_list *pos;

	MC_LOCKED(&s->lock);
	mc_list_for_each(pos, &s->objects) {
		struct mcs_direct_object *o = mc_container_of(pos, struct mcs_direct_object, link);

		mc_mutex_lock(&o->lock);
		if (o->pin.epoch == epoch && !(again && o->missed && o->asked_ns < began_ns)) {
			mc_mutex_unlock(&o->lock);
			continue;
		}
		/* Each object is asked for once per pass, whatever the result. */
		if (o->pin.id)
			mcs_leases_granted(-1);
		o->pin = (struct mcs_pin){ 0, epoch };
		o->missed = false;
		o->asked_ns = mc_now_ns();
		mc_mutex_unlock(&o->lock);
		o->refs++;
		return o;
	}
	return NULL;
}

static bool repin_has(const struct mcs_version *v, const struct mcp_replica *replica)
{
	for (unsigned i = 0; i < v->n; i++)
		if (mcp_id_eq(v->replica[i].segment, replica->segment) &&
		    v->replica[i].offset == replica->offset)
			return true;
	return false;
}

/* Does the version still have all replicas that it had when it was opened?  Then the memory that
 * is mapped and read is still its own.  It may have more. */
static bool repin_same_replicas(const struct mcs_version *now, const struct mcs_version *opened)
{
	for (unsigned i = 0; i < opened->n; i++)
		if (!repin_has(now, &opened->replica[i]))
			return false;
	return true;
}

/* False: the object or one of its replicas was not found, perhaps because an owner has not come back yet. */
static bool repin_one(struct mcs_direct *s, struct mcs_direct_object *o, uint64_t deadline)
{
	struct mcs_version v;
	bool same;
	int r;

	r = object_ask(s, o->key, MCP_GET_HOLD, &v, deadline);
	MC_FAULT_POINT("client.object.looked");
	if (r < 0)
		return false;
	same = v.info.generation == o->v.info.generation;
	if (!same || !repin_same_replicas(&v, &o->v)) {
		mcs_leases_release(&s->leases, v.pin);
		return !same;	/* the key has another version now */
	}
	object_repinned(o, &v);
	mc_metric_add(&repins, 1);
	return true;
}

static void repin_missed(struct mcs_direct_object *o)
{
	MC_LOCKED(&o->lock);
	o->missed = true;
}

bool mcs_direct_repin(struct mcs_direct *s)
{
	uint64_t epoch = mcs_direct_epoch(s), began_ns = mc_now_ns();
	bool again = repin_owners_return(s), missed = false;
	struct mcs_direct_object *o;

	while (epoch == mcs_direct_epoch(s) && (o = repin_next(s, epoch, again, began_ns))) {
		if (!repin_one(s, o, mc_deadline_ms(2000))) {
			repin_missed(o);
			missed = true;
		}
		object_unref(o, false);
	}
	return missed && again;
}

/* ---- reading ---- */

/* Without a connection the master may have dropped the pin. */
static bool object_pinned(struct mcs_direct_object *o)
{
	if (!mcs_connected(mcs_direct_object_owner(o)))
		return false;
	MC_LOCKED(&o->lock);
	return o->pin.id && o->pin.epoch == mcs_direct_epoch(mcs_direct_object_owner(o));
}

/* Is this version still the key's current one?  Only asked after failures. */
static bool object_current(struct mcs_direct_object *o, uint64_t deadline)
{
	struct mcs_version v;
	int r = object_ask(mcs_direct_object_owner(o), o->key, 0, &v, deadline);

	/* A master that restarted may not know yet. */
	return r == -MC_ENOTREADY || (!r && v.info.generation == o->v.info.generation);
}

void mcs_direct_object_keep_trailer(struct mcs_direct_object *o, const uint32_t *trailer)
{
	uint64_t size = mcs_trailer_size(o->v.info.size);
	uint32_t *copy;

	if (size > TRAILER_KEPT)
		return;
	copy = malloc(size);
	if (!copy)
		return;
	memcpy(copy, trailer, size);
	mc_mutex_lock(&o->lock);
	if (!o->trailer)
		o->trailer = TAKE_PTR(copy);
	mc_mutex_unlock(&o->lock);
	free(copy);
}

const uint32_t *mcs_direct_object_trailer(struct mcs_direct_object *o)
{
	MC_LOCKED(&o->lock);
	return o->trailer;
}

/* All replicas have failed: their owners may have refused the capabilities, because they were mounted again, or their
 * clocks differ.  True: @part has new ones. */
static bool object_renew_part(struct mcs_direct_object *o, struct mcs_scratch *sc, struct mcs_part *part,
			      uint64_t deadline)
{
	const struct mcs_version *v = NULL;

	if (!o->guarded || part->status == -MC_ECHECKSUM || mcs_part_left(part, true))
		return false;
	if (object_renew(o, deadline) == 0)
		v = object_copy_version(o, sc);
	if (!v)
		return false;
	part->v = v;
	memset(part->unreachable, 0, sizeof(part->unreachable));
	return true;
}

/* Try the replicas in turn, each twice. */
static int object_read_part(struct mcs_direct_object *o, struct mcs_scratch *sc, struct mcs_part *part,
			    uint64_t deadline)
{
	int r = -MC_EREPLICA_GONE;
	bool renewed_once = false;

	while (mcs_part_left(part, true) ||
	       (!renewed_once && (renewed_once = object_renew_part(o, sc, part, deadline)))) {
		mcs_read(mcs_direct_object_owner(o), sc, &part, 1, deadline);
		if (!part->status) {
			if (part->fetched)
				mcs_direct_object_keep_trailer(o, part->fetched);
			return 0;
		}
		r = part->status;
		if (r == -ENOMEM)
			return r;
		if (mc_now_ns() >= deadline)
			return r == -MC_ECHECKSUM ? r :
				mc_fail(-MC_ETIMEDOUT, "read did not end in time");
	}
	r = mcs_part_verdict(part);
	/* Memory that is no longer pinned may have been reused: that is not corruption. */
	if (r == -MC_ECHECKSUM ? object_pinned(o) : object_current(o, deadline))
		return r;
	return mc_fail(-MC_EREPLICA_GONE, "the version that was opened is gone");
}

static int64_t object_read_checked(struct mcs_direct_object *o, uint64_t offset, const struct iovec *iov,
				   int iovcnt, bool verify, uint64_t deadline)
{
	uint64_t size = o->v.info.size;
	struct mcs_part part = {
		.v = &o->v, .offset = offset, .iov = iov, .iovcnt = iovcnt,
		.unverified = !verify,
	};
	int64_t room = mcs_iov_len(iov, iovcnt);
	struct mcs_scratch *sc;
	int r;

	if (room < 0)
		return room;
	if (offset >= size || !room)
		return 0;
	part.len = size - offset < (uint64_t)room ? size - offset : (uint64_t)room;
	part.trailer = mcs_direct_object_trailer(o);
	sc = mcs_scratch_get(o->base.backend->scratch);
	if (sc && o->guarded) {
		if (object_is_old(o))
			(void)object_renew(o, deadline);
		part.v = object_copy_version(o, sc);
	}
	r = sc && part.v ? object_read_part(o, sc, &part, deadline) : -ENOMEM;
	mcs_scratch_put(o->base.backend->scratch, sc);
	if (r < 0)
		return r;
	mc_metric_add(&bytes, (int64_t)part.len);
	return (int64_t)part.len;
}

int64_t mcs_direct_object_read(struct mcs_object *obj, uint64_t offset, const struct iovec *iov, int iovcnt,
			       uint64_t deadline)
{
	/* The pin of @v is the one of the open, so that reads after a reconnect are verified. */
	return object_read_checked(mcs_direct_object_of(obj), offset, iov, iovcnt, obj->backend->store->conf.verify,
				   deadline);
}

void mcs_direct_object_ref(struct mcs_direct_object *o)
{
	MC_LOCKED(&mcs_direct_object_owner(o)->lock);
	o->refs++;
}

void mcs_direct_object_count(uint64_t n)
{
	mc_metric_add(&bytes, (int64_t)n);
}

/* ---- mapping ---- */

static int object_map_replica(struct mcs_direct_object *o, const struct mcp_replica *rep, uint64_t deadline,
			      struct mcs_seg **ret_seg, const void **ret_map)
{
	uint64_t size = o->v.info.size;
	struct mcs_seg *seg;
	const void *p;
	int r;

	if (rep->offset > UINT64_MAX - size)
		return mc_fail(-MC_EPROTO, "a replica lies outside of its segment");
	r = mcs_segmap_reach(mcs_direct_object_owner(o)->segmap, rep->segment, rep->offset + size, deadline, &seg);
	if (r < 0)
		return r;
	p = mce_peer_map(seg->peer, seg->base + rep->offset, seg->rkey, size, deadline, &r);
	if (!p) {
		mcs_seg_put(seg);
		return r;
	}
	*ret_seg = seg;
	*ret_map = p;
	return 0;
}

static const void *object_mapping(struct mcs_direct_object *o)
{
	MC_LOCKED(&o->lock);
	return o->map;
}

/* Keep a mapping, unless another thread has kept one; returns the kept one. */
static const void *object_keep_mapping(struct mcs_direct_object *o, const void *map, struct mcs_seg *seg)
{
	mc_mutex_lock(&o->lock);
	if (!o->map) {
		o->map = map;
		o->mapped = TAKE_PTR(seg);
	}
	map = o->map;
	mc_mutex_unlock(&o->lock);
	mcs_seg_put(seg);
	return map;
}

int mcs_direct_object_map(struct mcs_object *obj, const void **ret_data, uint64_t deadline)
{
	struct mcs_direct_object *o = mcs_direct_object_of(obj);
	const void *map = object_mapping(o);
	struct mcs_seg *seg = NULL;
	int r = -MC_ENOTSUP;

	if (!map && !o->v.info.size)
		map = "";
	for (unsigned i = 0; !map && i < o->v.n; i++) {
		r = object_map_replica(o, &o->v.replica[i], deadline, &seg, &map);
		if (!r)
			map = object_keep_mapping(o, map, seg);
	}
	if (!map)
		return r == -MC_ETIMEDOUT ? r :
			mc_fail(-MC_ENOTSUP, "object is not in memory that can be mapped: %s",
				mc_strerror(r));
	*ret_data = map;
	return 0;
}

static int object_map_key(struct mcs_backend *b, struct mcs_key key, struct mcs_map *ret, uint64_t deadline)
{
	const void *data = NULL;
	struct mcs_object *o;
	int r = mcs_key_check(key);

	if (r == 0)
		r = mcs_direct_object_open(b, key, &o, deadline);
	if (r < 0)
		return r;
	r = mcs_direct_object_map(o, &data, deadline);
	if (r < 0)
		mcs_direct_object_close(o);
	else
		*ret = mcs_map_of(o, data);
	return r;
}

int mcs_direct_map_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			 struct mcs_map *ret, int *results, uint64_t deadline)
{
	int count = 0;

	for (unsigned i = 0; i < n; i++) {
		results[i] = object_map_key(b, keys[i], &ret[i], deadline);
		count += results[i] == 0;
	}
	return count;
}

int mcs_direct_object_held(struct mcs_object *obj)
{
	struct mcs_direct_object *o = mcs_direct_object_of(obj);

	/* First check the connection, then whether the pin belongs to it: a connection made in
	 * between is another one. */
	if (object_pinned(o))
		return 0;
	return mc_fail(-MC_EREPLICA_GONE, "the version is not held any more");
}

int mcs_direct_object_offset(struct mcs_object *obj, uint64_t *ret_offset)
{
	struct mcs_direct_object *o = mcs_direct_object_of(obj);
	struct mcs_direct *s = mcs_direct_object_owner(o);

	for (unsigned i = 0; i < o->v.n; i++) {
		const struct mcp_replica *rep = &o->v.replica[i];

		if (!s->segments->in_fd(s, rep->segment, rep->offset, o->v.info.size))
			continue;
		*ret_offset = rep->offset;
		return 0;
	}
	return mc_fail(-MC_ENOTSUP, "the object does not lie in this process's segment");
}

static int object_verify_by_reading(struct mcs_direct_object *o)
{
	auto_free unsigned char *buf = malloc(VERIFY_STEP);
	struct iovec iov = { buf, VERIFY_STEP };

	if (!buf)
		return -ENOMEM;
	for (uint64_t at = 0; at < o->v.info.size; at += VERIFY_STEP) {
		int64_t n = object_read_checked(o, at, &iov, 1, true, mcs_deadline(o->base.backend->store, -1));

		if (n < 0)
			return (int)n;
	}
	return 0;
}

int mcs_direct_object_verify(struct mcs_object *obj)
{
	struct mcs_direct_object *o = mcs_direct_object_of(obj);
	const void *map = object_mapping(o);

	if (!map)
		return object_verify_by_reading(o);
	if (mc_crc32c(map, o->v.info.size) == o->v.info.crc32c)
		return 0;
	return mc_fail(-MC_ECHECKSUM, "checksum mismatch in mapped object");
}
