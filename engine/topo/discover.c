/* SPDX-License-Identifier: Apache-2.0
 * discover.c - discovery of this machine's priority matrix.
 *
 * A NUMA node prefers the devices on it.  A GPU considers the devices on its node (all devices if there
 * are none) and prefers those whose PCI paths have most components in common with its own. */
#include <config.h>

#include "engine/topo/topo_i.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/gpu/gpu.h"

#define NODES_MAX 256u

struct found {
	struct mce_topo *t;
	const char *root;
	const char *filter;
	char path[MCE_TOPO_NICS_MAX][PATH_MAX];	/* path of each device in sysfs */
	int node[NODES_MAX];
	unsigned nnodes;
	struct mc_gpu_place gpu[MC_GPUS_MAX];
};

/* ---- sysfs ------------------------------------------------------------------------------------- */

/* Read the first line of a file below @root, without its newline; "" on failure. */
static void sysfs_read_line(const char *root, const char *path, char *buf, size_t len)
{
	char full[PATH_MAX];
	FILE *f;

	buf[0] = 0;
	if (snprintf(full, sizeof(full), "%s%s", root, path) >= (int)sizeof(full))
		return;
	f = fopen(full, "re");
	if (!f)
		return;
	if (!fgets(buf, (int)len, f))
		buf[0] = 0;
	buf[strcspn(buf, "\n")] = 0;
	fclose(f);
}

static int sysfs_read_int(const char *root, const char *path, int def)
{
	char line[64], *end;
	long v;

	sysfs_read_line(root, path, line, sizeof(line));
	v = strtol(line, &end, 10);
	return end == line ? def : (int)v;
}

void mce_topo_cpus_near(const char *root, const char *name, char *buf, size_t len)
{
	char path[PATH_MAX], online[64];
	int node;

	buf[0] = 0;
	root = root ? root : "";
	sysfs_read_line(root, "/sys/devices/system/node/online", online, sizeof(online));
	/* "0": there is only one node. */
	if (!strpbrk(online, "-,") || strchr(name, '/'))
		return;
	snprintf(path, sizeof(path), "/sys/class/net/%s/device/numa_node", name);
	node = sysfs_read_int(root, path, -1);
	if (node < 0)
		return;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	sysfs_read_line(root, path, buf, len);
}

/* The real path of a device in sysfs, "" if unknown. */
static void sysfs_path(const char *root, const char *link, char ret[PATH_MAX])
{
	char full[PATH_MAX];

	if (snprintf(full, sizeof(full), "%s%s", root, link) >= (int)sizeof(full) || !realpath(full, ret))
		ret[0] = 0;
}

/* Number of leading components that two paths have in common. */
static unsigned sysfs_common(const char *a, const char *b)
{
	unsigned n = 0;

	for (; *a && *a == *b; a++, b++)
		n += *a == '/';
	return n + ((!*a || *a == '/') && (!*b || *b == '/'));
}

/* ---- network devices --------------------------------------------------------------------------- */

static bool nic_wanted(const struct found *f, const char *name)
{
	const char *only = getenv("MC_TE_FILTERS"), *not = getenv("MC_TE_FILTERS_EXCLUDE");

	if (f->filter && *f->filter && !mce_topo_listed(f->filter, name))
		return false;
	if (only && *only && !mce_topo_listed(only, name))
		return false;
	return !mce_topo_listed(not, name);
}

/* Set the port, GID and speed of @nic from the first active port; false if there is none. */
static bool nic_find_port(const char *root, const char *name, struct mce_topo_nic *nic)
{
	char path[512], line[128];

	for (int port = 1; port <= 16; port++) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/state", name, port);
		sysfs_read_line(root, path, line, sizeof(line));
		if (!*line)
			return false;
		if (!strstr(line, "ACTIVE"))
			continue;
		nic->port = port;
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/rate", name, port);
		sysfs_read_line(root, path, line, sizeof(line));
		nic->speed_gbps = atof(line);
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gids/0", name, port);
		sysfs_read_line(root, path, line, sizeof(line));
		snprintf(nic->gid, sizeof(nic->gid), "%.47s", line);
		return true;
	}
	return false;
}

static int nic_add(struct found *f, const char *name)
{
	struct mce_topo_nic nic = { .numa = -1 };
	char path[512];
	int i;

	if (strlen(name) >= sizeof(nic.name) || !nic_wanted(f, name) || !nic_find_port(f->root, name, &nic))
		return 0;
	i = mce_topo_nic_add(f->t, name);
	if (i < 0)
		return i;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", name);
	nic.numa = sysfs_read_int(f->root, path, -1);
	strcpy(nic.name, name);
	f->t->nic[i] = nic;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", name);
	sysfs_path(f->root, path, f->path[i]);
	return 0;
}

static int nics_find(struct found *f)
{
	struct dirent **entry;
	char dir[PATH_MAX];
	int n, r = 0;

	if (snprintf(dir, sizeof(dir), "%s/sys/class/infiniband", f->root) >= (int)sizeof(dir))
		return mc_fail(-EINVAL, "the path of sysfs is too long");
	/* Sorted, so that each process numbers the devices in the same order. */
	n = scandir(dir, &entry, NULL, versionsort);
	if (n < 0)
		return 0;
	for (int i = 0; i < n; i++) {
		if (r == 0 && entry[i]->d_name[0] != '.')
			r = nic_add(f, entry[i]->d_name);
		free(entry[i]);
	}
	free(entry);
	return r;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static int nodes_find(struct found *f)
{
	hwloc_topology_t top;
	hwloc_obj_t node = NULL;

	if (hwloc_topology_init(&top))
		return mc_fail(-ENOMEM, "cannot initialize hwloc");
	if (hwloc_topology_load(top)) {
		hwloc_topology_destroy(top);
		return mc_fail(-EIO, "hwloc cannot discover the machine's topology");
	}
	while ((node = hwloc_get_next_obj_by_type(top, HWLOC_OBJ_NUMANODE, node)))
		if (f->nnodes < NODES_MAX)
			f->node[f->nnodes++] = (int)node->os_index;
	hwloc_topology_destroy(top);
	if (f->nnodes == 0)
		f->node[f->nnodes++] = 0;
	return 0;
}

/* ---- the matrix -------------------------------------------------------------------------------- */

static void location_add_nic(struct mce_topo_location *p, unsigned nic, bool preferred)
{
	/* The caller adds all preferred devices before the others. */
	p->nic[p->preferred + p->others] = (unsigned char)nic;
	if (preferred)
		p->preferred++;
	else
		p->others++;
}

static int matrix_add_node(struct found *f, int node)
{
	struct mce_topo_location *p;
	char name[64];
	int r;

	snprintf(name, sizeof(name), "cpu:%d", node);
	r = mce_topo_location_add(f->t, name, &p);
	if (r < 0)
		return r;
	for (int pass = 1; pass >= 0; pass--)
		for (unsigned i = 0; i < f->t->nnics; i++)
			if ((f->t->nic[i].numa == node) == pass)
				location_add_nic(p, i, pass);
	return 0;
}

static int matrix_add_gpu(struct found *f, const struct mc_gpu_place *gpu)
{
	unsigned near = 0, on_node = 0;
	struct mce_topo_location *p;
	char path[512], own[PATH_MAX];
	int node, r;

	r = mce_topo_location_add(f->t, gpu->location, &p);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", gpu->bus);
	node = sysfs_read_int(f->root, path, -1);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", gpu->bus);
	sysfs_path(f->root, path, own);
	for (unsigned i = 0; i < f->t->nnics; i++)
		on_node += f->t->nic[i].numa == node;
	for (unsigned i = 0; i < f->t->nnics; i++)
		if ((!on_node || f->t->nic[i].numa == node) && sysfs_common(f->path[i], own) > near)
			near = sysfs_common(f->path[i], own);
	for (int pass = 1; pass >= 0; pass--)
		for (unsigned i = 0; i < f->t->nnics; i++) {
			bool candidate = !on_node || f->t->nic[i].numa == node;

			if ((candidate && sysfs_common(f->path[i], own) == near) == pass)
				location_add_nic(p, i, pass);
		}
	return 0;
}

static int matrix_fill(struct found *f)
{
	unsigned gpus;
	int r;

	r = nics_find(f);
	if (r == 0)
		r = nodes_find(f);
	for (unsigned i = 0; i < f->nnodes && r == 0; i++)
		r = matrix_add_node(f, f->node[i]);
	gpus = r == 0 ? mc_gpu_list(*f->root ? f->root : NULL, f->gpu) : 0;
	for (unsigned i = 0; i < gpus && r == 0; i++)
		r = matrix_add_gpu(f, &f->gpu[i]);
	return r;
}

int mce_topo_discover(const char *root, const char *filter, struct mce_topo **ret)
{
	struct found *f;
	int r = -ENOMEM;

	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->root = root ? root : "";
	f->filter = filter;
	f->t = calloc(1, sizeof(*f->t));
	if (f->t)
		r = matrix_fill(f);
	if (r == 0)
		*ret = f->t;
	else
		mce_topo_free(f->t);
	free(f);
	return r;
}
