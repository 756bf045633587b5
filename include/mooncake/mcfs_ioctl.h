/* SPDX-License-Identifier: Apache-2.0
 * mcfs_ioctl.h - ioctl(2) commands for any file or directory of an mcfs mount, for tools, tests and
 * languages without the library; C and C++ programs use mcs.h.
 *
 * Structs have the same size and layout everywhere.  The caller sets `version` to MCFS_IOC_VERSION.
 * Results are those of ioctl(2): 0 or a count, or -1 and errno; a command or size that is not listed here
 * fails with ENOTTY.  Structs are written back on success only.
 *
 * Python:	buf = bytearray(184); fcntl.ioctl(fd, 0x80b84d01, buf)		# MCFS_IOC_INFO */
#ifndef MOONCAKE_MCFS_IOCTL_H
#define MOONCAKE_MCFS_IOCTL_H

#include <linux/ioctl.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCFS_IOC_VERSION 1u
#define MCFS_IOC_KEY_MAX 4096

struct mcfs_ioc_info {
	uint32_t version;
	uint32_t features;		/* MCFS_FEATURE_* */
	uint32_t page_size;
	uint32_t nsegments;		/* that can be mapped */
	uint64_t segment_size;		/* bytes of the daemon's own segment 0 */
	uint64_t connections, buffers, pins; /* numbers of those that local clients have now */
	uint64_t reserved[2];
	char socket[120];		/* socket for mcfs_ring.h: "unix:@NAME" or "unix:PATH"; "": none */
};
#define MCFS_FEATURE_SOCKET		0x1u
#define MCFS_FEATURE_PASSTHROUGH	0x2u	/* .mcfs/segments/N is the memory itself */
#define MCFS_FEATURE_SHARED_MMAP	0x4u	/* files can be mapped shared and writable */

/* The location of an object.  EXTENT: of the open file, valid until it is closed. */
struct mcfs_ioc_extent {
	uint32_t version;
	uint32_t segment;
	uint64_t offset, length;	/* in .mcfs/segments/SEGMENT */
	uint64_t generation;
	uint32_t crc32c;
	uint32_t reserved;
};

struct mcfs_ioc_stat {			/* in: version, key_len, key */
	uint32_t version;
	uint32_t key_len;
	uint64_t size, generation, mtime_ms;
	uint32_t crc32c, kind, flags, replicas;	/* as in struct mcs_info */
	uint8_t key[MCFS_IOC_KEY_MAX];
};

#define MCFS_IOC_EXIST_MAX 512
struct mcfs_ioc_exist {			/* the result is the number of present keys */
	uint32_t version;
	uint32_t n;
	uint16_t key_len[MCFS_IOC_EXIST_MAX];
	uint8_t present[MCFS_IOC_EXIST_MAX];
	uint8_t keys[8192];		/* without gaps */
};

/* GET and PUT move bytes between an object and memory that was handed over at the socket;
 * `token` is that of its connection.  The result is 0, and `len` is set to the number of bytes.
 * No signal, not even SIGKILL, ends the call before the daemon has released the memory.  After ECONNABORTED
 * (a stalled daemon) the daemon may use the memory until it has closed the connection at the socket.
 * EFAULT: a page of the memory was never touched, or is swapped out; touch the pages and try again. */
struct mcfs_ioc_io {
	uint32_t version;
	uint32_t flags;			/* MCFS_IO_* */
	uint64_t token;
	uint32_t buffer;
	uint32_t key_len;
	uint64_t at, len;		/* in the buffer */
	uint64_t offset;		/* GET: in the object */
	uint32_t replicas;		/* PUT, 0: 1 */
	uint32_t reserved;
	uint8_t key[MCFS_IOC_KEY_MAX];
};
#define MCFS_IO_UPSERT	0x1u		/* PUT: replace an existing value */
#define MCFS_IO_EXCL	0x2u		/* PUT: an existing value is EEXIST */

struct mcfs_ioc_key {			/* REMOVE, PREFETCH */
	uint32_t version;
	uint32_t flags;			/* REMOVE: 1: also while it is read */
	uint32_t key_len;
	uint32_t reserved;
	uint8_t key[MCFS_IOC_KEY_MAX];
};

struct mcfs_ioc_pin {			/* PIN: in: version, key_len, key; the rest is filled in */
	uint32_t version;
	uint32_t key_len;
	uint64_t pin;
	struct mcfs_ioc_extent extent;
	uint8_t key[MCFS_IOC_KEY_MAX];
};
struct mcfs_ioc_unpin {
	uint32_t version;
	uint32_t reserved;
	uint64_t pin;
};

#define MCFS_IOC_BUFFERS_MAX 64
struct mcfs_ioc_buffers {		/* the buffers of the caller's user; root sees all */
	uint32_t version;
	uint32_t n;
	struct {
		uint64_t token, size;
		uint32_t id, uid;
		int32_t pid;
		uint32_t reserved;
	} buffer[MCFS_IOC_BUFFERS_MAX];
};

struct mcfs_ioc_reserve {		/* allocate space for `size` bytes of a file that is being written */
	uint32_t version;
	uint32_t reserved;
	uint64_t size;
};

#define MCFS_IOC_INFO		_IOR('M', 1, struct mcfs_ioc_info)
#define MCFS_IOC_EXTENT		_IOR('M', 2, struct mcfs_ioc_extent)
#define MCFS_IOC_STAT		_IOWR('M', 3, struct mcfs_ioc_stat)
#define MCFS_IOC_EXIST		_IOWR('M', 4, struct mcfs_ioc_exist)
#define MCFS_IOC_GET		_IOWR('M', 5, struct mcfs_ioc_io)
#define MCFS_IOC_PUT		_IOWR('M', 6, struct mcfs_ioc_io)
#define MCFS_IOC_REMOVE		_IOW('M', 7, struct mcfs_ioc_key)
#define MCFS_IOC_PREFETCH	_IOW('M', 8, struct mcfs_ioc_key)
/* Pins belong to the descriptor of the call and end with its last close; if the mount was aborted after a stall,
 * with the daemon. */
#define MCFS_IOC_PIN		_IOWR('M', 9, struct mcfs_ioc_pin)
#define MCFS_IOC_UNPIN		_IOW('M', 10, struct mcfs_ioc_unpin)
#define MCFS_IOC_BUFFERS	_IOR('M', 11, struct mcfs_ioc_buffers)
#define MCFS_IOC_RESERVE	_IOW('M', 12, struct mcfs_ioc_reserve)

#ifdef __cplusplus
}
#endif

#endif
