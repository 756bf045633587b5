/* SPDX-License-Identifier: Apache-2.0
 * disks.c - this process's segments on disks. */
#include <config.h>

#include "client/session/disks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session/disk_notes.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "tiers/ssd/record.h"

#define NAME_MAX_BYTES 300

struct disk {
	/* constant after open */
	struct mct_medium *medium;
	struct mce_mr *mr;
	uint64_t size;
	struct mcp_id segment;
	/* guarded by notes_lock */
	struct mcs_disk_notes *notes;
	/* guarded by the lock */
	uint64_t epoch;
	struct mcp_id pool;
	uint64_t server;	/* process of the master that this process mounted it at, as mcs_terms; 0: none */
	uint64_t secret[2];	/* of the objects' records (tiers/ssd/record.h) */
	uint64_t cluster;	/* hash of the cluster_id of the pool's master; 0: not known */
	bool pending;		/* it has objects of an earlier pool that were not offered yet */
	bool offers;		/* the master waits for them */
	bool confirms;		/* the master wants its objects to be compared (confirm.h) */
};

struct mcs_disks {
	/* constant after open */
	struct mcs_disks_conf conf;
	struct disk *disk;
	unsigned n;
	uint8_t policy;
	struct mc_mutex lock;
	struct mc_mutex notes_lock;
	/* atomic */
	uint64_t writing[MCS_DISK_WRITERS];	/* numbers with which writes run, 0: none */
	uint64_t fenced;	/* the largest number that was fenced */
	bool removed;		/* they are not offered any more */
};

static uint64_t disk_random(void)
{
	uint64_t v;

	do
		v = mc_random_u64();
	while (!v);
	return v;
}

static int disk_keep_identity(const struct disk *d)
{
	const uint64_t words[MCT_IDENTITY] = {
		d->segment.hi, d->segment.lo, d->epoch, d->pool.hi, d->pool.lo,
		d->secret[0], d->secret[1], d->cluster, d->pending,
	};

	return d->medium->ops->set_identity(d->medium, words);
}

/* The disk's objects do not count any more. */
static void disk_void_records(struct disk *d)
{
	d->secret[0] = disk_random();
	d->secret[1] = disk_random();
	d->pending = false;
}

static int disk_identify(struct disk *d)
{
	uint64_t words[MCT_IDENTITY];
	int r = d->medium->ops->identity(d->medium, words);

	if (r < 0)
		return r;
	d->segment = (struct mcp_id){ words[0], words[1] };
	d->epoch = words[2];
	d->pool = (struct mcp_id){ words[3], words[4] };
	d->cluster = words[7];
	d->pending = words[8];
	memcpy(d->secret, &words[5], sizeof(d->secret));
	if (!mcp_id_zero(d->segment) && d->secret[0])
		return 0;
	disk_void_records(d);
	if (mcp_id_zero(d->segment)) {
		d->segment = (struct mcp_id){ disk_random(), disk_random() };
		d->epoch = disk_random();
	}
	return disk_keep_identity(d);
}

static int disk_open(const struct mcs_disks_conf *conf, const char *path, struct disk *d)
{
	const struct mct_conf medium = {
		.size = conf->size, .path = path, .buffers = conf->buffers, .kind = conf->threads ? "threads" : NULL,
		.format = conf->format,
	};
	struct mce_mr_attr attr = { .access = MCE_ACCESS_READ, .fd = -1 };
	struct mct_status status;
	int r;

	r = mct_medium_open("ssd", &medium, &d->medium);
	if (r == 0)
		r = disk_identify(d);
	if (r == 0)
		r = mcs_disk_notes_open(d->medium, d->secret, &d->notes);
	if (r < 0)
		return r;
	d->medium->ops->status(d->medium, &status);
	d->size = status.size;
	attr.medium = d->medium;
	attr.len = status.size;
	return mce_mr_register(conf->engine, &attr, &d->mr);
}

static int disks_open_paths(struct mcs_disks *d, char *paths)
{
	char *save = NULL;
	int r = 0;

	for (char *p = strtok_r(paths, ":", &save); p && r == 0; p = strtok_r(NULL, ":", &save)) {
		struct disk *more = realloc(d->disk, (d->n + 1) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		d->disk = more;
		d->disk[d->n] = (struct disk){ .medium = NULL };
		r = disk_open(&d->conf, p, &d->disk[d->n++]);
	}
	return r == 0 && !d->n ? mc_fail(-EINVAL, "no directory for the SSD tier is given") : r;
}

int mcs_disks_open(const struct mcs_disks_conf *conf, struct mcs_disks **ret)
{
	struct mcs_disks *d = calloc(1, sizeof(*d));
	auto_free char *paths = strdup(conf->paths);
	int r;

	if (!d || !paths) {
		free(d);
		return -ENOMEM;
	}
	d->conf = *conf;
	d->conf.paths = d->conf.policy = NULL;
	if (conf->policy)
		d->policy = !strcmp(conf->policy, "lru") ? MCP_EVICT_LRU : MCP_EVICT_FIFO;
	mc_mutex_init(&d->lock);
	mc_mutex_init(&d->notes_lock);
	r = disks_open_paths(d, paths);
	if (r < 0) {
		mcs_disks_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void mcs_disks_close(struct mcs_disks *d)
{
	if (!d)
		return;
	for (unsigned i = 0; i < d->n; i++) {
		mce_mr_unregister(d->disk[i].mr);
		mcs_disk_notes_close(d->disk[i].notes);
		mct_medium_close(d->disk[i].medium);
	}
	free(d->disk);
	mc_mutex_destroy(&d->notes_lock);
	mc_mutex_destroy(&d->lock);
	free(d);
}

/* ---- the master --------------------------------------------------------------------------------- */

/* The epoch of the segment in @pool.  A disk that cannot keep a new one keeps its objects from this pool only.  Objects
 * of which the last pool's cluster is not known were written by an older version, without records. */
static int disk_enter(struct disk *d, struct mcp_id pool)
{
	struct disk next = *d;
	int r;

	if (mcp_id_zero(pool) || mcp_id_eq(pool, d->pool))
		return 0;
	if (!mcp_id_zero(d->pool)) {
		next.epoch = disk_random();
		next.pending = d->pending || d->cluster;
		if (!next.pending) {
			mc_warn("client", "the disk has objects of another pool, which are dropped");
			disk_void_records(&next);
		}
	}
	next.pool = pool;
	r = disk_keep_identity(&next);
	if (r == 0)
		*d = next;
	return r;
}

/* The lock is held: the master process @server has answered.  If it does not know the segment, although it is of the
 * disk's pool, or if it is of another cluster, then the disk's objects are over.  A master whose state is from a
 * snapshot wants them offered instead.  It may also wait for an offer whose end this process did not know of when it
 * asked. */
static void disk_mounted(struct disk *d, const struct mcp_mount_reply *reply, uint64_t server)
{
	bool again = reply->reattached && d->server && d->server == server;
	struct disk next = *d;
	int r = 0;

	next.cluster = reply->cluster;
	next.offers = reply->adopts;
	next.pending = d->pending || reply->adopts;
	if (!reply->adopts && d->pending)
		mc_warn("client", "the disk has objects of another pool, which are dropped: %s",
			reply->cluster ? "the master has another cluster_id" : "the master is of an older version");
	if (!reply->adopts && d->cluster && (d->pending || !(reply->objects || again)))
		disk_void_records(&next);
	if (next.cluster != d->cluster || next.pending != d->pending || next.secret[0] != d->secret[0])
		r = disk_keep_identity(&next);
	if (r < 0)
		mc_warn("client", "%s", mc_err_detail(r));
	*d = next;
}

static int disk_mount(struct mcs_disks *ds, struct disk *d, struct mcp_client *c, struct mcs_session *s,
		      struct mcp_id pool, const struct mcs_terms *terms, bool fenced, uint64_t deadline)
{
	const char *endpoint = mce_engine_endpoint(ds->conf.engine);
	struct mcp_mount_reply reply;
	struct mcp_reply mem = { 0 };
	char name[NAME_MAX_BYTES];
	struct mcp_mount msg;
	int r;

	mc_mutex_lock(&ds->lock);
	r = disk_enter(d, pool);
	snprintf(name, sizeof(name), "%s/ssd-%08x", endpoint, (unsigned)(d->segment.lo & UINT32_MAX));
	msg = (struct mcp_mount){
		.segment = d->segment, .client = ds->conf.client, .epoch = d->epoch,
		.base = mce_mr_base(d->mr), .rkey = mce_mr_rkey(d->mr), .size = d->size,
		.name = mcp_bytes(name, strlen(name)), .endpoint = mcp_bytes(endpoint, strlen(endpoint)),
		.protocol = mcp_bytes("tcp", 3), .unfenced = !fenced, .medium = MCP_MEDIUM_DISK,
		.high = (uint8_t)ds->conf.high, .low = (uint8_t)ds->conf.low, .policy = ds->policy,
		.seen = d->server, .offers = d->pending, .cluster = d->cluster, .confirms = 1,
	};
	mc_mutex_unlock(&ds->lock);
	if (r == 0)
		r = c ? mcp_call(c, MCP_MOUNT, &msg, &reply, &mem, deadline) :
			mcs_call(s, MCP_MOUNT, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	mc_mutex_lock(&ds->lock);
	disk_mounted(d, &reply, terms->server);
	/* 0 if another one may have answered. */
	d->server = !s || mcs_session_terms(s).server == terms->server ? terms->server : 0;
	d->confirms = reply.confirm;
	mc_mutex_unlock(&ds->lock);
	if (reply.reattached)
		mc_info("client", "the master knows the objects of our disk segment=%s objects=%llu", name,
			(unsigned long long)reply.objects);
	mcp_reply_done(&mem);
	return 0;
}

int mcs_disks_mount(struct mcs_disks *d, struct mcp_client *c, struct mcs_session *s, struct mcp_id pool,
		    const struct mcs_terms *terms, uint64_t deadline)
{
	bool fenced;
	int r = 0;

	if (!d || __atomic_load_n(&d->removed, __ATOMIC_SEQ_CST))
		return 0;
	fenced = mcs_disks_fence(d, terms->earlier);
	for (unsigned i = 0; i < d->n; i++) {
		int one = disk_mount(d, &d->disk[i], c, s, pool, terms, fenced, deadline);

		r = r < 0 ? r : one;
	}
	return r;
}

static int disks_unmount(struct mcs_disks *d, struct mcs_session *s, bool keep, uint64_t deadline)
{
	int r = 0;

	for (unsigned i = 0; d && i < d->n; i++) {
		const struct mcp_unmount msg = { .segment = d->disk[i].segment, .keep = keep };
		struct mcp_unmount_reply reply;
		struct mcp_reply mem = { 0 };
		int one = mcs_call(s, MCP_UNMOUNT, &msg, &reply, &mem, deadline);

		if (one >= 0)
			mcp_reply_done(&mem);
		r = r < 0 || one >= 0 ? r : one;
	}
	return r;
}

void mcs_disks_leave(struct mcs_disks *d, struct mcs_session *s, uint64_t deadline)
{
	if (d && !__atomic_load_n(&d->removed, __ATOMIC_SEQ_CST))
		(void)disks_unmount(d, s, true, deadline);
}

int mcs_disks_unmount(struct mcs_disks *d, struct mcs_session *s, uint64_t deadline)
{
	int r;

	if (!d || __atomic_exchange_n(&d->removed, true, __ATOMIC_SEQ_CST))
		return 0;
	r = disks_unmount(d, s, false, deadline);
	/* Also if the master does not answer: no other pool gets their objects. */
	mc_mutex_lock(&d->lock);
	for (unsigned i = 0; i < d->n; i++) {
		disk_void_records(&d->disk[i]);
		d->disk[i].offers = false;
		if (disk_keep_identity(&d->disk[i]) < 0)
			mc_warn("client", "objects of a removed disk may come back if the master's journal is lost");
	}
	mc_mutex_unlock(&d->lock);
	return r;
}

bool mcs_disks_confirm(struct mcs_disks *d)
{
	bool any = false;

	if (!d)
		return false;
	MC_LOCKED(&d->lock);
	for (unsigned i = 0; i < d->n; i++)
		any |= d->disk[i].confirms;
	return any;
}

bool mcs_disks_confirm_take(struct mcs_disks *d, unsigned i, struct mcp_id *ret)
{
	if (!d || i >= d->n)
		return false;
	MC_LOCKED(&d->lock);
	*ret = d->disk[i].confirms ? d->disk[i].segment : (struct mcp_id){ 0, 0 };
	d->disk[i].confirms = false;
	return true;
}

void mcs_disks_confirm_again(struct mcs_disks *d, unsigned i)
{
	MC_LOCKED(&d->lock);
	d->disk[i].confirms = true;
}

struct mct_medium *mcs_disks_at(const struct mcs_disks *d, struct mcp_id segment, uint64_t offset, uint64_t len)
{
	for (unsigned i = 0; d && i < d->n; i++)
		if (mcp_id_eq(d->disk[i].segment, segment))
			return offset <= d->disk[i].size && len <= d->disk[i].size - offset ? d->disk[i].medium : NULL;
	return NULL;
}

/* ---- records ----------------------------------------------------------------------------------- */

static struct disk *disk_of(struct mcs_disks *d, struct mcp_id segment)
{
	unsigned i = 0;

	while (i < d->n && !mcp_id_eq(d->disk[i].segment, segment))
		i++;
	return i < d->n ? &d->disk[i] : NULL;
}

void mcs_disks_seal(struct mcs_disks *d, struct mcp_id segment, void *block, const struct mct_record *r)
{
	const struct disk *at = disk_of(d, segment);
	uint64_t secret[2];

	mc_mutex_lock(&d->lock);
	memcpy(secret, at->secret, sizeof(secret));
	mc_mutex_unlock(&d->lock);
	mct_record_seal(block, r, secret);
}

static int disk_gone(struct mcs_disks *d, struct disk *at, const struct mct_note *note, size_t n)
{
	uint64_t secret[2];

	mc_mutex_lock(&d->lock);
	memcpy(secret, at->secret, sizeof(secret));
	mc_mutex_unlock(&d->lock);
	return mcs_disk_notes_add(at->notes, note, n, secret);
}

void mcs_disks_gone(struct mcs_disks *d, const struct mcp_seq *gone)
{
	auto_free struct mct_note *note = gone->count ? malloc(gone->count * sizeof(*note)) : NULL;
	struct mcp_gone g;
	struct mcp_iter it;
	int r = 0;

	if (!note)
		return;
	MC_LOCKED(&d->notes_lock);
	for (unsigned i = 0; i < d->n && r == 0; i++) {
		size_t n = 0;

		mcp_iter_init(&it, gone, &mcp_desc_gone);
		while (mcp_iter_next(&it, &g))
			if (mcp_id_eq(g.segment, d->disk[i].segment))
				note[n++] = (struct mct_note){ g.offset, g.generation };
		r = disk_gone(d, &d->disk[i], note, n);
	}
	if (r < 0)
		mc_warn("client", "removed objects may come back if the master's journal is lost error=\"%s\"",
			mc_err_detail(r));
}

bool mcs_disks_offer_next(struct mcs_disks *d, struct mcs_disk_offered *ret)
{
	MC_LOCKED(&d->lock);
	for (unsigned i = 0; i < d->n; i++) {
		const struct disk *at = &d->disk[i];

		if (!at->offers)
			continue;
		*ret = (struct mcs_disk_offered){
			at->medium, at->size, at->segment, at->epoch, { at->secret[0], at->secret[1] }
		};
		return true;
	}
	return false;
}

void mcs_disks_offer_done(struct mcs_disks *d, const struct mcs_disk_offered *o)
{
	struct disk *at = disk_of(d, o->segment);
	int r;

	MC_LOCKED(&d->lock);
	/* It was mounted in yet another pool meanwhile. */
	if (at->epoch != o->epoch)
		return;
	at->offers = at->pending = false;
	/* Else they are offered again to the next pool, or by the next process. */
	r = disk_keep_identity(at);
	if (r < 0)
		mc_warn("client", "%s", mc_err_detail(r));
}

/* ---- fencing ------------------------------------------------------------------------------------
 *
 * The writer announces its number and then looks whether it was fenced; the fence does both in the other order, so
 * one of the two sees the other. */

bool mcs_disks_write_begin(struct mcs_disks *d, unsigned writer, uint64_t fence)
{
	__atomic_store_n(&d->writing[writer], fence, __ATOMIC_SEQ_CST);
	if (fence > __atomic_load_n(&d->fenced, __ATOMIC_SEQ_CST))
		return true;
	mcs_disks_write_end(d, writer);
	return false;
}

void mcs_disks_write_end(struct mcs_disks *d, unsigned writer)
{
	__atomic_store_n(&d->writing[writer], 0, __ATOMIC_SEQ_CST);
}

bool mcs_disks_fence(struct mcs_disks *d, uint64_t upto)
{
	uint64_t was, writing;
	bool running = false;

	if (!d)
		return true;
	was = __atomic_load_n(&d->fenced, __ATOMIC_SEQ_CST);
	while (was < upto && !__atomic_compare_exchange_n(&d->fenced, &was, upto, false, __ATOMIC_SEQ_CST,
							  __ATOMIC_SEQ_CST))
		;
	for (unsigned i = 0; i < MCS_DISK_WRITERS; i++) {
		writing = __atomic_load_n(&d->writing[i], __ATOMIC_SEQ_CST);
		running |= writing && writing <= upto;
	}
	return !running;
}
