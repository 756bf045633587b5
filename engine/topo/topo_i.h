/* SPDX-License-Identifier: Apache-2.0
 * topo_i.h - structures and functions shared by the files of the topology. */
#ifndef MCE_TOPO_I_H
#define MCE_TOPO_I_H

#include "engine/topo/topo.h"

#define MCE_TOPO_NICS_MAX 256u
#define MCE_TOPO_LOCATIONS_MAX 1024u

/* A location and its devices in the order of preference. */
struct mce_topo_location {
	char name[64];
	unsigned char nic[MCE_TOPO_NICS_MAX];	/* indexes: preferred devices, then the others */
	unsigned preferred, others;
};

struct mce_topo {
	unsigned nnics, nlocations;
	struct mce_topo_nic *nic;
	struct mce_topo_location *location;
};

/* The index of a device, which is added if it is new; -ENOMEM, -MC_ELIMIT. */
int mce_topo_nic_add(struct mce_topo *t, const char *name);
int mce_topo_location_add(struct mce_topo *t, const char *name, struct mce_topo_location **ret);
/* True if @name is in the comma-separated list; NULL and "" are empty lists. */
bool mce_topo_listed(const char *list, const char *name);

#endif
