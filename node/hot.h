/* SPDX-License-Identifier: Apache-2.0
 * hot.h - objects that local programs have mapped, or had lately.
 *
 * An entry is one version of one key, in memory that can be mapped: in the node's own segment, held there
 * by an open object; or a copy in the hot segment.  Entries in use stay.  Of the others, those of the
 * own segment are let go after conf.hot_ms, as holding them keeps the pool from evicting; copies stay
 * until their room is needed, and are used again when the master still has that version. */
#ifndef MCN_HOT_H
#define MCN_HOT_H

#include "node/node.h"

struct mcn_hot;
struct mcn_entry;

int mcn_hot_new(mcs_t *store, uint64_t size, unsigned ms, struct mcn_hot **ret);
void mcn_hot_free(struct mcn_hot *h);		/* no entry is in use; NULL is fine */

/* As of mcn_pin(); the entry is to be given to mcn_hot_put(). */
int mcn_hot_get(struct mcn_hot *h, struct mcs_key key, bool hot, int64_t timeout_ms,
		struct mcn_entry **ret, struct mcn_extent *ret_place);
void mcn_hot_ref(struct mcn_hot *h, struct mcn_entry *e);	/* one more, of one that is in use */
void mcn_hot_put(struct mcn_hot *h, struct mcn_entry *e);
/* As of mcs_object_held(): a master that was silent for long is waited for. */
int mcn_hot_held(const struct mcn_entry *e);
/* The key has another value, or none: what is known of it is not to be used any more. */
void mcn_hot_forget(struct mcn_hot *h, struct mcs_key key);
/* Now and then. */
void mcn_hot_sweep(struct mcn_hot *h);
int mcn_hot_fd(const struct mcn_hot *h);	/* of the hot segment, for reading */
uint64_t mcn_hot_size(const struct mcn_hot *h);

#endif
