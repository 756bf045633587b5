/* SPDX-License-Identifier: Apache-2.0
 * medium.h - the classes of media: the properties that a segment has because of the kind of its storage.
 *
 * One row per value of enum mcp_medium.  Code asks for a rank or a trait, never for a certain medium, so that a further
 * medium is one more row.  A table of constants; any thread. */
#ifndef MCP_MEDIUM_H
#define MCP_MEDIUM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/msg.h"

/* Order of the media of an object: puts go to the lowest rank, copies go down, to the next rank that the owner has, and
 * reads take the lowest. */
enum mcp_rank { MCP_RANK_NEAR, MCP_RANK_FAR, MCP_RANK_DISK, MCP_RANK_SHARED, MCP_RANKS };

/* Objects are put into it, and evicted from it when room is needed; its bytes are the pool's capacity. */
#define MCP_TRAIT_PUTS		0x01u
/* Its bytes end with its owner's process; else they outlive it, and any process of the node may become the owner. */
#define MCP_TRAIT_VOLATILE	0x02u
/* Copies of the objects on its owner's media of lower ranks are made there. */
#define MCP_TRAIT_COPIES	0x04u
/* Not addressable: only its owner's process writes there, in whole blocks. */
#define MCP_TRAIT_BLOCKS	0x08u
/* After a restart of the master, puts that find no room wait for its owner. */
#define MCP_TRAIT_AWAITED	0x10u
/* The master's quota limits the size of each segment. */
#define MCP_TRAIT_QUOTA		0x20u
/* Readers reach it also while its owner's process does not run. */
#define MCP_TRAIT_SHARED	0x40u
/* Objects of other owners are copied there too, if their puts ask for it (put_end.nof). */
#define MCP_TRAIT_NOF		0x80u

struct mcp_medium_class {
	const char *name;
	uint8_t rank;		/* enum mcp_rank */
	uint8_t traits;		/* MCP_TRAIT_*; master and client keep a copy where each operation asks */
	/* for readers; 0: that of the path to the owner's process; else more than all of those */
	uint8_t distance;
};

extern const struct mcp_medium_class mcp_media[MCP_MEDIA];

/* The class of a medium in a message: an unknown one counts as the first. */
static inline const struct mcp_medium_class *mcp_medium(uint8_t medium)
{
	return &mcp_media[medium < MCP_MEDIA ? medium : 0];
}

/* Has the class of the medium one of these traits? */
static inline bool mcp_medium_is(uint8_t medium, unsigned traits)
{
	return mcp_medium(medium)->traits & traits;
}

#endif
