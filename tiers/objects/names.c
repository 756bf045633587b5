/* SPDX-License-Identifier: Apache-2.0
 * names.c - the names of ranges in a store. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/hash.h"
#include "tiers/objects/objects_i.h"

void mct_objects_name(const struct mct_objects *o, uint64_t folder, const struct mct_objects_range *r, uint64_t part,
		      char ret[MCT_KEYED_NAME_MAX])
{
	snprintf(ret, MCT_KEYED_NAME_MAX,
		 "%s%016" PRIx64 "/%012" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64 ".%" PRIx64,
		 o->prefix, folder, r->off, r->len, r->generation, r->order, part);
}

bool mct_objects_name_parse(const struct mct_objects *o, const char *name, uint64_t *ret_folder,
			    struct mct_objects_range *ret, uint64_t *ret_part)
{
	char again[MCT_KEYED_NAME_MAX];
	size_t len = strlen(o->prefix);

	if (strncmp(name, o->prefix, len) != 0 ||
	    sscanf(name + len, "%16" SCNx64 "/%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64 ".%16" SCNx64,
		   ret_folder, &ret->off, &ret->len, &ret->generation, &ret->order, ret_part) != 6)
		return false;
	if (!ret->len || ret->len > MCT_OBJECTS_RANGE_MAX || ret->len % MCT_BLOCK || ret->off % MCT_BLOCK ||
	    ret->off > UINT64_MAX - ret->len || *ret_part >= mct_objects_parts(ret))
		return false;
	mct_objects_name(o, *ret_folder, ret, *ret_part, again);
	return !strcmp(name, again);
}

/* The secret is among the words of the owner (client/owner/segment.c). */
uint64_t mct_objects_folder(const uint64_t words[MCT_IDENTITY])
{
	return mc_hash(words + 5, 2 * sizeof(*words), 0);
}
