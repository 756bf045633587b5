/* SPDX-License-Identifier: Apache-2.0
 * numa.c - the machine's NUMA nodes, numbered by an index for the engine: threads run on them, memory
 * is bound to them.
 *
 * hwloc discovers the nodes (HWLOC_XMLFILE may replace them); the kernel says on which node a page is. */
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
/* Pages of a region whose node is queried. */
#define SAMPLES 16u

struct mce_te_numa {
	hwloc_topology_t top;	/* NULL: not loaded */
	unsigned n;		/* nodes; 0: fewer than two, so all memory is alike */
	int node[MCE_NUMA_MAX];	/* number of each in the system */
	char cpus[MCE_NUMA_MAX][CPUS_TEXT];
	const char *list[MCE_NUMA_MAX];
};

static void numa_add_node(struct mce_te_numa *numa, hwloc_obj_t node)
{
	/* A node without processors (memory only) cannot run threads. */
	if (numa->n == MCE_NUMA_MAX || hwloc_bitmap_iszero(node->cpuset))
		return;
	if (hwloc_bitmap_list_snprintf(numa->cpus[numa->n], CPUS_TEXT, node->cpuset) >= CPUS_TEXT)
		return;
	numa->node[numa->n++] = (int)node->os_index;
}

/* The network's node gets index 0: even few threads include one on it. */
static void numa_put_first(struct mce_te_numa *numa, const char *cpus)
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
		mc_warn("engine", "hwloc cannot discover the NUMA nodes, assuming one");
		*ret = numa;
		return 0;
	}
	while ((node = hwloc_get_next_obj_by_type(numa->top, HWLOC_OBJ_NUMANODE, node)))
		numa_add_node(numa, node);
	numa_put_first(numa, first_cpus);
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

int mce_te_numa_node(const struct mce_te_numa *numa, unsigned index)
{
	return numa && index < numa->n ? numa->node[index] : -ENOENT;
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
	int index;

	if (!location || strncmp(location, "cpu:", 4) || location[4] < '0' || location[4] > '9')
		return 0;
	node = strtol(location + 4, &end, 10);
	index = *end || node > INT_MAX ? -ENOENT : mce_te_numa_index(numa, (int)node);
	return index < 0 ? 0 : (unsigned)index + 1;
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* The index of the node of a region: the node of all sampled pages that are allocated.  -ENODATA: none is
 * allocated; -ENOENT: the nodes differ, or one has no index. */
static int numa_of_memory(void *arg, const void *addr, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = (len + page - 1) / page;
	const struct mce_te_numa *numa = arg;
	void *at[SAMPLES];
	int node[SAMPLES], index = -ENODATA;
	unsigned count = n < SAMPLES ? (unsigned)n : SAMPLES;

	for (unsigned i = 0; i < count; i++)
		at[i] = (char *)((uintptr_t)addr & ~(page - 1)) + n * i / count * page;
	if (syscall(SYS_move_pages, 0, (unsigned long)count, at, NULL, node, 0))
		return -errno == -ENODATA ? -EIO : -errno;
	for (unsigned i = 0; i < count; i++) {
		int here = node[i] < 0 ? -ENODATA : mce_te_numa_index(numa, node[i]);

		if (here == -ENODATA || here == index)
			continue;
		if (index != -ENODATA || here < 0)
			return -ENOENT;
		index = here;
	}
	return index;
}

void mce_te_numa_conf(struct mce_te_numa *numa, struct mce_conf *conf)
{
	conf->numa_nodes = numa->n;
	conf->numa_cpus = numa->list;
	conf->numa_of = numa_of_memory;
	conf->numa_arg = numa;
}

/* Best effort: memory on another node is only slower. */
void mce_te_numa_bind(struct mce_te_numa *numa, void *addr, size_t len, int node)
{
	hwloc_nodeset_t set;

	if (node < 0 || !numa || !numa->top)
		return;
	set = hwloc_bitmap_alloc();
	if (set && !hwloc_bitmap_only(set, (unsigned)node) &&
	    hwloc_set_area_membind(numa->top, addr, len, set, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET))
		mc_warn("engine", "cannot bind memory, continuing with any node=%d: %m", node);
	hwloc_bitmap_free(set);
}
