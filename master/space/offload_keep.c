/* SPDX-License-Identifier: Apache-2.0
 * offload_keep.c - which objects stay in memory until they are on a disk, and the count of those that are lost. */
#include <config.h>

#include "master/space/offload_keep.h"

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "offload"
/* An owner that has asked for no copies during this time hangs, or its disk does.  A healthy owner asks again when its
 * disk has the copies of one fetch: 256 MiB at most. */
#define STALL_MS 30000u
/* So long, objects are not kept that are as large as one that found no place on the disk many times. */
#define UNFIT_MS 10000u

MC_COUNTER(lost, "mooncake_master_evicted_without_copy_total", "",
	   "With --enable_offload: objects evicted that were on no disk")
MC_COUNTER(waits, "mooncake_master_put_waits_for_disk_total", "",
	   "Puts refused because the objects in memory waited for their copies on disks; clients try again")

/* Why an object was lost. */
enum reason { FORCED, NO_DISK, TOO_LARGE, REFUSES, STALLED, DRAINED, REASONS };

static const char *const reasons[REASONS] = {
	[FORCED] = "puts are faster than the disk; with --offload_force_evict=false they wait for it",
	[NO_DISK] = "its node has no disk in service; give the node one (--enable_offload, --ssd_offload_path)",
	[TOO_LARGE] = "it is larger than the space that the disks of its node can free; enlarge --ssd_offload_size",
	[REFUSES] = "the disk (or far memory) of its node fails or is full; see the owner's log, mcctl df",
	[DRAINED] = "the disk (or far memory) of its node is being drained",
	[STALLED] = "its node has not copied for 30 s; see the owner's log, and whether its disk hangs",
};

/* On a disk, at most: its owner adds a record. */
static uint64_t space_of(uint64_t size)
{
	return mcm_alloc_round(mcm_object_reserve(size) + MCM_DISK_BLOCK) << MCM_GRANULE_SHIFT;
}

/* ---- what disks take ---------------------------------------------------------------------------- */

/* Bytes that eviction can free on the disk, but fewer than one piece that was not found lately. */
static uint64_t disk_evictable(const struct mcm *m, struct mcm_segment *d)
{
	uint64_t sum = mcm_load_relaxed(&d->size) + mcm_load_relaxed(&d->evictable), used = mcm_load_relaxed(&d->used);

	sum = sum > used ? sum - used : 0;
	if (__atomic_load_n(&d->unfit_ms, __ATOMIC_ACQUIRE) > mcm_now_ms(m) && sum >= mcm_load_relaxed(&d->unfit))
		return mcm_load_relaxed(&d->unfit) - 1;
	return sum;
}

/* Bytes of the largest range that eviction, if it is permitted, can free on the disk. */
static uint64_t disk_space(const struct mcm *m, struct mcm_segment *d)
{
	if (mcm_segment_may_evict(d, m->conf.enable_disk_eviction))
		return disk_evictable(m, d);
	MC_LOCKED(&d->lock);
	return mcm_segment_state(d) == MCM_SEG_NONE ? 0 : mcm_alloc_largest_free(&d->alloc);
}

/* Its owner compares or offers its objects, and copies nothing before the end of that: minutes, with a large disk. */
static bool disk_busy(const struct mcm_segment *d)
{
	return mcm_load_relaxed(&d->adopting) || mcm_segment_state(d) == MCP_SEG_CONFIRMING;
}

/* The same if the disk takes copies from its owner's lower ranks; else 0. */
static uint64_t disk_takes(const struct mcm *m, struct mcm_segment *d)
{
	if (!mcm_segment_is(d, MCP_TRAIT_COPIES) || mcm_load_relaxed(&d->draining) || mcm_load_relaxed(&d->refuses) ||
	    mcm_load_relaxed(&d->paused))
		return 0;
	/* After a restart of the master, an owner mounts its memory before its disk. */
	if (mcm_segment_state(d) != MCP_SEG_OK && !mcm_load_relaxed(&d->awaited) && !disk_busy(d))
		return 0;
	return disk_space(m, d);
}

uint64_t mcm_offload_disk_takes(const struct mcm *m, struct mcm_segment *disk, uint64_t most)
{
	uint64_t takes = m->offload.keep ? disk_takes(m, disk) : 0;

	return takes > most ? takes : most;
}

void mcm_offload_set_takes(struct mcm *m, struct mcm_segment *s, uint64_t takes)
{
	uint64_t was = mcm_load_relaxed(&s->copy_max);

	mcm_store_relaxed(&s->copy_max, takes);
	mcm_store_relaxed(&s->fetched_ms, mcm_now_ms(m));
	if (takes || !was)
		return;
	/* It lists what waited. */
	mc_stop_kick(&m->evictor_stop);
}

/* Bytes that the segments of each rank of one client take: now, and when they are not busy any more. */
struct rank_takes {
	uint64_t now[MCP_RANKS], later[MCP_RANKS];
};

static void owner_takes(struct mcm *m, struct mcm_segment *s, const struct rank_takes *t)
{
	uint64_t takes = 0, later = 0;

	for (unsigned rank = s->rank + 1u; rank < MCP_RANKS; rank++) {
		takes = t->now[rank] > takes ? t->now[rank] : takes;
		later = t->later[rank] > later ? t->later[rank] : later;
	}
	/* All disks are busy: after STALL_MS of this, puts do not wait for them any more. */
	if (takes || !later)
		mcm_offload_set_takes(m, s, takes);
}

void mcm_offload_owner_asks(struct mcm *m, struct mcp_id client)
{
	struct mcm_segments *ss = &m->segments;
	struct rank_takes t = { .now = { 0 } };

	if (!m->offload.keep)
		return;
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live; i++) {
		struct mcm_segment *d = ss->at[ss->live[i]];
		uint64_t *sum = disk_busy(d) ? &t.later[d->rank] : &t.now[d->rank];

		if (mcp_id_eq(d->client, client))
			*sum = mcm_offload_disk_takes(m, d, *sum);
	}
	for (unsigned i = 0; i < ss->n_live; i++)
		if (mcp_id_eq(ss->at[ss->live[i]]->client, client))
			owner_takes(m, ss->at[ss->live[i]], &t);
	mc_rwlock_unlock(&ss->lock);
}

bool mcm_offload_disk_rests(const struct mcm *m, const struct mcm_segment *disk)
{
	return mcm_load_relaxed(&disk->paused) || mcm_load_relaxed(&disk->pause_ms) > mcm_now_ms(m);
}

bool mcm_offload_disk_fits(const struct mcm *m, struct mcm_segment *disk, uint64_t size)
{
	return space_of(size) <= disk_space(m, disk);
}

void mcm_offload_disk_unfit(const struct mcm *m, struct mcm_segment *disk, uint64_t size)
{
	mcm_store_relaxed(&disk->unfit, space_of(size));
	__atomic_store_n(&disk->unfit_ms, mcm_now_ms(m) + UNFIT_MS, __ATOMIC_RELEASE);
}

/* ---- objects that stay -------------------------------------------------------------------------- */

static bool has_stalled(const struct mcm *m, const struct mcm_segment *s)
{
	/* Another thread may store a time after this one's: the difference is signed. */
	return (int64_t)(mcm_now_ms(m) - mcm_load_relaxed(&s->fetched_ms)) >= (int64_t)STALL_MS;
}

bool mcm_offload_awaits(const struct mcm *m, const struct mcm_segment *s)
{
	return m->offload.keep && mcm_load_relaxed(&s->copy_max) && !has_stalled(m, s);
}

bool mcm_offload_keeps(const struct mcm *m, const struct mcm_segment *s, const struct mcm_object *o)
{
	return !mcm_object_below(m, o, s) && mcm_offload_awaits(m, s) &&
	       space_of(mcm_object_size(o)) <= mcm_load_relaxed(&s->copy_max);
}

bool mcm_offload_keeps_any(const struct mcm *m, const struct mcm_object *o)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n;

	if (!m->offload.keep || mcm_object_is_below(o))
		return false;
	n = mcm_object_extents(&m->index, o, p);
	for (unsigned i = 0; i < n; i++)
		if (mcm_offload_keeps(m, mcm_segment(&m->segments, p[i].segment), o))
			return true;
	return false;
}

int mcm_offload_put_waits(struct mcm *m, uint64_t len)
{
	static const char why[] = "no space until the objects in memory are on a disk";

	mc_metric_add(&waits, 1);
	if (!__atomic_exchange_n(&m->offload.told_wait, true, __ATOMIC_RELAXED))
		mc_warn(LOG, "puts wait for a disk that is slower than they are: faster disks or more memory help, "
			"--offload_force_evict=true drops objects instead bytes=%llu", (unsigned long long)len);
	return mc_fail(-MC_ENOSPACE, "%s: bytes=%llu", why, (unsigned long long)len);
}

/* ---- objects that are lost ---------------------------------------------------------------------- */

static enum reason reason_of(const struct mcm *m, const struct mcm_segment *s, uint64_t size)
{
	uint16_t disk = mcm_load_relaxed(&s->disk);

	if (!__atomic_load_n(&s->offloads, __ATOMIC_RELAXED))
		return NO_DISK;
	if (!m->offload.keep)
		return FORCED;
	if (!mcm_load_relaxed(&s->copy_max))
		return disk && mcm_load_relaxed(&mcm_segment(&m->segments, disk - 1)->draining) ? DRAINED : REFUSES;
	return space_of(size) > mcm_load_relaxed(&s->copy_max) ? TOO_LARGE : STALLED;
}

void mcm_offload_lost(struct mcm *m, const struct mcm_segment *s, uint64_t size)
{
	enum reason why = reason_of(m, s, size);
	unsigned bit = 1u << why, *told = &m->offload.told;

	mc_metric_add(&lost, 1);
	if (mcm_load_relaxed(told) & bit || __atomic_fetch_or(told, bit, __ATOMIC_RELAXED) & bit)
		return;
	mc_warn(LOG, "an object was evicted that is on no disk: %s (mooncake_master_evicted_without_copy_total counts "
		"these) segment=%s bytes=%llu", reasons[why], s->name, (unsigned long long)size);
}
