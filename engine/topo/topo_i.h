/* SPDX-License-Identifier: Apache-2.0
 * topo_i.h - what the files of the topology share. */
#ifndef MCE_TOPO_I_H
#define MCE_TOPO_I_H

#include "engine/topo/topo.h"

#define MCE_TOPO_NICS_MAX 256u
#define MCE_TOPO_LOCATIONS_MAX 1024u

/* A location and how it likes the devices. */
struct mce_topo_location {
	char name[64];
	unsigned char nic[MCE_TOPO_NICS_MAX];	/* indexes: preferred ones, then the others */
	unsigned preferred, others;
};

struct mce_topo {
	unsigned nnics, nplaces;
	struct mce_topo_nic *nic;
	struct mce_topo_location *place;
};

/* The index of a device, added when it is new; -ENOMEM, -MC_ELIMIT. */
int mce_topo_nic_add(struct mce_topo *t, const char *name);
int mce_topo_location_add(struct mce_topo *t, const char *name, struct mce_topo_location **ret);
/* Is @name in the comma list?  NULL and "" list nothing. */
bool mce_topo_listed(const char *list, const char *name);

/* gpu.c: how many GPUs the CUDA driver knows, 0 without one, and where each is on the PCI bus, in sysfs' form
 * ("0000:3b:00.0").  @dir: where to look for the library, NULL: where the linker looks. */
#define MCE_TOPO_BUS_MAX 32u
#define MCE_TOPO_GPUS_MAX 64u
unsigned mce_topo_gpus(const char *dir, char ret[MCE_TOPO_GPUS_MAX][MCE_TOPO_BUS_MAX]);

#endif
