/* SPDX-License-Identifier: Apache-2.0
 * check.c - comparing ranges, objects and sums of the state that a journal has. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/sys/file.h"
#include "master/journal/check.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/security/security.h"
#include "proto/codec.h"

#define ATTEMPTS 10u		/* a running master writes a checkpoint rarely, and a check is shorter than that time */
#define SCAN 4096

static void __attribute__((format(printf, 2, 3))) state_fault(struct mcm_check *c, const char *fmt, ...)
{
	char why[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	mcm_check_fault(c, NULL, 0, 0, why);
}

/* ---- the state ---- */

struct counts {
	struct mcm *m;
	struct mcm_check *c;
	uint64_t *objects;		/* copies by segment */
};

static void check_copy(struct counts *k, uint32_t slot, struct mcm_extent e)
{
	const struct mcm_object *o = mcm_object(&k->m->index, slot);
	const struct mcm_segment *s = mcm_segment(&k->m->segments, e.segment);
	const struct mcm_range *n = mcm_range(&s->alloc, e.range);
	uint64_t needs = mcm_alloc_round(mcm_object_reserve(mcm_object_size(o)));

	k->objects[e.segment]++;
	if (!(n->flags & MCM_RANGE_USED) || n->owner != slot)
		state_fault(k->c, "the range of %.*s in segment %s belongs to another object", o->key_len,
			    mcm_shard_key(&k->m->index, slot), s->name);
	else if (mcm_range_granules(&s->alloc, n) < needs)
		state_fault(k->c, "%.*s has %" PRIu64 " bytes, more than its range in segment %s", o->key_len,
			    mcm_shard_key(&k->m->index, slot), mcm_object_size(o), s->name);
}

static void check_object(void *arg, uint32_t slot)
{
	struct counts *k = arg;
	const struct mcm_object *o = mcm_object(&k->m->index, slot);
	struct mcm_extent e[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&k->m->index, o, e), kind = o->flags & MCM_OBJ_KIND;

	k->c->objects++;
	k->c->object_bytes += mcm_object_size(o);
	k->c->directories += kind == MCP_KIND_DIR;
	k->c->links += kind == MCP_KIND_SYMLINK;
	k->c->empties += kind == MCP_KIND_OBJECT && !mcm_object_size(o);
	for (unsigned i = 0; i < n; i++)
		check_copy(k, slot, e[i]);
}

/* Ranges follow each other without gap and overlap, and their sums are those of the segment. */
static void check_ranges(struct mcm_check *c, const struct mcm_segment *s)
{
	const struct mcm_alloc *a = &s->alloc;
	uint64_t at = 0, used = 0, ranges = 0;
	uint32_t id;

	for (id = a->first; id != a->end; id = mcm_range_next(mcm_range(a, id))) {
		const struct mcm_range *n = mcm_range(a, id);

		if (mcm_range_at(n) != at)
			break;
		at += mcm_range_granules(a, n);
		used += n->flags & MCM_RANGE_USED ? mcm_range_granules(a, n) : 0;
		ranges += n->flags & MCM_RANGE_USED;
	}
	if (id != a->end || at != a->granules)
		state_fault(c, "the ranges of segment %s overlap or have a gap at granule %" PRIu64, s->name, at);
	else if (used != a->used || ranges != a->ranges || s->used != used << MCM_GRANULE_SHIFT)
		state_fault(c, "segment %s has %" PRIu64 " granules in %" PRIu64 " ranges, its sums say %" PRIu64
			    " in %" PRIu64, s->name, used, ranges, a->used, a->ranges);
}

static void check_segments(struct mcm *m, struct mcm_check *c, const uint64_t *objects)
{
	for (unsigned i = 0; i < m->segments.n_live; i++) {
		const struct mcm_segment *s = m->segments.at[m->segments.live[i]];
		bool disk = !mcm_segment_is(s, MCP_TRAIT_PUTS);

		check_ranges(c, s);
		if (objects[s->index] != s->objects)
			state_fault(c, "segment %s has %" PRIu64 " copies, its sum says %" PRIu64, s->name,
				    objects[s->index], s->objects);
		*(disk ? &c->disks : &c->segments) += 1;
		*(disk ? &c->disk_capacity : &c->capacity) += s->size;
		*(disk ? &c->disk_used : &c->used) += s->used;
	}
}

static void count_tenant(void *arg, const struct mcm_durable_record *r)
{
	struct mcm_check *c = arg;

	c->tenants += r->kind == MCM_DURABLE_TENANT;
	c->tasks += r->kind == MCM_DURABLE_TASK;
}

static int check_state(struct mcm *m, struct mcm_check *c)
{
	struct counts k = { .m = m, .c = c, .objects = calloc(MCM_SEGMENTS_MAX, sizeof(*k.objects)) };
	uint64_t pos = 0;

	if (!k.objects)
		return -ENOMEM;
	while (pos < MCM_TABLE_END)
		mcm_index_scan(&m->index, &pos, SCAN, check_object, &k);
	if (c->objects != mcm_index_count(&m->index))
		state_fault(c, "the index has %" PRIu64 " objects, its sum says %" PRIu64, c->objects,
			    (uint64_t)mcm_index_count(&m->index));
	check_segments(m, c, k.objects);
	mcm_durables_each(m, 0, count_tenant, c);
	free(k.objects);
	return 0;
}

/* ---- all of it ---- */

static int check_once(const struct mcm_conf *conf, struct mcm_security *security, const char *dir, struct mcm_check *c)
{
	static char unset[] = "", none[] = "none";
	struct mcm_conf own = *conf;
	struct mcm *m = NULL;
	int r;

	/* Nothing but the journal is read. */
	own.tenant_quota_connector_uri = unset;
	own.snapshot_object_store_type = unset;
	own.enable_snapshot = own.enable_snapshot_restore = own.enable_oplog = false;
	own.journal_dir = none;
	r = mcm_core_read(&own, security, dir, c, &m);
	if (r == 0)
		r = check_state(m, c);
	mcm_core_free(m);
	return r;
}

/* The numbers of all files, as one number. */
static int files_sum(const char *dir, uint64_t *ret)
{
	auto_file int fd = mc_file_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	struct mcm_journal_files f;
	int r;

	if (fd < 0)
		return mc_fail(-errno, "cannot read the directory %s: %s", dir, mc_strerror(-errno));
	r = mcm_journal_list(fd, &f);
	if (r < 0)
		return r;
	*ret = mc_hash(f.checkpoint, f.checkpoints * sizeof(*f.checkpoint), 1) ^
		mc_hash(f.journal, f.journals * sizeof(*f.journal), 2);
	mcm_journal_files_done(&f);
	return 0;
}

int mcm_journal_check(const struct mcm_conf *conf, const char *dir, struct mcm_check *ret)
{
	struct mcm_security *security = NULL;
	uint64_t before = 0, after = 0;
	int r;

	*ret = (struct mcm_check){ 0 };
	r = mcm_security_open(conf, NULL, &security);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		mcm_check_done(ret);
		r = files_sum(dir, &before);
		if (r < 0)
			break;
		r = check_once(conf, security, dir, ret);
		/* Did a running master remove or add files in between? */
		if ((r == 0 && !ret->faults) || files_sum(dir, &after) < 0 || before == after)
			break;
	}
	mcm_security_close(security);
	return r;
}

void mcm_check_print(const struct mcm_check *c, const char *dir, FILE *to)
{
	for (uint64_t i = 0; i < c->faults && i < MCM_CHECK_KEPT; i++)
		if (c->fault && c->fault[i])
			fprintf(to, "fault %s\n", c->fault[i]);
	fprintf(to, "directory %s\n", dir);
	if (c->empty)
		fprintf(to, "files none, a master begins an empty pool\n");
	else
		fprintf(to, "files checkpoint %016" PRIx64 ", journals %016" PRIx64 " to %016" PRIx64 "\n",
			c->checkpoint, c->first, c->last);
	fprintf(to, "file_bytes %" PRIu64 "\nrecords %" PRIu64 "\nincomplete_bytes %" PRIu64 "\nended %s\n", c->bytes,
		c->records, c->torn_bytes, c->ended ? "yes" : "no");
	fprintf(to, "objects %" PRIu64 "\nobject_bytes %" PRIu64 "\nempty_objects %" PRIu64 "\ndirectories %" PRIu64
		"\nlinks %" PRIu64 "\nobjects_of_unmounted_segments %" PRIu64 "\nunfinished_puts %" PRIu64 "\n",
		c->objects, c->object_bytes, c->empties, c->directories, c->links, c->dropped, c->puts);
	fprintf(to, "segments %" PRIu64 "\ncapacity %" PRIu64 "\nused %" PRIu64 "\ndisks %" PRIu64 "\ndisk_capacity %"
		PRIu64 "\ndisk_used %" PRIu64 "\ntenants %" PRIu64 "\ntasks %" PRIu64 "\n", c->segments, c->capacity,
		c->used, c->disks, c->disk_capacity, c->disk_used, c->tenants, c->tasks);
	fprintf(to, "faults %" PRIu64 "\n", c->faults);
}
