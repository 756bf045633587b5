/* SPDX-License-Identifier: Apache-2.0
 * policy_store.h - where the quota policy is stored, --tenant_quota_connector_type: one table of functions per kind.
 * In each the policy is the same YAML text (tenant_policy.c). */
#ifndef MCM_POLICY_STORE_H
#define MCM_POLICY_STORE_H

#include "master/conf.h"
#include "master/tenant/tenant.h"

#define MCM_POLICY_MAX (8u << 20)	/* bytes of the text */

struct mcm_policy_ops {
	const char *type;
	/* Without traffic.  -EINVAL, -ENOMEM with a detail. */
	int (*open)(struct mcm *m);
	/* Also after a failure of open(). */
	void (*close)(struct mcm *m);
	/* policy_lock held: put the stored policy in force.  At the start, after the journal was read, where a negative
	 * result ends the start; and after save() has found another policy. */
	int (*load)(struct mcm *m);
	/* Threads, if it needs some: 0, negative. */
	int (*start)(struct mcm *m);
	void (*stop)(struct mcm *m);
	/* For the monitor thread: apply a policy that has changed.  Must not wait for a network. */
	void (*tick)(struct mcm *m);
	/* policy_lock held: store this text, of @len bytes without its NUL.  -EAGAIN: another policy is
	 * stored meanwhile and stays. */
	int (*save)(struct mcm *m, const char *text, size_t len);
};

extern const struct mcm_policy_ops mcm_policy_file, mcm_policy_etcd;

/* NULL: unknown type. */
const struct mcm_policy_ops *mcm_policy_find(const char *type);
/* The store of this master, NULL: none, since tenants are off or no place is named. */
const struct mcm_policy_ops *mcm_policy_store(const struct mcm *m);
/* Options that fit together?  -EINVAL with a detail. */
int mcm_policy_check(const struct mcm_conf *conf);

/* policy_lock held: read the policy of @from, which has the name @where in messages, and put it in force.  Errors of
 * mcm_tenant_policy_read(). */
int mcm_policy_take(struct mcm *m, FILE *from, const char *where);

#endif
