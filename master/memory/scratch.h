/* SPDX-License-Identifier: Apache-2.0
 * scratch.h - per-thread memory that a request needs until its answer is sent.
 *
 * It grows to the size that the largest request needed and is kept, so that in the long run
 * requests allocate nothing. */
#ifndef MCM_SCRATCH_H
#define MCM_SCRATCH_H

#include <stddef.h>

enum mcm_scratch_use { MCM_SCRATCH_ITEMS, MCM_SCRATCH_PARTS, MCM_SCRATCH_BYTES, MCM_SCRATCH_TEXT, MCM_SCRATCH_ATTRS,
			MCM_SCRATCH_USES };

/* Memory for at least @count elements of @size bytes, contents undefined; valid until this thread's
 * next call with the same @use.  NULL: no memory. */
void *mcm_scratch(enum mcm_scratch_use use, size_t count, size_t size);

/* The thread's object of @size bytes, which is zeroed at first; @object_free frees it when the thread ends.  There is
 * one kind of object, so one caller.  NULL: no memory. */
void *mcm_scratch_object(size_t size, void (*object_free)(void *object));

#endif
