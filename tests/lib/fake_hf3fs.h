/* SPDX-License-Identifier: Apache-2.0
 * fake_hf3fs.h - a fake of 3FS's library for USRBIO, for tests without 3FS: a plain directory is the mount.
 *
 * Shared memory is a file in /dev/shm.  Each ring has two threads, which carry out its transfers with pread(2) and
 * pwrite(2) and may end them in another order.  As in 3FS, only registered files and memory inside the iov are
 * accepted, and a read ends at a hole.
 *
 * A test program loads the library by its path, and gets its state with fake_hf3fs_state().  For scripts, the variable
 * FAKE_HF3FS_MOUNT is the mount:
 *	FAKE_HF3FS_MOUNT=/var/tmp make check TESTS=tests/integ/ssd_blocks.sh */
#ifndef FAKE_HF3FS_H
#define FAKE_HF3FS_H

#include <stddef.h>

struct fake_hf3fs {
	char mount[256];	/* files below this directory are on 3FS; "": none */
	/* settings; numbers count down, -1: always */
	_Atomic int error, errors;	/* number of transfers that fail, with this errno value */
	_Atomic int shorts;		/* number of transfers that move half of their blocks */
	_Atomic int full;		/* number of calls of hf3fs_prep_io() that find a full ring */
	_Atomic int unwoken;		/* number of calls of hf3fs_submit_ios() that fail */
	_Atomic int deaf;		/* number of calls of hf3fs_wait_for_ios() that fail */
	_Atomic int delay_us;		/* how long each transfer takes in addition */
	_Atomic int stuck;		/* not 0: transfers do not end */
	_Atomic int no_memory, no_ring, no_file;	/* errno value with which the call fails */
	_Atomic size_t hole;		/* reads end at this offset of the file, 0: none */
	/* counters */
	_Atomic int begun, ios;		/* transfers that were put into a ring, that ended */
	_Atomic int iovs, rings, fds;	/* that exist now */
	_Atomic int rejected;		/* calls that break a rule of the library, also two at the same time */
};

/* The function of the library is called "fake_hf3fs_state". */
typedef struct fake_hf3fs *fake_hf3fs_state_fn(void);

#endif
