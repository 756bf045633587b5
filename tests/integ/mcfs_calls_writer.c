/* SPDX-License-Identifier: Apache-2.0
 * mcfs_calls_writer.c - when a version appears: closes, deaths, duplicates, renames, readers. */
#include <config.h>
#include "tests/integ/mcfs_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* close(2) does not wait for the release request, so wait until the file appears. */
static void comes(const char *path, const char *text)
{
	struct stat st;

	for (int i = 0; i < 500; i++) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size == (off_t)strlen(text)) {
			close(fd);
			break;
		}
		if (fd >= 0)
			close(fd);
		usleep(10000);
	}
	holds_text(path, text);
}

static void write_and_kill(void)
{
	wrote(opened("f", O_WRONLY | O_CREAT | O_TRUNC), pattern(1, 3 * MIB), 3 * MIB);
	raise(SIGKILL);
}

static void write_and_term(void)
{
	wrote(opened("f", O_WRONLY | O_CREAT | O_TRUNC), pattern(1, 3 * MIB), 3 * MIB);
	raise(SIGTERM);
}

static void write_and_kill_large(void)
{
	wrote(opened("h", O_WRONLY | O_CREAT), pattern(1, 20 * MIB), 20 * MIB);
	raise(SIGKILL);
}

static void write_and_exit_1(void)
{
	wrote(opened("f", O_WRONLY | O_CREAT | O_TRUNC), "x", 1);
	_exit(1);
}

static void write_and_exit_0(void)
{
	wrote(opened("g", O_WRONLY | O_CREAT | O_TRUNC), "whole", 5);
	_exit(0);
}

static void deaths_revoke(void)
{
	CHECK(WTERMSIG(in_child(write_and_kill)) == SIGKILL);
	absent("f");
	CHECK(WTERMSIG(in_child(write_and_term)) == SIGTERM);
	absent("f");
	CHECK(WEXITSTATUS(in_child(write_and_exit_1)) == 1);
	absent("f");
	CHECK(in_child(write_and_exit_0) == 0);
	holds_text("g", "whole");
}

static void deaths_leave_the_old_version(void)
{
	put_text("f", "old");
	CHECK(WTERMSIG(in_child(write_and_kill)) == SIGKILL);
	holds_text("f", "old");
}

static int shared_fd;

static void child_writes(void)
{
	wrote(shared_fd, "child ", 6);
	CHECK(close(shared_fd) == 0);
}

static void children_do_not_commit(void)
{
	shared_fd = opened("f", O_WRONLY | O_CREAT);
	wrote(shared_fd, "parent ", 7);
	CHECK(in_child(child_writes) == 0);
	/* The child's end does not commit: the parent still has the file open. */
	wrote(shared_fd, "parent", 6);
	CHECK(close(shared_fd) == 0);
	holds_text("f", "parent child parent");
}

static void cut_and_kill(void)
{
	CHECK(ftruncate(shared_fd, 3) == 0);
	raise(SIGKILL);
}

static void enlarge_and_kill(void)
{
	CHECK(posix_fallocate(shared_fd, 0, 9000) == 0);
	raise(SIGKILL);
}

static void empty_and_kill(void)
{
	CHECK(ftruncate(shared_fd, 0) == 0);
	raise(SIGKILL);
}

static void a_size_that_a_killed_child_has_set(void)
{
	void (*const kinds[])(void) = { cut_and_kill, enlarge_and_kill, empty_and_kill };

	put_text("f", "whole");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		shared_fd = opened("f", O_RDWR);
		CHECK(WTERMSIG(in_child(kinds[i])) == SIGKILL);
		FAILS(close(shared_fd), EIO);
		holds_text("f", "whole");
	}
	/* The opener empties the file and starts again. */
	shared_fd = opened("f", O_RDWR);
	CHECK(WTERMSIG(in_child(empty_and_kill)) == SIGKILL);
	CHECK(ftruncate(shared_fd, 0) == 0);
	CHECK(close(shared_fd) == 0);
	holds_text("f", "");
}

static void child_becomes_a_program(void)
{
	(void)execlp("true", "true", (char *)NULL);
}

/* execve(2) closes the close-on-exec descriptor, and waits for the mount's answer to the flush. */
static void a_program_does_not_commit(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT | O_CLOEXEC);

	wrote(fd, "parent ", 7);
	CHECK(in_child(child_becomes_a_program) == 0);
	wrote(fd, "parent", 6);
	CHECK(close(fd) == 0);
	holds_text("f", "parent parent");
}

static void a_duplicate_is_closed_first(void)
{
	int fd = opened(".f.tmp", O_WRONLY | O_CREAT | O_TRUNC), copy;

	copy = dup(fd);
	CHECK(copy >= 0);
	wrote(copy, "0123456789", 10);
	CHECK(close(copy) == 0);
	holds_text(".f.tmp", "0123456789");
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && lseek(fd, 10, SEEK_SET) == 10);
	CHECK(close(fd) == 0);
	CHECK(rename(".f.tmp", "f") == 0);
	holds_text("f", "0123456789");
	absent(".f.tmp");
}

static void writing_goes_on_after_a_close(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT), copy = dup(fd);

	wrote(fd, "one", 3);
	CHECK(close(copy) == 0);
	holds_text("f", "one");
	wrote(fd, "two", 3);
	holds_text("f", "one");
	CHECK(close(fd) == 0);
	holds_text("f", "onetwo");
}

static void open_f_again_and_again(int flags)
{
	for (int i = 0; i < 500; i++) {
		int fd = open("f", flags);

		if (fd < 0)
			_exit(1);
		close(fd);
	}
	_exit(0);
}

/* In the kernel each writer has its own inode, and all their lookups run concurrently. */
static void many_open_one_file(void)
{
	pid_t pid[4];
	int status;

	put_text("f", "text");
	for (int readers = 0; readers <= 2; readers += 2) {
		for (int i = 0; i < 4; i++) {
			pid[i] = fork();
			CHECK(pid[i] >= 0);
			if (pid[i] == 0)
				open_f_again_and_again(i < readers ? O_RDONLY : O_RDWR);
		}
		for (int i = 0; i < 4; i++) {
			CHECK(waitpid(pid[i], &status, 0) == pid[i]);
			CHECK(status == 0);
		}
	}
	holds_text("f", "text");
}

static void rename_f_to_itself(void)
{
	_exit(rename("f", "f") < 0);
}

static void rename_publishes_what_is_open(void)
{
	char name[] = ".tmpXXXXXX";
	int fd = mkstemp(name);

	put_text("f", "old");
	CHECK(fd >= 0);
	CHECK(ftruncate(fd, 131160) == 0);
	CHECK(pwrite(fd, pattern(2, 131160), 131160, 0) == 131160);
	CHECK(rename(name, "f") == 0);
	holds("f", pattern(2, 131160), 131160);
	absent(name);
	CHECK(close(fd) == 0);
	holds("f", pattern(2, 131160), 131160);
}

static void temporary_files_by_their_names(void)
{
	char first[] = ".tmpXXXXXX", second[] = ".tmpXXXXXX";
	int made = mkstemp(first);

	/* Written through another descriptor than that of mkstemp(3). */
	CHECK(made >= 0);
	put_text(first, "by its name");
	CHECK(rename(first, "f") == 0);
	holds_text("f", "by its name");
	CHECK(fsync(made) == 0 && close(made) == 0);
	absent(first);
	holds_text("f", "by its name");
	/* An attempt that was not finished, and one that was. */
	made = mkstemp(second);
	CHECK(made >= 0);
	wrote(made, "half", 4);
	put_text(second, "whole");
	CHECK(rename(second, "f") == 0);
	holds_text("f", "whole");
	CHECK(close(made) == 0);
	holds_text("f", "whole");
	/* The unfinished file is another file; its close publishes it under the name with which it
	 * was created. */
	comes(second, "half");
}

static void renamed_to_itself(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT);

	wrote(fd, "text", 4);
	CHECK(rename("f", "f") == 0);
	FAILS(renameat2(AT_FDCWD, "f", AT_FDCWD, "f", RENAME_NOREPLACE), EEXIST);
	CHECK(WEXITSTATUS(in_child(rename_f_to_itself)) == 0);
	CHECK(close(fd) == 0);
	holds_text("f", "text");
	FAILS(rename("missing", "missing"), ENOENT);
}

static void touched_files_are_empty(void)
{
	CHECK(close(opened("f", O_WRONLY | O_CREAT)) == 0);
	comes("f", "");
	put_text("g", "text");
	CHECK(close(opened("g", O_WRONLY | O_TRUNC)) == 0);
	comes("g", "");
}

static void opening_for_writing_changes_nothing(void)
{
	struct stat a, b;

	put_text("f", "text");
	CHECK(stat("f", &a) == 0);
	CHECK(close(opened("f", O_RDWR)) == 0);
	CHECK(close(opened("f", O_WRONLY | O_APPEND)) == 0);
	CHECK(stat("f", &b) == 0);
	CHECK(a.st_ino == b.st_ino);
	holds_text("f", "text");
}

static void readers_keep_their_version(void)
{
	const size_t size = 3 * MIB;
	char *got = malloc(size);
	struct stat st, before;
	int fd;

	put_file("f", pattern(3, size), size);
	fd = opened("f", O_RDONLY);
	CHECK(fstat(fd, &before) == 0);
	CHECK(read(fd, got, MIB) == (ssize_t)MIB);
	put_text("f", "new");
	CHECK(read(fd, got + MIB, size - MIB) == (ssize_t)(size - MIB));
	CHECK(read(fd, &st, 1) == 0);
	CHECK(memcmp(got, pattern(3, size), size) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)size);
	holds_text("f", "new");
	/* All versions have one inode number: they are the same file. */
	CHECK(stat("f", &st) == 0 && st.st_ino == before.st_ino && st.st_size == 3);
	CHECK(unlink("f") == 0);
	CHECK(pread(fd, got, size, 0) == (ssize_t)size);
	CHECK(memcmp(got, pattern(3, size), size) == 0);
	CHECK(close(fd) == 0);
}

static void readers_and_writers_have_sizes_of_their_own(void)
{
	int r, w;
	struct stat st;

	put_text("f", "0123456789");
	r = opened("f", O_RDONLY);
	w = opened("f", O_RDWR);
	CHECK(pwrite(w, "x", 1, 99) == 1);
	CHECK(fstat(w, &st) == 0 && st.st_size == 100);
	CHECK(fstat(r, &st) == 0 && st.st_size == 10);
	CHECK(ftruncate(w, 3) == 0);
	CHECK(fstat(r, &st) == 0 && st.st_size == 10);
	CHECK(lseek(r, 0, SEEK_END) == 10 && lseek(w, 0, SEEK_END) == 3);
	CHECK(close(w) == 0);
	CHECK(fstat(r, &st) == 0 && st.st_size == 10);
	CHECK(close(r) == 0);
	holds_text("f", "012");
}

static void two_writers_do_not_mix(void)
{
	int a = opened("f", O_WRONLY | O_CREAT | O_TRUNC), b = opened("f", O_WRONLY | O_CREAT | O_TRUNC);

	wrote(a, "aaaaaaaa", 8);
	wrote(b, "bbbb", 4);
	wrote(a, "aaaa", 4);
	CHECK(close(a) == 0);
	holds_text("f", "aaaaaaaaaaaa");
	CHECK(close(b) == 0);
	holds_text("f", "bbbb");
}

static void look_at_unfinished(void)
{
	struct stat st;

	CHECK(stat("f", &st) == 0 && st.st_size == 7);
	FAILS(open("f", O_RDONLY), EBUSY);
	FAILS(open("f", O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST);
	/* Each writer has its own version of the file. */
	put_text("f", "theirs");
	holds_text("f", "theirs");
}

static void others_see_unfinished_files_by_name(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT);

	wrote(fd, "1234567", 7);
	look_at_unfinished();
	CHECK(unlink("f") == 0);
	fd = opened("f", O_WRONLY | O_CREAT);
	wrote(fd, "1234567", 7);
	CHECK(in_child(look_at_unfinished) == 0);
	CHECK(close(fd) == 0);
	holds_text("f", "1234567");
}

static void truncation_by_name_of_what_is_written(void)
{
	int fd = opened("f", O_RDWR | O_CREAT);
	struct stat st;
	char buf[8];

	wrote(fd, "1234567", 7);
	CHECK(truncate("f", 3) == 0);
	CHECK(stat("f", &st) == 0 && st.st_size == 3);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 3);
	CHECK(pread(fd, buf, 8, 0) == 3 && memcmp(buf, "123", 3) == 0);
	FAILS(open("f", O_RDONLY), EBUSY);
	CHECK(close(fd) == 0);
	holds_text("f", "123");
	fd = opened("g", O_RDWR | O_CREAT);
	wrote(fd, "1234567", 7);
	CHECK(truncate("g", 0) == 0);
	CHECK(pwrite(fd, "x", 1, 0) == 1);
	FAILS(open("g", O_RDONLY), EBUSY);
	CHECK(close(fd) == 0);
	holds_text("g", "x");
}

static void unlinked_files_live_in_their_descriptors(void)
{
	int fd = opened("f", O_RDWR | O_CREAT);
	char buf[8];

	wrote(fd, "abc", 3);
	CHECK(unlink("f") == 0);
	absent("f");
	wrote(fd, "def", 3);
	CHECK(pread(fd, buf, 8, 0) == 6 && memcmp(buf, "abcdef", 6) == 0);
	CHECK(close(fd) == 0);
	absent("f");
	put_text("g", "old");
	fd = opened("g", O_RDWR);
	wrote(fd, "new", 3);
	CHECK(unlink("g") == 0);
	CHECK(close(fd) == 0);
	absent("g");
}

static void rename_replaces_while_read(void)
{
	char buf[8];
	int fd;

	put_text("a", "A");
	put_text("b", "B");
	fd = opened("b", O_RDONLY);
	CHECK(rename("a", "b") == 0);
	absent("a");
	holds_text("b", "A");
	CHECK(read(fd, buf, 8) == 1 && buf[0] == 'B');
	CHECK(close(fd) == 0);
	fd = opened("b", O_RDONLY);
	CHECK(rename("b", "c") == 0);
	CHECK(read(fd, buf, 8) == 1 && buf[0] == 'A');
	CHECK(close(fd) == 0);
	holds_text("c", "A");
}

static void rename_moves_a_file_that_another_writes(void)
{
	int fds[2], fd;
	pid_t pid;
	char c;

	CHECK(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {
		close(fds[1]);
		fd = opened("log", O_WRONLY | O_CREAT | O_APPEND);
		wrote(fd, "one\n", 4);
		CHECK(fsync(fd) == 0);
		wrote(fd, "two\n", 4);
		CHECK(write(fds[0] + 0, "", 0) <= 0);
		CHECK(read(fds[0], &c, 1) == 0);
		CHECK(close(fd) == 0);
		_exit(0);
	}
	close(fds[0]);
	comes("log", "one\n");
	CHECK(rename("log", "log.1") == 0);
	absent("log");
	close(fds[1]);
	CHECK(waitpid(pid, &fd, 0) == pid && fd == 0);
	holds_text("log.1", "one\ntwo\n");
	absent("log");
}

static void rename_takes_the_name_of_what_is_written(void)
{
	int fd = opened("b", O_RDWR | O_CREAT);
	char buf[8];

	wrote(fd, "lost", 4);
	put_text("a", "A");
	CHECK(rename("a", "b") == 0);
	holds_text("b", "A");
	/* The writer continues with its file, which has no name now. */
	wrote(fd, "!", 1);
	CHECK(pread(fd, buf, sizeof(buf), 0) == 5 && memcmp(buf, "lost!", 5) == 0);
	CHECK(close(fd) == 0);
	holds_text("b", "A");
	absent("a");
}

static void a_failure_lasts_until_a_truncation(void)
{
	int fd = opened("f", O_RDWR | O_CREAT), copy = dup(fd);

	wrote(fd, "begin", 5);
	FAILS(pwrite(fd, "x", 1, (off_t)1 << 50), EFBIG);
	FAILS(write(fd, "more", 4), EIO);
	FAILS(close(copy), EFBIG);
	FAILS(close(dup(fd)), EFBIG);
	FAILS(ftruncate(fd, 3), EFBIG);
	absent("f");
	CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	wrote(fd, "anew", 4);
	CHECK(close(fd) == 0);
	holds_text("f", "anew");
}

static void large_files_of_all_kinds_of_writers(void)
{
	const size_t size = 17 * MIB + 4321;
	char *model = malloc(size);
	int fd = opened("f", O_RDWR | O_CREAT | O_EXCL), copy;

	/* Long enough that writeback begins before the close; changed, truncated and lengthened meanwhile. */
	memcpy(model, pattern(1, size), size);
	for (size_t at = 0; at < size; at += 100000)
		wrote(fd, model + at, size - at < 100000 ? size - at : 100000);
	memset(model + 3 * MIB - 7, 'x', 14);
	CHECK(pwrite(fd, model + 3 * MIB - 7, 14, 3 * (off_t)MIB - 7) == 14);
	CHECK(ftruncate(fd, 9 * (off_t)MIB + 5) == 0 && ftruncate(fd, (off_t)size) == 0);
	memset(model + 9 * MIB + 5, 0, size - 9 * MIB - 5);
	absent("g");
	copy = dup(fd);
	CHECK(copy >= 0 && close(copy) == 0);
	holds("f", model, size);
	/* The next version by the same descriptor, under another name. */
	memset(model, 'y', 5000);
	CHECK(pwrite(fd, model, 5000, 0) == 5000);
	CHECK(rename("f", "g") == 0);
	CHECK(close(fd) == 0);
	holds("g", model, size);
	absent("f");
	/* A writer that is killed before its close. */
	CHECK(WTERMSIG(in_child(write_and_kill_large)) == SIGKILL);
	absent("h");
	free(model);
}

static void rename_flags(void)
{
	put_text("a", "A");
	put_text("b", "B");
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE), EINVAL);
	CHECK(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE) == 0);
	holds_text("b", "B");
	holds_text("c", "A");
	FAILS(rename("missing", "x"), ENOENT);
	CHECK(rename("c", "c") == 0);
	holds_text("c", "A");
}

/* At the time of the rename the commit is running, finished, or not started yet. */
static void empty_files_are_renamed(void)
{
	char from[32], to[32];

	for (int i = 0; i < 500; i++) {
		(void)snprintf(from, sizeof(from), "from%d", i);
		(void)snprintf(to, sizeof(to), "to%d", i);
		CHECK(close(opened(from, O_WRONLY | O_CREAT)) == 0);
		CHECK(rename(from, to) == 0);
		comes(to, "");
		absent(from);
	}
}

#define CROWD_LEN 10000
#define CROWD_ROUNDS 200

/* All bytes must come from one writer. */
static void crowd_holds_one(int fd)
{
	char buf[CROWD_LEN + 1];
	struct stat st;
	ssize_t n = 0, r;

	CHECK(fstat(fd, &st) == 0);
	CHECK(st.st_size == CROWD_LEN);
	do {
		r = read(fd, buf + n, sizeof(buf) - (size_t)n);
		CHECK(r >= 0);
		n += r;
	} while (r);
	CHECK(n == CROWD_LEN);
	CHECK(memcmp(buf, buf + 1, CROWD_LEN - 1) == 0);
}

static void crowd_reads(void)
{
	for (int i = 0; i < CROWD_ROUNDS; i++) {
		int fd = opened("f", O_RDONLY);

		crowd_holds_one(fd);
		CHECK(close(fd) == 0);
	}
}

/* Overwrite the existing bytes, or truncate first. */
static void crowd_writes(void)
{
	char own[CROWD_LEN];

	memset(own, getpid() & 0xff, sizeof(own));
	for (int i = 0; i < CROWD_ROUNDS; i++) {
		int fd = opened("f", O_RDWR | O_CREAT | (i & 1 ? O_TRUNC : 0));

		wrote(fd, own, sizeof(own));
		CHECK(lseek(fd, 0, SEEK_SET) == 0);
		crowd_holds_one(fd);
		CHECK(close(fd) == 0);
	}
}

static void many_write_one_file(void)
{
	void (*const run[])(void) = { crowd_reads, crowd_reads, crowd_writes, crowd_writes, crowd_writes };
	pid_t pid[sizeof(run) / sizeof(run[0])];
	static const char first[CROWD_LEN];
	int status;

	put_file("f", first, sizeof(first));
	for (size_t i = 0; i < sizeof(run) / sizeof(run[0]); i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (pid[i] == 0) {
			run[i]();
			_exit(0);
		}
	}
	for (size_t i = 0; i < sizeof(run) / sizeof(run[0]); i++) {
		CHECK(waitpid(pid[i], &status, 0) == pid[i]);
		CHECK(status == 0);
	}
}

static void fsync_publishes(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT);

	wrote(fd, "one", 3);
	CHECK(fsync(fd) == 0);
	holds_text("f", "one");
	wrote(fd, "two", 3);
	CHECK(fdatasync(fd) == 0);
	holds_text("f", "onetwo");
	CHECK(close(fd) == 0);
}

static void exclusive_creation(void)
{
	int fd = opened("f", O_WRONLY | O_CREAT | O_EXCL);

	FAILS(open("f", O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST);
	wrote(fd, "x", 1);
	CHECK(close(fd) == 0);
	FAILS(open("f", O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST);
	holds_text("f", "x");
}

static void lock_in_child(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10 };
	int fd = opened("lock", O_RDWR);

	FAILS(fcntl(fd, F_SETLK, &l), EAGAIN);
	l.l_start = 100;
	CHECK(fcntl(fd, F_SETLK, &l) == 0);
}

static void record_locks_hold_on_one_node(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 50 };
	int fd;

	put_text("lock", "x");
	fd = opened("lock", O_RDWR);
	CHECK(fcntl(fd, F_SETLK, &l) == 0);
	CHECK(in_child(lock_in_child) == 0);
	CHECK(close(fd) == 0);
}

static void locks_hold_on_one_node(void)
{
	int a = opened("lock", O_RDWR | O_CREAT), b;

	CHECK(fsync(a) == 0 && close(a) == 0);
	a = opened("lock", O_RDWR);
	b = opened("lock", O_RDWR);
	CHECK(flock(a, LOCK_EX) == 0);
	FAILS(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(flock(a, LOCK_UN) == 0);
	CHECK(flock(b, LOCK_EX | LOCK_NB) == 0);
}

const struct call_case writer_cases[] = {
	{ "deaths_revoke", deaths_revoke },
	{ "deaths_leave_the_old_version", deaths_leave_the_old_version },
	{ "children_do_not_commit", children_do_not_commit },
	{ "a_size_that_a_killed_child_has_set", a_size_that_a_killed_child_has_set },
	{ "a_program_does_not_commit", a_program_does_not_commit },
	{ "a_duplicate_is_closed_first", a_duplicate_is_closed_first },
	{ "writing_goes_on_after_a_close", writing_goes_on_after_a_close },
	{ "rename_publishes_what_is_open", rename_publishes_what_is_open },
	{ "temporary_files_by_their_names", temporary_files_by_their_names },
	{ "renamed_to_itself", renamed_to_itself },
	{ "many_open_one_file", many_open_one_file },
	{ "many_write_one_file", many_write_one_file },
	{ "touched_files_are_empty", touched_files_are_empty },
	{ "opening_for_writing_changes_nothing", opening_for_writing_changes_nothing },
	{ "readers_keep_their_version", readers_keep_their_version },
	{ "readers_and_writers_have_sizes_of_their_own", readers_and_writers_have_sizes_of_their_own },
	{ "two_writers_do_not_mix", two_writers_do_not_mix },
	{ "others_see_unfinished_files_by_name", others_see_unfinished_files_by_name },
	{ "truncation_by_name_of_what_is_written", truncation_by_name_of_what_is_written },
	{ "unlinked_files_live_in_their_descriptors", unlinked_files_live_in_their_descriptors },
	{ "rename_replaces_while_read", rename_replaces_while_read },
	{ "rename_moves_a_file_that_another_writes", rename_moves_a_file_that_another_writes },
	{ "rename_takes_the_name_of_what_is_written", rename_takes_the_name_of_what_is_written },
	{ "a_failure_lasts_until_a_truncation", a_failure_lasts_until_a_truncation },
	{ "large_files_of_all_kinds_of_writers", large_files_of_all_kinds_of_writers },
	{ "rename_flags", rename_flags },
	{ "empty_files_are_renamed", empty_files_are_renamed },
	{ "fsync_publishes", fsync_publishes },
	{ "exclusive_creation", exclusive_creation },
	{ "locks_hold_on_one_node", locks_hold_on_one_node },
	{ "record_locks_hold_on_one_node", record_locks_hold_on_one_node },
	{ NULL, NULL },
};
