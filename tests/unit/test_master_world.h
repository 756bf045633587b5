/* SPDX-License-Identifier: Apache-2.0
 * test_master_world.h - a complete master and its only owner, which is also the client that sends
 * requests over the wire. An unexpected failure ends the test; helpers return the status of the
 * reply. */
#ifndef TEST_MASTER_WORLD_H
#define TEST_MASTER_WORLD_H

#include <stdbool.h>

#include "proto/rpc_client.h"
#include "tests/unit/test_master_fixture.h"

#define MIB (1u << 20)

struct world {
	struct mc_options *options;
	struct mcm_conf conf;
	struct mcm *m;
	char socket[64];
	struct mcp_client *c;
	uint64_t fence;			/* number of its session */
};

extern unsigned world_threads;		/* RPC threads of the master */
extern char *world_journal_dir;		/* NULL: no journal */
extern const struct mcp_id world_me, world_seg;

struct mcp_client *world_connect(const char *addr, struct mcp_id id, enum mcp_channel channel);
int world_call(struct mcp_client *c, uint16_t type, const void *msg, void *ret,
		struct mcp_reply *mem);
void world_up(struct world *w, bool local);
void world_down(struct world *w);
int world_start(struct world *w, const char *key, uint64_t size, struct mcp_put_grant *ret,
		 struct mcp_replica *replica);
int world_end(struct world *w, uint16_t type, const char *key, uint64_t generation);
int world_get(struct world *w, const char *key, uint32_t flags, struct mcp_object *ret,
	       struct mcp_replica *replica);
int world_remove(struct world *w, const char *key, uint32_t flags);
void world_put(struct world *w, const char *key, uint64_t size);

#endif
