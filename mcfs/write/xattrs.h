/* SPDX-License-Identifier: Apache-2.0
 * xattrs.h - extended attributes that wait for the first commit of a file. Guarded by the writer's lock. */
#ifndef MCFS_XATTRS_H
#define MCFS_XATTRS_H

#include <mooncake/mcs.h>

struct mcfs_xattrs {
	struct mcs_xattr *item;		/* each owns one allocation, which begins at its name */
	unsigned n;
};

/* Apply MCS_XATTR_* @flags, with the results of mcs_set_attrs(); -ENOMEM. */
int mcfs_xattrs_change(struct mcfs_xattrs *all, const struct mcs_xattr *x, unsigned flags);
/* Copy them into one array, to be freed with free(). */
int mcfs_xattrs_copy(const struct mcfs_xattrs *all, struct mcs_xattr **ret, unsigned *ret_n);
void mcfs_xattrs_clear(struct mcfs_xattrs *all);

#endif
