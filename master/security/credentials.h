/* SPDX-License-Identifier: Apache-2.0
 * credentials.h - credentials that were made with mcctl, and those that were revoked.
 *
 * A credential is valid without being listed here: its key proves it.  The list is for operators, and for revocation.
 * It is in the journal, and so reaches the standbys.  An entry ends with its credential. */
#ifndef MCM_CREDENTIALS_H
#define MCM_CREDENTIALS_H

#include "common/security/identity.h"
#include "common/sys/lock.h"

struct mcm;

#define MCM_CREDENTIALS_MAX 65536u

struct mcm_credential_entry {
	uint64_t serial, created_s;
	uint64_t expires_s;			/* 0: not known */
	bool revoked;
	char text[MC_IDENTITY_MAX + 1];		/* "": revoked, and made by another master or program */
};

struct mcm_credentials {
	struct mc_mutex lock;
	/* guarded by lock */
	struct mcm_credential_entry **at;	/* in the order of their serial numbers */
	unsigned n, room;
	/* atomic */
	uint64_t changes;			/* revocations, in the life of the process */
	unsigned revoked;			/* number of revoked entries */
};

void mcm_credentials_init(struct mcm_credentials *cs);
void mcm_credentials_done(struct mcm_credentials *cs);
/* Take the entries from the restored state.  -ENOMEM. */
int mcm_credentials_load(struct mcm *m);

/* Remember a credential.  The caller waits for the journal.  -MC_ELIMIT, -ENOMEM, with a detail. */
int mcm_credentials_add(struct mcm *m, const struct mc_identity *id, const char *text);
/* Revoke a serial number, also one that is not in the list.  -EMODE: there is no journal, so a restart would forget it;
 * -MC_ELIMIT; -ENOMEM. */
int mcm_credentials_revoke(struct mcm *m, uint64_t serial);
bool mcm_credentials_revoked(struct mcm *m, uint64_t serial);
uint64_t mcm_credentials_changes(struct mcm *m);
/* Copy up to @max entries with serial numbers above @after.  Their number. */
unsigned mcm_credentials_list(struct mcm *m, uint64_t after, struct mcm_credential_entry *ret, unsigned max);
/* Copy the serial numbers that are revoked: their number, at most @max. */
unsigned mcm_credentials_revoked_list(struct mcm *m, uint64_t after, uint64_t *ret, unsigned max);
/* Remove entries whose credentials have expired. */
void mcm_credentials_tick(struct mcm *m);

#endif
