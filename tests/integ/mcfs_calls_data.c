/* SPDX-License-Identifier: Apache-2.0
 * mcfs_calls_data.c - data of files: all variants of read and write. */
#include <config.h>
#include "tests/integ/mcfs_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void read_back_while_writing(void)
{
	int fd = opened("f", O_RDWR | O_CREAT | O_EXCL);
	struct stat st;
	char buf[16];

	wrote(fd, "hello", 5);
	CHECK(pread(fd, buf, sizeof(buf), 0) == 5 && memcmp(buf, "hello", 5) == 0);
	CHECK(pwrite(fd, "J", 1, 0) == 1);
	CHECK(lseek(fd, 0, SEEK_END) == 5);
	CHECK(pwrite(fd, "end", 3, 3000000) == 3);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 3000003);
	CHECK(pread(fd, buf, 8, 2999998) == 5 && memcmp(buf, "\0\0end", 5) == 0);
	CHECK(close(fd) == 0);
	fd = opened("f", O_RDONLY);
	CHECK(pread(fd, buf, 6, 0) == 6 && memcmp(buf, "Jello\0", 6) == 0);
	CHECK(pread(fd, buf, 8, 2999998) == 5 && memcmp(buf, "\0\0end", 5) == 0);
	CHECK(read(fd, buf, 0) == 0);
	CHECK(pread(fd, buf, 8, 3000003) == 0);
	CHECK(pread(fd, buf, 8, 4000000) == 0);
	CHECK(close(fd) == 0);
}

static void sizes_around_chunks_and_slots(void)
{
	static const size_t sizes[] = {
		0, 1, 4095, 4096, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1, 3 * MIB + 12345,
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const char *data = pattern((unsigned)i, sizes[i] ? sizes[i] : 1);
		int fd = opened("f", O_WRONLY | O_CREAT | O_TRUNC);

		wrote(fd, data, sizes[i]);
		/* A file that was only truncated is published by the last close, for which close(2)
		 * does not wait. */
		if (!sizes[i])
			CHECK(fsync(fd) == 0);
		CHECK(close(fd) == 0);
		holds("f", data, sizes[i]);
	}
}

static void random_writes_make_one_file(void)
{
	const size_t size = 5 * MIB + 77;
	char *model = calloc(1, size);
	int fd = opened("f", O_RDWR | O_CREAT | O_TRUNC);
	unsigned rng = 1;
	size_t end = 0;

	for (int i = 0; i < 200; i++) {
		size_t off, len;

		rng = rng * 1103515245 + 12345;
		off = (size_t)(rng >> 4) % size;
		rng = rng * 1103515245 + 12345;
		len = (size_t)(rng >> 4) % (size - off < 70000 ? size - off : 70000);
		memcpy(model + off, pattern((unsigned)i, len + 1), len);
		CHECK(pwrite(fd, model + off, len, (off_t)off) == (ssize_t)len);
		if (len && off + len > end)
			end = off + len;
	}
	CHECK(close(fd) == 0);
	holds("f", model, end);
}

static void overwrite_in_place_keeps_the_rest(void)
{
	const size_t size = 2 * MIB + 100;
	char *model = malloc(size);
	int fd;

	memcpy(model, pattern(1, size), size);
	put_file("f", model, size);
	fd = opened("f", O_WRONLY);
	CHECK(pwrite(fd, "XYZ", 3, (off_t)MIB - 1) == 3);
	memcpy(model + MIB - 1, "XYZ", 3);
	CHECK(close(fd) == 0);
	holds("f", model, size);
	fd = opened("f", O_RDWR);
	CHECK(pwrite(fd, "AB", 2, (off_t)size) == 2);
	CHECK(close(fd) == 0);
	model = realloc(model, size + 2);
	memcpy(model + size, "AB", 2);
	holds("f", model, size + 2);
}

static void append_begins_at_the_end(void)
{
	int fd;

	put_text("f", "one\n");
	fd = opened("f", O_WRONLY | O_APPEND);
	wrote(fd, "two\n", 4);
	CHECK(pwrite(fd, "three\n", 6, 0) == 6);
	CHECK(close(fd) == 0);
	holds_text("f", "one\ntwo\nthree\n");
	fd = opened("g", O_WRONLY | O_APPEND | O_CREAT);
	wrote(fd, "a", 1);
	wrote(fd, "b", 1);
	CHECK(close(fd) == 0);
	holds_text("g", "ab");
}

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

static void an_append_can_be_told_another_place(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT | O_APPEND);
	struct iovec iov = { (void *)(uintptr_t)"Y", 1 };

	wrote(fd, "one\n", 4);
	CHECK(fcntl(fd, F_SETFL, 0) == 0);
	CHECK(pwrite(fd, "X", 1, 0) == 1);
	CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
	wrote(fd, "two\n", 4);
	/* since Linux 6.9 */
	if (pwritev2(fd, &iov, 1, 1, RWF_NOAPPEND) < 0) {
		CHECK(errno == EOPNOTSUPP);
		CHECK(close(fd) == 0);
		holds_text("f", "Xne\ntwo\n");
		return;
	}
	CHECK(close(fd) == 0);
	holds_text("f", "XYe\ntwo\n");
}

/* The kernel keeps only one size for all descriptors of an inode. */
static void appends_of_several_are_each_at_an_end_of_its_own(void)
{
	int a, b;

	put_text("f", "begin ");
	a = opened("f", O_WRONLY | O_APPEND);
	b = opened("f", O_WRONLY | O_APPEND);
	wrote(a, "long long", 9);
	wrote(b, "short", 5);
	wrote(a, "!", 1);
	CHECK(close(a) == 0);
	holds_text("f", "begin long long!");
	wrote(b, "?", 1);
	CHECK(close(b) == 0);
	holds_text("f", "begin short?");
	/* also for a name without a published version */
	a = opened("g", O_WRONLY | O_CREAT | O_APPEND);
	wrote(a, "1234567", 7);
	b = opened("g", O_WRONLY | O_CREAT | O_APPEND);
	wrote(b, "x", 1);
	wrote(b, "y", 1);
	CHECK(close(b) == 0);
	holds_text("g", "xy");
	CHECK(close(a) == 0);
	holds_text("g", "1234567");
	/* also when an attribute sets the size, which the kernel does not notice */
	a = opened("h", O_WRONLY | O_CREAT | O_APPEND);
	CHECK(fsetxattr(a, "user.mooncake.size", "3", 1, 0) == 0);
	wrote(a, "x", 1);
	CHECK(close(a) == 0);
	holds("h", "\0\0\0x", 4);
}

/* Each append takes several requests, which the kernel may send in parallel. */
static void large_appends_stay_in_order(void)
{
	const size_t size = 8 * MIB;
	aio_context_t ctx = 0;
	struct io_event done;
	struct iocb cb, *list[] = { &cb };
	int fd;

	CHECK(syscall(SYS_io_setup, 1, &ctx) == 0);
	for (unsigned i = 0; i < 10; i++) {
		fd = opened("f", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_DIRECT);
		wrote(fd, pattern(i, size), size);
		CHECK(close(fd) == 0);
		holds("f", pattern(i, size), size);
		fd = opened("f", O_WRONLY | O_TRUNC | O_APPEND | O_DIRECT);
		cb = (struct iocb){
			.aio_fildes = (uint32_t)fd, .aio_lio_opcode = IOCB_CMD_PWRITE,
			.aio_buf = (uintptr_t)pattern(i, size), .aio_nbytes = size,
		};
		CHECK(syscall(SYS_io_submit, ctx, 1, list) == 1);
		CHECK(syscall(SYS_io_getevents, ctx, 1, 1, &done, NULL) == 1);
		CHECK(done.res == (int64_t)size);
		CHECK(close(fd) == 0);
		holds("f", pattern(i, size), size);
	}
	CHECK(syscall(SYS_io_destroy, ctx) == 0);
}

static void truncate_in_all_ways(void)
{
	struct stat st;
	int fd;

	put_text("f", "0123456789");
	CHECK(truncate("f", 4) == 0);
	holds_text("f", "0123");
	CHECK(truncate("f", 6) == 0);
	holds("f", "0123\0\0", 6);
	CHECK(truncate("f", 0) == 0);
	holds_text("f", "");
	fd = opened("f", O_RDWR);
	CHECK(ftruncate(fd, 3) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 3);
	CHECK(pwrite(fd, "x", 1, 1) == 1);
	CHECK(close(fd) == 0);
	holds("f", "\0x\0", 3);
	FAILS(truncate("f", (off_t)1 << 50), EFBIG);
	holds("f", "\0x\0", 3);
	FAILS(truncate("missing", 1), ENOENT);
}

static void allocation_sets_the_size(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT);
	struct stat st;

	CHECK(fallocate(fd, 0, 0, 5000) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 5000);
	CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 5000);
	FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10), EOPNOTSUPP);
	FAILS(fallocate(fd, 0, 0, (off_t)1 << 50), EFBIG);
	CHECK(close(fd) == 0);
	CHECK(stat("f", &st) == 0 && st.st_size == 5000);
}

static void too_large_is_refused_and_not_published(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT);

	wrote(fd, "begin", 5);
	FAILS(pwrite(fd, "x", 1, (off_t)1 << 50), EFBIG);
	FAILS(close(fd), EFBIG);
	absent("f");
}

static void direct_io(void)
{
	const size_t size = 4 * MIB + 4096;
	char *got = aligned_alloc(4096, size + 4096);
	int fd = opened("f", O_WRONLY | O_CREAT | O_EXCL | O_TRUNC | O_DIRECT);

	wrote(fd, pattern(3, size), size);
	CHECK(close(fd) == 0);
	fd = opened("f", O_RDONLY | O_DIRECT | O_NOATIME);
	CHECK(read(fd, got, size + 4096) == (ssize_t)size);
	CHECK(memcmp(got, pattern(3, size), size) == 0);
	CHECK(close(fd) == 0);
	/* Overwrite it in place, as a cache does that knows its file sizes. */
	fd = opened("f", O_WRONLY | O_CREAT | O_DIRECT);
	wrote(fd, pattern(4, size), size);
	CHECK(close(fd) == 0);
	holds("f", pattern(4, size), size);
}

static void private_mappings(void)
{
	const size_t size = 2 * MIB + 999;
	char *p;
	int fd;

	put_file("f", pattern(5, size), size);
	fd = opened("f", O_RDONLY);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(close(fd) == 0);
	CHECK(memcmp(p, pattern(5, size), size) == 0);
	p[0] = '!';
	CHECK(munmap(p, size) == 0);
	holds("f", pattern(5, size), size);
	fd = opened("f", O_RDONLY);
	p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(memcmp(p, pattern(5, size), size) == 0);
	/* A new version does not change an existing mapping. */
	put_file("f", "short", 5);
	CHECK(memcmp(p, pattern(5, size), size) == 0);
	CHECK(close(fd) == 0);
	CHECK(munmap(p, size) == 0);
	holds_text("f", "short");
}

/* Create a file in two steps, the second one through a mapping that outlives all descriptors but one. */
static void shared_writable_mapping(void)
{
	const size_t size = MIB + 4096;
	int fd, other;
	char *p;

	put_file("f.tmp", pattern(6, 4096), 4096);
	fd = opened("f.tmp", O_RDWR);
	CHECK(ftruncate(fd, (off_t)size) == 0);
	p = mmap(NULL, size, PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED && errno == ENODEV)
		return;		/* a kernel before 6.6 */
	CHECK(p != MAP_FAILED);
	other = dup(fd);
	CHECK(other >= 0 && close(fd) == 0);
	memcpy(p + 4096, pattern(7, MIB), MIB);
	CHECK(munmap(p, size) == 0);
	CHECK(close(other) == 0);
	CHECK(rename("f.tmp", "f") == 0);
	p = malloc(size);
	memcpy(p, pattern(6, 4096), 4096);
	memcpy(p + 4096, pattern(7, MIB), MIB);
	holds("f", p, size);
}

/* Each page has the data of its own descriptor. */
static void mapped_writers_do_not_mix(void)
{
	const size_t page = 4096;
	char want[2 * 4096], *p[2];
	int fd[2];

	put_file("f", pattern(8, 2 * page), 2 * page);
	for (int i = 0; i < 2; i++) {
		fd[i] = opened("f", O_RDWR);
		p[i] = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0);
		if (p[i] == MAP_FAILED && errno == ENODEV)
			return;		/* a kernel before 6.6 */
		CHECK(p[i] != MAP_FAILED);
		memset(p[i] + (size_t)i * page, 'a' + i, page);
	}
	for (size_t i = 0; i < 2; i++) {
		memcpy(want, pattern(8, 2 * page), 2 * page);
		memset(want + i * page, 'a' + (int)i, page);
		CHECK(memcmp(p[i], want, 2 * page) == 0);
		CHECK(munmap(p[i], 2 * page) == 0 && close(fd[i]) == 0);
		holds("f", want, 2 * page);
	}
}

static void writers_read_what_they_have_written(void)
{
	char buf[8192];
	struct stat st;
	int a, b;

	put_file("f", pattern(9, sizeof(buf)), sizeof(buf));
	a = opened("f", O_RDWR);
	b = opened("f", O_RDWR);
	CHECK(pread(a, buf, sizeof(buf), 0) == sizeof(buf) && pread(b, buf, sizeof(buf), 0) == sizeof(buf));
	CHECK(pwrite(a, "aaaa", 4, 0) == 4 && pwrite(b, "bbbb", 4, 8192) == 4);
	CHECK(pread(a, buf, 8, 0) == 8 && memcmp(buf, "aaaa", 4) == 0 && memcmp(buf + 4, pattern(9, 8) + 4, 4) == 0);
	CHECK(pread(b, buf, 8, 0) == 8 && memcmp(buf, pattern(9, 8), 8) == 0);
	CHECK(fstat(a, &st) == 0 && st.st_size == 8192 && fstat(b, &st) == 0 && st.st_size == 8196);
	CHECK(close(b) == 0);
	CHECK(stat("f", &st) == 0 && st.st_size == 8196);
	CHECK(close(a) == 0);
	CHECK(stat("f", &st) == 0 && st.st_size == 8192);
}

/* Like opening /dev/stdout. */
static void a_descriptor_is_opened_once_more(void)
{
	int a = opened("f", O_RDWR | O_CREAT | O_TRUNC), b;
	char path[64];

	wrote(a, "first", 5);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", a);
	/* Both descriptors would share one set of mapped pages. */
	FAILS(open(path, O_RDWR | O_CLOEXEC), ESTALE);
	FAILS(open(path, O_RDONLY | O_CLOEXEC), EBUSY);
	b = opened(path, O_WRONLY);
	wrote(b, "again", 5);
	CHECK(close(b) == 0);
	holds_text("f", "again");
	CHECK(close(a) == 0);
	put_text("f", "old");
	a = opened("f", O_RDWR);
	FAILS(open(path, O_RDONLY | O_CLOEXEC), ESTALE);
	b = opened(path, O_WRONLY | O_TRUNC);
	wrote(b, "new", 3);
	CHECK(close(b) == 0 && close(a) == 0);
	holds_text("f", "new");
}

static void allocate(int fd, off_t size)
{
	CHECK(fallocate(fd, 0, 0, size) == 0);
}

static void set_attribute(int fd, off_t size)
{
	char text[32];
	struct stat st;

	(void)snprintf(text, sizeof(text), "%lld", (long long)size);
	CHECK(fsetxattr(fd, "user.mooncake.size", text, strlen(text), 0) == 0);
	/* fstat(2) makes the kernel request the new size */
	CHECK(fstat(fd, &st) == 0 && st.st_size == size);
}

/* Meanwhile the name shows another version: stat(2) of the name does not truncate the mapping. */
static void a_size_that_was_set_stays_mapped(void)
{
	static void (*const ways[])(int fd, off_t size) = { allocate, set_attribute };
	char *model = calloc(1, MIB), *p;
	struct stat st;
	int fd;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		put_file("f", pattern(1, 4096), 4096);
		fd = opened("f", O_RDWR);
		ways[i](fd, (off_t)MIB);
		p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED && errno == ENODEV)
			return;		/* a kernel before 6.6 */
		CHECK(p != MAP_FAILED);
		p[MIB / 2] = 'x';
		CHECK(stat("f", &st) == 0 && st.st_size == 4096);
		p[MIB / 2 + 1] = 'y';
		CHECK(munmap(p, MIB) == 0);
		CHECK(close(fd) == 0);
		memcpy(model, pattern(1, 4096), 4096);
		model[MIB / 2] = 'x';
		model[MIB / 2 + 1] = 'y';
		holds("f", model, MIB);
	}
}

static void truncation_leaves_readers_alone(void)
{
	const size_t size = 3 * 4096;
	struct stat st;
	char buf[8], *p;
	int fd;

	put_file("f", pattern(1, size), size);
	fd = opened("f", O_RDONLY);
	p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(p[0] == pattern(1, size)[0]);
	CHECK(truncate("f", 5) == 0);
	/* Compare before fstat(2), which would update the kernel's size. */
	CHECK(memcmp(p, pattern(1, size), size) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)size);
	CHECK(stat("f", &st) == 0 && st.st_size == 5);
	CHECK(pread(fd, buf, sizeof(buf), (off_t)size - 4) == 4);
	CHECK(munmap(p, size) == 0);
	CHECK(close(fd) == 0);
	holds("f", pattern(1, size), 5);
}

static void cut_by_name(void)
{
	CHECK(truncate("f", 10) == 0);
	holds("f", pattern(1, 4096), 10);
}

/* Truncating the name neither truncates an open writer nor changes the writer's view of the file,
 * whether it has written or only opened the file. */
static void truncation_leaves_writers_alone(void)
{
	const size_t size = 4096;
	char buf[2 * 4096], path[64], *p;
	struct stat st;
	int fd;

	put_file("f", pattern(1, size), size);
	fd = opened("f", O_RDWR);
	CHECK(in_child(cut_by_name) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)size);
	CHECK(pread(fd, buf, sizeof(buf), 0) == (ssize_t)size && memcmp(buf, pattern(1, size), size) == 0);
	CHECK(close(fd) == 0);
	holds("f", pattern(1, size), 10);

	put_file("f", pattern(1, size), size);
	fd = opened("f", O_RDWR);
	CHECK(in_child(cut_by_name) == 0);
	CHECK(pwrite(fd, pattern(1, 4), 4, 0) == 4 && close(fd) == 0);
	holds("f", pattern(1, size), size);

	fd = opened("f", O_RDWR);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		p[20] = 'x';
		CHECK(in_child(cut_by_name) == 0);
		CHECK(p[20] == 'x' && p[21] == pattern(1, size)[21]);
		CHECK(munmap(p, size) == 0 && close(fd) == 0);
		memcpy(buf, pattern(1, size), size);
		buf[20] = 'x';
		holds("f", buf, size);
		fd = opened("f", O_RDWR);
	}
	/* The descriptor's file is no longer the file with this name. */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(rename("f", "g") == 0);
	put_text("f", "another");
	FAILS(truncate(path, 0), ESTALE);
	CHECK(close(fd) == 0);
	holds_text("f", "another");
}

static void copies_inside_the_kernel(void)
{
	const size_t size = MIB + 5;
	off_t off = 0;
	int from, to;
	ssize_t n;

	put_file("f", pattern(8, size), size);
	from = opened("f", O_RDONLY);
	to = opened("g", O_WRONLY | O_CREAT);
	while ((n = sendfile(to, from, &off, size)) > 0)
		;
	CHECK(n == 0);
	CHECK(close(to) == 0);
	holds("g", pattern(8, size), size);
	to = opened("h", O_WRONLY | O_CREAT);
	off = 0;
	while ((n = copy_file_range(from, &off, to, NULL, size, 0)) > 0)
		;
	CHECK(n == 0);
	CHECK(close(to) == 0);
	holds("h", pattern(8, size), size);
}

struct part {
	int fd;
	unsigned n;
};

static void *write_part(void *arg)
{
	const struct part *p = arg;
	char *data = malloc(MIB);

	for (unsigned k = 0; k < 4; k++) {
		memset(data, (int)(p->n * 4 + k), MIB);
		CHECK(pwrite(p->fd, data, MIB, (off_t)((p->n * 4 + k) * MIB)) == (ssize_t)MIB);
	}
	free(data);
	return NULL;
}

static void threads_write_one_file(void)
{
	enum { THREADS = 6 };
	int fd = opened("f", O_WRONLY | O_CREAT);
	char *model = malloc(THREADS * 4 * MIB);
	struct part parts[THREADS];
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		parts[i] = (struct part){ fd, i };
		CHECK(pthread_create(&threads[i], NULL, write_part, &parts[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(close(fd) == 0);
	for (unsigned i = 0; i < THREADS * 4; i++)
		memset(model + i * MIB, (int)i, MIB);
	holds("f", model, THREADS * 4 * MIB);
}

static void seeks(void)
{
	int fd;

	put_text("f", "0123456789");
	fd = opened("f", O_RDONLY);
	CHECK(lseek(fd, 0, SEEK_END) == 10);
	CHECK(lseek(fd, 2, SEEK_DATA) == 2);
	CHECK(lseek(fd, 2, SEEK_HOLE) == 10);
	FAILS(lseek(fd, 11, SEEK_DATA), ENXIO);
	CHECK(close(fd) == 0);
}

const struct call_case data_cases[] = {
	{ "read_back_while_writing", read_back_while_writing },
	{ "sizes_around_chunks_and_slots", sizes_around_chunks_and_slots },
	{ "random_writes_make_one_file", random_writes_make_one_file },
	{ "overwrite_in_place_keeps_the_rest", overwrite_in_place_keeps_the_rest },
	{ "append_begins_at_the_end", append_begins_at_the_end },
	{ "an_append_can_be_told_another_place", an_append_can_be_told_another_place },
	{ "appends_of_several_are_each_at_an_end_of_its_own",
	  appends_of_several_are_each_at_an_end_of_its_own },
	{ "large_appends_stay_in_order", large_appends_stay_in_order },
	{ "truncate_in_all_ways", truncate_in_all_ways },
	{ "allocation_sets_the_size", allocation_sets_the_size },
	{ "too_large_is_refused_and_not_published", too_large_is_refused_and_not_published },
	{ "direct_io", direct_io },
	{ "private_mappings", private_mappings },
	{ "shared_writable_mapping", shared_writable_mapping },
	{ "mapped_writers_do_not_mix", mapped_writers_do_not_mix },
	{ "writers_read_what_they_have_written", writers_read_what_they_have_written },
	{ "a_descriptor_is_opened_once_more", a_descriptor_is_opened_once_more },
	{ "a_size_that_was_set_stays_mapped", a_size_that_was_set_stays_mapped },
	{ "truncation_leaves_readers_alone", truncation_leaves_readers_alone },
	{ "truncation_leaves_writers_alone", truncation_leaves_writers_alone },
	{ "copies_inside_the_kernel", copies_inside_the_kernel },
	{ "threads_write_one_file", threads_write_one_file },
	{ "seeks", seeks },
	{ NULL, NULL },
};
