/* SPDX-License-Identifier: Apache-2.0
 * fake_hf3fs.c - see fake_hf3fs.h. */
#include <config.h>

#include "tests/lib/fake_hf3fs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tiers/ssd/hf3fs.h"

#define BLOCK 4096u
#define FILES 1024
#define WORKERS 2

struct io {
	const struct mct_hf3fs_iov *iov;
	char *at;
	int fd;
	size_t off;
	uint64_t len;
	const void *userdata;
	int64_t result;
	bool used;
};

/* Indices of transfers; the ring is larger by one than the number of transfers. */
struct fifo {
	int *index;
	unsigned head, tail;
};

struct ring {
	bool read;
	int entries;
	pthread_mutex_t lock;
	pthread_cond_t work, ended;
	pthread_t worker[WORKERS];
	struct io *io;
	struct fifo prepared, submitted, over;
	_Atomic bool stopping;
	_Atomic int preparing, waiting;	/* threads in these calls */
};

static struct fake_hf3fs fake;
static int dup_of[FILES];	/* of a registered file, 0: none */

struct fake_hf3fs *fake_hf3fs_state(void);
int hf3fs_extract_mount_point(char *ret, int size, const char *path);
int hf3fs_iovcreate(struct mct_hf3fs_iov *ret, const char *mount_point, size_t size, size_t block_size, int numa);
void hf3fs_iovdestroy(struct mct_hf3fs_iov *iov);
int hf3fs_iorcreate4(struct mct_hf3fs_ior *ret, const char *mount_point, int entries, bool for_read, int io_depth,
		     int timeout, int numa, uint64_t flags);
void hf3fs_iordestroy(struct mct_hf3fs_ior *ior);
int hf3fs_reg_fd(int fd, uint64_t flags);
void hf3fs_dereg_fd(int fd);
int hf3fs_prep_io(const struct mct_hf3fs_ior *ior, const struct mct_hf3fs_iov *iov, bool read, void *at, int fd,
		  size_t off, uint64_t len, const void *userdata);
int hf3fs_submit_ios(const struct mct_hf3fs_ior *ior);
int hf3fs_wait_for_ios(const struct mct_hf3fs_ior *ior, struct mct_hf3fs_cqe *ret, int max, int min,
		       const struct timespec *deadline);

struct fake_hf3fs *fake_hf3fs_state(void)
{
	return &fake;
}

__attribute__((constructor)) static void mount_from_environment(void)
{
	const char *mount = getenv("FAKE_HF3FS_MOUNT");

	if (mount)
		snprintf(fake.mount, sizeof(fake.mount), "%s", mount);
}

/* True for the number of calls that a setting names. */
static bool take(_Atomic int *left)
{
	int n = *left;

	while (n > 0)
		if (atomic_compare_exchange_strong(left, &n, n - 1))
			return true;
	return n < 0;
}

static int rejected(int e)
{
	fake.rejected++;
	return e;
}

static void fifo_put(struct fifo *f, int entries, int index)
{
	f->index[f->head++ % (unsigned)entries] = index;
}

static bool fifo_get(struct fifo *f, int entries, int *ret)
{
	if (f->head == f->tail)
		return false;
	*ret = f->index[f->tail++ % (unsigned)entries];
	return true;
}

/* ---- memory and files -------------------------------------------------------------------------- */

int hf3fs_extract_mount_point(char *ret, int size, const char *path)
{
	size_t n = strlen(fake.mount);

	if (!n || strncmp(path, fake.mount, n) || path[n] != '/' || access(path, F_OK))
		return -1;
	if ((int)n < size)
		strcpy(ret, fake.mount);
	return (int)n + 1;
}

int hf3fs_iovcreate(struct mct_hf3fs_iov *ret, const char *mount_point, size_t size, size_t block_size, int numa)
{
	static _Atomic int serial;
	char name[64];
	int fd;

	if (fake.no_memory)
		return -fake.no_memory;
	if (strcmp(mount_point, fake.mount) || block_size || numa != -1)
		return rejected(-EINVAL);
	snprintf(name, sizeof(name), "/fake-hf3fs-%d-%d", (int)getpid(), ++serial);
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return -errno;
	shm_unlink(name);
	ret->base = ftruncate(fd, (off_t)size) ? MAP_FAILED :
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (ret->base == MAP_FAILED)
		return -ENOMEM;
	ret->size = size;
	fake.iovs++;
	return 0;
}

void hf3fs_iovdestroy(struct mct_hf3fs_iov *iov)
{
	munmap(iov->base, iov->size);
	fake.iovs--;
}

int hf3fs_reg_fd(int fd, uint64_t flags)
{
	char link[64], path[4096], mount[MCT_HF3FS_PATH];
	ssize_t n;

	if (fake.no_file)
		return fake.no_file;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0 || fd >= FILES || flags)
		return rejected(EBADF);
	path[n] = 0;
	if (hf3fs_extract_mount_point(mount, sizeof(mount), path) < 0)
		return rejected(EBADF);
	if (dup_of[fd])
		return rejected(EINVAL);
	dup_of[fd] = dup(fd);
	fake.fds++;
	return -dup_of[fd];
}

void hf3fs_dereg_fd(int fd)
{
	if (fd < 0 || fd >= FILES || !dup_of[fd]) {
		rejected(0);
		return;
	}
	close(dup_of[fd]);
	dup_of[fd] = 0;
	fake.fds--;
}

/* ---- rings ------------------------------------------------------------------------------------- */

static int64_t io_run(const struct ring *r, struct io *io)
{
	uint64_t len = io->len;
	ssize_t n;

	if (take(&fake.errors))
		return -fake.error;
	if (len >= 2 * BLOCK && take(&fake.shorts))
		len = len / 2 / BLOCK * BLOCK;
	if (r->read && fake.hole)
		len = io->off >= fake.hole ? 0 : len < fake.hole - io->off ? len : fake.hole - io->off;
	if (!len)
		return 0;
	n = r->read ? pread(io->fd, io->at, len, (off_t)io->off) : pwrite(io->fd, io->at, len, (off_t)io->off);
	return n < 0 ? -errno : n;
}

static void *worker_main(void *arg)
{
	struct ring *r = arg;
	int i;

	pthread_mutex_lock(&r->lock);
	while (!r->stopping) {
		if (!fifo_get(&r->submitted, r->entries, &i)) {
			pthread_cond_wait(&r->work, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		while (fake.stuck && !r->stopping)
			usleep(1000);
		usleep((useconds_t)fake.delay_us);
		if (!r->stopping)
			r->io[i].result = io_run(r, &r->io[i]);
		pthread_mutex_lock(&r->lock);
		fifo_put(&r->over, r->entries, i);
		fake.ios++;
		pthread_cond_signal(&r->ended);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

int hf3fs_iorcreate4(struct mct_hf3fs_ior *ret, const char *mount_point, int entries, bool for_read, int io_depth,
		     int timeout, int numa, uint64_t flags)
{
	struct ring *r;

	if (fake.no_ring)
		return -fake.no_ring;
	if (strcmp(mount_point, fake.mount) || entries < 1 || io_depth || timeout || numa != -1 || flags)
		return rejected(-EINVAL);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->read = for_read;
	r->entries = entries;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->ended, NULL);
	r->io = calloc((size_t)entries, sizeof(*r->io));
	r->prepared.index = calloc(3 * (size_t)entries, sizeof(int));
	r->submitted.index = r->prepared.index + entries;
	r->over.index = r->submitted.index + entries;
	for (int i = 0; i < WORKERS; i++)
		if (!r->io || !r->prepared.index || pthread_create(&r->worker[i], NULL, worker_main, r))
			abort();
	ret->handle = r;
	ret->for_read = for_read;
	fake.rings++;
	return 0;
}

void hf3fs_iordestroy(struct mct_hf3fs_ior *ior)
{
	struct ring *r = ior->handle;

	pthread_mutex_lock(&r->lock);
	r->stopping = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(r->worker[i], NULL);
	/* Transfers that have no result yet are only right when the daemon was stuck. */
	for (int i = 0; i < r->entries; i++)
		if (r->io[i].used && !fake.stuck)
			rejected(0);
	free(r->io);
	free(r->prepared.index);
	free(r);
	fake.rings--;
}

int hf3fs_prep_io(const struct mct_hf3fs_ior *ior, const struct mct_hf3fs_iov *iov, bool read, void *at, int fd,
		  size_t off, uint64_t len, const void *userdata)
{
	struct ring *r = ior->handle;
	const uint8_t *p = at;
	int i = 0;

	if (read != r->read || !len || p < iov->base || p + len > iov->base + iov->size)
		return rejected(-EINVAL);
	if (fd < 0 || fd >= FILES || !dup_of[fd])
		return rejected(-EBADF);
	if (take(&fake.full))
		return -EAGAIN;
	if (++r->preparing > 1)
		rejected(0);
	pthread_mutex_lock(&r->lock);
	while (i < r->entries && r->io[i].used)
		i++;
	if (i < r->entries) {
		r->io[i] = (struct io){ iov, at, dup_of[fd], off, len, userdata, 0, true };
		fifo_put(&r->prepared, r->entries, i);
		fake.begun++;
	}
	pthread_mutex_unlock(&r->lock);
	r->preparing--;
	return i < r->entries ? i : -EAGAIN;
}

int hf3fs_submit_ios(const struct mct_hf3fs_ior *ior)
{
	struct ring *r = ior->handle;
	int i;

	if (take(&fake.unwoken))
		return -EIO;
	pthread_mutex_lock(&r->lock);
	while (fifo_get(&r->prepared, r->entries, &i))
		fifo_put(&r->submitted, r->entries, i);
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

int hf3fs_wait_for_ios(const struct mct_hf3fs_ior *ior, struct mct_hf3fs_cqe *ret, int max, int min,
		       const struct timespec *deadline)
{
	struct ring *r = ior->handle;
	int n = 0, i, e = 0;

	if (max < 1 || !deadline)
		return rejected(-EINVAL);
	if (take(&fake.deaf))
		return -EIO;
	if (++r->waiting > 1)
		rejected(0);
	pthread_mutex_lock(&r->lock);
	while (n < max && (n < min || r->over.head != r->over.tail) && e == 0) {
		if (!fifo_get(&r->over, r->entries, &i)) {
			e = pthread_cond_timedwait(&r->ended, &r->lock, deadline);
			continue;
		}
		ret[n++] = (struct mct_hf3fs_cqe){ i, 0, r->io[i].result, r->io[i].userdata };
		r->io[i].used = false;
	}
	pthread_mutex_unlock(&r->lock);
	r->waiting--;
	return n;
}
