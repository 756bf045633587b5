/* SPDX-License-Identifier: Apache-2.0
 * hf3fs.h - the calls of 3FS's library for USRBIO (libhf3fs_api_shared.so), which is loaded at run time.
 *
 * Signatures and layouts are the library's binary interface, as in its src/lib/api/hf3fs_usrbio.h; only the calls that
 * this tier makes.  They return a negative errno value unless another result is stated. */
#ifndef MCT_HF3FS_H
#define MCT_HF3FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MCT_HF3FS_PATH 256

/* Memory that this process shares with 3FS's daemon. */
struct mct_hf3fs_iov {
	uint8_t *base;
	void *handle;
	char id[16];
	char mount_point[MCT_HF3FS_PATH];
	size_t size, block_size;
	int numa;
};

/* A ring of transfers, either reads or writes. */
struct mct_hf3fs_ior {
	struct mct_hf3fs_iov iov;
	void *handle;
	char mount_point[MCT_HF3FS_PATH];
	bool for_read;
	int io_depth, priority, timeout;
	uint64_t flags;
};

/* A transfer that has ended. */
struct mct_hf3fs_cqe {
	int32_t index, reserved;
	int64_t result;		/* bytes, or a negative errno value */
	const void *userdata;
};

_Static_assert(sizeof(void *) != 8 || (sizeof(struct mct_hf3fs_iov) == 312 && sizeof(struct mct_hf3fs_ior) == 600 &&
				       sizeof(struct mct_hf3fs_cqe) == 24), "layouts of the library");

struct mct_hf3fs {
	/* Length of the mount point's path with its final 0, -1: @path is not on 3FS.  @path exists. */
	int (*extract_mount_point)(char *ret, int size, const char *path);
	int (*iovcreate)(struct mct_hf3fs_iov *ret, const char *mount_point, size_t size, size_t block_size, int numa);
	void (*iovdestroy)(struct mct_hf3fs_iov *iov);
	int (*iorcreate4)(struct mct_hf3fs_ior *ret, const char *mount_point, int entries, bool for_read, int io_depth,
			  int timeout, int numa, uint64_t flags);
	void (*iordestroy)(struct mct_hf3fs_ior *ior);
	/* A positive errno value is an error. */
	int (*reg_fd)(int fd, uint64_t flags);
	void (*dereg_fd)(int fd);
	/* One thread at a time per ring.  3FS may begin the transfer at once.  -EAGAIN: the ring is full. */
	int (*prep_io)(const struct mct_hf3fs_ior *ior, const struct mct_hf3fs_iov *iov, bool read, void *at, int fd,
		       size_t off, uint64_t len, const void *userdata);
	/* Wakes 3FS; any thread. */
	int (*submit_ios)(const struct mct_hf3fs_ior *ior);
	/* Number of results, 0 at @deadline (CLOCK_REALTIME).  One thread at a time per ring. */
	int (*wait_for_ios)(const struct mct_hf3fs_ior *ior, struct mct_hf3fs_cqe *ret, int max, int min,
			    const struct timespec *deadline);
};

/* The library, if the open file @fd at @path is on 3FS, and the path of the mount point there.  1: the file is not on
 * 3FS.  Negative: it is, and the detail says why the library cannot be used.
 *
 * The kernel says whether a file is on 3FS.  With the environment variable MC_HF3FS_LIBRARY (path of the library), only
 * the library says so. */
int mct_hf3fs_open(int fd, const char *path, struct mct_hf3fs *ret, char ret_mount_point[MCT_HF3FS_PATH]);

#endif
