/* SPDX-License-Identifier: Apache-2.0
 * protocol.h - the answer of every interface to the name of a transport protocol. */
#ifndef MC_PROTOCOL_H
#define MC_PROTOCOL_H

enum mc_protocol {
	MC_PROTOCOL_TCP,	/* TCP, and shared memory on the same host */
	MC_PROTOCOL_RPC_ONLY,	/* protocol of a store's client that contributes no memory */
	MC_PROTOCOL_RDMA,	/* NICs between hosts, and all of the above where there are none */
	MC_PROTOCOL_CXL,	/* a store: TCP, and far memory (upstream's MC_CXL_DEV_PATH, MC_CXL_DEV_SIZE) */
};

/* An enum mc_protocol for @name.  A protocol of upstream's that this version lacks ("efa", "cxl", ...) is
 * MC_PROTOCOL_TCP, with one warning per name in the log of the process.  -MC_EPARAM: a name that is no protocol.
 * Any thread. */
int mc_protocol_parse(const char *name);
/* The same for a store: "cxl" is MC_PROTOCOL_CXL if one of these variables is set. */
int mc_protocol_parse_store(const char *name);

#endif
