/* SPDX-License-Identifier: Apache-2.0
 * numa.c - the machine's NUMA nodes as the engine's places: threads by them, and memory that stays on them.
 *
 * Nodes are what hwloc sees, which HWLOC_XMLFILE may replace; where pages are only the kernel knows. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"

#define CPUS_TEXT 1024
/* Pages of a region that are asked for. */
#define SAMPLES 16u

struct mce_te_numa {
	hwloc_topology_t top;	/* NULL: not loaded */
	unsigned n;		/* places, 0: memory is all alike */
	int node[MCE_NUMA_MAX];	/* of each place, by the system's number */
	char cpus[MCE_NUMA_MAX][CPUS_TEXT];
	const char *list[MCE_NUMA_MAX];
};

static void add_node(struct mce_te_numa *numa, hwloc_obj_t node)
{
	/* A node without processors is no place for a thread: memory alone. */
	if (numa->n == MCE_NUMA_MAX || hwloc_bitmap_iszero(node->cpuset))
		return;
	if (hwloc_bitmap_list_snprintf(numa->cpus[numa->n], CPUS_TEXT, node->cpuset) >= CPUS_TEXT)
		return;
	numa->node[numa->n++] = (int)node->os_index;
}

/* The network's node comes first: there are threads there even when they are few. */
static void put_first(struct mce_te_numa *numa, const char *cpus)
{
	char first[CPUS_TEXT];
	unsigned i;
	int node;

	for (i = 0; i < numa->n && strcmp(numa->cpus[i], cpus); i++)
		;
	if (i == 0 || i == numa->n)
		return;
	strcpy(first, numa->cpus[i]);
	strcpy(numa->cpus[i], numa->cpus[0]);
	strcpy(numa->cpus[0], first);
	node = numa->node[i];
	numa->node[i] = numa->node[0];
	numa->node[0] = node;
}

int mce_te_numa_open(const char *first_cpus, struct mce_te_numa **ret)
{
	struct mce_te_numa *numa = calloc(1, sizeof(*numa));
	hwloc_obj_t node = NULL;

	if (!numa)
		return -ENOMEM;
	if (hwloc_topology_init(&numa->top))
		numa->top = NULL;
	if (!numa->top || hwloc_topology_load(numa->top)) {
		mc_warn("engine", "hwloc cannot see the machine's nodes, taking them for one");
		*ret = numa;
		return 0;
	}
	while ((node = hwloc_get_next_obj_by_type(numa->top, HWLOC_OBJ_NUMANODE, node)))
		add_node(numa, node);
	put_first(numa, first_cpus);
	if (numa->n < 2)
		numa->n = 0;
	for (unsigned i = 0; i < numa->n; i++)
		numa->list[i] = numa->cpus[i];
	*ret = numa;
	return 0;
}

void mce_te_numa_close(struct mce_te_numa *numa)
{
	if (numa && numa->top)
		hwloc_topology_destroy(numa->top);
	free(numa);
}

int mce_te_numa_index(const struct mce_te_numa *numa, int node)
{
	for (unsigned i = 0; numa && i < numa->n; i++)
		if (numa->node[i] == node)
			return (int)i;
	return -ENOENT;
}

int mce_te_numa_node(const struct mce_te_numa *numa, unsigned place)
{
	return numa && place < numa->n ? numa->node[place] : -ENOENT;
}

int mce_te_numa_here(const struct mce_te_numa *numa)
{
	int cpu = numa && numa->n ? sched_getcpu() : -1;
	hwloc_obj_t node = NULL;

	while (cpu >= 0 && (node = hwloc_get_next_obj_by_type(numa->top, HWLOC_OBJ_NUMANODE, node)))
		if (hwloc_bitmap_isset(node->cpuset, (unsigned)cpu))
			return (int)node->os_index;
	return -1;
}

unsigned mce_te_location_numa_index(const struct mce_te_numa *numa, const char *location)
{
	char *end;
	long node;
	int place;

	if (!location || strncmp(location, "cpu:", 4) || location[4] < '0' || location[4] > '9')
		return 0;
	node = strtol(location + 4, &end, 10);
	place = *end || node > INT_MAX ? -ENOENT : mce_te_numa_index(numa, (int)node);
	return place < 0 ? 0 : (unsigned)place + 1;
}

/* ---- where memory is --------------------------------------------------------------------------- */

/* A region is at a place when all pages of it that are looked at and that are there are. */
static int place_of(void *arg, const void *addr, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = (len + page - 1) / page;
	const struct mce_te_numa *numa = arg;
	void *at[SAMPLES];
	int node[SAMPLES], place = -ENODATA;
	unsigned count = n < SAMPLES ? (unsigned)n : SAMPLES;

	for (unsigned i = 0; i < count; i++)
		at[i] = (char *)((uintptr_t)addr & ~(page - 1)) + n * i / count * page;
	if (syscall(SYS_move_pages, 0, (unsigned long)count, at, NULL, node, 0))
		return -errno == -ENODATA ? -EIO : -errno;
	for (unsigned i = 0; i < count; i++) {
		int here = node[i] < 0 ? -ENODATA : mce_te_numa_index(numa, node[i]);

		if (here == -ENODATA || here == place)
			continue;
		if (place != -ENODATA || here < 0)
			return -ENOENT;
		place = here;
	}
	return place;
}

void mce_te_numa_conf(struct mce_te_numa *numa, struct mce_conf *conf)
{
	conf->places = numa->n;
	conf->place_cpus = numa->list;
	conf->place_of = place_of;
	conf->place_arg = numa;
}

/* Best effort: memory of another node is slower, not wrong. */
void mce_te_numa_bind(struct mce_te_numa *numa, void *addr, size_t len, int node)
{
	hwloc_nodeset_t set;

	if (node < 0 || !numa || !numa->top)
		return;
	set = hwloc_bitmap_alloc();
	if (set && !hwloc_bitmap_only(set, (unsigned)node) &&
	    hwloc_set_area_membind(numa->top, addr, len, set, HWLOC_MEMBIND_BIND,
				   HWLOC_MEMBIND_BYNODESET))
		mc_warn("engine", "cannot bind memory, continuing with any node=%d: %m", node);
	hwloc_bitmap_free(set);
}
