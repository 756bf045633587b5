/* SPDX-License-Identifier: Apache-2.0
 * guard.h - mappings of files that their owners can make shorter at any time.
 *
 * Upstream's clients share memory files without seals, which cannot be added later.  An access behind the end of such a
 * file raises SIGBUS.  The process then gets zeroed pages of its own there, and the mapping is marked as broken: its
 * users compare the mark after each use, and report an error instead of a result. */
#ifndef MCN_UP_GUARD_H
#define MCN_UP_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#define MCN_UP_MAPPINGS_MAX 4096u	/* mappings of the process */

struct mcn_up_mapping;

/* Map @size bytes of @fd, shared, readable and writable.  *ret_base is the address.  -ENOBUFS: too many; -errno.  The
 * first call sets the process's handler of SIGBUS.  Any thread. */
int mcn_up_map(int fd, uint64_t size, struct mcn_up_mapping **ret, unsigned char **ret_base);
void mcn_up_unmap(struct mcn_up_mapping *m);	/* without users; NULL is allowed */
bool mcn_up_broken(const struct mcn_up_mapping *m);

#endif
