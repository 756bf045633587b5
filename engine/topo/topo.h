/* SPDX-License-Identifier: Apache-2.0
 * topo.h - which network devices are near which memory: upstream's priority matrix,
 *	{"cpu:0": [["mlx5_0"], ["mlx5_1"]], "cuda:0": [["mlx5_0"], ["mlx5_1"]]}
 * location -> preferred devices, other devices.  The order in which devices first appear numbers them; keys of
 * RDMA buffers are in that order.
 *
 * An object is constant once made; any thread may read it. */
#ifndef MCE_TOPO_H
#define MCE_TOPO_H

#include <stdbool.h>
#include <stddef.h>

struct mce_topo;

struct mce_topo_nic {
	char name[64];
	char gid[48];		/* of the first port that is up, "" when there is none */
	int numa;		/* -1: not known */
	int port;		/* the first that is up, 0: none */
	double speed_gbps;	/* 0: not known */
};

/* Look at the machine: NUMA nodes by hwloc, InfiniBand and RoCE devices with an active port by sysfs, GPUs by
 * the CUDA driver's library if there is one.  @root, for tests, is put before /sys and is where that library
 * is looked for (NULL: the real ones).  @filter: comma list of devices that may appear (NULL: all);
 * MC_TE_FILTERS and MC_TE_FILTERS_EXCLUDE count besides. */
int mce_topo_discover(const char *root, const char *filter, struct mce_topo **ret);
/* A matrix from a file, or from text.  -EINVAL with a detail for what is none. */
int mce_topo_load(const char *path, struct mce_topo **ret);
int mce_topo_parse(const char *text, size_t len, struct mce_topo **ret);
void mce_topo_free(struct mce_topo *t);		/* NULL is fine */

/* The processors near network interface @name, as a list like "0-3,8"; "" when that is not known, or where all are as
 * near.  @root as above. */
void mce_topo_cpus_near(const char *root, const char *name, char *buf, size_t len);

/* The matrix as JSON text without line breaks, malloc'ed; only devices of @filter (NULL: all). */
int mce_topo_json(const struct mce_topo *t, const char *filter, char **ret);
/* Devices in their order; those of a file have only a name. */
unsigned mce_topo_nics(const struct mce_topo *t);
const struct mce_topo_nic *mce_topo_nic(const struct mce_topo *t, unsigned i);

#endif
