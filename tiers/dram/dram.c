/* SPDX-License-Identifier: Apache-2.0
 * dram.c - segment memory: a file and one mapping of it.  Peers on the same host map the file too, so huge
 * pages must be a property of the file, and the file must vanish with its last descriptor. */
#include <config.h>

#include "tiers/dram/dram.h"

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
#include "common/dax.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/thread.h"
#include "tiers/dram/memlimit.h"

#define HUGE_SIZE (2ull << 20)
#define SIZE_LIMIT (1ull << 56)
/* NUMA nodes in the mask for mbind(); kernels are built with far fewer. */
#define MAX_NODES 1024
#define BITS_PER_LONG (8 * sizeof(unsigned long))

struct mct_dram {
	struct mct_medium medium;
	/* constant after open */
	struct mct_memory mem;
	const char *kind;
	uint64_t align;		/* alignment of the mapping */
	bool prefault;
	/* used only by the threads that open, grow and close */
	bool thread_started;
	struct mc_thread thread;
	/* atomic */
	uint64_t size;
	bool stop;
	bool prefaulting;	/* the thread runs, and continues up to the size that it finds at the end */
	uint64_t prefaulted;
};

static struct mct_dram *dram_of(struct mct_medium *m)
{
	return (struct mct_dram *)m;
}

static uint64_t dram_size(const struct mct_dram *d)
{
	return __atomic_load_n(&d->size, __ATOMIC_RELAXED);
}

static uint64_t dram_prefaulted(const struct mct_dram *d)
{
	return __atomic_load_n(&d->prefaulted, __ATOMIC_RELAXED);
}

/* ---- the file ---------------------------------------------------------------------------------- */

static int tmpfs_set(int fsfd, const char *key, const char *value)
{
	return fsconfig(fsfd, FSCONFIG_SET_STRING, key, value, 0) ? -errno : 0;
}

/* A mount without a path: no other process can open or fill it, and it needs no umount. */
static int file_open_tmpfs(uint64_t size, int *ret_fd)
{
	auto_close int fsfd = -1, mntfd = -1;
	char limit[32];
	int fd, r;

	fsfd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fsfd < 0)
		return mc_fail(-errno, "cannot make a private tmpfs: %s", strerror(errno));
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)size);
	r = tmpfs_set(fsfd, "huge", "always");
	if (r < 0)
		return mc_fail(r, "this kernel has no huge pages for tmpfs");
	r = tmpfs_set(fsfd, "size", limit);
	if (r == 0)
		r = tmpfs_set(fsfd, "mode", "0700");
	if (r == 0 && fsconfig(fsfd, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		r = -errno;
	if (r < 0)
		return mc_fail(r, "cannot make a private tmpfs: %s", strerror(-r));
	mntfd = fsmount(fsfd, FSMOUNT_CLOEXEC, 0);
	if (mntfd < 0)
		return mc_fail(-errno, "cannot mount a private tmpfs: %s", strerror(errno));
	fd = openat(mntfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return mc_fail(-errno, "cannot create a file on the private tmpfs: %s", strerror(errno));
	*ret_fd = fd;
	return 0;
}

static int file_open_memfd(unsigned flags, int *ret_fd)
{
	int fd = memfd_create("mooncake-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return mc_fail(-errno, "cannot create a memfd: %s", strerror(errno));
	*ret_fd = fd;
	return 0;
}

/* Peers of other users receive the descriptor too and must not be able to truncate the file.  A file on
 * the tmpfs cannot be sealed, but no other process can open it for writing. */
static int file_seal(struct mct_dram *d)
{
	if (fchmod(d->mem.fd, 0600) ||
	    fcntl(d->mem.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return mc_fail(-errno, "cannot seal the segment file: %s", strerror(errno));
	return 0;
}

static int file_open_kind(struct mct_dram *d, const char *kind)
{
	int r;

	if (!strcmp(kind, "tmpfs")) {
		d->kind = "tmpfs";
		r = file_open_tmpfs(d->mem.len, &d->mem.fd);
	} else if (!strcmp(kind, "memfd")) {
		d->kind = "memfd";
		r = file_open_memfd(0, &d->mem.fd);
	} else {
		d->kind = "hugetlb";
		r = file_open_memfd(MFD_HUGETLB | MFD_HUGE_2MB, &d->mem.fd);
	}
	if (r == 0 && ftruncate(d->mem.fd, (off_t)d->mem.len))
		r = mc_fail(-errno, "cannot size the segment file to %llu bytes: %s",
			    (unsigned long long)d->mem.len, strerror(errno));
	return r == 0 && strcmp(kind, "tmpfs") ? file_seal(d) : r;
}

static int file_open_auto(struct mct_dram *d, const char *kind)
{
	int r;

	if (strcmp(kind, "auto"))
		return file_open_kind(d, kind);
	r = file_open_kind(d, "tmpfs");
	if (r == 0)
		return 0;
	mc_debug("dram", "no private tmpfs, using a memfd cause=%s", mc_err_detail(r));
	if (d->mem.fd >= 0)
		close(d->mem.fd);
	d->mem.fd = -1;
	return file_open_kind(d, "memfd");
}

/* All of the device, or the first @d->size bytes.  Its pages exist already. */
static int file_open_dax(struct mct_dram *d, const char *path, uint64_t offset)
{
	struct mc_dax dax;
	int r = mc_dax_claim(d->mem.fd, path, &dax);

	if (r < 0)
		return r;
	d->kind = "dax";
	d->align = dax.align > HUGE_SIZE ? dax.align : HUGE_SIZE;
	if (!d->size)
		d->size = (dax.size > offset ? dax.size - offset : 0) / d->align * d->align;
	if (!d->size || offset % d->align || d->size % d->align || offset > dax.size || dax.size - offset < d->size)
		return mc_fail(-EINVAL, "%s has %llu bytes in pages of %llu; the segment would be %llu bytes from "
			       "offset %llu on", path, (unsigned long long)dax.size, (unsigned long long)d->align,
			       (unsigned long long)d->size, (unsigned long long)offset);
	d->mem.len = d->prefaulted = d->size;
	d->prefault = false;
	d->mem.fd_offset = offset;
	return 0;
}

/* Allocate every block now: a store into a hole of a full file system raises SIGBUS. */
static int file_open_path(struct mct_dram *d, const char *path, uint64_t offset, bool lock)
{
	struct stat st;
	int r;

	d->kind = "file";
	d->mem.fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (d->mem.fd < 0 || fstat(d->mem.fd, &st) < 0)
		return mc_fail(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return file_open_dax(d, path, offset);
	r = lock ? mc_dax_lock(d->mem.fd, path) : 0;
	if (r < 0)
		return r;
	if (!d->size && offset < (uint64_t)st.st_size)
		d->mem.len = d->size = ((uint64_t)st.st_size - offset) & ~(HUGE_SIZE - 1);
	if (offset % (uint64_t)sysconf(_SC_PAGESIZE) || !d->size)
		return mc_fail(-EINVAL, "%s: the segment must begin at a page boundary and have at least 2 MiB",
			       path);
	if (offset > (uint64_t)st.st_size || (uint64_t)st.st_size - offset < d->size)
		return mc_fail(-EINVAL, "%s is too short: has %llu bytes, the segment needs %llu from offset %llu on",
			       path, (unsigned long long)st.st_size, (unsigned long long)d->size,
			       (unsigned long long)offset);
	do
		r = fallocate(d->mem.fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)d->size) ? -errno : 0;
	while (r == -EINTR);
	if (r < 0)
		return mc_fail(r, "%s: cannot allocate %llu bytes: %s", path,
			       (unsigned long long)d->size, strerror(-r));
	d->mem.fd_offset = offset;
	return 0;
}

static int file_adopt(struct mct_dram *d, int fd)
{
	struct stat st;

	d->kind = "adopted";
	d->mem.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (d->mem.fd < 0 || fstat(d->mem.fd, &st) < 0)
		return mc_fail(-errno, "cannot adopt the segment file: %s", strerror(errno));
	if ((uint64_t)st.st_size < d->mem.len)
		return mc_fail(-EINVAL, "cannot adopt the segment file: it has %llu bytes, %llu are needed",
			       (unsigned long long)st.st_size, (unsigned long long)d->mem.len);
	return 0;
}

static int file_open(struct mct_dram *d, const struct mct_conf *conf, const char *kind)
{
	if (conf->adopt_fd > 0)
		return file_adopt(d, conf->adopt_fd);
	return conf->path ? file_open_path(d, conf->path, conf->path_offset, conf->lock) : file_open_auto(d, kind);
}

/* ---- the mapping ------------------------------------------------------------------------------- */

/* Address and file offset must be equal modulo 2 MiB, or the kernel maps a huge page as 4 KiB pages. */
static int map_aligned(struct mct_dram *d)
{
	char *area, *at;
	uint64_t head, align = d->align;

	area = mmap(NULL, d->mem.len + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	if (area == MAP_FAILED)
		return mc_fail(-ENOMEM, "cannot reserve address space for %llu bytes",
			       (unsigned long long)d->mem.len);
	at = (char *)(((uintptr_t)area + align - 1) & ~(align - 1));
	head = (uint64_t)(at - area);
	if (mmap(at, d->mem.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, d->mem.fd,
		 (off_t)d->mem.fd_offset) == MAP_FAILED) {
		int r = -errno;

		munmap(area, d->mem.len + align);
		if (r == -ENOMEM && !strcmp(d->kind, "hugetlb"))
			return mc_fail(r, "%llu bytes needed but only %llu bytes of huge pages are free",
				       (unsigned long long)d->mem.len,
				       (unsigned long long)mct_hugetlb_free());
		return mc_fail(r, "cannot map the segment: %s", strerror(-r));
	}
	if (head)
		munmap(area, head);
	munmap(at + d->mem.len, align - head);
	d->mem.base = at;
	/* Advice: if it fails, the segment works with small pages, and core files are large. */
	(void)madvise(at, d->mem.len, MADV_HUGEPAGE);
	(void)madvise(at, d->mem.len, MADV_DONTDUMP);
	return 0;
}

static int map_bind(struct mct_dram *d, int node)
{
	unsigned long mask[MAX_NODES / BITS_PER_LONG] = { 0 };

	mask[(unsigned)node / BITS_PER_LONG] = 1ul << ((unsigned)node % BITS_PER_LONG);
	if (syscall(SYS_mbind, d->mem.base, d->mem.len, MPOL_BIND, mask, (unsigned long)MAX_NODES, 0u))
		return mc_fail(-errno, "cannot bind the segment to NUMA node %d: %s", node,
			       strerror(errno));
	return 0;
}

/* ---- prefault ---------------------------------------------------------------------------------- */

static int prefault_page(struct mct_dram *d, uint64_t off)
{
	if (madvise((char *)d->mem.base + off, HUGE_SIZE, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* Kernels before 5.14.  Storing a byte into each page is no substitute: it would change bytes
	 * that a peer may be writing, and lack of memory would raise SIGBUS. */
	return fallocate(d->mem.fd, 0, (off_t)(d->mem.fd_offset + off), HUGE_SIZE) ? -errno : 0;
}

/* Allocate pages from the first without one up to the size.  False: stopped, or failed. */
static bool prefault_to_size(struct mct_dram *d)
{
	uint64_t off;
	int r;

	for (off = dram_prefaulted(d); off < dram_size(d); off += HUGE_SIZE) {
		if (__atomic_load_n(&d->stop, __ATOMIC_RELAXED))
			return false;
		do
			r = prefault_page(d, off);
		while (r == -EINTR || r == -EAGAIN);
		if (r < 0) {
			mc_warn("dram", "prefault failed, continuing without: %s done=%llu size=%llu",
				mc_strerror(r), (unsigned long long)off,
				(unsigned long long)dram_size(d));
			return false;
		}
		__atomic_store_n(&d->prefaulted, off + HUGE_SIZE, __ATOMIC_RELAXED);
	}
	return true;
}

/* True if the medium grew after the thread cleared @prefaulting and no other thread has been started for that:
 * both this thread and prefault_start() exchange the flag, so exactly one of them continues. */
static bool prefault_resume(struct mct_dram *d)
{
	return dram_prefaulted(d) < __atomic_load_n(&d->size, __ATOMIC_SEQ_CST) &&
		!__atomic_exchange_n(&d->prefaulting, true, __ATOMIC_SEQ_CST);
}

static void *prefault_main(void *arg)
{
	struct mct_dram *d = arg;
	bool whole;

	/* Low priority: the segment serves requests meanwhile. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
	do {
		whole = prefault_to_size(d);
		__atomic_store_n(&d->prefaulting, false, __ATOMIC_SEQ_CST);
	} while (whole && prefault_resume(d));
	return NULL;
}

static int prefault_start(struct mct_dram *d)
{
	int r;

	if (!d->prefault || __atomic_exchange_n(&d->prefaulting, true, __ATOMIC_SEQ_CST))
		return 0;
	/* The flag was false, so an earlier thread has ended or is about to. */
	if (d->thread_started)
		mc_thread_join(d->thread);
	r = mc_thread_start(&d->thread, "mct-prefault", prefault_main, d);
	d->thread_started = r == 0;
	if (r < 0)
		__atomic_store_n(&d->prefaulting, false, __ATOMIC_SEQ_CST);
	return r;
}

/* ---- the table --------------------------------------------------------------------------------- */

static int dram_check_available(uint64_t size, const char *kind)
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
		return mc_fail(-ENOMEM, "%llu bytes of memory needed but only %llu are available (%s)",
			       (unsigned long long)size, (unsigned long long)have, by);
	return 0;
}

/* Otherwise the kernel would kill a process when a page is touched for which the node has no memory. */
static int dram_check_node(uint64_t size, int node)
{
	uint64_t have = node >= 0 ? mct_node_available(node) : UINT64_MAX;

	if (!have)
		return mc_fail(-EINVAL, "there is no NUMA node %d with memory (numactl -H lists them)", node);
	if (size > have)
		return mc_fail(-ENOMEM, "%llu bytes of memory needed but only %llu are available on NUMA node %d",
			       (unsigned long long)size, (unsigned long long)have, node);
	return 0;
}

static uint64_t size_round_up(uint64_t size)
{
	return (size + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1);
}

static int dram_check_conf(const struct mct_conf *conf, const char *kind)
{
	if ((conf->size == 0 && !conf->path) || conf->size > SIZE_LIMIT || conf->reserve > SIZE_LIMIT)
		return mc_fail(-EINVAL, "segment size %llu is out of range",
			       (unsigned long long)conf->size);
	if (strcmp(kind, "auto") && strcmp(kind, "tmpfs") && strcmp(kind, "memfd") &&
	    strcmp(kind, "hugetlb"))
		return mc_fail(-EINVAL, "unknown kind of memory '%s'", kind);
	if (conf->numa_node < -1 || conf->numa_node >= MAX_NODES)
		return mc_fail(-EINVAL, "NUMA node %d is out of range", conf->numa_node);
	return 0;
}

static void dram_close(struct mct_medium *m)
{
	struct mct_dram *d = dram_of(m);

	if (d->thread_started) {
		__atomic_store_n(&d->stop, true, __ATOMIC_RELAXED);
		mc_thread_join(d->thread);
	}
	if (d->mem.base)
		munmap(d->mem.base, d->mem.len);
	if (d->mem.fd >= 0)
		close(d->mem.fd);
	free(d);
}

static int dram_open(const struct mct_conf *conf, struct mct_medium **ret)
{
	const char *kind = conf->kind ? conf->kind : "auto";
	struct mct_dram *d;
	int r;

	r = dram_check_conf(conf, kind);
	if (r < 0)
		return r;
	if (conf->path && conf->size && conf->size < HUGE_SIZE)
		return mc_fail(-EINVAL, "%s: a segment has at least 2 MiB", conf->path);
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->medium.ops = &mct_dram_tier;
	d->mem.fd = -1;
	d->align = HUGE_SIZE;
	d->size = conf->path ? conf->size & ~(HUGE_SIZE - 1) : size_round_up(conf->size);
	d->mem.len = conf->reserve > conf->size && !conf->path ? size_round_up(conf->reserve) : d->size;
	d->prefault = conf->prefault;
	/* The pages of an adopted file are allocated already. */
	if (!conf->path && conf->adopt_fd <= 0)
		r = dram_check_available(strcmp(kind, "hugetlb") ? d->size : d->mem.len, kind);
	if (r == 0)
		r = dram_check_node(d->size, conf->numa_node);
	if (r < 0)
		goto fail;
	r = file_open(d, conf, kind);
	if (r < 0)
		goto fail;
	r = map_aligned(d);
	if (r < 0)
		goto fail;
	if (conf->numa_node >= 0) {
		r = map_bind(d, conf->numa_node);
		if (r < 0)
			goto fail;
	}
	r = prefault_start(d);
	if (r < 0)
		goto fail;
	*ret = &d->medium;
	return 0;
fail:
	dram_close(&d->medium);
	return r;
}

static int dram_grow(struct mct_medium *m, uint64_t size)
{
	struct mct_dram *d = dram_of(m);
	uint64_t before = dram_size(d);
	int r;

	if (size > d->mem.len || size_round_up(size) < before)
		return mc_fail(-EINVAL, "cannot resize a segment of %llu bytes (limit %llu) to %llu",
			       (unsigned long long)before, (unsigned long long)d->mem.len,
			       (unsigned long long)size);
	size = size_round_up(size);
	if (size == before)
		return 0;
	r = strcmp(d->kind, "hugetlb") ? dram_check_available(size - before, d->kind) : 0;
	if (r < 0)
		return r;
	__atomic_store_n(&d->size, size, __ATOMIC_SEQ_CST);
	r = prefault_start(d);
	if (r < 0)
		mc_warn("dram", "cannot start the prefault thread, continuing without: %s", mc_strerror(r));
	return 0;
}

static int dram_memory(const struct mct_medium *m, struct mct_memory *ret)
{
	*ret = ((const struct mct_dram *)m)->mem;
	return 0;
}

static void dram_status(const struct mct_medium *m, struct mct_status *ret)
{
	const struct mct_dram *d = (const struct mct_dram *)m;

	*ret = (struct mct_status){
		.size = dram_size(d), .limit = d->mem.len, .ready = dram_prefaulted(d), .kind = d->kind,
	};
}

const struct mct_tier_ops mct_dram_tier = {
	.name = "dram",
	.open = dram_open,
	.memory = dram_memory,
	.status = dram_status,
	.grow = dram_grow,
	.identity = mct_no_identity,
	.set_identity = mct_no_set_identity,
	.hold = mct_no_hold,
	.leave = mct_no_leave,
	.unlock = mct_no_unlock,
	.read_start = mct_no_read_start,
	.read_end = mct_no_read_end,
	.buffer_get = mct_no_buffer_get,
	.buffer_put = mct_no_buffer_put,
	.write_start = mct_no_write_start,
	.data_next = mct_no_data_next,
	.note = mct_no_note,
	.sweep = mct_no_sweep,
	.sweep_stop = mct_no_sweep_stop,
	.close = dram_close,
};
