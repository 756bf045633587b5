/* SPDX-License-Identifier: Apache-2.0
 * objects.c - the table of the tier "s3". */
#include <config.h>

#include "tiers/objects/objects.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "tiers/objects/objects_i.h"

#define MAGIC "mc-blob1"
/* Limit of one call to the server, with its attempts.  Less than the time after which puts do not wait for the owner's
 * copies any more (STALL_MS, master/space/offload_keep.c). */
#define CALL_MS 10000
#define PREFIX_MAX 256u
#define SWAPS 3			/* attempts to change the identity while others do */
#define HOLD_MS 10000		/* between two looks for another owner, before copies are written */
#define ABSENT_MS 1000		/* between two looks of reads for an identity that is absent */
#define NAME_ROOM 128u		/* bytes of a range's name without the prefix */
_Static_assert(PREFIX_MAX + NAME_ROOM < MCT_KEYED_NAME_MAX, "a name has room for a prefix");

/* ---- the identity object ------------------------------------------------------------------------
 *
 * Each change is a swap: it fails if another process has written the object meanwhile.  Of two processes that begin
 * with one prefix at the same time one is refused.  Where the store does not compare, the later one has the prefix, and
 * the other one finds out by the next check: before it writes copies, and before it deletes anything. */

struct identity {
	char magic[8];
	uint64_t word[MCT_IDENTITY];	/* little-endian */
	uint64_t check;			/* hash of the fields before */
};

static void identity_name(const struct mct_objects *o, char ret[MCT_KEYED_NAME_MAX])
{
	snprintf(ret, MCT_KEYED_NAME_MAX, "%sidentity", o->prefix);
}

static void identity_pack(const uint64_t words[MCT_IDENTITY], struct identity *ret)
{
	*ret = (struct identity){ .magic = MAGIC };
	for (unsigned i = 0; i < MCT_IDENTITY; i++)
		ret->word[i] = htole64(words[i]);
	ret->check = htole64(mc_hash(ret, offsetof(struct identity, check), 0));
}

/* -ENOENT: there is none.  -EINVAL: it is not one. */
static int identity_read(struct mct_objects *o, uint64_t ret[MCT_IDENTITY])
{
	char name[MCT_KEYED_NAME_MAX];
	auto_free void *data = NULL;
	uint64_t words[MCT_IDENTITY] = { 0 };
	struct identity same;
	size_t len = 0;
	int r;

	identity_name(o, name);
	r = mct_keyed_get(o->keyed, name, &data, &len);
	if (r < 0)
		return r;
	for (unsigned i = 0; len == sizeof(same) && i < MCT_IDENTITY; i++)
		words[i] = le64toh(((const struct identity *)data)->word[i]);
	identity_pack(words, &same);
	if (len != sizeof(same) || memcmp(data, &same, len) != 0)
		return mc_fail(-EINVAL, "%s: the object %s is not the identity of a segment; use another prefix",
			       o->path, name);
	memcpy(ret, words, sizeof(words));
	return 0;
}

/* The same segment in the same pool, with the same secret?  Its epoch and its state may differ: an earlier process of
 * the segment may have written it late. */
static bool identity_is_like(const uint64_t a[MCT_IDENTITY], const uint64_t b[MCT_IDENTITY])
{
	return !memcmp(a, b, 2 * sizeof(*a)) && !memcmp(a + 3, b + 3, 4 * sizeof(*a));
}

/* The identity lock is held, and the store has @found.  -ESTALE: it is not this process's. */
static int identity_compare(struct mct_objects *o, const uint64_t found[MCT_IDENTITY])
{
	if (identity_is_like(found, o->stored) || identity_is_like(found, o->tried)) {
		memcpy(o->stored, found, sizeof(o->stored));
		return 0;
	}
	atomic_store(&o->taken, true);
	return mc_fail(-ESTALE, "another process has taken over %s; give one of the two nodes another prefix", o->path);
}

/* The identity lock is held. */
static int identity_swap(struct mct_objects *o, const uint64_t words[MCT_IDENTITY])
{
	const uint64_t none[MCT_IDENTITY] = { 0 };
	char name[MCT_KEYED_NAME_MAX];
	uint64_t found[MCT_IDENTITY];
	struct identity was, id;
	int r = -EEXIST;

	identity_name(o, name);
	identity_pack(words, &id);
	/* If its answer gets lost, it may be stored or not. */
	memcpy(o->tried, words, sizeof(o->tried));
	for (unsigned i = 0; i < SWAPS && r == -EEXIST; i++) {
		identity_pack(o->stored, &was);
		r = mct_keyed_swap(o->keyed, name, memcmp(o->stored, none, sizeof(none)) ? &was : NULL, sizeof(was),
				   &id, sizeof(id));
		if (r != -EEXIST)
			break;
		r = identity_read(o, found);
		if (r == -ENOENT)
			memset(o->stored, 0, sizeof(o->stored));
		else if (r == 0)
			r = identity_compare(o, found);
		r = r == 0 || r == -ENOENT ? -EEXIST : r;
	}
	if (r == 0)
		memcpy(o->stored, words, sizeof(o->stored));
	return r;
}

int mct_objects_identity_find(struct mct_objects *o)
{
	uint64_t found[MCT_IDENTITY], begin = mc_now_ns();
	int r = identity_read(o, found);

	if (r == 0)
		r = identity_compare(o, found);
	if (r < 0)
		return r;
	o->ours_ns = begin;
	atomic_store(&o->strange, false);
	return 0;
}

int mct_objects_identity_look(struct mct_objects *o, uint64_t since)
{
	int r;

	MC_LOCKED(&o->identity_lock);
	if (o->ours_ns > since)
		return 0;
	r = mc_now_ns() < o->absent_ns ? -ENOENT : mct_objects_identity_find(o);
	if (r == -ENOENT && mc_now_ns() >= o->absent_ns)
		o->absent_ns = mc_deadline_ms(ABSENT_MS);
	return r;
}

/* The identity lock is held: the store may be another one, for instance a directory where nothing is mounted now.
 * Writes there, and a new identity, would make it look like the right one. */
static int identity_is_absent(struct mct_objects *o)
{
	if (!atomic_exchange(&o->strange, true))
		mc_warn("s3", "%s has neither the object \"identity\" nor our objects: nothing is read or written "
			"there until it is back; if the bucket was emptied, start this node again", o->path);
	return mc_fail(-MC_EUNAVAILABLE, "%s has no object \"identity\"", o->path);
}

int mct_objects_identity_check(struct mct_objects *o, size_t listed)
{
	uint64_t words[MCT_IDENTITY];
	size_t ranges;
	int r;

	MC_LOCKED(&o->identity_lock);
	r = mct_objects_identity_find(o);
	if (r != -ENOENT)
		return r;
	mc_mutex_lock(&o->lock);
	ranges = o->index.n;
	mc_mutex_unlock(&o->lock);
	if (listed < (ranges + 1) / 2)
		return identity_is_absent(o);
	memcpy(words, o->stored, sizeof(words));
	memset(o->stored, 0, sizeof(o->stored));
	r = o->form->restore(o);
	if (r == 0)
		r = identity_swap(o, words);
	if (r < 0) {
		memcpy(o->stored, words, sizeof(o->stored));
		return r;
	}
	atomic_store(&o->strange, false);
	mc_warn("s3", "%s: the object \"identity\" was deleted, and is written again", o->path);
	return 0;
}

static int objects_identity(struct mct_medium *m, uint64_t ret[MCT_IDENTITY])
{
	struct mct_objects *o = mct_objects_of(m);

	MC_LOCKED(&o->lock);
	memcpy(ret, o->words, sizeof(o->words));
	return 0;
}

static void objects_index_drop_locked(struct mct_objects *o)
{
	for (size_t i = 0; i < o->index.n; i++)
		mct_objects_delete_locked(o, o->folder, &o->index.at[i]);
	o->index.n = 0;
}

static int objects_set_identity(struct mct_medium *m, const uint64_t words[MCT_IDENTITY])
{
	struct mct_objects *o = mct_objects_of(m);
	uint64_t folder = mct_objects_folder(words);
	int r;

	MC_LOCKED(&o->identity_lock);
	r = folder != o->folder ? o->form->renew(o, folder) : 0;
	if (r < 0)
		return r;
	r = identity_swap(o, words);
	if (folder != o->folder)
		o->form->renewed(o, folder, r == 0);
	if (r < 0)
		return r;
	MC_LOCKED(&o->lock);
	if (folder != o->folder)
		objects_index_drop_locked(o);
	o->folder = folder;
	memcpy(o->words, words, sizeof(o->words));
	return 0;
}

static int objects_unlock(struct mct_medium *m, mct_keys_fn keys, void *arg)
{
	struct mct_objects *o = mct_objects_of(m);

	return o->form->unlock(o, keys, arg);
}

/* A store that does not answer fails the writes as well, and pauses nothing else. */
static int objects_hold(struct mct_medium *m)
{
	struct mct_objects *o = mct_objects_of(m);
	uint64_t next = __atomic_load_n(&o->hold_ns, __ATOMIC_RELAXED), now = mc_now_ns();

	if (now >= next && __atomic_compare_exchange_n(&o->hold_ns, &next, now + HOLD_MS * MC_NS_PER_MS, false,
						       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		(void)mct_objects_identity_check(o, 0);
	if (atomic_load(&o->taken))
		return mc_fail(-ESTALE, "another process has taken over %s", o->path);
	return atomic_load(&o->strange) ?
		mc_fail(-MC_EUNAVAILABLE, "%s has no object \"identity\"", o->path) : 0;
}

/* ---- open and close ----------------------------------------------------------------------------- */

/* s3://BUCKET[/PREFIX] or /DIRECTORY: sets prefix and keyed. */
static int objects_open_store(struct mct_objects *o)
{
	bool s3 = !strncmp(o->path, "s3://", 5);
	const char *rest = s3 ? strchr(o->path + 5, '/') : NULL, *prefix = rest ? rest + 1 : "";
	size_t len = strlen(prefix);
	auto_free char *bucket = NULL;

	if ((!s3 && *o->path != '/') || (s3 && !strcspn(o->path + 5, "/")))
		return mc_fail(-EINVAL, "'%s' is neither s3://BUCKET/PREFIX nor the absolute path of a directory",
			       o->path);
	while (len && prefix[len - 1] == '/')
		len--;
	if (len > PREFIX_MAX)
		return mc_fail(-EINVAL, "the prefix in %s has more than %u bytes", o->path, PREFIX_MAX);
	if (asprintf(&o->prefix, "%.*s%s", (int)len, prefix, len ? "/" : "") < 0) {
		o->prefix = NULL;
		return -ENOMEM;
	}
	if (!s3)
		return mct_keyed_open("local", o->path, &o->keyed);
	bucket = strndup(o->path + 5, strcspn(o->path + 5, "/"));
	return bucket ? mct_keyed_open("s3", bucket, &o->keyed) : -ENOMEM;
}

static void objects_close(struct mct_medium *m)
{
	struct mct_objects *o = mct_objects_of(m);

	mct_objects_queue_stop(o);
	mct_objects_seal_close(o);
	mct_keyed_close(o->keyed);
	mc_cond_destroy(&o->work);
	mc_mutex_destroy(&o->lock);
	mc_mutex_destroy(&o->identity_lock);
	free(o->index.at);
	free(o->prefix);
	free(o->path);
	free(o);
}

static int objects_start(struct mct_objects *o)
{
	int r = o->path ? objects_open_store(o) : -ENOMEM;

	if (r < 0)
		return r;
	o->keyed->limit_ms = CALL_MS;
	o->keyed->cancel = &o->stopping;
	r = identity_read(o, o->words);
	if (r == -ENOENT) {
		memset(o->words, 0, sizeof(o->words));
		r = 0;
	}
	memcpy(o->stored, o->words, sizeof(o->words));
	memcpy(o->tried, o->words, sizeof(o->words));
	o->folder = mct_objects_folder(o->words);
	if (r == 0)
		r = mct_objects_seal_found(o);
	if (r == 0)
		r = mct_objects_load(o);
	return r == 0 ? mct_objects_queue_start(o) : r;
}

static int objects_open(const struct mct_conf *conf, struct mct_medium **ret)
{
	struct mct_objects *o;
	int r;

	if (!conf->path || conf->reserve > conf->size || conf->adopt_fd || conf->path_offset)
		return mc_fail(-EINVAL, "an S3 segment needs a path, and has no reserve, adopted file or offset");
	if (conf->size < MCT_PIECE_MAX)
		return mc_fail(-EINVAL, "an S3 segment needs a size of 1 MiB or more");
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->medium.ops = &mct_objects_tier;
	o->size = conf->size / MCT_BLOCK * MCT_BLOCK;
	o->path = strdup(conf->path);
	mc_mutex_init(&o->identity_lock);
	mc_mutex_init(&o->lock);
	(void)mc_cond_init(&o->work);
	mc_list_init(&o->reads);
	mc_list_init(&o->writes);
	mc_list_init(&o->running);
	mc_list_init(&o->deletes);
	r = mct_objects_seal_open(o, conf->seal);
	if (r == 0)
		r = objects_start(o);
	if (r < 0) {
		objects_close(&o->medium);
		return r;
	}
	mc_info("s3", "%s: size=%llu MiB ranges=%zu", o->path, (unsigned long long)(o->size >> 20), o->index.n);
	*ret = &o->medium;
	return 0;
}

/* ---- the other slots ---------------------------------------------------------------------------- */

static int objects_memory(const struct mct_medium *m, struct mct_memory *ret)
{
	(void)m;
	(void)ret;
	return mc_fail(-MC_ENOTSUP, "the bytes in S3 are not addressable");
}

static void objects_status(const struct mct_medium *m, struct mct_status *ret)
{
	uint64_t size = __atomic_load_n(&mct_objects_of(m)->size, __ATOMIC_RELAXED);

	*ret = (struct mct_status){ .size = size, .limit = UINT64_MAX, .ready = size, .kind = "s3" };
}

static int objects_grow(struct mct_medium *m, uint64_t size)
{
	struct mct_objects *o = mct_objects_of(m);

	if (size < o->size || size > UINT64_MAX - MCT_BLOCK)
		return mc_fail(-EINVAL, "an S3 segment of %llu bytes cannot get %llu", (unsigned long long)o->size,
			       (unsigned long long)size);
	__atomic_store_n(&o->size, (size + MCT_BLOCK - 1) / MCT_BLOCK * MCT_BLOCK, __ATOMIC_RELAXED);
	return 0;
}

/* The record of a range is in its last block. */
static uint64_t objects_data_next(const struct mct_medium *m, uint64_t off, uint64_t *ret_end)
{
	struct mct_objects *o = mct_objects_of(m);
	const struct mct_objects_range *r;

	*ret_end = o->size;
	MC_LOCKED(&o->lock);
	r = &o->index.at[mct_objects_index_find(&o->index, off)];
	if (r == o->index.at + o->index.n)
		return o->size;
	*ret_end = r->off + r->len;
	return *ret_end - MCT_BLOCK > off ? *ret_end - MCT_BLOCK : off;
}

static void objects_sweep_stop(struct mct_medium *m)
{
	atomic_store(&mct_objects_of(m)->sweep_stops, true);
}

/* It keeps no notes, because sweep deletes the ranges of removed objects. */
const struct mct_tier_ops mct_objects_tier = {
	.name = "s3",
	.named = true,
	.open = objects_open,
	.memory = objects_memory,
	.status = objects_status,
	.grow = objects_grow,
	.identity = objects_identity,
	.set_identity = objects_set_identity,
	.hold = objects_hold,
	.leave = mct_no_leave,
	.unlock = objects_unlock,
	.read_start = mct_objects_read_start,
	.read_end = mct_objects_read_end,
	.buffer_get = mct_no_buffer_get,
	.buffer_put = mct_no_buffer_put,
	.write_start = mct_objects_write_start,
	.data_next = objects_data_next,
	.note = mct_no_note,
	.sweep = mct_objects_sweep,
	.sweep_stop = objects_sweep_stop,
	.close = objects_close,
};
