/* SPDX-License-Identifier: Apache-2.0
 * tenant.h - tenants: separate key spaces, and how much of the pool each tenant may use.
 *
 * Handlers add the tenant's prefix (index/key.h) to keys (mcm_scope), answers remove it; the code between them
 * handles only keys.
 *
 * While tenants are on (--enable_multi_tenants), a tenant in the policy may write as long as its
 * objects, times their replicas, fit into its quota.  When they do not fit, its oldest unprotected
 * objects are evicted.  When all quotas together exceed the capacity, each tenant gets its share.
 * While tenants are off, everything belongs to the default tenant. */
#ifndef MCM_TENANT_H
#define MCM_TENANT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/principal.h"
#include "common/sys/lock.h"

#include "master/index/key.h"
#include "master/index/object.h"
#include "master/space/object_lists.h"

#define MCM_TENANTS_MAX 16383u
#define MCM_TENANT_NONE MCM_TENANTS_MAX	/* number for unknown names; no key has it */

struct mcm;
struct mcm_slice;

/* Since the start. */
struct mcm_tenant_counts {
	uint64_t rejected;		/* puts that exceeded the quota */
	uint64_t evicted_bytes;		/* evicted because of the quota or the share */
};

struct mcm_tenant {
	/* constant while it has objects or a policy; changed under the table's lock for writing */
	char name[MCP_TENANT_MAX + 1];
	uint32_t next_name;		/* number of the next tenant in the bucket; 0: end */
	uint32_t number;
	bool explicit_policy;		/* the tenant is in the policy */
	uint64_t requested, effective;	/* quota in the policy, quota in force */
	uint64_t first_event;		/* earlier events belong to a former tenant with this number */
	struct mcm_tenant *retired;	/* next in a list of tenants that lost their number */
	/* atomic */
	uint64_t charged, objects;
	uint64_t seen_ms;		/* last time that it was in the policy or in a request */
	struct mcm_tenant_counts counts;
	struct mcm_object_lists lists;	/* lists of its evictable objects (tenant_evict.c) */
};

struct mcm_tenants {
	bool on;			/* constant */
	struct mc_rwlock lock;
	/* guarded by lock; atomic: a number that is still in use can be resolved without the lock */
	struct mcm_tenant **at;		/* tenants by number; [0] is the default tenant */
	struct mcm_tenant *retired;	/* tenants whose number was reused */
	unsigned count;
	uint16_t *by_name;		/* buckets of numbers, 0: empty; without the default tenant */
	bool above;			/* atomic: some tenant may exceed its share */
	uint64_t quota_capacity;	/* used for the quotas in force; read without the lock */
	/* One thread changes the policy at a time, or reads or writes its store (policy_store.h). */
	struct mc_mutex policy_lock;
	uint64_t file_stamp;			/* policy_file.c; guarded by policy_lock */
	uint64_t checked_ms;			/* policy_file.c, only the monitor thread's */
	struct mcm_policy_watch *watch;		/* policy_etcd.c; NULL: the policy is not in etcd */
};

/* ---- names and keys ---- */

/* Length of the UTF-8 character at @p.  0: invalid (overlong form, surrogate), or cut off after
 * @left bytes. */
uint32_t mcm_utf8_len(const unsigned char *p, uint32_t left);
/* -MC_EPARAM. */
int mcm_tenant_check_name(struct mcp_bytes name);

/* The key space of a request. */
struct mcm_scope {
	uint32_t tenant;
};

/* Confine the tenant in a request of @peer to the tenant of its identity: none becomes that one (borrowed from @peer),
 * and another is refused with -EACCES.  NULL: the master itself, which may name every tenant. */
int mcm_tenant_confine(const struct mcm *m, const struct mc_principal *peer, struct mcp_bytes *tenant);
/* Resolve the tenant of a request, after it was confined.  @write: the tenant must be in the policy, else
 * -MC_ENOTENANT.  -MC_EPARAM; -EACCES. */
int mcm_scope_begin(struct mcm *m, const struct mc_principal *peer, struct mcp_bytes tenant, bool write,
		    struct mcm_scope *ret);
/* Does @key need no buffer? */
static inline bool mcm_scope_plain(struct mcm_scope sc, struct mcp_bytes key)
{
	return sc.tenant == MCM_TENANT_DEFAULT && key.len && ((const char *)key.data)[0];
}
/* The default tenant's name, or none. */
bool mcm_tenant_is_default(struct mcp_bytes name);
/* Add the tenant's prefix to @name: returns @name itself, or the result in @buf, which needs
 * @name's length + MCM_PREFIX_MAX bytes.  A name that is empty or longer than @max becomes empty,
 * which is not a valid key. */
struct mcp_bytes mcm_scope_name(struct mcm_scope sc, struct mcp_bytes name, uint32_t max, char *buf);
static inline struct mcp_bytes mcm_scope_key(struct mcm_scope sc, struct mcp_bytes key, char *buf)
{
	return key.len <= MCP_KEY_MAX && mcm_scope_plain(sc, key) ? key : mcm_scope_name(sc, key, MCP_KEY_MAX, buf);
}
/* ---- quotas; no-ops while tenants are off ---- */

/* Charge @bytes for a put, evicting the tenant's own objects if necessary.  -MC_EQUOTA, MCP_AGAIN;
 * -MC_EUNAVAILABLE while grace pins may protect objects of the tenant. */
int mcm_tenant_charge(struct mcm *m, uint32_t tenant, uint64_t bytes, const struct mcm_slice *sl);
/* Charge @bytes that are free in the quota; false: they are not. */
bool mcm_tenant_charge_free(struct mcm *m, uint32_t tenant, uint64_t bytes);
/* Charge one more replica of an object, without eviction. */
int mcm_tenant_charge_copy(struct mcm *m, uint32_t tenant, uint64_t bytes);
/* Charge without a check, for the new extent of an object that is being moved. */
void mcm_tenant_add(struct mcm *m, uint32_t tenant, uint64_t bytes);
void mcm_tenant_refund(struct mcm *m, uint32_t tenant, uint64_t bytes);

/* ---- the object's shard locked ---- */

/* Allocate the object's list links.  -ENOMEM. */
int mcm_tenant_cover(struct mcm *m, uint32_t slot);
/* Charge a committed object for its replicas and add it to a list.  @charged: bytes charged to its
 * put before; only the difference is charged now. */
void mcm_tenant_join(struct mcm *m, uint32_t slot, uint64_t charged);
/* The object leaves the index.  Its memory is refunded later, when the last reader has released it. */
void mcm_tenant_leave(struct mcm *m, uint32_t slot);
/* Make a live object evictable again: its last reader released it, it was a victim that was not evicted, or it has a
 * copy in memory again. */
void mcm_tenant_relist(struct mcm *m, uint32_t slot);

/* ---- no lock held ---- */

/* Evict about @want bytes of a tenant's objects, fewer when the slice (evict.h) is over.  Returns
 * the bytes freed (tenant_evict.c).  *ret_kept: some objects were left because they stay until they are on a disk. */
uint64_t mcm_tenant_evict(struct mcm *m, uint32_t tenant, uint64_t want, const struct mcm_slice *sl, bool *ret_kept);
/* May a tenant of the policy use more than its share, because the shares have become smaller? */
bool mcm_tenants_over_quota(struct mcm *m);
/* Evict up to @want bytes of such tenants, each at most down to its share; objects with a lease are
 * not evicted.  Returns the bytes freed (tenant_evict.c). */
uint64_t mcm_tenants_trim(struct mcm *m, uint64_t want, const struct mcm_slice *sl);

int mcm_tenants_init(struct mcm *m);	/* -ENOMEM */
/* After the journal was read: restore the tenants' numbers, assign objects to tenants, read the stored
 * policy.  -ENOMEM, an error of the policy file. */
int mcm_tenants_load(struct mcm *m);
void mcm_tenants_done(struct mcm *m);
int mcm_tenants_start(struct mcm *m);	/* the thread that follows a policy in etcd */
void mcm_tenants_stop(struct mcm *m);
/* Reload the policy file if it has changed. */
void mcm_tenants_tick(struct mcm *m);

/* Figures of the @i-th tenant; its name is borrowed for the request.  False past the end. */
bool mcm_tenant_describe(struct mcm *m, unsigned i, struct mcp_tenant *ret);
/* Counts of the same tenant, which must exist. */
struct mcm_tenant_counts mcm_tenant_counts(struct mcm *m, unsigned i);
/* The name of a key's tenant; borrowed for the request. */
struct mcp_bytes mcm_tenant_name(const struct mcm *m, uint32_t tenant);
/* Find a tenant's number by its name.  -MC_ENOTENANT. */
int mcm_tenant_find(struct mcm *m, struct mcp_bytes name, uint32_t *ret);
/* Set the tenant's quota in the policy, or (0) remove it from the policy, and store the policy where it
 * is stored.  -MC_EMODE, -MC_EPARAM, -MC_ELIMIT, -MC_ETENANT_BUSY, -MC_ENOTENANT, -ENOMEM, -MC_EUNAVAILABLE (etcd does
 * not answer, ...), an error of the store; then nothing has changed. */
int mcm_tenant_set_quota(struct mcm *m, struct mcp_bytes name, uint64_t quota, uint64_t *ret_effective);

/* Contents of a policy file: valid, distinct names, quotas from 1 to INT64_MAX. */
struct mcm_tenant_policy {
	struct {
		char name[MCP_TENANT_MAX + 1];
		uint64_t quota;
	} *at;		/* freed by the caller of mcm_tenant_policy_read(), also after a failure */
	size_t count;
};
/* *@p must be zeroed.  -MC_EPARAM with the reason, -MC_ELIMIT, -ENOMEM. */
int mcm_tenant_policy_read(FILE *from, struct mcm_tenant_policy *p);

/* ---- inside tenant/; tenants' lock held for writing ---- */

#define MCM_TENANT_BUCKETS 16384u

/* @t is zeroed. */

/* Number of the tenant with this name, or MCM_TENANT_NONE.  The lock for reading is enough. */
uint32_t mcm_tenant_lookup(const struct mcm *m, struct mcp_bytes name);
/* Give a tenant other than the default one a name of 1 to MCP_TENANT_MAX bytes, in place of its old one. */
void mcm_tenant_set_name(struct mcm *m, struct mcm_tenant *t, const char *name, size_t len);
/* Find or make a tenant.  When all numbers are in use, reuse the number that has been unused for
 * the longest time: its tenant has no objects, and was neither in the policy nor in a request for
 * as long as a put may last.  -MC_ELIMIT, -ENOMEM. */
int mcm_tenant_make(struct mcm *m, struct mcp_bytes name, struct mcm_tenant **ret);
/* Store the tenant's number and quota as a durable value. */
void mcm_tenant_save(struct mcm *m, const struct mcm_tenant *t);
/* Free the tenant and the list that follows it in retired; NULL is fine. */
void mcm_tenants_free(struct mcm_tenant *t);
/* Compute the quotas in force of all tenants. */
void mcm_tenants_update_quotas(struct mcm *m);

#endif
