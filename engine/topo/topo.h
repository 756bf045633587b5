/* SPDX-License-Identifier: Apache-2.0
 * topo.h - topology: network devices near each memory location, as upstream's priority matrix
 *	{"cpu:0": [["mlx5_0"], ["mlx5_1"]], "cuda:0": [["mlx5_0"], ["mlx5_1"]]}
 * location -> preferred devices, other devices.  Devices are numbered in the order of their first
 * appearance; keys of RDMA buffers use that order.
 *
 * An object is constant after creation; any thread may read it. */
#ifndef MCE_TOPO_H
#define MCE_TOPO_H

#include <stdbool.h>
#include <stddef.h>

struct mce_topo;

struct mce_topo_nic {
	char name[64];
	char gid[48];		/* GID of the first active port, "": none */
	int numa;		/* node, -1: unknown */
	int port;		/* first active port, 0: none */
	double speed_gbps;	/* 0: unknown */
};

/* Discover NUMA nodes with hwloc, InfiniBand and RoCE devices with an active port in sysfs, and GPUs
 * with the library of their driver if there is one.  @root, for tests, is the prefix of /sys and the
 * directory of that library (NULL: the real ones).  @filter: comma-separated devices that may appear
 * (NULL: all); MC_TE_FILTERS and MC_TE_FILTERS_EXCLUDE apply as well. */
int mce_topo_discover(const char *root, const char *filter, struct mce_topo **ret);
/* A matrix from a file, or from text.  -EINVAL with a detail for an invalid one. */
int mce_topo_load(const char *path, struct mce_topo **ret);
int mce_topo_parse(const char *text, size_t len, struct mce_topo **ret);
void mce_topo_free(struct mce_topo *t);		/* NULL is fine */

/* The processors near network interface @name, as a list like "0-3,8"; "" if unknown or with a single
 * NUMA node. @root as above. */
void mce_topo_cpus_near(const char *root, const char *name, char *buf, size_t len);

/* The matrix as JSON text without line breaks, malloc'ed; only devices of @filter (NULL: all). */
int mce_topo_json(const struct mce_topo *t, const char *filter, char **ret);
/* Devices in the order of their numbers; a matrix from a file has only their names. */
unsigned mce_topo_nics(const struct mce_topo *t);
/* Is the device among those that the location prefers? */
bool mce_topo_prefers(const struct mce_topo *t, const char *location, const char *device);
const struct mce_topo_nic *mce_topo_nic(const struct mce_topo *t, unsigned i);

#endif
