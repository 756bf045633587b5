/* SPDX-License-Identifier: Apache-2.0
 * snapshot.c - the thread that writes snapshots, and the creation of one. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/journal/feed.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/snapshot/snapshot_i.h"

#define LOG "snapshot"
#define CLAIM_MS 5000
#define ATTEMPTS 5	/* while checkpoints replace the files that are being read */

MC_COUNTER(written, "mooncake_master_snapshots_total", "result=\"ok\"", "Snapshots written to the store")
MC_COUNTER(failures, "mooncake_master_snapshots_total", "result=\"failed\"", "Snapshots written to the store")
MC_GAUGE(last_time, "mooncake_master_snapshot_last_seconds", "", "Time of the last snapshot, in seconds since 1970")
MC_GAUGE(last_bytes, "mooncake_master_snapshot_last_bytes", "", "Size of the last snapshot")

/* ---- options ------------------------------------------------------------------------------------- */

static const char *local_dir(const struct mcm_conf *c)
{
	const char *dir = mc_env_str("MOONCAKE_SNAPSHOT_LOCAL_PATH");

	return dir && *dir ? dir : c->snapshot_backup_dir;
}

int mcm_snapshots_wanted(const struct mcm_conf *c)
{
	const char *type = c->snapshot_object_store_type;

	if (!*type || (!c->enable_snapshot && !c->enable_snapshot_restore))
		return 0;
	if (strcmp(type, "local") != 0 && strcmp(type, "s3") != 0)
		return mc_fail(-EINVAL, "snapshot_object_store_type=%s: unknown, use local or s3", type);
	if (!strcmp(type, "local") && !*local_dir(c))
		return mc_fail(-EINVAL, "snapshot_object_store_type=local needs a directory in "
			       "MOONCAKE_SNAPSHOT_LOCAL_PATH or snapshot_backup_dir");
	return 1;
}

int mcm_snapshots_open(struct mcm *m)
{
	const struct mcm_conf *c = &m->conf;
	struct mcm_snapshots *s;
	int r = mcm_snapshots_wanted(c);

	if (r <= 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	mcm_vault_init(&s->vault, m->security);
	s->interval_ms = c->enable_snapshot ? c->snapshot_interval_seconds : 0;
	s->keep = (uint64_t)c->snapshot_retention_count;
	snprintf(s->root, sizeof(s->root), "mooncake_master_snapshot/%s/", c->cluster_id);
	r = mct_keyed_open(c->snapshot_object_store_type,
			   strcmp(c->snapshot_object_store_type, "s3") ? local_dir(c) : NULL, &s->blobs);
	m->snapshots = s;
	if (r < 0)
		mcm_snapshots_close(m);
	return r;
}

void mcm_snapshots_close(struct mcm *m)
{
	struct mcm_snapshots *s = m->snapshots;

	if (!s)
		return;
	mct_keyed_close(s->blobs);
	mc_mutex_destroy(&s->lock);
	free(s);
	m->snapshots = NULL;
}

/* ---- creation ------------------------------------------------------------------------------------ */

struct creation {
	struct mcm_snapshots *s;
	char id[MCM_SNAPSHOT_ID];
	uint8_t *piece;		/* MCM_PIECE bytes */
	size_t len;
	uint64_t bytes;
	json_t *files, *pieces;
};

static void id_make(char ret[MCM_SNAPSHOT_ID])
{
	uint64_t ns = mc_wall_ns();
	time_t t = (time_t)(ns / MC_NS_PER_SEC);
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(ret, MCM_SNAPSHOT_ID, "%Y%m%d_%H%M%S", &tm);
	snprintf(ret + strlen(ret), MCM_SNAPSHOT_ID - strlen(ret), "_%03u", (unsigned)(ns / MC_NS_PER_MS % 1000));
}

/* Write the piece, and read it back. */
static int piece_end(struct creation *c)
{
	size_t n = json_array_size(c->pieces), len;
	char name[MCT_KEYED_NAME_MAX], number[16], hash[17];
	void *again = NULL;
	int r;

	if (!c->len)
		return 0;
	if (n >= MCM_SNAPSHOT_FILES)
		return mc_fail(-EFBIG, "a snapshot of more than %u pieces", MCM_SNAPSHOT_FILES);
	snprintf(number, sizeof(number), "%04zu", n);
	mcm_snapshot_name(c->s, c->id, number, name);
	MC_FAULT_POINT("snapshot.piece");
	r = mct_keyed_put(c->s->blobs, name, c->piece, c->len);
	if (r == 0)
		r = mct_keyed_get(c->s->blobs, name, &again, &len);
	if (r == 0 && (len != c->len || memcmp(again, c->piece, len) != 0))
		r = mc_fail(-EIO, "%s: %s does not have the bytes that were written", mct_keyed_where(c->s->blobs),
			    name);
	free(again);
	snprintf(hash, sizeof(hash), "%016" PRIx64, mc_hash(c->piece, c->len, 0));
	if (r == 0)
		r = json_array_append_new(c->pieces, json_pack("{s:I, s:s}", "size", (json_int_t)c->len, "hash",
							       hash)) < 0 ? -ENOMEM : 0;
	c->bytes += c->len;
	c->len = 0;
	return r;
}

/* The part belongs to the last file, or begins the next one. */
static int file_note(struct creation *c, const struct mcm_feed_part *p)
{
	json_t *last = json_array_get(c->files, json_array_size(c->files) - 1);

	if (p->offset == 0 && p->len)
		return json_array_append_new(c->files, json_pack("{s:b, s:I, s:I}", "checkpoint", p->checkpoint,
								 "sequence", (json_int_t)p->sequence, "size",
								 (json_int_t)p->len)) < 0 ? -ENOMEM : 0;
	return json_object_set_new(last, "size", json_integer(json_integer_value(json_object_get(last, "size")) +
							      (json_int_t)p->len)) < 0 ? -ENOMEM : 0;
}

/* A checkpoint and the journals after it, up to the newest record. */
static int copy_all(struct mcm *m, struct creation *c)
{
	struct mcm_feed_part part = { .lsn = 0 };
	struct mcm_feed *f;
	int r = mcm_feed_open(m, &f);

	if (r < 0)
		return r;
	while (r == 0 && !part.lsn) {
		r = mcm_feed_read(f, c->piece + c->len, MCM_PIECE - c->len, &part);
		if (r <= 0)
			break;
		c->len += part.len;
		r = file_note(c, &part);
		if (r == 0 && c->len == MCM_PIECE)
			r = piece_end(c);
	}
	mcm_feed_close(f);
	return r < 0 ? r : piece_end(c);
}

static int manifest_write(struct mcm *m, struct creation *c, bool last)
{
	char server[17], pool[33];
	json_t *j;
	int r;

	snprintf(server, sizeof(server), "%016" PRIx64, m->id.lo);
	snprintf(pool, sizeof(pool), "%016" PRIx64 "%016" PRIx64, m->pool.hi, m->pool.lo);
	j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:O, s:O}", "format", 1, "id", c->id, "cluster",
		      m->conf.cluster_id, "pool", pool, "server", server, "last", last,
		      "time_ms", (json_int_t)(mc_wall_ns() / MC_NS_PER_MS),
		      "objects", (json_int_t)mcm_index_count(&m->index),
		      "bytes", (json_int_t)c->bytes, "files", c->files, "pieces", c->pieces);
	MC_FAULT_POINT("snapshot.manifest");
	r = mcm_manifest_put(c->s, c->id, j);
	json_decref(j);
	return r;
}

static int create_once(struct mcm *m, bool last, char ret_id[MCM_SNAPSHOT_ID])
{
	struct creation c = {
		.s = m->snapshots, .files = json_array(), .pieces = json_array(), .piece = malloc(MCM_PIECE),
	};
	int r;

	id_make(c.id);
	r = c.piece && c.files && c.pieces ? copy_all(m, &c) : -ENOMEM;
	if (r == 0)
		r = manifest_write(m, &c, last);
	if (r == 0) {
		strcpy(ret_id, c.id);
		mc_metric_set(&last_bytes, (int64_t)c.bytes);
	}
	json_decref(c.files);
	json_decref(c.pieces);
	free(c.piece);
	return r;
}

static int create_locked(struct mcm *m, bool last, char ret_id[MCM_SNAPSHOT_ID])
{
	struct mcm_snapshots *s = m->snapshots;
	uint64_t began = mc_now_ns(), appended;
	int r = -ESTALE;

	mcm_journal_flush(m);
	appended = __atomic_load_n(&m->journal->appended, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < ATTEMPTS && r == -ESTALE; i++)
		r = create_once(m, last, ret_id);
	mc_metric_add(r < 0 ? &failures : &written, 1);
	if (r < 0)
		return r;
	s->made = true;
	s->appended = appended;
	mc_metric_set(&last_time, (int64_t)(mc_wall_ns() / MC_NS_PER_SEC));
	mc_info(LOG, "snapshot written id=%s where=\"%s\" objects=%llu ms=%llu last=%d", ret_id,
		mct_keyed_where(s->blobs), (unsigned long long)mcm_index_count(&m->index),
		(unsigned long long)((mc_now_ns() - began) / MC_NS_PER_MS), last);
	mcm_snapshots_trim(s);
	return 0;
}

int mcm_snapshot_create(struct mcm *m, char ret_id[MCM_SNAPSHOT_ID])
{
	if (!m->snapshots || !m->journal)
		return mc_fail(-MC_EMODE, "the master has no store of snapshots, or no journal");
	MC_LOCKED(&m->snapshots->lock);
	return create_locked(m, false, ret_id);
}

static void claim_locked(struct mcm_snapshots *s)
{
	int r = mcm_snapshots_claim(s);

	s->claimed = r == 0;
	if (r < 0)
		mc_warn(LOG, "the store of snapshots cannot be reached, trying again: %s", mc_err_detail(r));
}

/* ---- the thread ---------------------------------------------------------------------------------- */

static void *snapshots_main(void *arg)
{
	struct mcm *m = arg;
	struct mcm_snapshots *s = m->snapshots;
	char id[MCM_SNAPSHOT_ID];

	while (!mc_stop_wait(&s->stop, s->claimed ? s->interval_ms : CLAIM_MS)) {
		int r = 0;

		MC_LOCKED(&s->lock);
		if (!s->claimed)
			claim_locked(s);
		else if (!s->made || s->appended != __atomic_load_n(&m->journal->appended, __ATOMIC_RELAXED))
			r = create_locked(m, false, id);
		if (r < 0)
			mc_warn(LOG, "cannot write a snapshot, trying again after the interval: %s", mc_err_detail(r));
	}
	return NULL;
}

int mcm_snapshots_start(struct mcm *m)
{
	struct mcm_snapshots *s = m->snapshots;
	int r;

	if (!s || !m->journal || !s->interval_ms)
		return 0;
	mc_mutex_lock(&s->lock);
	claim_locked(s);
	mc_mutex_unlock(&s->lock);
	r = mc_stop_start(&s->stop, &s->thread, "mc-snapshot", snapshots_main, m);
	s->runs = r == 0;
	return r;
}

void mcm_snapshots_stop(struct mcm *m, bool last)
{
	struct mcm_snapshots *s = m->snapshots;
	char id[MCM_SNAPSHOT_ID];
	int r;

	if (!s || !s->runs)
		return;
	mc_stop_join(&s->stop, s->thread);
	s->runs = false;
	if (!last)
		return;
	MC_LOCKED(&s->lock);
	/* Older manifests that call another master the last one are out of reach; so is the store. */
	r = s->claimed ? create_locked(m, true, id) : mc_fail(-EIO, "the store could not be reached");
	if (r < 0)
		mc_warn(LOG, "cannot write the last snapshot: %s", mc_err_detail(r));
}
