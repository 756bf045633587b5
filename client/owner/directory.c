/* SPDX-License-Identifier: Apache-2.0
 * directory.c - open files in a shared directory, and adopt those without an owner.
 *
 * The master names a file whose owner was silent for long (ORPHAN).  Two owners cannot write to it: the one that adopts
 * it has its lock, and has written its own number to the header (tiers/ssd/shared.c), and the master refuses the mount
 * while the earlier owner is connected and serves the segment. */
#include <config.h>

#include "client/owner/directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/owner/offloader.h"
#include "client/owner/owner.h"
#include "client/session/security.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/late.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "tiers/ssd/ssd.h"

#define OPEN_MS 5000
#define CALL_MS 5000
#define TICK_MS 200		/* between two looks for a connection to the master */
#define RETRY_MS 30000		/* between attempts to open the directory */
#define HUNG_MS 1000		/* until the next wait for an opening that hangs */
/* Between two looks for a file without an owner.  Random, so that not all owners ask at once. */
#define LOOK_MIN_MS 2000u
#define LOOK_MAX_MS 6000u
#define FILES_MAX 16u		/* this process's; others are left to other owners */
#define ORPHANS_MAX 64u		/* asked for at one look */

MC_COUNTER(adopted, "mooncake_client_shared_files_adopted_total", "",
	   "files in a shared directory that this process continues with, because their owners have ended")

struct opening;

struct mcs_directory {
	/* constant after start */
	struct mcs_owner *o;
	bool configured;
	struct mc_thread thread;
	struct mc_stop stop;
	struct mc_mutex lock;
	struct mc_cond tried_once;
	/* atomic */
	bool running;
	/* guarded by lock */
	bool tried;		/* the first attempt has ended, with @error */
	int error;
	char why[256];
	/* used by the thread only */
	char *root, *cluster;	/* NULL: not known, or there is none */
	uint64_t size;
	bool open;
	int told;		/* error of the last attempt to open the own file, as the log says */
	struct opening *opening;	/* one that has missed its deadline, NULL: none */
	bool none;		/* there is nothing to do any more */
	bool no_orphans;	/* the master is of an older version, and names none */
	struct mcp_id said;	/* a segment whose file was left alone, as the log says */
};

/* ---- opening, in a thread of its own (late.h) --------------------------------------------------- */

struct opening {
	struct mc_late late;
	char *root, *cluster, *folder;
	struct mct_conf conf;
	struct mct_medium *medium;
};

static void opening_free(struct opening *op)
{
	free(op->root);
	free(op->cluster);
	free(op->folder);
	free(op);
}

static int opening_run(struct mc_late *l)
{
	struct opening *op = mc_container_of(l, struct opening, late);
	auto_free char *root = NULL;
	int r = mc_fault("client.directory.open");

	if (r < 0)
		return mc_fail(r, "the shared directory %s: %s", op->root, mc_strerror(r));
	root = realpath(op->root, NULL);
	if (!root)
		return mc_fail(-errno, "the shared directory %s: %m (mount the filesystem, or create it)", op->root);
	if (asprintf(&op->folder, "%s/%s", root, op->cluster) < 0) {
		op->folder = NULL;
		return -ENOMEM;
	}
	if (mkdir(op->folder, 0777) && errno != EEXIST)
		return mc_fail(-errno, "cannot make the folder of the cluster in the shared directory: %s: %m",
			       op->folder);
	op->conf.path = op->folder;
	return mct_ssd_tier.open(&op->conf, &op->medium);
}

static void opening_drop(struct mc_late *l)
{
	struct opening *op = mc_container_of(l, struct opening, late);

	mct_medium_close(op->medium);
	opening_free(op);
}

/* @expect: the segment whose file is to be adopted; NULL: this process's own file. */
static int opening_new(const struct mcs_directory *d, const struct mcp_orphan_reply *expect, struct opening **ret)
{
	const struct mcs_conf *c = &d->o->direct.base.store->conf;
	const struct mcp_id pool = mcs_session_pool(d->o->direct.base.session);
	struct opening *op = calloc(1, sizeof(*op));

	if (!op)
		return -ENOMEM;
	op->late = (struct mc_late){ .name = "mcs-opening", .run = opening_run, .drop = opening_drop };
	op->root = strdup(d->root);
	op->cluster = strdup(d->cluster);
	op->conf = (struct mct_conf){
		.size = expect ? 0 : d->size, .buffers = c->ssd_buffers, .kind = c->ssd_threads ? "threads" : NULL,
		.seal = d->o->direct.base.store->security != NULL, .share = MCT_SHARE_OWN,
		.tenant = mcs_security_tenant_number(d->o->direct.base.store->security),
		.expect = { 0, 0, 0, pool.hi, pool.lo },
	};
	if (expect) {
		op->conf.expect[0] = expect->segment.hi;
		op->conf.expect[1] = expect->segment.lo;
		op->conf.expect[2] = expect->epoch;
	}
	if (!op->root || !op->cluster) {
		opening_free(op);
		return -ENOMEM;
	}
	*ret = op;
	return 0;
}

static int opening_start(struct mcs_directory *d, const struct mcp_orphan_reply *expect)
{
	int r = opening_new(d, expect, &d->opening);

	if (r < 0)
		return r;
	r = mc_late_start(&d->opening->late);
	if (r < 0)
		opening_free(TAKE_PTR(d->opening));
	return r;
}

/* Upstream's watermarks of its DFS; the values of the master unless one is set. */
static void directory_watermarks(struct mcs_own_segment_conf *conf)
{
	double high = mc_env_ratio("MOONCAKE_DFS_EVICTION_HIGH_WATERMARK", 0);
	double low = mc_env_ratio("MOONCAKE_DFS_EVICTION_LOW_WATERMARK", 0);

	if (high == 0 && low == 0)
		return;
	high = high > 0 ? high : 0.9;
	low = low > 0 ? low : 0.7;
	if (low > high)
		low = high;
	conf->high = (uint8_t)(high * 100);
	conf->low = (uint8_t)(low * 100);
}

/* Open a file, and add it to the set; or wait for an earlier opening, of any file.  -EINPROGRESS: the filesystem does
 * not answer. */
static int directory_add(struct mcs_directory *d, const struct mcp_orphan_reply *expect)
{
	struct mcs_own_segment_conf conf = {
		.tier = &mct_ssd_tier, .medium = MCP_MEDIUM_DIRECTORY, .protocol = "tcp",
	};
	int r = d->opening ? 0 : opening_start(d, expect);
	struct opening *op;

	if (r < 0)
		return r;
	r = mc_late_wait(&d->opening->late, mc_deadline_ms(OPEN_MS));
	if (r == -EINPROGRESS)
		return mc_fail(r, "the shared directory %s does not answer", d->root);
	op = TAKE_PTR(d->opening);
	if (r == 0) {
		conf.open = op->conf;
		directory_watermarks(&conf);
		r = mcs_segments_add(d->o->segments, &conf, TAKE_PTR(op->medium));
	}
	opening_free(op);
	return r;
}

/* ---- the own file -------------------------------------------------------------------------------- */

static void directory_tried(struct mcs_directory *d, int r)
{
	MC_LOCKED(&d->lock);
	d->error = r;
	if (r < 0 && !d->tried)
		snprintf(d->why, sizeof(d->why), "%s", mc_err_detail(r));
	d->tried = true;
	mc_cond_broadcast(&d->tried_once);
}

static void directory_mount(struct mcs_directory *d)
{
	struct mcs_session *session = d->o->direct.base.session;
	struct mcs_segments *segments = d->o->segments;
	struct mcs_terms terms;
	int r;

	if (!mcs_session_up(session) || !mcs_segments_shared_due(segments))
		return;
	/* After the wish: not older than the connection that it is for. */
	terms = mcs_session_terms(session);
	r = mcs_segments_mount(segments, NULL, session, mcs_session_pool(session), &terms, mc_deadline_ms(CALL_MS),
			       MCS_SEGMENTS_SHARED);
	if (r >= 0)
		return;
	mcs_segments_shared_later(segments);
	mc_warn("client", "the file in the shared directory is not mounted, will retry error=\"%s\"", mc_err_detail(r));
}

/* Segments were added after the others were offered. */
static void directory_offer(struct mcs_directory *d)
{
	struct mcs_owner *o = d->o;
	int r = 0;

	if (!o->offloader)
		r = mcs_offloader_start(&o->direct, &o->offloader);
	if (r < 0)
		mc_warn("client", "no copies are made to the shared directory: %s", mc_err_detail(r));
	mcs_segments_shared_later(o->segments);
	directory_mount(d);
}

/* Ask the master for its options.  A negative result: ask again. */
static int directory_ask(struct mcs_directory *d)
{
	const struct mcp_storage msg = { 0 };
	struct mcp_storage_reply reply;
	struct mcp_reply mem = { 0 };
	int r = mcs_call(d->o->direct.base.session, MCP_STORAGE, &msg, &reply, &mem, mc_deadline_ms(CALL_MS));

	if (r == -MC_ENOTSUP || r == -EPERM || r == -EACCES) {
		d->none = true;
		return 0;
	}
	if (r < 0)
		return r;
	d->none = !reply.root_fs_dir.len;
	if (!d->none) {
		d->root = strndup(reply.root_fs_dir.data, reply.root_fs_dir.len);
		d->cluster = strndup(reply.cluster.data, reply.cluster.len);
		d->size = reply.file_size;
	}
	mcp_reply_done(&mem);
	if (!d->none && (!d->root || !d->cluster))
		return -ENOMEM;
	if (!d->none && (strchr(d->cluster, '/') || *d->cluster == '.')) {
		mc_warn("client", "the master's cluster_id cannot be the name of a folder, so its root_fs_dir is not "
			"used cluster_id=%s", d->cluster);
		d->none = true;
	}
	return 0;
}

/* Milliseconds until the next attempt. */
static uint64_t directory_own(struct mcs_directory *d)
{
	int r = 0;

	if (!d->root && mcs_session_up(d->o->direct.base.session))
		r = directory_ask(d);
	if (!d->root || r < 0)
		return r < 0 ? CALL_MS : TICK_MS;
	r = directory_add(d, NULL);
	d->open = r == 0;
	if (d->open) {
		mc_info("client", "this process has a file in the shared directory dir=%s", d->root);
		directory_offer(d);
	} else if (r != d->told) {
		d->told = r;
		mc_warn("client", "this process works without the shared directory%s until it can open it: %s%s",
			d->configured ? "" : " that the master names in root_fs_dir,", mc_err_detail(r),
			d->configured ? "" : "; give this node the directory, or another one with --root_fs_dir, or "
			"--root_fs_dir=none");
	}
	directory_tried(d, r);
	return d->open ? LOOK_MIN_MS : r == -EINPROGRESS ? HUNG_MS : RETRY_MS;
}

/* ---- files of owners that have ended ------------------------------------------------------------- */

static int orphan_next(struct mcs_directory *d, unsigned skip, struct mcp_orphan_reply *ret)
{
	const struct mcp_orphan msg = { .skip = skip };
	struct mcp_reply mem = { 0 };
	int r = mcs_call(d->o->direct.base.session, MCP_ORPHAN, &msg, ret, &mem, mc_deadline_ms(CALL_MS));

	if (r >= 0)
		mcp_reply_done(&mem);
	return r < 0 ? r : mcp_id_zero(ret->segment) ? -ENOENT : 0;
}

static void orphan_left(struct mcs_directory *d, const struct mcp_orphan_reply *orphan, int r)
{
	/* Another process has it, or mounts another directory. */
	if (r == -EWOULDBLOCK || r == -ENOENT || mcp_id_eq(d->said, orphan->segment))
		return;
	d->said = orphan->segment;
	mc_warn("client", "a file in the shared directory has no owner, and this process cannot adopt it: %s",
		mc_err_detail(r));
}

/* Adopt one file at most: then another owner may find the next one. */
static void directory_adopt(struct mcs_directory *d)
{
	struct mcp_orphan_reply orphan;
	int r = 0;

	if (mcs_segments_with(d->o->segments, MCP_TRAIT_SHARED) >= FILES_MAX)
		return;
	for (unsigned skip = 0; skip < ORPHANS_MAX; skip++) {
		r = orphan_next(d, skip, &orphan);
		d->no_orphans |= r == -MC_ENOTSUP;
		if (r < 0)
			return;
		if (mcs_segments_has(d->o->segments, orphan.segment))
			continue;
		r = directory_add(d, &orphan);
		if (r == 0 || r == -EINPROGRESS || r == -MC_EUNAVAILABLE)
			break;
		orphan_left(d, &orphan, r);
	}
	if (r < 0)
		return;
	mc_metric_add(&adopted, 1);
	mc_info("client", "adopting a file of an owner that has ended dir=%s", d->root);
	directory_offer(d);
}

/* An owner that has lost its file, and gets no copies for it, notices the loss here.  The next owner waits for that. */
static void directory_look(struct mcs_directory *d)
{
	directory_mount(d);
	mcs_segments_hold_shared(d->o->segments, d->o->direct.base.session, mc_deadline_ms(CALL_MS));
	if (!d->no_orphans)
		directory_adopt(d);
	/* Another process has its files: it gets a new one. */
	d->open = mcs_segments_with(d->o->segments, MCP_TRAIT_SHARED);
}

static uint64_t look_ms(void)
{
	return LOOK_MIN_MS + mc_random_u64() % (LOOK_MAX_MS - LOOK_MIN_MS);
}

/* ---- the thread ---------------------------------------------------------------------------------- */

static void *directory_main(void *arg)
{
	struct mcs_directory *d = arg;
	uint64_t wait_ms = 0;

	mc_thread_background();
	if (d->configured) {
		int r = directory_add(d, NULL);

		d->open = r == 0;
		d->told = r;
		directory_tried(d, r);
		wait_ms = LOOK_MIN_MS;
	}
	while (!d->none && !mc_stop_wait(&d->stop, wait_ms)) {
		if (!__atomic_load_n(&d->running, __ATOMIC_ACQUIRE)) {
			wait_ms = TICK_MS / 10;
			continue;
		}
		if (!d->open) {
			wait_ms = directory_own(d);
			continue;
		}
		if (mcs_session_up(d->o->direct.base.session))
			directory_look(d);
		wait_ms = look_ms();
	}
	return NULL;
}

static void directory_free(struct mcs_directory *d)
{
	if (d->opening)
		mc_late_leave(&d->opening->late);
	mc_cond_destroy(&d->tried_once);
	mc_mutex_destroy(&d->lock);
	free(d->root);
	free(d->cluster);
	free(d);
}

int mcs_directory_start(struct mcs_owner *o, struct mcs_directory **ret)
{
	const struct mcs_conf *c = &o->direct.base.store->conf;
	struct mcs_directory *d = calloc(1, sizeof(*d));
	int r = 0;

	if (!d)
		return -ENOMEM;
	d->o = o;
	d->configured = mcs_conf_shared(c);
	mc_mutex_init(&d->lock);
	mc_cond_init(&d->tried_once);
	if (d->configured) {
		d->root = strdup(c->root_fs_dir);
		d->cluster = strdup(c->root_fs_cluster);
		d->size = c->root_fs_size;
		r = d->root && d->cluster ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = mc_stop_start(&d->stop, &d->thread, "mcs-directory", directory_main, d);
	if (r == 0)
		*ret = d;
	else
		directory_free(d);
	return r;
}

int mcs_directory_await(struct mcs_directory *d)
{
	if (!d->configured)
		return 0;
	MC_LOCKED(&d->lock);
	while (!d->tried)
		mc_cond_wait(&d->tried_once, &d->lock);
	if (d->error == -EINPROGRESS || d->error == -MC_EUNAVAILABLE) {
		mc_warn("client", "%s; this process works without it, and uses it when it answers", d->why);
		return 0;
	}
	return d->error < 0 ? mc_fail(d->error, "%s", d->why) : 0;
}

void mcs_directory_run(struct mcs_directory *d)
{
	if (!d)
		return;
	__atomic_store_n(&d->running, true, __ATOMIC_RELEASE);
	mc_stop_kick(&d->stop);
}

void mcs_directory_mount(struct mcs_directory *d)
{
	mcs_segments_shared_later(d->o->segments);
	mc_stop_kick(&d->stop);
}

void mcs_directory_stop(struct mcs_directory *d)
{
	if (!d)
		return;
	mc_stop_set(&d->stop);
	mc_thread_join(d->thread);
}

void mcs_directory_close(struct mcs_directory *d)
{
	if (!d)
		return;
	mc_stop_done(&d->stop);
	directory_free(d);
}
