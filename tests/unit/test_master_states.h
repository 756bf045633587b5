/* SPDX-License-Identifier: Apache-2.0
 * test_master_states.h - one generated state of a master: its clients, its keys, and the fates of its owners. */
#ifndef TEST_MASTER_STATES_H
#define TEST_MASTER_STATES_H

#include "test_master_look.h"

#define OWNERS 2u		/* clients 1 and 2: segments 0 and 1 of memory, and one disk each, segments 2 and 3 */
#define KEYS_MAX 500u		/* the parts make fewer than 400 */

/* An owner before the master stops, and at the next master. */
enum fate {
	BACK,			/* alive; mounts its segments again */
	OTHER_MEMORY,		/* alive; mounts them with another epoch: its objects are lost */
	SILENT_BACK,		/* was silent and hidden; comes back at the next master */
	SILENT,			/* was silent and hidden; never comes back */
	LOST,			/* alive; never comes back */
	UNMOUNTED,		/* unmounted its segments in an orderly way */
};

/* Parts of a state; a state has any set of them. */
enum {
	DIRS, EMPTIES, LINKS, FILES, REPLICAS, HARD, SOFT, GROUPS, ATTRS, LARGEST_KEY, ONE_BYTE, CHANGES, TENANTS,
	ON_DISK, DISK_ONLY, FULL, LIMIT, TASKS, UNFINISHED, QUARANTINED, CHECKPOINT, LEASED, PINNED_ZOMBIE,
	PARTS
};
#define HAS(st, part) ((st)->parts >> (part) & 1)

struct state {
	uint64_t seed;
	uint32_t parts;
	enum fate fate[OWNERS];
	uint64_t epoch[OWNERS];		/* of the owner's memory */
	bool defaults;			/* all options have their defaults */
	struct fixture fx;		/* fx.s: the session of client 1 */
	struct mcm_session *owner[OWNERS];	/* NULL: not connected */
	struct mcm_session *writer, *reader;
	struct look_key key[KEYS_MAX];
	size_t keys;
};

/* The options of the state's masters. */
void state_tune(const struct state *st, struct mcm_conf *conf);
/* Connect the clients and make all parts, on an empty master. */
void state_make(struct state *st);
void state_free_keys(struct state *st);
/* "directories+files, owners: alive, lost" for messages; valid until the next call. */
const char *state_name(const struct state *st);
extern const char *const state_parts[PARTS];

/* Mount the segments of an owner. */
void state_mount(struct state *st, unsigned owner);
/* Let time pass, in which the connected owners send heartbeats, and all monitors and the evictor run. */
void state_advance(struct state *st, uint64_t ms);
/* A put of @size bytes; 0 or an error. */
int state_put(struct state *st, const char *key, uint64_t size, uint8_t kind, uint32_t flags);

#endif
