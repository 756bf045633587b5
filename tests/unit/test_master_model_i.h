/* SPDX-License-Identifier: Apache-2.0
 * test_master_model_i.h - the model's state: which keys exist, the version of each, its pins, and
 * the owner of every granule of every segment. */
#ifndef TEST_MASTER_MODEL_I_H
#define TEST_MASTER_MODEL_I_H

#include "test_master_model.h"

#define KEYS_MAX 10000u
#define GROUPS 7u
#define SESSIONS 5u
#define PUTS_MAX 64u
#define PINS_MAX 512u
#define SEGMENTS_MAX 3u
#define LEASE_MS 256u
#define DISCARD_MS 500u
/* The master finds out at most that late that an object is not recent any more (master/space/candidates.h). */
#define SETTLE_MS 256u
#define RELEASE_MS 2000u
#define SOFT_MS 3000u

/* A range of a segment. */
struct range {
	uint32_t segment;	/* 1.. */
	uint32_t mount;		/* number of the mount, among those of this segment */
	uint64_t at, granules;
};

struct version {
	uint64_t size, generation, committed;	/* ms */
	uint32_t crc;
	uint32_t key;		/* 0: removed from the index */
	uint64_t lease_ms;	/* end of the promise lease */
	uint64_t settled_ms;	/* when the model first saw that it is not recent any more; 0: it is recent */
	uint32_t soft_until;	/* tick, 0: no soft pin */
	uint8_t kind, hard;
	unsigned group;		/* 0: none */
	unsigned tenant;
	unsigned pins, copies;
	struct range range[MCM_REPLICA_MAX];
};

struct open_put {
	bool open;
	uint64_t fence;		/* number of its session */
	unsigned session, group;
	uint32_t key, flags;
	uint8_t kind;
	uint64_t size, generation, began;
	unsigned copies;
	struct range range[MCM_REPLICA_MAX];
};

struct held_pin {
	struct version *v;	/* NULL: free */
	unsigned session;
	uint64_t id, until;	/* 0: no end */
};

/* A range of an abandoned put, until the owner of its segment has fenced the session. */
struct aside {
	uint64_t fence;
	bool confirmed;
	struct range range;
	unsigned tenant;
	uint64_t charged;
};

struct segment_map {
	bool mounted;
	uint32_t mount;
	uint64_t epoch, size, granules, used;	/* size in bytes, maybe more than its granules */
	uint64_t recent;	/* generation: objects from here on were recent before the operation */
	uint32_t moment;	/* ms: objects committed less than that ago were recent too */
	/* owner, 0: free; else 1 + an index of puts, or WHO_ASIDE, or a version's key + WHO_KEYS */
	uint32_t *who;
};

extern struct model {
	struct fixture fx;
	const struct model_setup *setup;
	struct model_progress *pr;
	struct mcm_session *session[SESSIONS];
	uint64_t client[SESSIONS];
	struct version *of_key[KEYS_MAX];	/* by key, [0] unused */
	char name[KEYS_MAX][32];
	char inside[KEYS_MAX][40];	/* with the tenant's prefix */
	struct mcp_bytes key[KEYS_MAX];	/* the same as bytes */
	struct open_put put[PUTS_MAX];
	struct held_pin pin[PINS_MAX];
	struct aside *aside;
	unsigned n_aside, cap_aside;
	struct segment_map seg[SEGMENTS_MAX + 1];
	struct version *zombie[PINS_MAX];
	unsigned n_zombies;
	int64_t evicted, broken;	/* the master's counters at the last comparison */
	uint64_t newest;		/* generation */
	uint32_t promised;		/* tick at which the last promise lease ends */
	uint32_t epochs;
	unsigned committed, refused, over_quota;
	uint64_t quota[2];
} mo;

#define MUST(cond, ...) do { if (!(cond)) model_broke(__VA_ARGS__); } while (0)

/* Master and model disagree: print the reason, end the process. */
__attribute__((format(printf, 1, 2), noreturn)) void model_broke(const char *fmt, ...);

static inline uint64_t now_ms(void)
{
	return mcm_now_ms(mo.fx.m);
}

static inline uint32_t now_tick(void)
{
	return mcm_now_tick(mo.fx.m);
}

static inline struct mcp_bytes key_bytes(uint32_t key)
{
	return mo.key[key];
}

/* ---- tenants: 0 is the default one, 1 "blue" ---- */

static inline unsigned tenant_of(uint32_t key)
{
	return mo.setup->tenants && key > mo.setup->keys / 2;
}

static inline struct mcp_bytes tenant_name(unsigned tenant)
{
	return fx_bytes(tenant ? "blue" : "");
}

/* Bytes charged to it, its quota, and the bytes of it that are evictable at @level. */
uint64_t tenant_charged(unsigned tenant);
uint64_t tenant_share(unsigned tenant);
uint64_t tenant_evictable(unsigned tenant, unsigned level);
void look_at_tenants(void);
void begin_tenants(void);
bool within_quota(const struct open_put *p, unsigned copies, unsigned level);
unsigned quota_level(const struct open_put *p, unsigned copies);

enum { WHO_PUT = 1, WHO_OBJECT, WHO_ASIDE };

/* The segment was not unmounted since the range was allocated. */
bool range_there(const struct range *r);
void range_take(const struct range *r, uint32_t who);
void range_give(const struct range *r);
/* Quarantine the ranges of a put: its session has ended, or it takes too long. */
void put_abandon(struct open_put *p);
/* The monitor frees the ranges that the owner has confirmed, and those of unmounted segments. */
void free_aside(void);
/* The owner gets its orders, and confirms those for one session or (@all) all of them. */
void confirm(uint32_t which, bool all);
struct range range_of(const struct mcp_replica *r, uint64_t size);

bool version_leased(const struct version *v);
/* A group's name, "" for 0. */
struct mcp_bytes group_name(unsigned group);
/* Whether @len bytes fit into a segment after evicting everything that @level allows
 * (MCM_EVICT_*). */
bool window(uint64_t len, unsigned level);
/* The mildest level at which they fit; NO_LEVEL: none. */
#define NO_LEVEL MCM_EVICT_FLAG_SETS
unsigned window_level(uint64_t len);
/* The result of allocating memory for the put; @fits: there is a run of granules for it. */
int expected_memory(const struct open_put *p, bool fits);
/* Removed from the index: removed, replaced or evicted. */
void version_unindex(struct version *v);
void unpin(struct held_pin *p);

/* The copies that the master reports are among those of the model; the others were evicted.
 * Returns the number of evicted ones. */
unsigned compare_copies(struct version *v, const struct mcp_replica *rep, unsigned n);
/* Compare the master's state of a key; returns how many copies were evicted since the last
 * comparison. */
unsigned look(uint32_t key, bool may_be_gone);
/* Find the evicted objects; all have to be evictable at @level. */
void look_for_evicted(unsigned level);
void look_at_used(void);
void look_at_all(void);

#endif
