/* SPDX-License-Identifier: Apache-2.0
 * compat.h - differences between libfuse versions, from 3.14 (Debian 12) on.
 *
 * All traffic with /dev/fuse goes through fuse_session_custom_io(). The hook records the kernel's
 * INIT for a takeover, and reads the data of a WRITE directly into a slot, which saves a copy. If
 * libfuse was built without the hook (3.18.3), mounts work without these two features.
 *
 * From 3.17 on, libfuse itself requests shared mappings of direct_io files, parallel writes and
 * passthrough: configure chooses FUSE_USE_VERSION, and the kernel's INIT tells what it supports.
 * For older versions the hook adds the flags of FUSE protocol 7.39 and 7.40 to the INIT reply and
 * those of 7.36 to OPEN replies, and adds a flag that libfuse omits. */
#ifndef MCFS_COMPAT_H
#define MCFS_COMPAT_H

#include <fuse_lowlevel.h>

#include <stdbool.h>
#include <stdint.h>

struct mcfs_pool;

/* Install the hook in a mounted session. @pool provides the slots. */
int mcfs_compat_attach(struct fuse_session *se, struct mcfs_pool *pool);
void mcfs_compat_detach(void);

/* Name of the layer that requests the features above: "libfuse" or "hook"; is the hook installed? */
const char *mcfs_compat_way(void);
bool mcfs_compat_hooked(void);

/* To be called in the init handler: request the FUSE_CAP_* in @wanted if the kernel supports them,
 * and none of @unwanted. */
void mcfs_compat_want(struct fuse_conn_info *conn, uint64_t wanted, uint64_t unwanted);

/* Set the flags of this thread's next open or create reply, whose @fi is passed. */
void mcfs_compat_open_flags(struct fuse_file_info *fi, bool parallel_writes);

/* Passthrough: the kernel reads and maps another file of ours instead (kernel 6.9, CAP_SYS_ADMIN).
 * Is it granted (known once the mount exists)? Register backing file @fd: its positive id, valid as
 * long as the mount. Use backing file @id for this thread's next open reply. All openers of one
 * inode at a time must use the same id. */
bool mcfs_compat_passthrough(void);
int mcfs_compat_backing(int fd);
void mcfs_compat_open_backing(struct fuse_file_info *fi, int id);

/* To be called in a write handler: the slot with the data, which may be exchanged for another slot;
 * NULL: the data are where libfuse says. */
void **mcfs_compat_payload(void);

/* A page-aligned buffer of MCFS_SLOT bytes that belongs to this thread; NULL: no memory. It is also
 * the slot of mcfs_compat_payload(): use only one of the two. */
void *mcfs_compat_buffer(void);

/* Replay the INIT that the previous daemon answered to libfuse, and ask the kernel to resend
 * unanswered requests (FUSE_NOTIFY_RESEND). 0 or negative. */
int mcfs_compat_resume(struct fuse_session *se);
/* Id of the request that this thread reads or executes; *ret_again: the kernel resends it because
 * the previous daemon died before its answer. */
uint64_t mcfs_compat_unique(bool *ret_again);
/* Does this kernel resend unanswered requests (6.9)? */
bool mcfs_compat_resends(void);

bool mcfs_compat_shared_mmap(void);	/* was it granted? */

#endif
