/* SPDX-License-Identifier: Apache-2.0
 * medium.c - the table of the classes of media. */
#include <config.h>

#include "proto/medium.h"

const struct mcp_medium_class mcp_media[MCP_MEDIA] = {
	[MCP_MEDIUM_MEMORY] = {
		.name = "memory", .rank = MCP_RANK_NEAR,
		.traits = MCP_TRAIT_PUTS | MCP_TRAIT_VOLATILE | MCP_TRAIT_AWAITED,
	},
	[MCP_MEDIUM_DISK] = {
		.name = "disk", .rank = MCP_RANK_DISK, .distance = 8,
		.traits = MCP_TRAIT_COPIES | MCP_TRAIT_BLOCKS | MCP_TRAIT_QUOTA,
	},
	[MCP_MEDIUM_FAR] = {
		.name = "far", .rank = MCP_RANK_FAR, .traits = MCP_TRAIT_COPIES | MCP_TRAIT_VOLATILE,
	},
	[MCP_MEDIUM_DIRECTORY] = {
		.name = "directory", .rank = MCP_RANK_SHARED, .distance = 9,
		.traits = MCP_TRAIT_COPIES | MCP_TRAIT_BLOCKS | MCP_TRAIT_QUOTA | MCP_TRAIT_SHARED,
	},
	/* A disk that its owner reaches over a network (NVMe-oF). */
	[MCP_MEDIUM_NOF] = {
		.name = "nof", .rank = MCP_RANK_DISK, .distance = 9,
		.traits = MCP_TRAIT_COPIES | MCP_TRAIT_BLOCKS | MCP_TRAIT_QUOTA | MCP_TRAIT_NOF,
	},
	/* Its readers ask its owner's process. */
	[MCP_MEDIUM_S3] = {
		.name = "s3", .rank = MCP_RANK_SHARED, .distance = 12, .traits = MCP_TRAIT_COPIES | MCP_TRAIT_BLOCKS,
	},
};
