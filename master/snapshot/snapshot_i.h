/* SPDX-License-Identifier: Apache-2.0
 * snapshot_i.h - shared by the files of this folder. */
#ifndef MCM_SNAPSHOT_I_H
#define MCM_SNAPSHOT_I_H

#include <jansson.h>

#include "common/sys/thread.h"
#include "master/journal/vault.h"
#include "master/snapshot/snapshot.h"
#include "tiers/keyed.h"

#define MCM_PIECE (8u << 20)
#define MCM_SNAPSHOT_FILES 4096		/* most files, and most pieces, of one */

struct mcm_snapshots {
	/* constant */
	struct mct_keyed *blobs;
	struct mcm_vault vault;	/* form of the files in the pieces; proofs of manifests */
	char root[256];		/* ends in '/' */
	uint64_t interval_ms, keep;
	struct mc_stop stop;
	struct mc_thread thread;
	bool runs;
	/* guards all below: one creation, or change of the catalog, at a time */
	struct mc_mutex lock;
	bool claimed;		/* no manifest in the store says any more that its master was the last one */
	uint64_t appended;	/* bytes appended to the journal when the last snapshot was made */
	bool made;		/* there was one in this life */
};

/* "ROOT/ID/NAME" */
void mcm_snapshot_name(const struct mcm_snapshots *s, const char *id, const char *name, char ret[MCT_KEYED_NAME_MAX]);
bool mcm_snapshot_id_valid(const char *id);
/* Put a manifest, with its proof (vault.h). */
int mcm_manifest_put(struct mcm_snapshots *s, const char *id, json_t *manifest);
/* The manifest, checked; the caller decrefs it.  Errors of the store, where -EACCES is about its keys; -MC_ECHECKSUM;
 * and those of mcm_vault_verify(). */
int mcm_manifest_read(struct mcm_snapshots *s, const char *id, json_t **ret);
/* The ids that have a manifest, the newest first; the caller frees *ret. */
int mcm_snapshot_ids(struct mcm_snapshots *s, char (**ret)[MCM_SNAPSHOT_ID], unsigned *ret_n);
/* Piece @i of @manifest, its checksum compared: -MC_ECHECKSUM. */
int mcm_piece_read(struct mcm_snapshots *s, const char *id, const json_t *manifest, unsigned i, void **ret,
		   size_t *ret_len);
/* The id that was chosen to be restored; "": none. */
int mcm_snapshot_chosen(struct mcm_snapshots *s, char ret[MCM_SNAPSHOT_ID]);
/* This master serves: no earlier one was the last. */
int mcm_snapshots_claim(struct mcm_snapshots *s);
/* Delete the oldest snapshots, so that --snapshot_retention_count are left, and pieces without a manifest. */
void mcm_snapshots_trim(struct mcm_snapshots *s);

#endif
