/* SPDX-License-Identifier: Apache-2.0
 * dram.c - segment memory.  The file, not the mapping, is the thing: same-host peers map it too, so
 * huge pages have to be the file's property and the file has to vanish with its last descriptor. */
#include <config.h>

#include "tiers/dram.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/thread.h"
#include "tiers/memlimit.h"

#define HUGE_SIZE (2ull << 20)
#define SIZE_LIMIT (1ull << 56)
/* Nodes that a mask of unsigned longs covers here; far above what kernels are built with. */
#define MAX_NODES 1024
#define BITS_PER_LONG (8 * sizeof(unsigned long))

struct mct_dram {
	/* constant after open */
	void *base;
	uint64_t reserved;	/* bytes mapped, and of the file */
	int fd;
	uint64_t fd_offset;
	const char *kind;
	bool prefault;
	/* who opens, grows and closes */
	bool prefaulting;
	pthread_t thread;
	/* atomic */
	uint64_t size;
	bool stop;
	bool touching;		/* the thread goes on, to whatever the size is then */
	uint64_t prefaulted;
};

/* ---- the file ---------------------------------------------------------------------------------- */

static int fs_set(int fsfd, const char *key, const char *value)
{
	return fsconfig(fsfd, FSCONFIG_SET_STRING, key, value, 0) ? -errno : 0;
}

/* A mount that no path leads to: nobody else can open or fill it, and it needs no umount. */
static int open_tmpfs(uint64_t size, int *ret_fd)
{
	auto_close int fsfd = -1, mntfd = -1;
	char limit[32];
	int fd, r;

	fsfd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fsfd < 0)
		return mc_fail(-errno, "cannot make a private tmpfs: %s", strerror(errno));
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)size);
	r = fs_set(fsfd, "huge", "always");
	if (r < 0)
		return mc_fail(r, "this kernel has no huge pages for tmpfs");
	r = fs_set(fsfd, "size", limit);
	if (r == 0)
		r = fs_set(fsfd, "mode", "0700");
	if (r == 0 && fsconfig(fsfd, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		r = -errno;
	if (r < 0)
		return mc_fail(r, "cannot make a private tmpfs: %s", strerror(-r));
	mntfd = fsmount(fsfd, FSMOUNT_CLOEXEC, 0);
	if (mntfd < 0)
		return mc_fail(-errno, "cannot mount a private tmpfs: %s", strerror(errno));
	fd = openat(mntfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return mc_fail(-errno, "no file on the private tmpfs: %s", strerror(errno));
	*ret_fd = fd;
	return 0;
}

/* Peers of other users get it, too, and must not be able to cut it short: a file on the tmpfs cannot be sealed, but
 * nobody else may open it for writing. */
static int open_memfd(unsigned flags, int *ret_fd)
{
	int fd = memfd_create("mooncake-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return mc_fail(-errno, "memfd: %s", strerror(errno));
	*ret_fd = fd;
	return 0;
}

static int seal(struct mct_dram *d)
{
	if (fchmod(d->fd, 0600) ||
	    fcntl(d->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return mc_fail(-errno, "cannot seal the segment file: %s", strerror(errno));
	return 0;
}

static int open_kind(struct mct_dram *d, const char *kind)
{
	int r;

	if (!strcmp(kind, "tmpfs")) {
		d->kind = "tmpfs";
		r = open_tmpfs(d->reserved, &d->fd);
	} else if (!strcmp(kind, "memfd")) {
		d->kind = "memfd";
		r = open_memfd(0, &d->fd);
	} else {
		d->kind = "hugetlb";
		r = open_memfd(MFD_HUGETLB | MFD_HUGE_2MB, &d->fd);
	}
	if (r == 0 && ftruncate(d->fd, (off_t)d->reserved))
		r = mc_fail(-errno, "cannot size the segment file to %llu bytes: %s",
			    (unsigned long long)d->reserved, strerror(errno));
	return r == 0 && strcmp(kind, "tmpfs") ? seal(d) : r;
}

static int open_file(struct mct_dram *d, const char *kind)
{
	int r;

	if (strcmp(kind, "auto"))
		return open_kind(d, kind);
	r = open_kind(d, "tmpfs");
	if (r == 0)
		return 0;
	mc_debug("dram", "no private tmpfs, using a memfd cause=%s", mc_err_detail(r));
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	return open_kind(d, "memfd");
}

/* Every block is allocated now, since a store into a hole of a full file system is a SIGBUS. */
static int open_path(struct mct_dram *d, const char *path, uint64_t offset)
{
	struct stat st;
	int r;

	d->kind = "file";
	d->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (d->fd < 0 || fstat(d->fd, &st) < 0)
		return mc_fail(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return mc_fail(-EINVAL, "%s is not a regular file", path);
	if (offset % (uint64_t)sysconf(_SC_PAGESIZE) || !d->size)
		return mc_fail(-EINVAL, "%s: a segment from a file begins at a page and has 2 MiB or more",
			       path);
	if (offset > (uint64_t)st.st_size || (uint64_t)st.st_size - offset < d->size)
		return mc_fail(-EINVAL, "%s has %llu bytes, and %llu from offset %llu on are wanted", path,
			       (unsigned long long)st.st_size, (unsigned long long)d->size,
			       (unsigned long long)offset);
	do
		r = fallocate(d->fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)d->size) ? -errno : 0;
	while (r == -EINTR);
	if (r < 0)
		return mc_fail(r, "%s: %llu bytes cannot be allocated: %s", path,
			       (unsigned long long)d->size, strerror(-r));
	d->fd_offset = offset;
	return 0;
}

static int open_adopted(struct mct_dram *d, int fd)
{
	struct stat st;

	d->kind = "adopted";
	d->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (d->fd < 0 || fstat(d->fd, &st) < 0)
		return mc_fail(-errno, "the segment that is to be continued: %s", strerror(errno));
	if ((uint64_t)st.st_size < d->reserved)
		return mc_fail(-EINVAL, "the segment that is to be continued has %llu bytes, and %llu are "
			       "wanted", (unsigned long long)st.st_size,
			       (unsigned long long)d->reserved);
	return 0;
}

static int open_memory(struct mct_dram *d, const struct mct_dram_conf *conf, const char *kind)
{
	if (conf->adopt_fd > 0)
		return open_adopted(d, conf->adopt_fd);
	return conf->path ? open_path(d, conf->path, conf->path_offset) : open_file(d, kind);
}

/* ---- the mapping ------------------------------------------------------------------------------- */

/* Address and file offset must agree modulo 2 MiB, or the kernel maps a huge page 4 KiB at a time. */
static int map_aligned(struct mct_dram *d)
{
	char *room, *at;
	uint64_t head;

	room = mmap(NULL, d->reserved + HUGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	if (room == MAP_FAILED)
		return mc_fail(-ENOMEM, "no address space for %llu bytes", (unsigned long long)d->reserved);
	at = (char *)(((uintptr_t)room + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	head = (uint64_t)(at - room);
	if (mmap(at, d->reserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, d->fd,
		 (off_t)d->fd_offset) == MAP_FAILED) {
		int r = -errno;

		munmap(room, d->reserved + HUGE_SIZE);
		if (r == -ENOMEM && !strcmp(d->kind, "hugetlb"))
			return mc_fail(r, "%llu bytes wanted but only %llu bytes of huge pages are free",
				       (unsigned long long)d->reserved,
				       (unsigned long long)mct_hugetlb_free());
		return mc_fail(r, "cannot map the segment: %s", strerror(-r));
	}
	if (head)
		munmap(room, head);
	munmap(at + d->reserved, HUGE_SIZE - head);
	d->base = at;
	/* Advice only: without it everything works, on small pages and with large core files. */
	(void)madvise(at, d->reserved, MADV_HUGEPAGE);
	(void)madvise(at, d->reserved, MADV_DONTDUMP);
	return 0;
}

static int bind_node(struct mct_dram *d, int node)
{
	unsigned long mask[MAX_NODES / BITS_PER_LONG] = { 0 };

	mask[(unsigned)node / BITS_PER_LONG] = 1ul << ((unsigned)node % BITS_PER_LONG);
	if (syscall(SYS_mbind, d->base, d->reserved, MPOL_BIND, mask, (unsigned long)MAX_NODES, 0u))
		return mc_fail(-errno, "cannot bind the segment to NUMA node %d: %s", node,
			       strerror(errno));
	return 0;
}

/* ---- prefault ---------------------------------------------------------------------------------- */

static int populate(struct mct_dram *d, uint64_t off)
{
	if (madvise((char *)d->base + off, HUGE_SIZE, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* Kernels before 5.14.  Touching instead would change bytes that a peer may be writing, and
	 * answer a lack of memory with SIGBUS. */
	return fallocate(d->fd, 0, (off_t)(d->fd_offset + off), HUGE_SIZE) ? -errno : 0;
}

/* From where it stands to the size; false: it was stopped, or has failed. */
static bool touch(struct mct_dram *d)
{
	uint64_t off;
	int r;

	for (off = mct_dram_prefaulted(d); off < mct_dram_size(d); off += HUGE_SIZE) {
		if (__atomic_load_n(&d->stop, __ATOMIC_RELAXED))
			return false;
		do
			r = populate(d, off);
		while (r == -EINTR || r == -EAGAIN);
		if (r < 0) {
			mc_warn("dram", "prefault ends early, continuing without: %s done=%llu size=%llu",
				mc_strerror(r), (unsigned long long)off,
				(unsigned long long)mct_dram_size(d));
			return false;
		}
		__atomic_store_n(&d->prefaulted, off + HUGE_SIZE, __ATOMIC_RELAXED);
	}
	return true;
}

/* Is there more since the thread has said that it ends, and nobody else who sees to it? */
static bool has_grown(struct mct_dram *d)
{
	return mct_dram_prefaulted(d) < __atomic_load_n(&d->size, __ATOMIC_SEQ_CST) &&
		!__atomic_exchange_n(&d->touching, true, __ATOMIC_SEQ_CST);
}

static void *prefault_main(void *arg)
{
	struct mct_dram *d = arg;
	bool whole;

	/* Serving goes first: the segment is usable while it grows. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
	do {
		whole = touch(d);
		__atomic_store_n(&d->touching, false, __ATOMIC_SEQ_CST);
	} while (whole && has_grown(d));
	return NULL;
}

static int prefault_start(struct mct_dram *d)
{
	int r;

	if (!d->prefault || __atomic_exchange_n(&d->touching, true, __ATOMIC_SEQ_CST))
		return 0;
	/* One that has ended. */
	if (d->prefaulting)
		pthread_join(d->thread, NULL);
	r = mc_thread_start(&d->thread, "mct-prefault", prefault_main, d);
	d->prefaulting = r == 0;
	if (r < 0)
		__atomic_store_n(&d->touching, false, __ATOMIC_SEQ_CST);
	return r;
}

/* ---- the interface ----------------------------------------------------------------------------- */

static int check_available(uint64_t size, const char *kind)
{
	uint64_t have;
	const char *by;

	if (!strcmp(kind, "hugetlb")) {
		have = mct_hugetlb_free();
		by = "huge pages free";
	} else {
		have = mct_mem_available(&by);
	}
	if (size > have)
		return mc_fail(-ENOMEM, "%llu bytes of memory wanted but only %llu can be had (%s)",
			       (unsigned long long)size, (unsigned long long)have, by);
	return 0;
}

static uint64_t round_up(uint64_t size)
{
	return (size + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1);
}

static int check_conf(const struct mct_dram_conf *conf, const char *kind)
{
	if (conf->size == 0 || conf->size > SIZE_LIMIT || conf->reserve > SIZE_LIMIT)
		return mc_fail(-EINVAL, "segment size %llu is out of range",
			       (unsigned long long)conf->size);
	if (strcmp(kind, "auto") && strcmp(kind, "tmpfs") && strcmp(kind, "memfd") &&
	    strcmp(kind, "hugetlb"))
		return mc_fail(-EINVAL, "unknown kind of memory '%s'", kind);
	if (conf->numa_node < -1 || conf->numa_node >= MAX_NODES)
		return mc_fail(-EINVAL, "no NUMA node %d", conf->numa_node);
	return 0;
}

int mct_dram_open(const struct mct_dram_conf *conf, struct mct_dram **ret)
{
	const char *kind = conf->kind ? conf->kind : "auto";
	struct mct_dram *d;
	int r;

	r = check_conf(conf, kind);
	if (r < 0)
		return r;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->fd = -1;
	d->size = conf->path ? conf->size & ~(HUGE_SIZE - 1) : round_up(conf->size);
	d->reserved = conf->reserve > conf->size && !conf->path ? round_up(conf->reserve) : d->size;
	d->prefault = conf->prefault;
	/* An adopted one has its memory already. */
	if (!conf->path && conf->adopt_fd <= 0)
		r = check_available(strcmp(kind, "hugetlb") ? d->size : d->reserved, kind);
	if (r < 0)
		goto fail;
	r = open_memory(d, conf, kind);
	if (r < 0)
		goto fail;
	r = map_aligned(d);
	if (r < 0)
		goto fail;
	if (conf->numa_node >= 0) {
		r = bind_node(d, conf->numa_node);
		if (r < 0)
			goto fail;
	}
	r = prefault_start(d);
	if (r < 0)
		goto fail;
	*ret = d;
	return 0;
fail:
	mct_dram_close(d);
	return r;
}

void mct_dram_close(struct mct_dram *d)
{
	if (!d)
		return;
	if (d->prefaulting) {
		__atomic_store_n(&d->stop, true, __ATOMIC_RELAXED);
		pthread_join(d->thread, NULL);
	}
	if (d->base)
		munmap(d->base, d->reserved);
	if (d->fd >= 0)
		close(d->fd);
	free(d);
}

void *mct_dram_base(const struct mct_dram *d)
{
	return d->base;
}

uint64_t mct_dram_size(const struct mct_dram *d)
{
	return __atomic_load_n(&d->size, __ATOMIC_RELAXED);
}

uint64_t mct_dram_reserved(const struct mct_dram *d)
{
	return d->reserved;
}

int mct_dram_grow(struct mct_dram *d, uint64_t size)
{
	uint64_t before = mct_dram_size(d);
	int r;

	if (size > d->reserved || round_up(size) < before)
		return mc_fail(-EINVAL, "a segment of %llu bytes that may grow to %llu cannot have %llu",
			       (unsigned long long)before, (unsigned long long)d->reserved,
			       (unsigned long long)size);
	size = round_up(size);
	if (size == before)
		return 0;
	r = strcmp(d->kind, "hugetlb") ? check_available(size - before, d->kind) : 0;
	if (r < 0)
		return r;
	__atomic_store_n(&d->size, size, __ATOMIC_SEQ_CST);
	r = prefault_start(d);
	if (r < 0)
		mc_warn("dram", "no thread to prefault with, continuing without: %s", mc_strerror(r));
	return 0;
}

int mct_dram_fd(const struct mct_dram *d)
{
	return d->fd;
}

uint64_t mct_dram_fd_offset(const struct mct_dram *d)
{
	return d->fd_offset;
}

const char *mct_dram_kind(const struct mct_dram *d)
{
	return d->kind;
}

uint64_t mct_dram_prefaulted(const struct mct_dram *d)
{
	return __atomic_load_n(&d->prefaulted, __ATOMIC_RELAXED);
}
