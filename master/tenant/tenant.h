/* SPDX-License-Identifier: Apache-2.0
 * tenant.h - tenants: whose keys are whose, and how much of the pool each may use.
 *
 * Inside the master a key of the default tenant is what it is; a key of another tenant, or one that begins
 * with a NUL, has a prefix of MCM_PREFIX_MAX bytes, NUL, two bytes of the tenant's number, '/', so that
 * no two tenants' keys meet and each tenant's lie in a directory of their own.  Handlers add the prefix
 * (mcm_scope), answers leave it out; everything between knows keys only.
 *
 * While tenants are on (--enable_multi_tenants), a tenant that stands in the policy may write as long as
 * its objects, times their copies, fit into its quota; when they do not, its oldest ones that nobody
 * protects are evicted.  When all quotas together ask for more than there is, each gets its share.
 * While they are off, everything belongs to the default tenant. */
#ifndef MCM_TENANT_H
#define MCM_TENANT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "master/index/object.h"
#include "master/memory/slab.h"

#define MCM_TENANTS_MAX 16383u
#define MCM_TENANT_NONE MCM_TENANTS_MAX	/* of names that are not registered: has no keys */
#define MCM_TENANT_DEFAULT 0u

struct mcm;
struct mcm_slice;

/* Since the start. */
struct mcm_tenant_counts {
	uint64_t rejected;		/* puts that did not fit the quota */
	uint64_t evicted_bytes;		/* to keep it to its quota or its share */
};

/* An object's neighbours on one of its tenant's lists, 0: it is on none; guarded by the tenant's lock. */
struct mcm_tenant_link {
	uint32_t prev, next;
};
#define MCM_TENANT_LINKS_SHIFT 18
#define MCM_TENANT_WHEEL 32u
#define MCM_TENANT_LISTS (2 + MCM_TENANT_WHEEL)

struct mcm_tenant {
	/* constant while it has objects or a policy; changed under the table's lock for writing */
	char name[MCP_TENANT_MAX + 1];
	uint32_t next_name;		/* of its bucket, by number; 0: the end */
	uint32_t number;
	bool explicit_policy;		/* it stands in the policy */
	uint64_t requested, effective;
	uint64_t born;			/* the first event that can be about it: earlier ones were another's */
	struct mcm_tenant *retired;	/* the one that gave its number away before it */
	/* atomic */
	uint64_t charged, objects;
	uint64_t seen_ms;		/* when it was last in the policy, or asked for */
	struct mcm_tenant_counts counts;
	/* guarded by lock: its objects that may be evicted, on lists, the oldest first (tenant_evict.c) */
	pthread_mutex_t lock;
	struct mcm_tenant_link head[MCM_TENANT_LISTS];
	uint32_t turn;			/* the wheel's oldest slot that may hold something */
};

struct mcm_tenants {
	bool on;			/* constant */
	struct mcm_slab links;		/* of objects, by their slots */
	pthread_rwlock_t lock;
	/* guarded by lock; atomic: whoever has a number of a tenant that is still somebody's needs no lock */
	struct mcm_tenant **at;		/* by number; [0] is the default one */
	struct mcm_tenant *retired;	/* those whose number is another's */
	unsigned count;
	uint16_t *by_name;		/* buckets of numbers, 0: empty; the default one is in none */
	bool above;			/* atomic: some tenant may have more than its share */
	uint64_t shared_out;		/* capacity that the effective quotas were computed for; read without */
	/* the policy file (tenant_policy.c); the monitor's, and of who holds policy_lock */
	pthread_mutex_t policy_lock;
	uint64_t file_stamp;
	uint64_t checked_ms;
};

/* ---- names and keys ---- */

/* Bytes of the UTF-8 character at @p, 0 when it is none: too long a form, a surrogate, cut short by
 * @left. */
uint32_t mcm_utf8_len(const unsigned char *p, uint32_t left);
/* -MC_EPARAM. */
int mcm_tenant_check_name(struct mcp_bytes name);

/* Which keys a request is about. */
struct mcm_scope {
	uint32_t tenant;
};

/* Resolve the tenant of a request.  @write: it has to be registered: -MC_ENOTENANT.  -MC_EPARAM. */
int mcm_scope_begin(struct mcm *m, struct mcp_bytes tenant, bool write, struct mcm_scope *ret);
/* @name as it is inside the master: itself, or written to @buf of its length + MCM_PREFIX_MAX.  What is
 * longer than @max, or empty, becomes empty, which no key is. */
struct mcp_bytes mcm_scope_name(struct mcm_scope sc, struct mcp_bytes name, uint32_t max, char *buf);
static inline struct mcp_bytes mcm_scope_key(struct mcm_scope sc, struct mcp_bytes key, char *buf)
{
	return mcm_scope_name(sc, key, MCP_KEY_MAX, buf);
}
/* Does @key need no buffer? */
static inline bool mcm_scope_plain(struct mcm_scope sc, struct mcp_bytes key)
{
	return sc.tenant == MCM_TENANT_DEFAULT && key.len && ((const char *)key.data)[0];
}
/* The prefix of all keys of a tenant that have one. */
void mcm_tenant_prefix(uint32_t tenant, char ret[MCM_PREFIX_MAX]);

/* Whose is this inside key? */
static inline uint32_t mcm_key_tenant(const char *key, uint32_t len)
{
	if (len < MCM_PREFIX_MAX || key[0])
		return MCM_TENANT_DEFAULT;
	return ((uint32_t)key[1] & 0x7f) << 7 | ((uint32_t)key[2] & 0x7f);
}
/* The key as its owner calls it; *ret_tenant may be NULL. */
struct mcp_bytes mcm_key_bare(struct mcp_bytes key, uint32_t *ret_tenant);

/* ---- quotas; nothing happens while tenants are off ---- */

/* Room for a put, evicting the tenant's own objects when needed.  -MC_EQUOTA, MCP_AGAIN; -MC_EUNAVAILABLE while
 * they may be held after a restart. */
int mcm_tenant_charge(struct mcm *m, uint32_t tenant, uint64_t bytes, const struct mcm_slice *sl);
/* The same for one more copy of an object: nothing is evicted for it. */
int mcm_tenant_charge_copy(struct mcm *m, uint32_t tenant, uint64_t bytes);
/* What was decided already: the new place of an object that leaves its old one. */
void mcm_tenant_add(struct mcm *m, uint32_t tenant, uint64_t bytes);
void mcm_tenant_refund(struct mcm *m, uint32_t tenant, uint64_t bytes);

/* ---- the object's shard locked ---- */

/* Memory for its place on its tenant's list.  -ENOMEM. */
int mcm_tenant_cover(struct mcm *m, uint32_t slot);
/* A committed object is charged for its copies, and listed; of that its put was @charged before, and in between
 * nobody else gets it. */
void mcm_tenant_join(struct mcm *m, uint32_t slot, uint64_t charged);
/* It is no object of the index any more; its memory is refunded when it is free, which readers may put off. */
void mcm_tenant_leave(struct mcm *m, uint32_t slot);
/* A living object whose last reader has gone, or that was chosen as a victim and stays, may be evicted again. */
void mcm_tenant_relist(struct mcm *m, uint32_t slot);

/* ---- no lock held ---- */

/* Evict about @want bytes of a tenant's objects, fewer when the slice (evict.h) is over; bytes freed
 * (tenant_evict.c). */
uint64_t mcm_tenant_evict(struct mcm *m, uint32_t tenant, uint64_t want, const struct mcm_slice *sl);
/* Room is wanted: first up to @want bytes of those tenants of the policy that have more than their share,
 * since it became smaller, each down to it; what is promised to a reader stays.  Bytes freed. */
bool mcm_tenants_over_quota(struct mcm *m);	/* may there be such? */
uint64_t mcm_tenants_trim(struct mcm *m, uint64_t want, const struct mcm_slice *sl);

int mcm_tenants_init(struct mcm *m);	/* -ENOMEM */
/* After the journal was read: numbers of tenants, the policy file, whose objects are whose.  -ENOMEM, an
 * error of the policy file. */
int mcm_tenants_load(struct mcm *m);
void mcm_tenants_done(struct mcm *m);
/* Look whether the policy file has changed. */
void mcm_tenants_tick(struct mcm *m);

/* The @i-th known tenant's figures, its name borrowed for the request.  False past the end. */
bool mcm_tenant_describe(struct mcm *m, unsigned i, struct mcp_tenant *ret);
/* Of the same tenant, which is known. */
struct mcm_tenant_counts mcm_tenant_counts(struct mcm *m, unsigned i);
/* The name of a number that stands in a key; borrowed for the request. */
struct mcp_bytes mcm_tenant_name(const struct mcm *m, uint32_t tenant);
/* Number of a name.  -MC_ENOTENANT. */
int mcm_tenant_find(struct mcm *m, struct mcp_bytes name, uint32_t *ret);
/* Set its quota in the policy, or (0) take it out of it, and write the policy file if there is one.
 * -MC_EMODE, -MC_EPARAM, -MC_ELIMIT, -MC_ETENANT_BUSY, -MC_ENOTENANT, -ENOMEM, an error of the file: then
 * it is as it was. */
int mcm_tenant_set_quota(struct mcm *m, struct mcp_bytes name, uint64_t quota,
			 uint64_t *ret_effective);

/* What a policy file says: names that are valid and differ, quotas from 1 to INT64_MAX. */
struct mcm_tenant_policy {
	struct {
		char name[MCP_TENANT_MAX + 1];
		uint64_t quota;
	} *at;		/* freed by who had it read, also after a failure */
	size_t count;
};
/* *@p is all zero.  -MC_EPARAM with the reason, -MC_ELIMIT, -ENOMEM. */
int mcm_tenant_policy_read(FILE *from, struct mcm_tenant_policy *p);

/* ---- for tenant_policy.c; tenants' lock held for writing ---- */

#define MCM_TENANT_BUCKETS 16384u

/* Of a tenant that is all zero. */
void mcm_tenant_lists_init(struct mcm_tenant *t);

/* Number of a name, MCM_TENANT_NONE: none has it.  For reading is enough. */
uint32_t mcm_tenant_lookup(const struct mcm *m, struct mcp_bytes name);
/* Another one than the default one is found by this name (1 to MCP_TENANT_MAX bytes) from now on, no longer
 * by its old one. */
void mcm_tenant_set_name(struct mcm *m, struct mcm_tenant *t, const char *name, size_t len);
/* Find or make; when all numbers are given out, the one that nobody has used for the longest becomes another's: no
 * objects, not in the policy nor asked for as long as a put may last.  -MC_ELIMIT, -ENOMEM. */
int mcm_tenant_make(struct mcm *m, struct mcp_bytes name, struct mcm_tenant **ret);
/* Make its number and quota survive a restart. */
void mcm_tenant_save(struct mcm *m, const struct mcm_tenant *t);
/* It and those that it leads to by @retired; NULL is fine. */
void mcm_tenants_free(struct mcm_tenant *t);
/* Compute all effective quotas anew. */
void mcm_tenants_update_quotas(struct mcm *m);

#endif
