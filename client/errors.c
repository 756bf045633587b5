/* SPDX-License-Identifier: Apache-2.0
 * errors.c - the public functions about errors, on top of common/err.h. */
#include <config.h>

#include "common/err.h"
#include <mooncake/mcs.h>

#define SAME(name) _Static_assert((int)MCS_##name == (int)MC_##name, #name)
SAME(ENOSPACE);
SAME(EKEY);
SAME(EPARAM);
SAME(ENOTREADY);
SAME(ENOOBJECT);
SAME(EEXISTS);
SAME(ELEASED);
SAME(EREPLICA);
SAME(EREPLICA_GONE);
SAME(ETRANSFER);
SAME(ECHECKSUM);
SAME(ERPC);
SAME(ETIMEDOUT);
SAME(EUNAVAILABLE);
SAME(ENOTSUP);
SAME(ETOOBIG);
SAME(EMODE);
SAME(EQUOTA);
SAME(ENOTENANT);
SAME(ETENANT_BUSY);

const char *mcs_strerror(int err)
{
	return mc_strerror(err);
}

const char *mcs_error_detail(int err)
{
	return mc_err_detail(err);
}

int mcs_errno(int err)
{
	return mc_err_to_errno(err);
}

int mcs_code(int err)
{
	return mc_err_to_upstream(err);
}

const char *mcs_version(void)
{
	return PACKAGE_VERSION;
}
