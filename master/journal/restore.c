/* SPDX-License-Identifier: Apache-2.0
 * restore.c - reading a checkpoint and the journals after it into an empty master.
 *
 * Records are applied in order: each key in the index points to its last record.  The files stay
 * mapped until restore_build.c has built objects, ranges and lists from the records that remain at
 * the end.  Only then are the ranges known: a checkpoint is written while things change, so in the
 * middle of it two objects may seem to have the same memory.
 *
 * A damaged record is skipped and counted.  That is safe: if the memory of its subject was reused,
 * a later record says so and takes precedence. */
#include <config.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"
#include "master/journal/restore_build.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "journal"

MC_COUNTER(damaged, "mooncake_master_journal_damaged_total", "",
	   "Damaged parts of the journal that the start skipped")

struct load {
	struct mcm *m;
	struct mcm_restored *r;
	uint64_t records, torn;
	uint64_t record;	/* number of the file's next record */
	uint64_t torn_bytes;
	bool ended;		/* the last record is an end record */
	bool other_boot;	/* a journal is from an earlier boot of the machine, neither synced nor ended */
	bool headless;		/* the last journal is missing, or has neither a header nor an end record */
};

void mcm_restored_fault(struct mcm *m, struct mcm_restored *r, const char *file, uint64_t at, uint64_t record,
			const char *fmt, ...)
{
	char why[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	r->damaged++;
	if (m->journal->check)
		mcm_check_fault(m->journal->check, file, at, record, why);
	else if (file)
		mc_err(LOG, "%s: %s at=%llu record=%llu", file, why, (unsigned long long)at,
		       (unsigned long long)record);
	else
		mc_err(LOG, "%s", why);
}

/* ---- one record ---- */

static int frame_set(struct mcm_restored *r, uint32_t slot, const uint8_t *frame)
{
	if (slot >= r->frames) {
		size_t n = r->frames ? 2 * r->frames : 4096;
		const uint8_t **more;

		while (n <= slot)
			n *= 2;
		more = realloc(r->frame, n * sizeof(*more));
		if (!more)
			return -ENOMEM;
		memset(more + r->frames, 0, (n - r->frames) * sizeof(*more));
		r->frame = more;
		r->frames = n;
	}
	r->frame[slot] = frame;
	return 0;
}

static int key_set(struct load *ld, const char *key, uint32_t len, const uint8_t *frame)
{
	struct mcm_index *ix = &ld->m->index;
	uint32_t hash = mcm_index_hash(ix, key, len), slot;
	struct mcm_shard *sh = mcm_index_shard(ix, hash);
	int r;

	slot = mcm_shard_find(ix, sh, hash, key, len);
	if (!slot) {
		r = mcm_shard_new(ix, sh, hash, key, len, &slot);
		if (r == 0)
			r = mcm_learn_cover(&ld->m->learn, slot);
		if (r < 0)
			return r;
		mcm_shard_link(ix, sh, slot);
	}
	return frame_set(ld->r, slot, frame);
}

static void key_drop(struct load *ld, struct mcp_bytes key)
{
	struct mcm_index *ix = &ld->m->index;
	uint32_t hash = mcm_index_hash(ix, key.data, key.len), slot;
	struct mcm_shard *sh = mcm_index_shard(ix, hash);

	slot = mcm_shard_find(ix, sh, hash, key.data, key.len);
	if (!slot)
		return;
	mcm_shard_unlink(ix, sh, slot);
	mcm_shard_free(ix, sh, slot);
}

static void seen_generation(struct load *ld, uint64_t generation)
{
	if (generation > ld->r->generation)
		ld->r->generation = generation;
}

static int apply_object(struct load *ld, const struct mcm_record *rec, const uint8_t *frame)
{
	struct mcm_object_record o;
	struct mcp_bytes from = { 0 };
	int r;

	r = rec->type == MCM_REC_RENAMED ? mcm_unpack_renamed(rec, &from, &o) :
		mcm_unpack_object(rec, &o);
	if (r < 0)
		return r;
	seen_generation(ld, o.generation);
	mcm_restored_put_drop(ld->r, o.generation);
	if (rec->type == MCM_REC_RENAMED)
		key_drop(ld, from);
	return key_set(ld, o.key, o.key_len, frame);
}

static int apply_put(struct load *ld, const struct mcm_record *rec, const uint8_t *frame)
{
	struct mcm_put_record p;
	int r = mcm_unpack_put(rec, &p);

	if (r < 0)
		return r;
	seen_generation(ld, p.generation);
	return mcm_restored_put_set(ld->r, p.generation, frame);
}

static int apply_segment(struct load *ld, const struct mcm_record *rec, const uint8_t *frame)
{
	struct mcm_segment_record s;
	int r = mcm_unpack_segment(rec, &s);

	if (r < 0)
		return r;
	if (s.index >= MCM_SEGMENTS_MAX)
		return mc_fail(-MC_EPROTO, "segment number %u out of range", s.index);
	ld->r->segment[s.index] = frame;
	ld->r->unmounted[s.index] = false;
	return 0;
}

static int apply_note(struct load *ld, const struct mcm_record *rec)
{
	struct mcm_durable_record n;
	int r = mcm_unpack_durable(rec, &n);

	if (r < 0)
		return r;
	if (rec->type == MCM_REC_DURABLE)
		return mcm_durable_set(ld->m, (enum mcm_durable_kind)n.kind, n.name, n.value);
	mcm_durable_drop(ld->m, (enum mcm_durable_kind)n.kind, n.name);
	return 0;
}

static int apply_number(struct load *ld, const struct mcm_record *rec)
{
	uint64_t v = 0;
	int r = mcm_unpack_number(rec, &v);

	if (r < 0)
		return r;
	if (rec->type == MCM_REC_PUT_GONE)
		mcm_restored_put_drop(ld->r, v);
	else if (v < MCM_SEGMENTS_MAX)
		ld->r->segment[v] = NULL;
	if (rec->type == MCM_REC_SEGMENT_GONE && v < MCM_SEGMENTS_MAX)
		ld->r->unmounted[v] = true;
	return 0;
}

static int apply_record(struct load *ld, const struct mcm_record *rec, const uint8_t *frame)
{
	struct mcp_bytes key;
	int r;

	ld->ended = rec->type == MCM_REC_END;
	switch (rec->type) {
	case MCM_REC_OBJECT:
	case MCM_REC_RENAMED:
		return apply_object(ld, rec, frame);
	case MCM_REC_OBJECT_GONE:
		r = mcm_unpack_key(rec, &key);
		if (r == 0)
			key_drop(ld, key);
		return r;
	case MCM_REC_PUT:
		return apply_put(ld, rec, frame);
	case MCM_REC_SEGMENT:
		return apply_segment(ld, rec, frame);
	case MCM_REC_PUT_GONE:
	case MCM_REC_SEGMENT_GONE:
		return apply_number(ld, rec);
	case MCM_REC_DURABLE:
	case MCM_REC_DURABLE_GONE:
		return apply_note(ld, rec);
	case MCM_REC_HEADER:
	case MCM_REC_END:
	case MCM_REC_BATCH:	/* its records are complete, and follow */
		return 0;
	}
	return mc_fail(-MC_EPROTO, "record of unknown type %d", (int)rec->type);
}

/* ---- one file ---- */

static int map_file(struct load *ld, const char *name, struct mcm_restored_file *ret)
{
	struct mcm_journal *j = ld->m->journal;
	auto_file int fd = mc_file_openat(j->dirfd, name, O_RDONLY | O_CLOEXEC, 0);
	struct stat st;
	int r;

	if (fd < 0 || mc_file_fstat(fd, &st) < 0)
		return mc_fail(-errno, "cannot open %s/%s", j->path, name);
	*ret = (struct mcm_restored_file){ NULL, 0, "" };
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	r = st.st_size ? mcm_vault_map(&j->vault, fd, (size_t)st.st_size, &ret->p, &ret->len) : 0;
	if (r < 0)
		return mc_fail(r, "cannot use %s/%s: %s", j->path, name, strdupa(mc_err_detail(r)));
	if (!ret->p)
		return 0;
	ld->r->file[ld->r->files++] = *ret;
	return 0;
}

/* A checkpoint has its objects in the order of their hashes.  With the same hash function the index is filled
 * from one end to the other, which is fast.  So far it contains only the root directory. */
static int adopt_seed(struct mcm *m, uint64_t seed)
{
	mcm_names_done(&m->names);
	m->index.seed = seed;
	return mcm_names_init(&m->names, &m->index);
}

/* Was the file written during this boot of the machine?  Two unknown boots may differ. */
static bool same_boot(const struct mcm_journal *j, const struct mcm_header_record *h)
{
	static const uint8_t unknown[MCM_BOOT_ID];

	return memcmp(h->boot, j->boot, MCM_BOOT_ID) == 0 && memcmp(h->boot, unknown, MCM_BOOT_ID) != 0;
}

int mcm_journal_belongs(const struct mcm_header_record *h, const char *dir, const char *name, const char *cluster,
			uint64_t sequence, bool checkpoint)
{
	if (h->cluster.len != strlen(cluster) || memcmp(h->cluster.data, cluster, h->cluster.len) != 0)
		return mc_fail(-EINVAL, "%s/%s belongs to cluster_id=%.*s, but this master's is %s", dir, name,
			       (int)h->cluster.len, (const char *)h->cluster.data, cluster);
	if (h->sequence != sequence || h->checkpoint != checkpoint)
		return mc_fail(-MC_EPROTO, "%s/%s has the contents of another file", dir, name);
	return 0;
}

/* Does the file belong to this pool and this name, and was it synced? */
static int check_header(struct load *ld, const char *name, const struct mcm_header_record *h,
			uint64_t sequence, bool checkpoint)
{
	const struct mcm_journal *j = ld->m->journal;
	int r = mcm_journal_belongs(h, j->path, name, j->cluster, sequence, checkpoint);

	if (r < 0)
		return r;
	seen_generation(ld, h->generation);
	if (checkpoint)
		return adopt_seed(ld->m, h->seed);
	if (!h->synced && !same_boot(j, h))
		ld->other_boot = true;
	return 0;
}

/* After a damaged record find the next good one.  If there is none, the tail is incomplete. */
static size_t skip_damaged(struct load *ld, const char *name, const struct mcm_restored_file *f, size_t at)
{
	size_t next = mcm_record_resync(f->p, f->len, at + 8);

	if (next >= f->len) {
		ld->torn++;
		ld->torn_bytes += f->len - at;
		mc_info(LOG, "%s ends with an incomplete record at=%zu bytes=%zu", name, at, f->len - at);
		return f->len;
	}
	mcm_restored_fault(ld->m, ld->r, name, at, ld->record, "%zu unreadable bytes were skipped", next - at);
	return next;
}

/* Does the file end before the last record of a change of many objects?  Then the change was not answered. */
static bool batch_is_torn(struct load *ld, const char *name, const struct mcm_restored_file *f, size_t at,
			  const struct mcm_record *rec, size_t n)
{
	uint64_t bytes;

	if (rec->type != MCM_REC_BATCH || mcm_unpack_number(rec, &bytes) < 0 || bytes <= f->len - at - n)
		return false;
	ld->torn++;
	ld->torn_bytes += f->len - at;
	ld->ended = false;
	mc_info(LOG, "%s ends with an incomplete change of many objects at=%zu bytes=%zu", name, at, f->len - at);
	return true;
}

static int apply_file(struct load *ld, const char *name, const struct mcm_restored_file *f, size_t at)
{
	struct mcm_record rec;
	size_t n;
	int r;

	for (; at < f->len; at += n) {
		const uint8_t *frame = (const uint8_t *)f->p + at;

		n = mcm_record_next(frame, f->len - at, &rec);
		if (!n) {
			n = skip_damaged(ld, name, f, at) - at;
			continue;
		}
		if (batch_is_torn(ld, name, f, at, &rec, n))
			return 0;
		r = apply_record(ld, &rec, frame);
		if (r == -MC_EPROTO || r == -MC_EPARAM || r == -MC_ELIMIT)
			mcm_restored_fault(ld->m, ld->r, name, at, ld->record, "a record was skipped: %s",
					   mc_err_detail(r));
		else if (r < 0)
			return r;
		ld->records++;
		ld->record++;
	}
	return 0;
}

/* Read the header.  *ret_at: offset of the next record, @f's length if nothing can be read.  A file
 * begins with two copies of its header; if a journal has lost both, its records are read
 * nevertheless.  -MC_EPROTO, -MC_EVERSION. */
static int read_header(struct load *ld, const char *name, const struct mcm_restored_file *f,
		       bool checkpoint, struct mcm_header_record *ret, size_t *ret_at)
{
	struct mcm_record rec;
	size_t n = mcm_record_next(f->p, f->len, &rec), at = 0;
	int r;

	if (!n) {
		at = mcm_record_resync(f->p, f->len, 8);
		*ret_at = f->len;
		if (at >= f->len)
			return mc_fail(-MC_EPROTO, "%s/%s has no header", ld->m->journal->path, name);
		n = mcm_record_next((const uint8_t *)f->p + at, f->len - at, &rec);
		mcm_restored_fault(ld->m, ld->r, name, 0, 1, "%zu unreadable bytes were skipped", at);
	}
	ld->headless = !checkpoint && rec.type != MCM_REC_HEADER;
	if (ld->headless) {
		*ret_at = at;
		return 0;
	}
	*ret_at = at + n;
	ld->record++;
	r = mcm_unpack_header(&rec, ret);
	return r < 0 ? mc_fail(r, "%s/%s: %s", ld->m->journal->path, name, mc_err_detail(r)) : 0;
}

/* Was the file created, and the process killed before it wrote the header? */
static bool only_begun(const struct mcm_restored_file *f, bool checkpoint, size_t at)
{
	return !checkpoint && at == f->len && f->len < MCM_JOURNAL_HEAD_MAX;
}

/* -MC_EPROTO: the file is unreadable, or its contents do not match its name. */
static int load_file(struct load *ld, uint64_t sequence, bool checkpoint)
{
	struct mcm_header_record h;
	char name[MCM_JOURNAL_NAME];
	struct mcm_restored_file f;
	size_t at;
	int r;

	mcm_journal_name(name, checkpoint, sequence);
	ld->ended = ld->headless = false;
	ld->record = 1;
	r = map_file(ld, name, &f);
	/* Nothing says when an encrypted journal without its head was written. */
	if (r == -MC_EPROTO && !checkpoint)
		ld->headless = true;
	if (r < 0)
		return r;
	r = read_header(ld, name, &f, checkpoint, &h, &at);
	if (r == -MC_EPROTO && only_begun(&f, checkpoint, at)) {
		mc_warn(LOG, "%s, continuing", mc_err_detail(r));
		ld->torn++;
		return 0;
	}
	if (r == 0 && !ld->headless)
		r = check_header(ld, name, &h, sequence, checkpoint);
	if (r == 0)
		r = apply_file(ld, name, &f, at);
	if (r == 0 && !checkpoint) {
		ld->m->journal->file_bytes += f.len;
		/* mcm_journal_close() syncs all earlier files before it writes an end record. */
		if (ld->ended)
			ld->other_boot = ld->headless = false;
	}
	if (r == 0 && checkpoint) {
		ld->m->journal->last_bytes = f.len;
		if (!ld->ended)
			mcm_restored_fault(ld->m, ld->r, name, f.len, ld->record, "its last record is missing");
	}
	return r;
}

/* ---- the directory ---- */

static void discard_state(struct load *ld, const char *why)
{
	struct mcm_journal *j = ld->m->journal;

	if (j->check) {
		mcm_restored_fault(ld->m, ld->r, NULL, 0, 0, "a master would discard the state: %s", why);
		return;
	}
	mc_err(LOG, "cannot use the journal, starting with an empty index: %s dir=%s", why, j->path);
	(void)mcm_journal_remove_below(j->dirfd, UINT64_MAX);
	j->file_bytes = 0;
}

static int load_journals(struct load *ld, const struct mcm_journal_files *files, uint64_t from)
{
	uint64_t want = from;
	size_t i;
	int r;

	for (i = 0; i < files->journals; i++) {
		if (files->journal[i] < from)
			continue;
		if (files->journal[i] != want)
			mcm_restored_fault(ld->m, ld->r, NULL, 0, 0, "journals %llu to %llu are missing",
					   (unsigned long long)want, (unsigned long long)files->journal[i] - 1);
		want = files->journal[i] + 1;
		r = load_file(ld, files->journal[i], false);
		if (r == -MC_EPROTO) {
			mcm_restored_fault(ld->m, ld->r, NULL, 0, 0, "a journal was skipped: %s", mc_err_detail(r));
			r = 0;
		}
		if (r < 0)
			return r;
	}
	/* The journal was created before the checkpoint of the same number. */
	if (want == from) {
		ld->headless = true;
		mcm_restored_fault(ld->m, ld->r, NULL, 0, 0, "journal %llu is missing", (unsigned long long)from);
	}
	return 0;
}

/* Load the newest checkpoint that has a header, and the journals after it. */
static int load_all(struct load *ld, const struct mcm_journal_files *files)
{
	size_t i = files->checkpoints;
	int r = -MC_EPROTO;

	while (i && r == -MC_EPROTO) {
		r = load_file(ld, files->checkpoint[--i], true);
		if (r == -MC_EPROTO)
			mcm_restored_fault(ld->m, ld->r, NULL, 0, 0, "%s", mc_err_detail(r));
	}
	if (r == -MC_EPROTO) {
		if (files->journals || files->checkpoints)
			discard_state(ld, "no checkpoint can be read");
		return 0;
	}
	if (r == 0)
		r = load_journals(ld, files, files->checkpoint[i]);
	if (r == 0)
		ld->m->journal->based = true;
	return r;
}

static uint64_t next_sequence(const struct mcm_journal_files *f)
{
	uint64_t last = 0;

	if (f->journals)
		last = f->journal[f->journals - 1];
	if (f->checkpoints && f->checkpoint[f->checkpoints - 1] > last)
		last = f->checkpoint[f->checkpoints - 1];
	return last + 1;
}

static int load_and_build(struct load *ld, const struct mcm_journal_files *files)
{
	int r;

	ld->r->file = calloc(files->journals + files->checkpoints + 1, sizeof(*ld->r->file));
	if (!ld->r->file)
		return -ENOMEM;
	r = load_all(ld, files);
	if (r < 0)
		return r;
	/* Without syncs a machine failure may have lost the last records.  If these reused memory of older
	 * objects, the older objects would be restored with foreign contents: use nothing. */
	if (ld->other_boot || ld->headless) {
		discard_state(ld, ld->other_boot ?
			      "the machine restarted, or may have restarted, before the journal was synced" :
			      "the last journal has no header, so the machine may have restarted since");
		ld->m->journal->based = false;
		mcm_restored_forget(ld->m, ld->r);
		/* In the same pool, owners would take their disks' objects for removed ones. */
		for (unsigned i = 0; i < mcm_parts_n; i++)
			mcm_parts[i].discarded(ld->m);
	}
	return mcm_restored_build(ld->m, ld->r);
}

static void describe_files(struct mcm_check *c, const struct load *ld, const struct mcm_journal_files *f)
{
	c->empty = !f->checkpoints && !f->journals;
	c->checkpoint = f->checkpoints ? f->checkpoint[f->checkpoints - 1] : 0;
	c->first = f->journals ? f->journal[0] : 0;
	c->last = f->journals ? f->journal[f->journals - 1] : 0;
	c->records = ld->records;
	for (size_t i = 0; i < ld->r->files; i++)
		c->bytes += ld->r->file[i].len;
	c->torn_bytes = ld->torn_bytes;
	c->ended = ld->ended;
	c->dropped = ld->r->dropped;
	c->puts = ld->r->puts;
}

int mcm_restore(struct mcm *m, uint64_t *ret_next, bool *ret_again)
{
	struct mcm_journal *j = m->journal;
	uint64_t began = mc_now_ns();
	struct mcm_journal_files files;
	struct mcm_restored *r;
	struct load ld = { .m = m };
	int e;

	e = j->check ? mcm_journal_list(j->dirfd, &files) : mcm_journal_files(j->dirfd, &files);
	if (e < 0)
		return e;
	r = mcm_restored_new();
	ld.r = r;
	e = r ? load_and_build(&ld, &files) : -ENOMEM;
	if (e == 0) {
		mc_metric_add(&damaged, (int64_t)r->damaged);
		*ret_next = next_sequence(&files);
		*ret_again = r->damaged || j->vault.aged || j->file_bytes > j->checkpoint_bytes;
		j->restored = r->objects;
		if (j->based)
			mc_info(LOG, "index restored dir=%s objects=%llu dropped=%llu segments=%u "
				"puts=%llu records=%llu damaged=%llu ms=%llu", j->path,
				(unsigned long long)r->objects, (unsigned long long)r->dropped,
				r->segments, (unsigned long long)r->puts,
				(unsigned long long)ld.records, (unsigned long long)r->damaged,
				(unsigned long long)((mc_now_ns() - began) / MC_NS_PER_MS));
		if (r->uncorrected)
			j->based = false;
		if (j->check)
			describe_files(j->check, &ld, &files);
	}
	mcm_restored_done(r);
	mcm_journal_files_done(&files);
	return e;
}
