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
#include "common/sys/late.h"
#include "common/sys/lock.h"
#include "tiers/tier.h"

#define SLOTS 256u		/* files at one time */
#define RETRY_MS 10000
#define OPEN_MS 3000		/* then the owner is asked */
#define CLOSE_MS 100		/* then the thread that closes is left alone */
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

struct medium_call;

struct shared_slot {
	struct mcp_id segment;
	uint64_t epoch;
	struct shared_file *file;
	uint64_t retry_ns;	/* no attempt to open it before */
	struct medium_call *call;	/* an attempt that has missed its deadline, NULL: none */
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
	/* closed, or left, by the next thread that may block */
	struct mc_list dead;	/* files, once they have no references */
	struct mc_list left;	/* openings that no slot waits for */
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
	mc_list_init(&sh->left);
	*ret = sh;
	return 0;
}

/* ---- files ---- */

/* Opening or closing of a medium, which may wait for the server of the filesystem. */
struct medium_call {
	struct mc_late late;
	char path[MCS_SHARED_PLACE_MAX];
	struct mct_conf conf;
	struct mct_medium *medium;
	struct mc_list node;	/* mcs_shared.left; guarded by the lock */
};

static int medium_open_run(struct mc_late *l)
{
	struct medium_call *c = mc_container_of(l, struct medium_call, late);
	int r = mc_fault("client.shared.open");

	c->conf.path = c->path;
	return r < 0 ? r : mct_medium_open("ssd", &c->conf, &c->medium);
}

static int medium_close_run(struct mc_late *l)
{
	struct medium_call *c = mc_container_of(l, struct medium_call, late);

	mct_medium_close(TAKE_PTR(c->medium));
	return 0;
}

static void medium_drop(struct mc_late *l)
{
	struct medium_call *c = mc_container_of(l, struct medium_call, late);

	mct_medium_close(c->medium);
	free(c);
}

static struct medium_call *medium_call_new(const char *name, int (*run)(struct mc_late *l))
{
	struct medium_call *c = calloc(1, sizeof(*c));

	if (c)
		c->late = (struct mc_late){ .name = name, .run = run, .drop = medium_drop };
	return c;
}

/* *call: NULL, or an opening that has missed its deadline; -EINPROGRESS: it misses this one. */
static int medium_open(const char *path, const struct mct_conf *conf, uint64_t deadline, struct medium_call **call,
		       struct mct_medium **ret)
{
	struct medium_call *c = *call ? *call : medium_call_new("mcs-opening", medium_open_run);
	int r = c ? 0 : -ENOMEM;

	if (c && !*call) {
		c->conf = *conf;
		snprintf(c->path, sizeof(c->path), "%s", path);
		r = mc_late_start(&c->late);
	}
	if (r == 0) {
		r = mc_late_wait(&c->late, deadline);
		*call = r == -EINPROGRESS ? c : NULL;
		if (*call)
			return mc_fail(r, "%s: the filesystem does not answer", path);
		*ret = c->medium;
	}
	free(c);
	return r;
}

static void medium_close(struct mct_medium *m)
{
	struct medium_call *c = medium_call_new("mcs-closing", medium_close_run);
	int r = c ? 0 : -ENOMEM;

	if (c) {
		c->medium = m;
		r = mc_late_start(&c->late);
	}
	if (r == 0 && mc_late_wait(&c->late, mc_deadline_ms(CLOSE_MS)) == -EINPROGRESS) {
		mc_late_leave(&c->late);
		return;
	}
	/* No thread was started. */
	if (r < 0)
		mct_medium_close(m);
	free(c);
}

static void file_close(struct shared_file *f)
{
	mce_mr_unregister(f->mr);
	medium_close(f->medium);
	if (f->pub.peer)
		mce_peer_put(f->pub.peer);
	free(f);
}

static int file_open(struct mcs_shared *sh, struct mcp_id segment, uint64_t epoch, const char *path, uint64_t deadline,
		     struct medium_call **call, struct shared_file **ret)
{
	const struct mcp_id pool = mcs_session_pool(sh->session);
	const struct mct_conf conf = {
		.buffers = BUFFERS, .share = MCT_SHARE_READ,
		.expect = { segment.hi, segment.lo, epoch, pool.hi, pool.lo },
	};
	struct shared_file *f = calloc(1, sizeof(*f));
	struct mce_mr_attr attr = { .access = MCE_ACCESS_READ, .fd = -1 };
	struct mct_status status;
	int r = f ? medium_open(path, &conf, deadline, call, &f->medium) : -ENOMEM;

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

/* The lock is held; @at is not being opened. */
static void slot_leave(struct mcs_shared *sh, struct shared_slot *at)
{
	if (at->call)
		mc_list_push_back(&sh->left, &at->call->node);
	at->call = NULL;
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
	struct medium_call *call;
	struct shared_file *f;
	struct mc_list *pos;

	do {
		f = NULL;
		call = NULL;
		mc_mutex_lock(&sh->lock);
		if (!mc_list_empty(&sh->left)) {
			call = mc_list_first(&sh->left, struct medium_call, node);
			mc_list_remove(&call->node);
		}
		mc_list_for_each(pos, &sh->dead) {
			f = mc_container_of(pos, struct shared_file, node);
			if (!f->refs)
				break;
			f = NULL;
		}
		if (f)
			mc_list_remove(&f->node);
		mc_mutex_unlock(&sh->lock);
		if (call)
			mc_late_leave(&call->late);
		if (f)
			file_close(f);
	} while (f || call);
}

void mcs_shared_close(struct mcs_shared *sh)
{
	if (!sh)
		return;
	mc_mutex_lock(&sh->lock);
	for (unsigned i = 0; i < SLOTS; i++) {
		slot_leave(sh, &sh->slot[i]);
		file_drop_locked(sh, TAKE_PTR(sh->slot[i].file));
	}
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
	slot_leave(sh, at);
	file_drop_locked(sh, TAKE_PTR(at->file));
	*at = (struct shared_slot){ .segment = segment, .epoch = epoch, .used = true };
	return at;
}

/* Open the file of a slot, without the lock meanwhile. */
static void slot_open(struct mcs_shared *sh, struct shared_slot *at, const char *path, uint64_t deadline)
{
	uint64_t most = mc_deadline_ms(OPEN_MS), epoch = at->epoch;
	struct medium_call *call = at->call;
	struct mcp_id segment = at->segment;
	bool first = !call, waits = mc_now_ns() >= at->retry_ns;
	struct shared_file *f = NULL;
	int r;

	at->opening = true;
	mc_mutex_unlock(&sh->lock);
	if (waits)
		shared_reap(sh);
	r = file_open(sh, segment, epoch, path, !waits ? 0 : most < deadline ? most : deadline, &call, &f);
	if (first || r != -EINPROGRESS)
		mc_metric_add(r < 0 ? &refused : &opened, 1);
	if (r == -EINPROGRESS && !first)
		mc_debug("client", "%s", mc_err_detail(r));
	else if (r < 0)
		mc_info("client", "cannot read a segment's file, its owner is asked instead: %s", mc_err_detail(r));
	else
		mc_info("client", "reading a segment's file without its owner file=%s", path);
	mc_mutex_lock(&sh->lock);
	at->opening = false;
	at->file = f;
	at->call = call;
	if (waits || r != -EINPROGRESS)
		at->retry_ns = r < 0 ? mc_deadline_ms(RETRY_MS) : 0;
	mc_cond_broadcast(&sh->opened);
}

int mcs_shared_get(struct mcs_shared *sh, struct mcp_id segment, const char *place, uint64_t deadline,
		   struct mcs_shared_file **ret)
{
	char path[MCS_SHARED_PLACE_MAX];
	struct shared_slot *at;
	bool looked = false;
	uint64_t epoch;

	*ret = NULL;
	if (!place_split(place, path, &epoch) || mcp_id_zero(mcs_session_pool(sh->session)))
		return 0;
	MC_LOCKED(&sh->lock);
	while ((at = slot_find(sh, segment, epoch)) && !at->file) {
		bool due = mc_now_ns() >= at->retry_ns;

		/* Not due: only look whether an opening that hung has ended. */
		if (!due && (!at->call || at->opening || looked))
			break;
		if (due && !deadline)
			return -EAGAIN;
		looked = true;
		if (!at->opening)
			slot_open(sh, at, path, deadline);
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
