/* SPDX-License-Identifier: Apache-2.0
 * shared.c - files of other processes' segments that this process can open. */
#include <config.h>

#include "client/session/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/list.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "tiers/tier.h"

#define SLOTS 256u		/* files at one time */
#define RETRY_MS 10000
#define BUFFERS (8ull << 20)	/* memory of one file's buffers */
#define SCHEME "file:"

MC_COUNTER(opened, "mooncake_client_shared_files_total", "result=\"opened\"",
	   "files of other nodes' segments in shared directories")
MC_COUNTER(refused, "mooncake_client_shared_files_total", "result=\"refused\"",
	   "files of other nodes' segments in shared directories")
MC_COUNTER(failures, "mooncake_client_shared_files_total", "result=\"failed\"",
	   "files of other nodes' segments in shared directories")

struct shared_file {
	struct mcs_shared_file pub;
	struct mct_medium *medium;
	struct mce_mr *mr;
	/* guarded by the lock */
	unsigned refs;
	struct mc_list node;	/* mcs_shared.dead */
};

struct shared_slot {
	struct mcp_id segment;
	uint64_t epoch;
	struct shared_file *file;
	uint64_t retry_ns;	/* no attempt to open it before */
	bool opening, used;
};

struct mcs_shared {
	struct mce_engine *engine;
	struct mcs_session *session;
	struct mc_mutex lock;
	struct mc_cond opened;
	/* guarded by the lock */
	struct shared_slot slot[SLOTS];
	unsigned clock;		/* the slot that is used next when all are */
	struct mc_list dead;	/* closed by the next thread that may block, once they have no references */
};

bool mcs_shared_place(const char *path, uint64_t epoch, char ret[MCS_SHARED_PLACE_MAX])
{
	int n = snprintf(ret, MCS_SHARED_PLACE_MAX, SCHEME "%s#%016" PRIx64, path, epoch);

	return n > 0 && (unsigned)n < MCS_SHARED_PLACE_MAX;
}

bool mcs_shared_is_place(struct mcp_bytes protocol)
{
	return protocol.len > strlen(SCHEME) && !memcmp(protocol.data, SCHEME, strlen(SCHEME));
}

/* @path: memory of the place's size. */
static bool place_split(const char *place, char path[MCS_SHARED_PLACE_MAX], uint64_t *ret_epoch)
{
	const char *hash = strrchr(place, '#');
	char *end;

	if (!hash || strlen(place) >= MCS_SHARED_PLACE_MAX)
		return false;
	*ret_epoch = strtoull(hash + 1, &end, 16);
	if (end == hash + 1 || *end)
		return false;
	snprintf(path, MCS_SHARED_PLACE_MAX, "%.*s", (int)(hash - place - (ptrdiff_t)strlen(SCHEME)),
		 place + strlen(SCHEME));
	return *path == '/';
}

void mcs_shared_path(struct mcp_bytes protocol, char ret[MCS_SHARED_PLACE_MAX])
{
	char place[MCS_SHARED_PLACE_MAX];
	uint64_t epoch;

	*ret = 0;
	if (!mcs_shared_is_place(protocol) || protocol.len >= sizeof(place))
		return;
	memcpy(place, protocol.data, protocol.len);
	place[protocol.len] = 0;
	if (!place_split(place, ret, &epoch))
		*ret = 0;
}

int mcs_shared_open(struct mce_engine *e, struct mcs_session *s, struct mcs_shared **ret)
{
	struct mcs_shared *sh = calloc(1, sizeof(*sh));

	if (!sh)
		return -ENOMEM;
	sh->engine = e;
	sh->session = s;
	mc_mutex_init(&sh->lock);
	mc_cond_init(&sh->opened);
	mc_list_init(&sh->dead);
	*ret = sh;
	return 0;
}

/* ---- files ---- */

static void file_close(struct shared_file *f)
{
	mce_mr_unregister(f->mr);
	mct_medium_close(f->medium);
	if (f->pub.peer)
		mce_peer_put(f->pub.peer);
	free(f);
}

static int file_open(struct mcs_shared *sh, struct mcp_id segment, uint64_t epoch, const char *path,
		     struct shared_file **ret)
{
	const struct mcp_id pool = mcs_session_pool(sh->session);
	const struct mct_conf conf = {
		.path = path, .buffers = BUFFERS, .share = MCT_SHARE_READ,
		.expect = { segment.hi, segment.lo, epoch, pool.hi, pool.lo },
	};
	struct shared_file *f = calloc(1, sizeof(*f));
	struct mce_mr_attr attr = { .access = MCE_ACCESS_READ, .fd = -1 };
	struct mct_status status;
	int r = f ? mc_fault("client.shared.open") : -ENOMEM;

	if (r == 0)
		r = mct_medium_open("ssd", &conf, &f->medium);
	if (r < 0) {
		free(f);
		return r;
	}
	f->medium->ops->status(f->medium, &status);
	attr.medium = f->medium;
	attr.len = f->pub.size = status.size;
	r = mce_mr_register(sh->engine, &attr, &f->mr);
	if (r == 0)
		r = mce_peer_get(sh->engine, mce_engine_endpoint(sh->engine), &f->pub.peer);
	if (r < 0) {
		file_close(f);
		return r;
	}
	f->pub.base = mce_mr_base(f->mr);
	f->pub.rkey = mce_mr_rkey(f->mr);
	f->refs = 1;
	*ret = f;
	return 0;
}

/* The lock is held. */
static void file_drop_locked(struct mcs_shared *sh, struct shared_file *f)
{
	if (!f)
		return;
	f->refs--;
	mc_list_push_back(&sh->dead, &f->node);
}

/* Close the files that are not used any more: unregistering waits, and must not run on a thread of the engine. */
static void shared_reap(struct mcs_shared *sh)
{
	struct shared_file *f;
	struct mc_list *pos;

	do {
		f = NULL;
		mc_mutex_lock(&sh->lock);
		mc_list_for_each(pos, &sh->dead) {
			f = mc_container_of(pos, struct shared_file, node);
			if (!f->refs)
				break;
			f = NULL;
		}
		if (f)
			mc_list_remove(&f->node);
		mc_mutex_unlock(&sh->lock);
		if (f)
			file_close(f);
	} while (f);
}

void mcs_shared_close(struct mcs_shared *sh)
{
	if (!sh)
		return;
	mc_mutex_lock(&sh->lock);
	for (unsigned i = 0; i < SLOTS; i++)
		file_drop_locked(sh, TAKE_PTR(sh->slot[i].file));
	mc_mutex_unlock(&sh->lock);
	shared_reap(sh);
	mc_cond_destroy(&sh->opened);
	mc_mutex_destroy(&sh->lock);
	free(sh);
}

/* ---- slots; the lock is held ---- */

/* The slot of a segment; NULL: all slots are being opened.  A new epoch replaces the file of an earlier one. */
static struct shared_slot *slot_find(struct mcs_shared *sh, struct mcp_id segment, uint64_t epoch)
{
	struct shared_slot *free_slot = NULL, *at = NULL;

	for (unsigned i = 0; i < SLOTS && !at; i++) {
		struct shared_slot *one = &sh->slot[i];

		if (one->used && mcp_id_eq(one->segment, segment))
			at = one;
		else if (!one->used && !free_slot)
			free_slot = one;
	}
	if (at && (at->epoch == epoch || at->opening))
		return at->epoch == epoch ? at : NULL;
	at = at ? at : free_slot;
	for (unsigned i = 0; i < SLOTS && !at; i++) {
		at = &sh->slot[sh->clock++ % SLOTS];
		at = at->opening ? NULL : at;
	}
	if (!at)
		return NULL;
	file_drop_locked(sh, TAKE_PTR(at->file));
	*at = (struct shared_slot){ .segment = segment, .epoch = epoch, .used = true };
	return at;
}

/* Open the file of a slot, without the lock meanwhile. */
static void slot_open(struct mcs_shared *sh, struct shared_slot *at, const char *path)
{
	struct mcp_id segment = at->segment;
	struct shared_file *f = NULL;
	uint64_t epoch = at->epoch;
	int r;

	at->opening = true;
	mc_mutex_unlock(&sh->lock);
	shared_reap(sh);
	r = file_open(sh, segment, epoch, path, &f);
	mc_metric_add(r < 0 ? &refused : &opened, 1);
	if (r < 0)
		mc_info("client", "cannot read a segment's file, its owner is asked instead: %s", mc_err_detail(r));
	else
		mc_info("client", "reading a segment's file without its owner file=%s", path);
	mc_mutex_lock(&sh->lock);
	at->opening = false;
	at->file = f;
	at->retry_ns = r < 0 ? mc_deadline_ms(RETRY_MS) : 0;
	mc_cond_broadcast(&sh->opened);
}

int mcs_shared_get(struct mcs_shared *sh, struct mcp_id segment, const char *place, uint64_t deadline,
		   struct mcs_shared_file **ret)
{
	char path[MCS_SHARED_PLACE_MAX];
	struct shared_slot *at;
	uint64_t epoch;

	*ret = NULL;
	if (!place_split(place, path, &epoch) || mcp_id_zero(mcs_session_pool(sh->session)))
		return 0;
	MC_LOCKED(&sh->lock);
	while ((at = slot_find(sh, segment, epoch)) && !at->file && mc_now_ns() >= at->retry_ns) {
		if (!deadline)
			return -EAGAIN;
		if (!at->opening)
			slot_open(sh, at, path);
		else if (mc_cond_wait_until(&sh->opened, &sh->lock, deadline) < 0)
			return 0;
	}
	if (at && at->file) {
		at->file->refs++;
		*ret = &at->file->pub;
	}
	return 0;
}

void mcs_shared_put(struct mcs_shared *sh, struct mcs_shared_file *file)
{
	if (!file)
		return;
	MC_LOCKED(&sh->lock);
	mc_container_of(file, struct shared_file, pub)->refs--;
}

void mcs_shared_failed(struct mcs_shared *sh, struct mcs_shared_file *file, int err)
{
	struct shared_file *f = mc_container_of(file, struct shared_file, pub);

	MC_LOCKED(&sh->lock);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct shared_slot *at = &sh->slot[i];

		if (at->file != f)
			continue;
		at->file = NULL;
		at->retry_ns = mc_deadline_ms(RETRY_MS);
		mc_metric_add(&failures, 1);
		mc_warn("client", "reading a segment's file failed, its owner is asked instead error=\"%s\"",
			mc_strerror(err));
		file_drop_locked(sh, f);
		return;
	}
}
