/* SPDX-License-Identifier: Apache-2.0
 * snapshot.h - copies of the master's state outside of its machine.
 *
 *	mooncake_master_snapshot/CLUSTER/ID/NNNN		pieces of at most 8 MiB: a checkpoint, and the
 *								journals after it, one behind the other
 *	mooncake_master_snapshot/CLUSTER/ID/manifest.json	written last: sizes and checksums of the pieces
 *	mooncake_master_snapshot/CLUSTER/restore.txt		the ID that was chosen to be restored, if any
 *
 * With --security=on the pieces are encrypted, as the files are (journal/vault.h), and the manifest has a proof of the
 * pool's secret.
 *
 * A snapshot is older than the memory that it describes: ranges may have been reused since.  So owners compare the
 * objects with their memory (confirm.h), unless the snapshot is the one that a master writes when it ends in an orderly
 * way, and no other master has served the owner since (mount.seen of the protocol).
 *
 * A snapshot reads files and takes no lock of objects, so it does not stop requests. */
#ifndef MCM_SNAPSHOT_H
#define MCM_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct mcm;
struct mcm_conf;
struct mcm_snapshots;

#define MCM_SNAPSHOT_ID 32	/* bytes of an id, with the NUL: YYYYMMDD_HHMMSS_mmm */

/* Do the options ask for a store of snapshots?  0: no; 1; -EINVAL with a detail. */
int mcm_snapshots_wanted(const struct mcm_conf *conf);
/* Before the journal.  m->snapshots stays NULL without such options. */
int mcm_snapshots_open(struct mcm *m);
void mcm_snapshots_close(struct mcm *m);
/* The thread that writes one every --snapshot_interval_seconds. */
int mcm_snapshots_start(struct mcm *m);
/* Stop it.  @last: everything else has stopped; write the last snapshot. */
void mcm_snapshots_stop(struct mcm *m, bool last);

/* Any thread; one at a time.  -MC_EMODE: there is no store, or no journal. */
int mcm_snapshot_create(struct mcm *m, char ret_id[MCM_SNAPSHOT_ID]);
/* An array of manifests without their pieces, the newest first. */
int mcm_snapshot_list(struct mcm *m, json_t **ret);
/* Read all of it and compare the checksums; "": the newest, and ret_id gets its id.  -ENOENT, -MC_ECHECKSUM. */
int mcm_snapshot_verify(struct mcm *m, const char *id, char ret_id[MCM_SNAPSHOT_ID]);
/* The next start with an empty journal restores this one; "": the newest. */
int mcm_snapshot_choose(struct mcm *m, const char *id);

/* If the directory @dirfd has no state and --enable_snapshot_restore is set, put the newest good snapshot there. */
int mcm_snapshot_fetch(struct mcm *m, int dirfd);

#endif
