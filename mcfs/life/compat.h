/* SPDX-License-Identifier: Apache-2.0
 * compat.h - what differs between one libfuse and the next, from 3.14 (Debian 12) on.
 *
 * All traffic with /dev/fuse goes through fuse_session_custom_io().  The hook notes what a daemon that goes
 * on with the mount has to know, and lets the bytes of a WRITE land in a slot of their own, so that they need
 * not be copied once more.  Where libfuse was built without it (3.18.3) mounts serve without these two.
 *
 * Shared mappings of direct_io files, parallel writes and files that are passed through are asked for by
 * libfuse itself from 3.17 on: configure chooses FUSE_USE_VERSION, and the kernel's INIT tells what there is.
 * Before, the hook adds the flags of the FUSE protocol 7.39 and 7.40 to the INIT reply and of 7.36 to OPEN
 * replies, and mends what libfuse forgets. */
#ifndef MCFS_COMPAT_H
#define MCFS_COMPAT_H

#include <fuse_lowlevel.h>

#include <stdbool.h>
#include <stdint.h>

struct mcfs_pool;

/* Install the hook; the session is mounted.  @pool gives the slots. */
int mcfs_compat_attach(struct fuse_session *se, struct mcfs_pool *pool);
void mcfs_compat_detach(void);

/* Who asks the kernel for what is above: "libfuse" or "hook"; does the hook see the requests? */
const char *mcfs_compat_way(void);
bool mcfs_compat_hooked(void);

/* In the init handler: what of FUSE_CAP_* is asked for where the kernel has it, and what is not. */
void mcfs_compat_want(struct fuse_conn_info *conn, uint64_t wanted, uint64_t unwanted);

/* @fi is for the next reply of this thread, an open's or create's. */
void mcfs_compat_open_flags(struct fuse_file_info *fi, bool parallel_writes);

/* Files whose reads and mappings the kernel does on another file of ours (kernel 6.9, CAP_SYS_ADMIN): is it granted,
 * which is known once the mount is there; the number of a file for that, positive, good as long as the mount; @fi, of
 * the next reply of this thread, is for that one.  All who have an inode open at a time must get the same. */
bool mcfs_compat_passthrough(void);
int mcfs_compat_backing(int fd);
void mcfs_compat_open_backing(struct fuse_file_info *fi, int id);

/* In a write handler: the slot that holds the data, which may be exchanged for another one; NULL: the
 * data are where libfuse says. */
void **mcfs_compat_payload(void);

/* A page-aligned buffer of MCFS_SLOT bytes that belongs to this thread; NULL without memory.  Not to be
 * used together with the payload. */
void *mcfs_compat_buffer(void);

/* Instead of the kernel's INIT, which the daemon before us has answered: the session takes up its work, and
 * what that one had under way is sent again.  0 or negative. */
int mcfs_compat_resume(struct fuse_session *se);
/* The number of the request that this thread reads from the kernel or carries out; *ret_again: it was sent
 * before, to the daemon before us, whose answer was lost. */
uint64_t mcfs_compat_unique(bool *ret_again);
/* Does this kernel send again what nobody has answered (6.9)? */
bool mcfs_compat_resends(void);

bool mcfs_compat_shared_mmap(void);	/* was it granted? */

#endif
