/* SPDX-License-Identifier: Apache-2.0
 * test_proto_fill.h - fill and compare messages by their field tables. */
#ifndef TEST_PROTO_FILL_H
#define TEST_PROTO_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"

/* Source of the values, and the memory that they point to; start with { .seed = n }. */
struct fill {
	uint64_t seed;
	unsigned version;	/* leave newer fields 0; 0: fill all */
	bool plain;		/* not random: counting values, two elements per list, all fields set */
	uint64_t count;
	void *mem;		/* chain of allocations */
};

void fill_struct(struct fill *f, const struct mcp_desc *d, void *out);
void fill_free(struct fill *f);
uint64_t fill_random(struct fill *f);

/* Are the values the same? Each side was given to the encoder or comes from the decoder. */
bool fill_same(const struct mcp_desc *d, const void *a, const void *b);

/* All tables: structs, requests, replies. NULL: past the end. */
const struct mcp_desc *fill_table(unsigned i);

#endif
