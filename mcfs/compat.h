/* SPDX-License-Identifier: Apache-2.0
 * compat.h - libfuse, and what newer kernels offer that the libfuse of Debian 12 (3.14) cannot ask for.
 *
 * The calls that libfuse 3.17 has for passthrough are not used, as nothing newer than 3.14 was at hand to try
 * them with.  Where a libfuse was built without the hook (3.18.3) mounts serve without these extras.
 *
 * All traffic with /dev/fuse goes through fuse_session_custom_io().  The hook adds flags of the FUSE
 * protocol 7.39 (shared mappings of direct_io files) to the INIT reply and of 7.36 (parallel writes) to
 * OPEN replies, mends what libfuse forgets, and lets the bytes of a WRITE land in a slot of their own,
 * so that they need not be copied once more. */
#ifndef MCFS_COMPAT_H
#define MCFS_COMPAT_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdbool.h>
#include <stdint.h>

struct mcfs_pool;

/* Install the hook; the session is mounted.  @pool gives the slots. */
int mcfs_compat_attach(struct fuse_session *se, struct mcfs_pool *pool);
void mcfs_compat_detach(void);

/* Set what the next open reply of this thread says besides what libfuse knows. */
void mcfs_compat_open_flags(bool parallel_writes);

/* Files whose reads and mappings the kernel does on another file of ours (kernel 6.9, CAP_SYS_ADMIN): was
 * it granted; the number of a file for that, positive, good as long as the mount; the next open reply of
 * this thread is for that one.  All who have an inode open at a time must get the same. */
bool mcfs_compat_passthrough(void);
int mcfs_compat_backing(struct fuse_session *se, int fd);
void mcfs_compat_open_backing(uint32_t id);

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
