/* SPDX-License-Identifier: Apache-2.0
 * uids.h - identities of local users, by an option of the server.
 *
 * The option is a list of "USER[:TENANT[:ROLE]]", separated by commas.  USER is a number, a name, or "*" for every user
 * that has no entry.  Without TENANT the user may use all tenants; without ROLE the role is client.  So "1000",
 * "1000:alice", "carol::reader", "*:guests:reader".  A tenant whose name contains a comma or a colon cannot be named.
 *
 * Root and the user of this process have all roles and tenants, unless an entry names them ("*" does not).  Other users
 * without an entry may not connect. */
#ifndef MC_UIDS_H
#define MC_UIDS_H

#include <stdint.h>

#include "common/principal.h"

#define MC_UIDS_MAX 1024u	/* entries */

struct mc_uids;		/* constant after mc_uids_parse() */

/* Parse @text (NULL or "": no entries), the value of the option @option; names of users are resolved now.  @roles:
 * those that an entry may give.  -EINVAL with the entry in the detail; -ENOMEM. */
int mc_uids_parse(const char *option, const char *text, uint32_t roles, struct mc_uids **ret);
void mc_uids_free(struct mc_uids *u);	/* NULL is fine */

/* The identity of the user @uid; any thread.  -EACCES: the user may not connect; *@ret is unchanged. */
int mc_uids_find(const struct mc_uids *u, uint32_t uid, struct mc_principal *ret);

#endif
