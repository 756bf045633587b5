/* SPDX-License-Identifier: Apache-2.0
 * rpc_meta.h - records of engines at a metadata server: keys of segment descriptors (segdesc.h), and
 * addresses of handshake daemons with their keys.  Errors and threads as in meta/meta.h. */
#ifndef MCE_RPC_META_H
#define MCE_RPC_META_H

#include <stddef.h>
#include <stdint.h>

#include "meta/meta.h"

/* "mooncake/[CLUSTER/]ram/NAME", or "mooncake/NAME" if the name has a slash; CLUSTER is
 * MC_METADATA_CLUSTER_ID.  -EINVAL for a name that is empty or too long. */
int mce_key_segment(const char *name, char ret[MCD_KEY_MAX]);
/* "mooncake/[CLUSTER/]rpc_meta/NAME". */
int mce_key_rpc(const char *name, char ret[MCD_KEY_MAX]);

#define MCE_RPC_META_HOST_MAX 256

/* Address of a node's handshake daemon. */
struct mce_rpc_meta {
	char host[MCE_RPC_META_HOST_MAX];
	int port;
};
int mce_rpc_meta_get(struct mcd_client *m, const char *name, struct mce_rpc_meta *ret, uint64_t deadline);
/* Publish the address.  A dead node may have left a record under the name, which upstream's HTTP servers keep
 * forever. Such a record is replaced if it has our own address, if its host refuses the connection, or if a
 * node of another name answers there; else -EEXIST, also if the state of the other node is unknown. */
int mce_rpc_meta_publish(struct mcd_client *m, const char *name, const struct mce_rpc_meta *rpc,
			 uint64_t deadline);
int mce_rpc_meta_unpublish(struct mcd_client *m, const char *name, uint64_t deadline);
int mce_rpc_meta_decode(const char *text, size_t len, struct mce_rpc_meta *ret);

#endif
