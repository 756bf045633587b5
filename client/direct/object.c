/* SPDX-License-Identifier: Apache-2.0
 * object.c - open objects: one version, pinned, read in parts or mapped. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/async.h"
#include "client/direct/layout.h"
#include "client/direct/read.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"

/* A larger trailer (of an object over 64 GiB) is fetched for each read. */
#define TRAILER_KEPT ((uint64_t)4 << 20)
#define VERIFY_STEP ((size_t)1 << 20)
/* After a restart a master holds everything for three heartbeats, in which owners come back; the longest that
 * an owner lets go by between two is two fifths of its time to live. */
#define RETURN_BEATS 3

MC_GAUGE(open_objects, "mooncake_client_open_objects", "", "objects held open")
MC_COUNTER(repins, "mooncake_client_repins_total", "",
	   "open objects pinned again after the connection to the master was lost")
MC_COUNTER(bytes, "mooncake_client_object_bytes_total", "", "bytes read from open objects")

struct mcs_object {
	/* constant after open; the version's pin excepted */
	struct mcs *s;			/* first, as in node_object.c */
	struct mcs_version v;
	struct mcs_key key;

	struct mc_list link;		/* guarded by the handle's lock */
	unsigned refs;			/* guarded by the handle's lock */

	pthread_mutex_t lock;
	/* with the lock held */
	struct mcs_pin pin;
	bool missed;			/* on the connection of @pin: looked for and not found */
	uint64_t looked_ns;
	uint32_t *trailer;		/* set once, then constant */
	struct mcs_seg *mapped;		/* keeps the mapping; set once */
	const void *map;

	unsigned char key_bytes[];
};

/* Of @n keys, MCS_STAT_OPEN_MAX at the most.  *ret_epoch 0: the pins are of nobody knows which connection. */
static int ask_once(struct mcs *s, const struct mcs_key *keys, unsigned n, uint32_t flags,
		    struct mcs_version *ret, int *results, uint64_t *ret_epoch, uint64_t deadline)
{
	struct mcp_key list[MCS_STAT_OPEN_MAX];
	struct mcp_get msg = { .flags = flags, .keys = mcp_seq(list, n), .tenant = s->tenant };
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
	r = mcs_call_pins(s->session, MCP_GET, &msg, &reply, &mem, deadline, hold, &epoch);
	/* A pin that is granted later has no holder. */
	if (r == -MC_ETIMEDOUT && hold)
		mcs_session_taint(s->session, epoch ? epoch : mcs_epoch(s));
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < n; i++) {
		results[i] = mcp_iter_next(&it, &obj) ?
			mcs_version_decode(&obj, epoch, asked_ns, &ret[i]) :
			mc_fail(-MC_EPROTO, "master answered for too few keys");
		if (!results[i] && ret[i].pin.id)
			mcs_leases_granted(1);
	}
	mcp_reply_done(&mem);
	*ret_epoch = epoch;
	return 0;
}

/* The pins are the caller's to give back. */
static int ask_many(struct mcs *s, const struct mcs_key *keys, unsigned n, uint32_t flags,
		    struct mcs_version *ret, int *results, uint64_t deadline)
{
	for (;;) {
		uint64_t epoch = 0;
		int r = ask_once(s, keys, n, flags, ret, results, &epoch, deadline);

		if (r < 0 || epoch)
			return r;
		/* On the wrong connection their numbers would be somebody else's pins, so they are not
		 * given back: the one that may have granted them goes. */
		for (unsigned i = 0; i < n; i++) {
			if (results[i] < 0 || !ret[i].pin.id)
				continue;
			mcs_leases_release(&s->leases, ret[i].pin);
			mcs_session_taint(s->session, mcs_epoch(s));
		}
	}
}

static int ask(struct mcs *s, struct mcs_key key, uint32_t flags, struct mcs_version *ret,
	       uint64_t deadline)
{
	int result, r = ask_many(s, &key, 1, flags, ret, &result, deadline);

	return r < 0 ? r : result;
}

/* From here on the bytes can be had without the master. */
static void find_segments(struct mcs *s, const struct mcs_version *v, uint64_t deadline)
{
	for (unsigned i = 0; i < v->n; i++) {
		struct mcs_seg *seg;

		/* What is not found now is looked for again by the read that needs it. */
		if (!mcs_segmap_get(s->segmap, v->replica[i].segment, deadline, &seg))
			mcs_seg_put(seg);
	}
}

/* Takes the pin of @v, also when it fails. */
static int make(struct mcs *s, struct mcs_key key, const struct mcs_version *v, uint64_t deadline,
		struct mcs_object **ret)
{
	struct mcs_object *o = calloc(1, sizeof(*o) + key.len);

	if (!o) {
		mcs_leases_release(&s->leases, v->pin);
		return -ENOMEM;
	}
	o->v = *v;
	MC_FAULT_POINT("client.object.after_open");
	find_segments(s, &o->v, deadline);
	o->s = s;
	o->v.lease_ms = 0;	/* held, not leased */
	o->pin = o->v.pin;
	o->refs = 1;
	memcpy(o->key_bytes, key.data, key.len);
	o->key = (struct mcs_key){ o->key_bytes, key.len };
	pthread_mutex_init(&o->lock, NULL);
	pthread_mutex_lock(&s->lock);
	mc_list_push_back(&s->objects, &o->link);
	pthread_mutex_unlock(&s->lock);
	mc_metric_add(&open_objects, 1);
	/* The keeper may have gone through the list just before. */
	if (o->v.pin.epoch != mcs_epoch(s))
		mcs_background_connected(s->keeper);
	*ret = o;
	return 0;
}

int mcs_object_open(struct mcs *s, struct mcs_key key, struct mcs_object **ret,
		    int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_version v;
	int r = mcs_check_fork(s);

	if (!r)
		r = mcs_key_check(key);
	if (r < 0)
		return r;
	if (s->node)
		return MCS_BY_NODE(s, mcs_daemon_object_open(s, key, ret, deadline),
				   mcs_object_open(alone, key, ret, timeout_ms));
	r = ask(s, key, MCP_GET_HOLD, &v, deadline);
	return r < 0 ? r : make(s, key, &v, deadline, ret);
}

int mcs_stat_open(struct mcs *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		  int *results, struct mcs_object **ret, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_version v[MCS_STAT_OPEN_MAX];
	struct mcs_object *o = NULL;
	int r = mcs_check_fork(s), count = 0;

	if (r < 0)
		return r;
	if (!n || n > MCS_STAT_OPEN_MAX)
		return mc_fail(-EINVAL, "%u keys at once", n);
	for (unsigned i = 0; i < n && r == 0; i++)
		r = mcs_key_check(keys[i]);
	if (r < 0)
		return r;
	if (s->node) {
		r = mcs_stat_batch(s, keys, n, infos, results, timeout_ms);
		*ret = NULL;
		return r;
	}
	r = ask_many(s, keys, n, MCP_GET_HOLD | MCP_GET_DIRS, v, results, deadline);
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
			results[i] = make(s, keys[i], &v[i], deadline, &o);
	}
	*ret = o;
	return count;
}

const struct mcs_info *mcs_object_info(const struct mcs_object *o)
{
	return o->s->node ? mcs_daemon_object_info(o) : &o->v.info;
}

/* The last reference gives the pin back. */
static void unref(struct mcs_object *o, bool unlink)
{
	struct mcs *s = o->s;
	bool last;

	pthread_mutex_lock(&s->lock);
	if (unlink)
		mc_list_remove(&o->link);
	last = !--o->refs;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	mcs_leases_release(&s->leases, o->pin);
	mcs_seg_put(o->mapped);
	pthread_mutex_destroy(&o->lock);
	free(o->trailer);
	free(o);
}

void mcs_object_close(struct mcs_object *o)
{
	if (!o || mcs_check_fork(o->s) < 0)
		return;
	if (o->s->node) {
		mcs_daemon_object_close(o);
		return;
	}
	mc_metric_add(&open_objects, -1);
	unref(o, true);
}

/* ---- after a new connection ---- */

/* Owners may still come back to a master that restarted, after their readers. */
static bool owners_return(struct mcs *s)
{
	uint32_t beat = mcs_session_terms(s->session).client_ttl_ms / 5 * 2;

	return mcs_session_young(s->session, (uint64_t)RETURN_BEATS * beat);
}

/* One that was not looked for on this connection, or with @again not since @began_ns. */
static struct mcs_object *next_to_repin(struct mcs *s, uint64_t epoch, bool again, uint64_t began_ns)
{
	struct mc_list *pos;

	MC_LOCKED(&s->lock);
	mc_list_for_each(pos, &s->objects) {
		struct mcs_object *o = mc_container_of(pos, struct mcs_object, link);

		pthread_mutex_lock(&o->lock);
		if (o->pin.epoch == epoch && !(again && o->missed && o->looked_ns < began_ns)) {
			pthread_mutex_unlock(&o->lock);
			continue;
		}
		/* Looked at once per pass, whatever comes of it. */
		if (o->pin.id)
			mcs_leases_granted(-1);
		o->pin = (struct mcs_pin){ 0, epoch };
		o->missed = false;
		o->looked_ns = mc_now_ns();
		pthread_mutex_unlock(&o->lock);
		o->refs++;
		return o;
	}
	return NULL;
}

static bool lies_at(const struct mcs_version *v, const struct mcp_replica *place)
{
	for (unsigned i = 0; i < v->n; i++)
		if (mcp_id_eq(v->replica[i].segment, place->segment) &&
		    v->replica[i].offset == place->offset)
			return true;
	return false;
}

/* The memory that is mapped and read is still this version's, which may have got more. */
static bool same_places(const struct mcs_version *now, const struct mcs_version *opened)
{
	for (unsigned i = 0; i < opened->n; i++)
		if (!lies_at(now, &opened->replica[i]))
			return false;
	return true;
}

/* False: it was not found, or not all of it, which may be as its owners are not back. */
static bool repin(struct mcs *s, struct mcs_object *o, uint64_t deadline)
{
	struct mcs_version v;
	bool same;
	int r;

	r = ask(s, o->key, MCP_GET_HOLD, &v, deadline);
	MC_FAULT_POINT("client.object.looked");
	if (r < 0)
		return false;
	same = v.info.generation == o->v.info.generation;
	if (!same || !same_places(&v, &o->v)) {
		mcs_leases_release(&s->leases, v.pin);
		return !same;	/* another version has come in its place */
	}
	pthread_mutex_lock(&o->lock);
	o->pin = v.pin;
	pthread_mutex_unlock(&o->lock);
	mc_metric_add(&repins, 1);
	return true;
}

static void miss(struct mcs_object *o)
{
	MC_LOCKED(&o->lock);
	o->missed = true;
}

bool mcs_objects_repin(struct mcs *s)
{
	uint64_t epoch = mcs_epoch(s), began_ns = mc_now_ns();
	bool again = owners_return(s), missed = false;
	struct mcs_object *o;

	while (epoch == mcs_epoch(s) && (o = next_to_repin(s, epoch, again, began_ns))) {
		if (!repin(s, o, mc_deadline_ms(2000))) {
			miss(o);
			missed = true;
		}
		unref(o, false);
	}
	return missed && again;
}

/* ---- reading ---- */

static bool pinned(struct mcs_object *o)
{
	MC_LOCKED(&o->lock);
	return o->pin.id && o->pin.epoch == mcs_epoch(o->s);
}

/* Is this version still the one that its key has?  Asked after failures only. */
static bool current(struct mcs_object *o, uint64_t deadline)
{
	struct mcs_version v;

	return !ask(o->s, o->key, 0, &v, deadline) &&
		v.info.generation == o->v.info.generation;
}

static void keep_trailer(struct mcs_object *o, const uint32_t *trailer)
{
	uint64_t size = mcs_trailer_size(o->v.info.size);
	uint32_t *copy;

	if (size > TRAILER_KEPT)
		return;
	copy = malloc(size);
	if (!copy)
		return;
	memcpy(copy, trailer, size);
	pthread_mutex_lock(&o->lock);
	if (!o->trailer)
		o->trailer = TAKE_PTR(copy);
	pthread_mutex_unlock(&o->lock);
	free(copy);
}

static const uint32_t *kept_trailer(struct mcs_object *o)
{
	MC_LOCKED(&o->lock);
	return o->trailer;
}

/* Try the replicas in turn, each twice. */
static int read_part(struct mcs_object *o, struct mcs_scratch *sc, struct mcs_part *part,
		     uint64_t deadline)
{
	int r = -MC_EREPLICA_GONE;

	while (mcs_part_left(part, true)) {
		mcs_read(o->s, sc, &part, 1, deadline);
		if (!part->status) {
			if (part->fetched)
				keep_trailer(o, part->fetched);
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
	/* Bytes that are not held may have been reused: that is no damage. */
	if (r == -MC_ECHECKSUM ? pinned(o) : current(o, deadline))
		return r;
	return mc_fail(-MC_EREPLICA_GONE, "the version that was opened is gone");
}

static int64_t read_checked(struct mcs_object *o, uint64_t offset, const struct iovec *iov,
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
	part.trailer = kept_trailer(o);
	sc = mcs_scratch_get(&o->s->scratch);
	r = sc ? read_part(o, sc, &part, deadline) : -ENOMEM;
	mcs_scratch_put(&o->s->scratch, sc);
	if (r < 0)
		return r;
	mc_metric_add(&bytes, (int64_t)part.len);
	return (int64_t)part.len;
}

int64_t mcs_object_read(struct mcs_object *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			int64_t timeout_ms)
{
	int r = mcs_check_fork(o->s);

	if (r < 0)
		return r;
	if (o->s->node)
		return mcs_daemon_object_read(o, offset, iov, iovcnt);
	/* The pin of @v is the one of the open, so that reads after a reconnect are verified. */
	return read_checked(o, offset, iov, iovcnt, o->s->conf.verify,
			    mcs_deadline(o->s, timeout_ms));
}

/* ---- for async.c ---- */

struct mcs *mcs_object_store(struct mcs_object *o)
{
	return o->s;
}

const struct mcs_version *mcs_object_version(struct mcs_object *o, const uint32_t **ret_trailer)
{
	*ret_trailer = kept_trailer(o);
	return &o->v;
}

void mcs_object_keep_trailer(struct mcs_object *o, const uint32_t *trailer)
{
	keep_trailer(o, trailer);
}

void mcs_object_hold(struct mcs_object *o)
{
	MC_LOCKED(&o->s->lock);
	o->refs++;
}

void mcs_object_let_go(struct mcs_object *o)
{
	unref(o, false);
}

void mcs_object_count(uint64_t n)
{
	mc_metric_add(&bytes, (int64_t)n);
}

/* ---- mapping ---- */

static int map_replica(struct mcs_object *o, const struct mcp_replica *rep, uint64_t deadline,
		       struct mcs_seg **ret_seg, const void **ret_map)
{
	uint64_t size = o->v.info.size;
	struct mcs_seg *seg;
	const void *p;
	int r;

	if (rep->offset > UINT64_MAX - size)
		return mc_fail(-MC_EPROTO, "a replica lies outside of its segment");
	r = mcs_segmap_reach(o->s->segmap, rep->segment, rep->offset + size, deadline, &seg);
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

static const void *mapping(struct mcs_object *o)
{
	MC_LOCKED(&o->lock);
	return o->map;
}

/* Keep a mapping, unless another thread was first.  The one that is kept. */
static const void *keep_mapping(struct mcs_object *o, const void *map, struct mcs_seg *seg)
{
	pthread_mutex_lock(&o->lock);
	if (!o->map) {
		o->map = map;
		o->mapped = TAKE_PTR(seg);
	}
	map = o->map;
	pthread_mutex_unlock(&o->lock);
	mcs_seg_put(seg);
	return map;
}

int mcs_object_map(struct mcs_object *o, const void **ret_data, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(o->s, timeout_ms);
	struct mcs_seg *seg = NULL;
	const void *map;
	int r;

	r = mcs_check_fork(o->s);
	if (r < 0)
		return r;
	r = -MC_ENOTSUP;
	map = o->s->node ? mcs_daemon_object_data(o) : mapping(o);
	if (!map && !o->v.info.size)
		map = "";
	for (unsigned i = 0; !map && i < o->v.n; i++) {
		r = map_replica(o, &o->v.replica[i], deadline, &seg, &map);
		if (!r)
			map = keep_mapping(o, map, seg);
	}
	if (!map)
		return r == -MC_ETIMEDOUT ? r :
			mc_fail(-MC_ENOTSUP, "object is not in memory that can be mapped: %s",
				mc_strerror(r));
	*ret_data = map;
	return 0;
}

int mcs_object_held(struct mcs_object *o)
{
	struct mcs *s = o->s;
	int r;

	r = mcs_check_fork(s);
	if (r < 0)
		return r;
	if (s->node)
		return mcs_daemon_object_held(o);
	/* First whether there is a connection, then whether the pin is of it: one that is made between
	 * the two is another. */
	if (mcs_connected(s) && pinned(o))
		return 0;
	return mc_fail(-MC_EREPLICA_GONE, "the version is not held any more");
}

static int verify_by_reading(struct mcs_object *o)
{
	auto_free unsigned char *buf = malloc(VERIFY_STEP);
	struct iovec iov = { buf, VERIFY_STEP };

	if (!buf)
		return -ENOMEM;
	for (uint64_t at = 0; at < o->v.info.size; at += VERIFY_STEP) {
		int64_t n = read_checked(o, at, &iov, 1, true, mcs_deadline(o->s, -1));

		if (n < 0)
			return (int)n;
	}
	return 0;
}

int mcs_object_offset(struct mcs_object *o, uint64_t *ret_offset)
{
	if (!o->s->node)
		for (unsigned i = 0; i < o->v.n; i++) {
			const struct mcp_replica *rep = &o->v.replica[i];

			if (!mcs_owner_at(o->s->owner, rep->segment, rep->offset, o->v.info.size))
				continue;
			*ret_offset = rep->offset;
			return 0;
		}
	return mc_fail(-MC_ENOTSUP, "the object does not lie in this process's segment");
}

int mcs_object_verify(struct mcs_object *o)
{
	const void *map;
	int r;

	r = mcs_check_fork(o->s);
	if (r < 0)
		return r;
	if (o->s->node)
		return mcs_daemon_object_verify(o);
	map = mapping(o);
	if (!map)
		return verify_by_reading(o);
	if (mc_crc32c(map, o->v.info.size) == o->v.info.crc32c)
		return 0;
	return mc_fail(-MC_ECHECKSUM, "checksum mismatch in mapped object");
}
