/* SPDX-License-Identifier: Apache-2.0
 * tls_map.h - the file that maps names of certificates to identities.
 *
 *	# URI				role	tenant	name
 *	spiffe://pool/ns/ml/sa/train	client	ml	train
 *	spiffe://pool/ops-*		admin	*	ops
 *
 * '*' at the end of a URI matches every end; the first line that matches counts.  Tenant "*" is every tenant.  There is
 * no role node: the data port of a node needs the key of a credential. */
#ifndef MC_TLS_MAP_H
#define MC_TLS_MAP_H

#include <stddef.h>

#include "common/principal.h"

struct mc_tls_map;

/* Parse @text, which is changed; @path names it in errors.  -EINVAL, -ENOMEM, each with a detail. */
int mc_tls_map_parse(char *text, const char *path, struct mc_tls_map **ret);
/* Set source, roles, tenant and name of *@ret.  -EACCES with a detail: no line matches. */
int mc_tls_map_find(const struct mc_tls_map *m, const char *uri, struct mc_principal *ret);
void mc_tls_map_free(struct mc_tls_map *m);	/* NULL is fine */

#endif
