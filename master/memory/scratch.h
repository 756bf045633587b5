/* SPDX-License-Identifier: Apache-2.0
 * scratch.h - memory of the thread that a request needs until it is answered.  It grows to what the
 * largest request needed and is kept, so that requests allocate nothing in the long run. */
#ifndef MCM_SCRATCH_H
#define MCM_SCRATCH_H

#include <stddef.h>

struct mcm_list_page;

enum mcm_scratch_use { MCM_SCRATCH_ITEMS, MCM_SCRATCH_PARTS, MCM_SCRATCH_BYTES, MCM_SCRATCH_TEXT,
			MCM_SCRATCH_USES };

/* At least @count elements of @size bytes, contents undefined; good until this thread's next call with
 * the same @use.  NULL: no memory. */
void *mcm_scratch(enum mcm_scratch_use use, size_t count, size_t size);

/* The thread's page for listings; NULL: no memory. */
struct mcm_list_page *mcm_scratch_page(void);

#endif
