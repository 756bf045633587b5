/* SPDX-License-Identifier: Apache-2.0
 * restore.h - conversion between an object in the index and its record (journal/record.h). */
#ifndef MCM_OBJECT_RESTORE_H
#define MCM_OBJECT_RESTORE_H

#include <stdint.h>

#include "master/journal/record.h"

struct mcm;

/* Shard's lock held.  The key is borrowed from the index. */
void mcm_object_describe(const struct mcm *m, uint32_t slot, struct mcm_object_record *ret);
/* Set everything except the extents in a slot that has only its key.  -ENOMEM. */
int mcm_object_restore(struct mcm *m, uint32_t slot, const struct mcm_object_record *r);
struct mcm_extent_record mcm_extent_record_of(const struct mcm *m, struct mcm_extent e);

#endif
