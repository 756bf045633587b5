/* SPDX-License-Identifier: Apache-2.0
 * permission.c - the operator's permission to use RDMA in a process with a credential: MC_RDMA_WITH_SECURITY, which
 * programs set from --rdma_with_security.
 *
 * RDMA keeps less than TCP does there: the bytes are not encrypted, and a NIC checks the key of a region, not the
 * capability for a range.  So it is off by default, and never the engine's own choice. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "engine/rdma/rdma_i.h"

int mce_rdma_permission(void)
{
	const char *v = mc_env_str("MC_RDMA_WITH_SECURITY");

	if (!v || !strcmp(v, "refuse"))
		return 0;
	return !strcmp(v, "allow") ? 1 :
		mc_fail(-EINVAL, "rdma_with_security=%s: it must be allow or refuse (MC_RDMA_WITH_SECURITY)", v);
}

int mce_rdma_check_permission(const struct mce_conf *conf)
{
	int r = conf->has_credential ? mce_rdma_permission() : 1;

	if (r)
		return r;
	if (conf->rdma_wanted)
		return mc_fail(-EACCES, "protocol rdma in a process with a credential: RDMA has no encryption, and the "
			       "key of a segment opens all of it to each client of its tenant: use protocol tcp, or "
			       "allow it with --rdma_with_security=allow (MC_RDMA_WITH_SECURITY)");
	if (mce_nics_exist(false))
		mc_info("rdma", "the NICs are not used, because the process has a credential and RDMA has no "
			"encryption: allow it with MC_RDMA_WITH_SECURITY=allow");
	return 0;
}

void mce_rdma_warn_permitted(void)
{
	static bool warned;	/* atomic */

	if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED))
		mc_warn("rdma", "bytes over RDMA are not encrypted, also with --encrypt=all, and the key of a segment "
			"opens all of it to each client of its tenant: rdma_with_security=allow");
}
