/* SPDX-License-Identifier: Apache-2.0
 * hist_store.c - the calls of mcs.h that an actor makes. */
#include <config.h>

#include <mooncake/mcs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "tests/history/hist_actor.h"

#define TIMEOUT_MS 8000			/* longer than most stops: a writer continues after them */
#define LOOKS_MAX 40u			/* of one open object */

static mcs_t *store;
static const struct hist_actor *actor;

static struct mcs_key key_of(const char *key)
{
	return (struct mcs_key){ key, strlen(key) };
}

static int result_of(int64_t r)
{
	switch (r) {
	case -MCS_ENOOBJECT: return HIST_ABSENT;
	case -MCS_EEXISTS: return HIST_EXISTS;
	case -MCS_ECHECKSUM: return HIST_DAMAGED;
	default: return r < 0 ? (int)r : 0;
	}
}

static int store_open(const struct hist_actor *a)
{
	struct mcs_conf conf;
	int r;

	actor = a;
	mcs_conf_init(&conf);
	conf.master = a->master;
	conf.hostname = a->hostname;
	conf.segment_size = a->segment;
	conf.ssd_path = a->disk;
	conf.ssd_size = a->disk_size;
	conf.ssd_buffers = 8 << 20;
	conf.far_size = a->far;
	conf.far_node = a->far ? 0 : -1;
	conf.root_fs_dir = a->shared;
	conf.root_fs_size = a->shared_size;
	conf.timeout_ms = TIMEOUT_MS;
	conf.setup_timeout_ms = 1000;
	conf.force_tcp = a->tcp;
	conf.daemon = a->daemon ? a->daemon : "off";
	do {
		r = mcs_open(&conf, &store);
		if (r < 0)
			fprintf(stderr, "open: %s %s\n", mcs_strerror(r), mcs_error_detail(r));
	} while (r < 0 && !hist_stopping() && !usleep(100000));
	return r;
}

/* The counters of transfers, for nemesis_secure.sh. */
static void store_close(void)
{
	char *text = mcs_metrics_text(), *line, *rest = text;

	while (text && (line = strsep(&rest, "\n")))
		if (!strncmp(line, "mooncake_transfer_", 18))
			puts(line);
	free(text);
	mcs_close(store);
}

static int store_put(struct hist_thread *t, const char *key, size_t size, unsigned flags)
{
	struct mcs_put_opts opts = { .flags = flags | (t->a->hard ? MCS_PUT_HARD_PIN : 0) };
	struct iovec iov[2] = { { t->buf, size / 3 }, { t->buf + size / 3, size - size / 3 } };

	return result_of(mcs_put(store, key_of(key), iov, 2, &opts, -1));
}

static int store_stage(struct hist_thread *t, const struct hist_rec *rec)
{
	char key[16];

	hist_private_key(t->writer, key);
	return store_put(t, key, rec->size, MCS_PUT_UPSERT);
}

static int store_write(struct hist_thread *t, struct hist_rec *rec)
{
	char key[16], private[16];

	hist_key(rec->key, key);
	hist_private_key(t->writer, private);
	if (rec->op == HIST_RENAME)
		return result_of(mcs_rename(store, key_of(private), key_of(key), 0, -1));
	return store_put(t, key, rec->size, rec->op == HIST_UPSERT ? MCS_PUT_UPSERT :
			 rec->op == HIST_PUT_EXCL ? MCS_PUT_EXCL : 0);
}

static int store_remove(const struct hist_rec *rec)
{
	char key[16];

	hist_key(rec->key, key);
	return result_of(mcs_remove(store, key_of(key), MCS_REMOVE_FORCE, -1));
}

/* ---- reads ---- */

/* Ask for a copy on another rank.  Only where the copies are depends on this, so it is no call of the history. */
static void tier(struct hist_thread *t, struct mcs_key key, const struct hist_rec *rec)
{
	bool near = rec->flags & HIST_RANK(0);

	if (actor->tiers && (!near || hist_rnd(t) % 4 == 0))
		(void)mcs_tier(store, &key, 1, near ? MCS_ON_DISK : MCS_IN_MEMORY, NULL, -1);
}

/* The properties of a version that a call has determined. */
static void version_note(struct hist_rec *rec, uint64_t generation, uint64_t size, unsigned media)
{
	static const unsigned medium[HIST_RANKS] = { MCS_IN_MEMORY, MCS_IN_FAR_MEMORY, MCS_ON_DISK, MCS_ON_SHARED };

	rec->generation = generation;
	rec->size = size;
	for (unsigned rank = 0; rank < HIST_RANKS; rank++)
		if (media & medium[rank])
			rec->flags |= HIST_RANK(rank);
}

static void seen(struct hist_rec *rec, const void *bytes, size_t n, uint64_t offset)
{
	if (hist_look(rec, bytes, n, offset) < 0)
		rec->flags |= HIST_WRONG;
}

static int read_get(struct hist_thread *t, struct mcs_key key, struct hist_rec *rec)
{
	uint64_t offset = rec->op == HIST_RANGE ? hist_rnd(t) % 4096 * sizeof(struct hist_row) : 0;
	struct iovec iov = { t->buf, HIST_SIZE_MAX };
	int64_t r;

	if (rec->op == HIST_RANGE) {
		iov.iov_len = hist_rnd(t) % 200000 + sizeof(struct hist_row);
		r = mcs_get_range(store, key, offset, &iov, 1, -1);
	} else {
		r = mcs_get(store, key, &iov, 1, -1);
	}
	rec->ret_ns = mc_now_ns();
	if (r > 0) {
		seen(rec, t->buf, (size_t)r, offset);
		rec->size = rec->op == HIST_RANGE ? 0 : (uint64_t)r;
	}
	return result_of(r);
}

/* Read the bytes in memory several times.  Only bytes that are read between two mcs_object_held() == 0 count. */
static int map_look(struct hist_thread *t, mcs_object_t *o, struct hist_rec *rec)
{
	unsigned looks = t->watches ? (unsigned)(hist_rnd(t) % LOOKS_MAX) : 2;
	uint64_t size = mcs_object_info(o)->size;
	struct hist_rec look = *rec;
	const void *map;

	if (mcs_object_map(o, &map, -1) < 0) {
		struct iovec iov = { t->buf, HIST_SIZE_MAX };
		int64_t r = mcs_object_read(o, 0, &iov, 1, -1);

		if (r > 0)
			seen(rec, t->buf, (size_t)r, 0);
		return result_of(r);
	}
	for (unsigned i = 0; i < looks && !hist_stopping(); i++) {
		bool held = mcs_object_held(o) == 0;
		int r = hist_look(&look, map, size, 0);

		if (!held || mcs_object_held(o) != 0)
			return -ESTALE;
		rec->value = look.value;
		rec->key_in_value = look.key_in_value;
		rec->where = look.where;
		rec->flags |= HIST_LOOKED;
		if (r < 0)
			rec->flags |= HIST_WRONG;
		if (r < 0)
			break;
		usleep(20000);
	}
	return 0;
}

static int read_map(struct hist_thread *t, struct mcs_key key, struct hist_rec *rec)
{
	mcs_object_t *o;
	int r = mcs_object_open(store, key, &o, -1);

	rec->ret_ns = mc_now_ns();
	if (r < 0)
		return result_of(r);
	version_note(rec, mcs_object_info(o)->generation, mcs_object_info(o)->size, mcs_object_info(o)->flags);
	r = map_look(t, o, rec);
	mcs_object_close(o);
	tier(t, key, rec);
	/* the version is known, even if its bytes are not */
	return r == HIST_DAMAGED ? r : 0;
}

static int store_read(struct hist_thread *t, struct hist_rec *rec)
{
	struct mcs_info info;
	struct mcs_key key;
	uint8_t present;
	char name[16];
	int r;

	hist_key(rec->key, name);
	key = key_of(name);
	switch (rec->op) {
	case HIST_MAP:
		return read_map(t, key, rec);
	case HIST_STAT:
		r = mcs_stat(store, key, &info, -1);
		if (r >= 0)
			version_note(rec, info.generation, info.size, info.flags);
		rec->ret_ns = mc_now_ns();
		tier(t, key, rec);
		return result_of(r);
	case HIST_EXIST:
		r = mcs_exist(store, &key, 1, &present, -1);
		rec->ret_ns = mc_now_ns();
		tier(t, key, rec);
		return r < 0 ? result_of(r) : present ? 1 : HIST_ABSENT;
	default:
		return read_get(t, key, rec);
	}
}

static int store_list(struct hist_rec *rec, unsigned keys)
{
	struct mcs_entry e;
	mcs_list_t *l;
	unsigned k;
	int r;

	for (k = 0; k < keys; k++)
		rec[k].result = HIST_ABSENT;
	r = mcs_list_open(store, key_of("h"), 0, &l);
	if (r < 0)
		return r;
	while ((r = mcs_list_next(l, &e, -1)) > 0) {
		if (e.name.len != 3 || sscanf((const char *)e.name.data, "h%2u", &k) != 1 || k >= keys)
			continue;
		/* e.media has copies that cannot be read now, too. */
		version_note(&rec[k], e.generation, e.size, 0);
		rec[k].result = 0;
	}
	mcs_list_close(l);
	return r;
}

const struct hist_calls hist_store_calls = {
	.open = store_open, .close = store_close, .write = store_write, .stage = store_stage,
	.remove = store_remove, .read = store_read, .list = store_list,
};
