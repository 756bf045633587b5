/* SPDX-License-Identifier: Apache-2.0
 * file.c - the file or block device of a medium: lock, header, size.
 *
 *	 0 "mooncake-ssd"	12 u32 version 1
 *	16 u64 size of the medium
 *	24 u64 words of identity[5]
 *	64 u32 CRC-32C of the bytes before
 *	128 u64 further words of identity[4]
 *	160 u32 CRC-32C of these words
 *	164 u32 CRC-32C of the next word
 *	168 u64 in a shared directory: number of the process that may write (shared.c), else 0
 *	176 of an encrypted medium, which has version 2: its wrapped key (tiers/wrap.h)[96]
 *	272 u32 CRC-32C of that
 *	276 u64 mct_conf.tenant of the owner that has wrapped it	284 u64 of an owner whose keys did not fit
 *	292 u32 CRC-32C of these two; without it they are 0, as earlier versions wrote them
 *
 * in one block, little-endian.  The first versions wrote, and ignored, zeros from byte 68 on; without the second CRC
 * the further words are 0. */
#include <config.h>

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/log.h"
#include "tiers/ssd/ssd_i.h"

#define LAYOUT_VERSION 1u
#define LAYOUT_SEALED 2u
#define WORDS 5u
#define FILES_MAX 1024u		/* owners of one directory */
#define SIZE_MIN (1ull << 20)
#define SIZE_MAX_BYTES (1ull << 44)
#define SHARE_OF_FREE 0.9	/* as upstream's default */

#define TENANTS(h) mc_crc32c((const char *)(h) + offsetof(struct header, tenant), 2 * sizeof(uint64_t))

static const char magic[12] = "mooncake-ssd";

struct header {
	char magic[12];
	uint32_t version;
	uint64_t size;
	uint64_t words[WORDS];
	uint32_t crc;
	char zero[60];
	uint64_t more[MCT_IDENTITY - WORDS];
	uint32_t more_crc;
	uint32_t holder_crc;
	uint64_t holder;
	struct mct_wrap wrap;
	uint32_t wrap_crc;
	uint64_t tenant, refused;
	uint32_t tenant_crc;
} __attribute__((packed));
_Static_assert(offsetof(struct header, more) == 128 && offsetof(struct header, tenant_crc) == 292,
	       "as in the comment above");

/* ---- the header -------------------------------------------------------------------------------- */

static int block_new(void **ret)
{
	int r = posix_memalign(ret, MCT_BLOCK, MCT_BLOCK);

	if (r == 0)
		memset(*ret, 0, MCT_BLOCK);
	return -r;
}

static void header_put_words(struct header *h, const uint64_t words[MCT_IDENTITY])
{
	for (unsigned i = 0; i < WORDS; i++)
		h->words[i] = htole64(words[i]);
	for (unsigned i = WORDS; i < MCT_IDENTITY; i++)
		h->more[i - WORDS] = htole64(words[i]);
	h->more_crc = htole32(mc_crc32c(h->more, sizeof(h->more)));
}

static void header_get_words(const struct header *h, uint64_t ret[MCT_IDENTITY])
{
	bool more = le32toh(h->more_crc) == mc_crc32c(h->more, sizeof(h->more));

	for (unsigned i = 0; i < WORDS; i++)
		ret[i] = le64toh(h->words[i]);
	for (unsigned i = WORDS; i < MCT_IDENTITY; i++)
		ret[i] = more ? le64toh(h->more[i - WORDS]) : 0;
}

int mct_ssd_file_mark(struct mct_ssd *d, uint64_t size, const uint64_t words[MCT_IDENTITY],
		      const struct mct_wrap *wrap)
{
	auto_free void *block = NULL;
	struct header *h;
	int r = block_new(&block);

	if (r < 0)
		return r;
	h = block;
	memcpy(h->magic, magic, sizeof(magic));
	h->version = htole32(wrap ? LAYOUT_SEALED : LAYOUT_VERSION);
	if (wrap) {
		h->wrap = *wrap;
		h->wrap_crc = htole32(mc_crc32c(wrap, sizeof(*wrap)));
		h->tenant = htole64(d->seal.tenant);
		h->refused = htole64(d->seal.refused);
		h->tenant_crc = htole32(TENANTS(h));
	}
	h->size = htole64(size);
	header_put_words(h, words);
	h->holder = htole64(d->holder);
	h->holder_crc = htole32(mc_crc32c(&h->holder, sizeof(h->holder)));
	h->crc = htole32(mc_crc32c(h, offsetof(struct header, crc)));
	if (pwrite(d->fd, block, MCT_BLOCK, 0) != MCT_BLOCK || fdatasync(d->fd))
		return mc_fail(errno ? -errno : -EIO, "cannot write the header of %s: %m", d->path);
	return 0;
}

int mct_ssd_file_same(struct mct_ssd *d, const void *block)
{
	const struct header *h = block;
	uint64_t words[MCT_IDENTITY];

	if (memcmp(h->magic, magic, sizeof(magic)))
		return mc_fail(-ENOMEDIUM, "it is blank, or has other content");
	if (le32toh(h->version) > LAYOUT_SEALED || le32toh(h->crc) != mc_crc32c(h, offsetof(struct header, crc)))
		return mc_fail(-ESTALE, "its header is damaged, or of a newer version");
	header_get_words(h, words);
	MC_LOCKED(&d->lock);
	if (d->holder && le64toh(h->holder) != d->holder)
		return mc_fail(-ESTALE, "another process has taken it over");
	if (memcmp(words, d->words, sizeof(words)) && !(d->torn && !memcmp(words, d->tried, sizeof(words))))
		return mc_fail(-ESTALE, "it has another identity: another owner has used it");
	return 0;
}

int mct_ssd_file_parse(const struct mct_ssd *d, const void *block, struct mct_ssd_header *ret)
{
	const struct header *h = block;

	*ret = (struct mct_ssd_header){ .size = 0 };
	if (memcmp(h->magic, magic, sizeof(magic))) {
		ret->none = true;
		return 0;
	}
	if (le32toh(h->version) > LAYOUT_SEALED)
		return mc_fail(-MC_EVERSION, "%s was written by a newer version", d->path);
	if (le32toh(h->crc) != mc_crc32c(h, offsetof(struct header, crc)))
		return 0;
	ret->size = le64toh(h->size);
	header_get_words(h, ret->words);
	if (le32toh(h->holder_crc) == mc_crc32c(&h->holder, sizeof(h->holder)))
		ret->holder = le64toh(h->holder);
	ret->sealed = le32toh(h->version) == LAYOUT_SEALED;
	if (ret->sealed && le32toh(h->wrap_crc) == mc_crc32c(&h->wrap, sizeof(h->wrap)))
		ret->wrap = h->wrap;
	if (ret->sealed && le32toh(h->tenant_crc) == TENANTS(h)) {
		ret->tenant = le64toh(h->tenant);
		ret->refused = le64toh(h->refused);
	}
	return 0;
}

int mct_ssd_file_header(const struct mct_ssd *d, struct mct_ssd_header *ret)
{
	auto_free void *block = NULL;
	int r = block_new(&block);

	if (r < 0)
		return r;
	if (pread(d->fd, block, MCT_BLOCK, 0) < 0)
		return mc_fail(-errno, "cannot read %s: %m", d->path);
	return mct_ssd_file_parse(d, block, ret);
}

/* ---- opening ----------------------------------------------------------------------------------- */

/* Bytes that the other owners of the directory may still use. */
static uint64_t others_claim(const char *dir, const struct stat *own)
{
	DIR *at = opendir(dir);
	struct dirent *e;
	uint64_t sum = 0;
	struct stat st;
	unsigned n;

	while (at && (e = readdir(at))) {
		if ((sscanf(e->d_name, "mooncake-%u.ssd", &n) != 1 && !mct_ssd_shared_name(e->d_name)) ||
		    fstatat(dirfd(at), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_ino == own->st_ino)
			continue;
		if (st.st_size > st.st_blocks * 512)
			sum += (uint64_t)(st.st_size - st.st_blocks * 512);
	}
	if (at)
		closedir(at);
	return sum;
}

static int default_size(struct mct_ssd *d, const char *dir, uint64_t *ret)
{
	uint64_t room, others;
	struct statvfs fs;
	struct stat st;

	if (fstat(d->fd, &st) || fstatvfs(d->fd, &fs))
		return mc_fail(-errno, "cannot examine %s: %m", d->path);
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	others = others_claim(dir, &st);
	room = room > others ? room - others : 0;
	*ret = (uint64_t)((double)room * SHARE_OF_FREE);
	return 0;
}

/* -EWOULDBLOCK: another process has the lock. */
static int file_flock(int fd, int how)
{
	return flock(fd, how | LOCK_NB) ? -errno : 0;
}

/* May this process take the locked file of a directory?  -EPERM: it has bytes of another tenant. */
static int directory_check(struct mct_ssd *d)
{
	struct mct_ssd_header h;
	int r = mct_ssd_file_header(d, &h);

	return r < 0 ? r : mct_ssd_seal_found(d, &h);
}

/* The first file of the directory that no other process has locked, and no other tenant uses. */
static int directory_open(struct mct_ssd *d, const char *dir)
{
	int r;

	for (unsigned i = 0; i < FILES_MAX; i++) {
		free(d->path);
		d->path = NULL;
		if (asprintf(&d->path, "%s/mooncake-%u.ssd", dir, i) < 0)
			return -ENOMEM;
		d->fd = mct_io_file(AT_FDCWD, d->path, O_RDWR | O_CREAT | O_NOFOLLOW, &d->direct);
		if (d->fd < 0)
			return d->fd;
		r = file_flock(d->fd, LOCK_EX);
		if (r < 0 && r != -EWOULDBLOCK)
			r = mc_fail(r, "cannot lock %s: %s", d->path, mc_strerror(r));
		if (r == 0)
			r = directory_check(d);
		if (r == 0)
			return 0;
		close(d->fd);
		d->fd = -1;
		if (r == -EPERM)
			mc_info("ssd", "%s is left alone: %s", d->path, mc_err_detail(r));
		else if (r != -EWOULDBLOCK)
			return r;
	}
	return mc_fail(-EBUSY, "%u processes or tenants use %s already", FILES_MAX, dir);
}

static int file_lock(int fd, const char *path)
{
	int r = file_flock(fd, LOCK_EX);

	return r < 0 ? mc_fail(r, "another process uses %s: %s", path, mc_strerror(r)) : 0;
}

static int device_open(struct mct_ssd *d, const char *path)
{
	d->path = strdup(path);
	if (!d->path)
		return -ENOMEM;
	/* O_EXCL: not while it is mounted.  The path may be a link of udev: only these names of a device on a network
	 * stay the same. */
	d->fd = mct_io_file(AT_FDCWD, path, O_RDWR | O_EXCL, &d->direct);
	if (d->fd < 0)
		return d->fd;
	return file_lock(d->fd, path);
}

static int device_size(const struct mct_ssd *d, int fd, uint64_t *ret)
{
	uint64_t bytes;

	if (ioctl(fd, BLKGETSIZE64, &bytes))
		return mc_fail(-errno, "cannot get the size of %s: %m", d->path);
	*ret = bytes > MCT_SSD_DATA_AT ? bytes - MCT_SSD_DATA_AT : 0;
	return 0;
}

/* The size that the medium gets; @had: its size so far, 0: it is new; @most: of the device, or of the default. */
static int choose_size(struct mct_ssd *d, const struct mct_conf *conf, bool device, uint64_t had, uint64_t most,
		       uint64_t *ret)
{
	uint64_t size = conf->size ? conf->size : had ? had : most;

	if (device && size > most)
		size = most;
	if (size < had) {
		mc_warn("ssd", "%s keeps its size of %" PRIu64 " MiB: it has objects; to make it smaller, remove it",
			d->path, had >> 20);
		size = had;
	}
	if (size > SIZE_MAX_BYTES)
		size = SIZE_MAX_BYTES;
	size -= size % MCT_BLOCK;
	if (size < SIZE_MIN)
		return mc_fail(-ENOSPC, "%s has room for %" PRIu64 " bytes, at least 1 MiB is needed", d->path, size);
	*ret = size;
	return 0;
}

/* May a device or file without a header be initialised? */
static int check_new(struct mct_ssd *d, bool device, bool format)
{
	uint64_t bytes = 0;
	struct stat st;
	char what[64];
	int r;

	if (fstat(d->fd, &st) || (device && ioctl(d->fd, BLKGETSIZE64, &bytes)))
		return mc_fail(-errno, "cannot get the size of %s: %m", d->path);
	r = mct_ssd_content(d->fd, device ? bytes : (uint64_t)st.st_size, what, sizeof(what));
	if (r < 0)
		return mc_fail(r, "cannot read %s: %s", d->path, strerror(-r));
	if (r && device)
		return mc_fail(-EEXIST, "%s has other content: %s.  Nothing was changed.  If all of it may be lost, "
			       "erase it (blkdiscard -z %s) and start again with --ssd_format", d->path, what, d->path);
	if (r)
		return mc_fail(-EEXIST, "%s has other content: %s.  Nothing was changed.  If it is not needed, "
			       "remove it", d->path, what);
	if (device && !format)
		return mc_fail(-EPERM, "%s is empty and was not used before.  Nothing was changed.  To initialise it, "
			       "start once with --ssd_format", d->path);
	return 0;
}

/* Find the file or device, lock it and read its header. */
static int file_take(struct mct_ssd *d, const struct mct_conf *conf, bool device, struct mct_ssd_header *ret)
{
	int r;

	if (conf->share)
		r = mct_ssd_shared_open(d, conf);
	else
		r = device ? device_open(d, conf->path) : directory_open(d, conf->path);
	if (r == 0)
		r = mct_ssd_file_header(d, ret);
	if (r == 0 && ret->none)
		r = check_new(d, device, conf->format);
	if (r == 0 && !ret->none && !ret->size)
		mc_warn("ssd", "%s: the header is damaged, so its objects are dropped", d->path);
	if (r == 0 && ret->size)
		memcpy(d->words, ret->words, sizeof(d->words));
	return r < 0 ? r : mct_ssd_seal_found(d, ret);
}

int mct_ssd_file_open(struct mct_ssd *d, const struct mct_conf *conf)
{
	struct mct_ssd_header had;
	uint64_t most = 0, size = 0;
	struct stat st;
	bool device;
	int r;

	if (conf->share == MCT_SHARE_READ)
		return mct_ssd_shared_read(d, conf);
	if (stat(conf->path, &st))
		return mc_fail(-errno, "the %s directory %s: %m", conf->share ? "shared" : "SSD", conf->path);
	d->device = device = S_ISBLK(st.st_mode) && !conf->share;
	if (!device && !S_ISDIR(st.st_mode))
		return mc_fail(-ENOTDIR, conf->share ? "%s is not a directory" :
			       "%s is neither a directory nor a block device", conf->path);
	r = file_take(d, conf, device, &had);
	if (r == 0)
		r = device ? device_size(d, d->fd, &most) : default_size(d, conf->path, &most);
	if (r == 0)
		r = choose_size(d, conf, device, had.size, most, &size);
	if (r == 0 && !device && ftruncate(d->fd, (off_t)(MCT_SSD_DATA_AT + size)))
		r = mc_fail(-errno, "cannot make %s of %" PRIu64 " bytes: %m", d->path, size);
	if (r == 0 && (size != had.size || d->holder != had.holder || had.sealed != conf->seal))
		r = d->form->mark(d, size, d->words);
	d->size = size;
	return r;
}

bool mct_ssd_file_whole(const struct mct_ssd *d)
{
	struct stat st;

	return fstat(d->fd, &st) == 0 &&
	       (uint64_t)st.st_size >= MCT_SSD_DATA_AT + __atomic_load_n(&d->size, __ATOMIC_RELAXED);
}

int mct_ssd_file_again(struct mct_ssd *d)
{
	uint64_t most = UINT64_MAX;
	struct stat st;
	int fd, r = 0;
	bool direct;

	/* Its user opens another medium; a lock would keep the file from the next owner. */
	if (d->reads_only || __atomic_load_n(&d->left, __ATOMIC_RELAXED))
		return -EAGAIN;
	fd = mct_io_file(AT_FDCWD, d->path, O_RDWR | (d->device ? O_EXCL : O_NOFOLLOW), &direct);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || (d->device ? !S_ISBLK(st.st_mode) : !S_ISREG(st.st_mode)))
		r = mc_fail(-ENOMEDIUM, "%s is no longer a %s", d->path, d->device ? "block device" : "file");
	if (r == 0 && d->device)
		r = device_size(d, fd, &most);
	if (r == 0 && most < __atomic_load_n(&d->size, __ATOMIC_RELAXED))
		r = mc_fail(-ENOMEDIUM, "it is smaller");
	if (r == 0)
		r = file_lock(fd, d->path);
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

int mct_ssd_file_leave(struct mct_ssd *d, bool foreign)
{
	int r = 0;

	if (d->device)
		return mc_fail(-MC_ENOTSUP, "%s is not in a directory", d->path);
	MC_LOCKED(&d->header_lock);
	/* Without the note this process would take it again. */
	if (foreign && (!d->seal.own || d->seal.tenant))
		return mc_fail(-MC_ENOTSUP, "%s is of the own tenant", d->path);
	if (foreign && !d->left) {
		d->seal.refused = d->seal.own;
		r = mct_ssd_file_mark(d, d->size, d->words, &d->seal.wrap);
	}
	if (r < 0)
		return r;
	__atomic_store_n(&d->left, true, __ATOMIC_RELAXED);
	r = file_flock(d->fd, LOCK_UN);
	return r < 0 ? mc_fail(r, "cannot unlock %s: %s", d->path, mc_strerror(r)) : 0;
}

int mct_ssd_file_grow(struct mct_ssd *d, uint64_t size)
{
	struct stat st;
	int r = 0;

	size -= size % MCT_BLOCK;
	if (size < d->size || size > SIZE_MAX_BYTES)
		return mc_fail(-EINVAL, "%s has %" PRIu64 " bytes and cannot get %" PRIu64, d->path, d->size, size);
	if (fstat(d->fd, &st))
		return mc_fail(-errno, "%s: %m", d->path);
	if (S_ISREG(st.st_mode) && ftruncate(d->fd, (off_t)(MCT_SSD_DATA_AT + size)))
		r = mc_fail(-errno, "cannot make %s of %" PRIu64 " bytes: %m", d->path, size);
	if (r == 0) {
		mc_mutex_lock(&d->header_lock);
		r = d->form->mark(d, size, d->words);
		mc_mutex_unlock(&d->header_lock);
	}
	if (r == 0)
		__atomic_store_n(&d->size, size, __ATOMIC_RELAXED);
	return r;
}
