/* SPDX-License-Identifier: Apache-2.0
 * mcfs_calls_name.c - names, directories, links, attributes. */
#include <config.h>
#include "tests/integ/mcfs_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void directories(void)
{
	struct stat st;

	CHECK(mkdir("d", 0755) == 0);
	FAILS(mkdir("d", 0755), EEXIST);
	CHECK(stat("d", &st) == 0 && S_ISDIR(st.st_mode));
	put_text("d/f", "x");
	FAILS(rmdir("d"), ENOTEMPTY);
	FAILS(unlink("d"), EISDIR);
	FAILS(rmdir("d/f"), ENOTDIR);
	FAILS(mkdir("d/f", 0755), EEXIST);
	FAILS(mkdir("missing/d", 0755), ENOENT);
	FAILS(open("d/f/g", O_RDONLY), ENOTDIR);
	CHECK(unlink("d/f") == 0);
	/* mkdir created it, so it stays when it is empty. */
	CHECK(stat("d", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(rmdir("d") == 0);
	absent("d");
	FAILS(rmdir("d"), ENOENT);
}

static void an_open_file_keeps_its_directory(void)
{
	int fd;

	CHECK(mkdir("d", 0755) == 0);
	fd = opened("d/f", O_WRONLY | O_CREAT);
	wrote(fd, "x", 1);
	FAILS(rmdir("d"), ENOTEMPTY);
	CHECK(close(fd) == 0);
	holds_text("d/f", "x");
}

static void make_tree(void)
{
	char path[64];

	for (int i = 0; i < 20; i++) {
		(void)snprintf(path, sizeof(path), "t/%d", i % 4);
		if (mkdir("t", 0755) < 0)
			CHECK(errno == EEXIST);
		if (mkdir(path, 0755) < 0)
			CHECK(errno == EEXIST);
		(void)snprintf(path, sizeof(path), "t/%d/%d", i % 4, i);
		if (mkdir(path, 0755) < 0)
			CHECK(errno == EEXIST);
	}
}

static void many_make_the_same_directories(void)
{
	pid_t pids[8];
	int status;

	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			make_tree();
			_exit(0);
		}
	}
	for (int i = 0; i < 8; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	for (int i = 0; i < 20; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "t/%d/%d", i % 4, i);
		CHECK(rmdir(path) == 0);
	}
}

static void directories_are_renamed_when_empty(void)
{
	CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("full", 0755) == 0);
	put_text("full/f", "x");
	put_text("file", "x");
	CHECK(rename("a", "c") == 0);
	absent("a");
	put_text("c/f", "1");
	holds_text("c/f", "1");
	CHECK(unlink("c/f") == 0);
	CHECK(rename("c", "b") == 0);
	FAILS(rename("b", "full"), ENOTEMPTY);
	FAILS(rename("b", "file"), ENOTDIR);
	FAILS(rename("file", "b"), EISDIR);
	CHECK(renameat2(AT_FDCWD, "b", AT_FDCWD, "e", RENAME_NOREPLACE) == 0);
	put_text("e/f", "2");
	holds_text("e/f", "2");
	holds_text("full/f", "x");
}

static void generation_of(const char *path, char ret[32])
{
	ssize_t n = getxattr(path, "user.mooncake.generation", ret, 31);

	CHECK(n > 0);
	ret[n] = '\0';
}

static void directories_are_renamed_with_their_contents(void)
{
	char before[32], after[32];
	struct stat dir, sub, st;

	CHECK(mkdir("a", 0750) == 0 && mkdir("a/s", 0755) == 0 && mkdir("a/s/t", 0755) == 0 && mkdir("to", 0755) == 0);
	put_text("a/f", "1");
	put_text("a/s/f", "2");
	CHECK(symlink("f", "a/s/link") == 0);
	CHECK(chmod("a/s/f", 0640) == 0 && setxattr("a/s/f", "user.own", "x", 1, 0) == 0);
	CHECK(stat("a", &dir) == 0 && stat("a/s", &sub) == 0);
	generation_of("a/s/f", before);
	FAILS(rename("a", "a/s/t/a"), EINVAL);
	FAILS(rename("to", "a"), ENOTEMPTY);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "to", RENAME_NOREPLACE), EEXIST);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "to", RENAME_EXCHANGE), EINVAL);
	holds_text("a/s/f", "2");
	CHECK(rename("a", "to") == 0);
	absent("a");
	holds_text("to/f", "1");
	holds_text("to/s/f", "2");
	holds_text("to/s/link", "2");
	/* not a copy */
	generation_of("to/s/f", after);
	CHECK(strcmp(before, after) == 0);
	CHECK(stat("to/s/f", &st) == 0 && (st.st_mode & 0777) == 0640 && getxattr("to/s/f", "user.own", after, 1) == 1);
	CHECK(stat("to", &st) == 0 && (st.st_mode & 0777) == 0750 && st.st_mtime == dir.st_mtime);
	CHECK(stat("to/s", &st) == 0 && st.st_mtim.tv_sec == sub.st_mtim.tv_sec &&
	      st.st_mtim.tv_nsec == sub.st_mtim.tv_nsec);
	CHECK(rmdir("to/s/t") == 0);
	/* a directory of the old name is another one */
	CHECK(mkdir("a", 0755) == 0 && mkdir("a/s", 0755) == 0);
	put_text("a/s/f", "other");
	CHECK(stat("a/s", &st) == 0 && stat("to/s", &sub) == 0 && st.st_ino != sub.st_ino);
	holds_text("to/s/f", "2");
	FAILS(rename("a", "to"), ENOTEMPTY);
	CHECK(rename("to/s", "a/s/s") == 0);
	holds_text("a/s/s/f", "2");
	holds_text("a/s/f", "other");
	CHECK(rename("a/s", "up") == 0);
	holds_text("up/s/f", "2");
}

/* Open files and directories move along; a file being written appears under the new name only. */
static void directories_are_renamed_in_use(void)
{
	int reader, writer, dir, fd;
	struct stat st;
	char buf[8];

	CHECK(mkdir("a", 0755) == 0 && mkdir("a/s", 0755) == 0);
	put_text("a/s/f", "read");
	reader = opened("a/s/f", O_RDONLY);
	writer = opened("a/s/w", O_WRONLY | O_CREAT);
	wrote(writer, "half", 4);
	dir = open("a/s", O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0 && rename("a", "b") == 0);
	CHECK(read(reader, buf, 8) == 4 && memcmp(buf, "read", 4) == 0);
	CHECK(fchmod(reader, 0600) == 0 && stat("b/s/f", &st) == 0 && (st.st_mode & 0777) == 0600);
	CHECK(fstat(reader, &st) == 0 && st.st_nlink == 1);
	wrote(writer, "+half", 5);
	CHECK(close(writer) == 0);
	holds_text("b/s/w", "half+half");
	absent("a");
	fd = openat(dir, "f", O_RDONLY);
	CHECK(fd >= 0 && read(fd, buf, 8) == 4 && close(fd) == 0);
	fd = openat(dir, "new", O_WRONLY | O_CREAT, 0644);
	wrote(fd, "new", 3);
	CHECK(close(fd) == 0 && close(dir) == 0);
	holds_text("b/s/new", "new");
	/* twice, and the reader follows */
	CHECK(rename("b/s", "c") == 0);
	CHECK(fchmod(reader, 0604) == 0 && stat("c/f", &st) == 0 && (st.st_mode & 0777) == 0604);
	CHECK(rename("c/f", "f") == 0 && fchmod(reader, 0644) == 0);
	CHECK(stat("f", &st) == 0 && (st.st_mode & 0777) == 0644);
	CHECK(close(reader) == 0);
	absent("a");
}

/* A process in the directory finds its files at any time. */
static void files_are_found_while_their_directory_is_renamed(void)
{
	int here = open(".", O_RDONLY | O_DIRECTORY), status = 0, fd;
	unsigned reads = 0;
	struct stat st;
	pid_t pid;
	char c;

	CHECK(here >= 0 && mkdir("a", 0755) == 0 && mkdir("a/s", 0755) == 0);
	put_text("a/s/f", "x");
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 400; i++)
			CHECK(rename(i % 2 ? "b" : "a", i % 2 ? "a" : "b") == 0);
		_exit(0);
	}
	CHECK(pid > 0 && chdir("a/s") == 0);
	while (waitpid(pid, &status, WNOHANG) == 0 || !reads) {
		CHECK(stat("f", &st) == 0);
		fd = opened("f", O_RDONLY);
		CHECK(read(fd, &c, 1) == 1 && c == 'x' && close(fd) == 0);
		reads++;
	}
	CHECK(status == 0 && fchdir(here) == 0 && close(here) == 0);
	holds_text("a/s/f", "x");
}

/* One round of changes; all of them succeed. */
static void change_names(unsigned n)
{
	char text[32], name[32];
	int fd;

	(void)snprintf(text, sizeof(text), "%08u", n);
	(void)snprintf(name, sizeof(name), "f%u", n);
	put_text(name, text);
	fd = opened("w", O_WRONLY);
	wrote(fd, text, 8);
	CHECK(close(fd) == 0);
	(void)snprintf(name, sizeof(name), "d%u", n);
	CHECK(mkdir(name, 0755) == 0);
	(void)snprintf(name, sizeof(name), "l%u", n);
	CHECK(symlink(text, name) == 0 && truncate("w", n % 2 ? 8 : 7) == 0 && chmod("w", n % 2 ? 0600 : 0644) == 0);
	/* without a version until its last close ends */
	CHECK(close(opened("e", O_WRONLY | O_CREAT)) == 0 && unlink("e") == 0);
	put_text("u", text);
	CHECK(rename("u", "v") == 0 && unlink("v") == 0);
	if (n % 2) {
		(void)snprintf(name, sizeof(name), "d%u", n);
		CHECK(rmdir(name) == 0);
	}
}

/* A process in the directory changes its files at any time, and nothing stays below the other name. */
static void names_are_changed_while_their_directory_is_renamed(void)
{
	int here = open(".", O_RDONLY | O_DIRECTORY), status = 0;
	char name[32], text[32];
	struct stat st;
	unsigned n = 0;
	pid_t pid;

	CHECK(here >= 0 && mkdir("a", 0755) == 0);
	put_text("a/w", "00000000");
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 2000; i++)
			CHECK(rename(i % 2 ? "b" : "a", i % 2 ? "a" : "b") == 0);
		_exit(0);
	}
	CHECK(pid > 0 && chdir("a") == 0);
	while (waitpid(pid, &status, WNOHANG) == 0 || !n)
		change_names(n++);
	CHECK(status == 0 && fchdir(here) == 0 && close(here) == 0);
	absent("b");
	(void)snprintf(text, sizeof(text), "%08u", n - 1);
	text[(n - 1) % 2 ? 8 : 7] = '\0';
	holds_text("a/w", text);
	absent("a/u");
	absent("a/v");
	for (unsigned i = 0; i < n; i++) {
		(void)snprintf(text, sizeof(text), "%08u", i);
		(void)snprintf(name, sizeof(name), "a/f%u", i);
		holds_text(name, text);
		(void)snprintf(name, sizeof(name), "a/l%u", i);
		CHECK(lstat(name, &st) == 0 && S_ISLNK(st.st_mode));
		(void)snprintf(name, sizeof(name), "a/d%u", i);
		if (i % 2)
			absent(name);
		else
			CHECK(stat(name, &st) == 0 && S_ISDIR(st.st_mode));
	}
}

/* The entries that a listing gives after the rename lead to the present names. */
static void directories_are_renamed_while_they_are_listed(void)
{
	char path[64];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	CHECK(mkdir("a", 0755) == 0);
	for (int i = 0; i < 600; i++) {
		(void)snprintf(path, sizeof(path), "a/%0*d", 40, i);
		CHECK(mkdir(path, 0755) == 0);
	}
	d = opendir("a");
	CHECK(d && readdir(d) && rename("a", "b") == 0);
	while ((e = readdir(d)))
		if (strlen(e->d_name) == 40) {
			(void)snprintf(path, sizeof(path), "b/%.40s/f", e->d_name);
			put_text(path, "x");
		}
	absent("a");
	rewinddir(d);
	while ((e = readdir(d)))
		n += strlen(e->d_name) == 40;
	CHECK(n == 600 && closedir(d) == 0);
}

static unsigned count_entries(DIR *d, const char *find, unsigned char *ret_type)
{
	struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(d))) {
		if (strcmp(e->d_name, find) == 0)
			*ret_type = e->d_type;
		n++;
	}
	return n;
}

static void names_of_all_kinds(void)
{
	char longest[256], name[32];
	static const char *const names[] = {
		"%", "100%", "%25_", "%2F", "%2E", "a%00b", "new\nline", "tab\there", " ", "-", "...", "*?[x]",
		"caf\xc3\xa9", "\xff\xfe", ".hidden", "vllm@meta-llama%2FLlama@1@0@ab.data", ".mcfs", "~",
		"\x01\x7f",
	};
	const size_t n = sizeof(names) / sizeof(names[0]);
	unsigned char type = 0;
	DIR *d;

	memset(longest, 'n', 255);
	longest[255] = '\0';
	put_text(longest, "long");
	for (size_t i = 0; i < n; i++)
		put_text(names[i], names[i]);
	d = opendir(".");
	CHECK(d);
	CHECK(count_entries(d, "%2F", &type) == n + 3);
	CHECK(type == DT_REG);
	closedir(d);
	for (size_t i = 0; i < n; i++) {
		holds_text(names[i], names[i]);
		(void)snprintf(name, sizeof(name), "renamed%zu", i);
		CHECK(rename(names[i], name) == 0);
		holds_text(name, names[i]);
		CHECK(unlink(name) == 0);
	}
	holds_text(longest, "long");
}

static void long_paths(void)
{
	char name[5000];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	FAILS(open(name, O_WRONLY | O_CREAT, 0644), ENAMETOOLONG);
	/* A key has at most 4096 bytes, however short its components are. */
	name[200] = '\0';
	for (int i = 0; i < 19; i++) {
		CHECK(mkdir(name, 0755) == 0);
		CHECK(chdir(name) == 0);
	}
	for (int i = 0; i < 3 && mkdir(name, 0755) == 0; i++)
		CHECK(chdir(name) == 0);
	FAILS(mkdir(name, 0755), ENAMETOOLONG);
	FAILS(open(name, O_WRONLY | O_CREAT, 0644), ENAMETOOLONG);
	put_text("f", "deep");
	holds_text("f", "deep");
}

static void symbolic_links(void)
{
	char target[PATH_MAX], longest[4000];
	struct stat st;
	ssize_t n;

	put_text("f", "text");
	CHECK(symlink("f", "l") == 0);
	FAILS(symlink("g", "l"), EEXIST);
	holds_text("l", "text");
	CHECK(lstat("l", &st) == 0 && S_ISLNK(st.st_mode) && st.st_size == 1);
	n = readlink("l", target, sizeof(target));
	CHECK(n == 1 && target[0] == 'f');
	FAILS(open("l", O_RDONLY | O_NOFOLLOW), ELOOP);
	CHECK(symlink("missing", "dangling") == 0);
	FAILS(open("dangling", O_RDONLY), ENOENT);
	CHECK(rename("l", "m") == 0);
	holds_text("m", "text");
	CHECK(unlink("m") == 0);
	absent("m");
	holds_text("f", "text");
	memset(longest, 'y', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	CHECK(symlink(longest, "long") == 0);
	n = readlink("long", target, sizeof(target));
	CHECK(n == sizeof(longest) - 1 && memcmp(target, longest, (size_t)n) == 0);
	FAILS(readlink("f", target, sizeof(target)), EINVAL);
}

static void attributes_are_kept(void)
{
	struct timeval times[2] = { { 1000, 0 }, { 2000, 0 } };
	struct stat st;

	put_text("f", "x");
	CHECK(chmod("f", 0600) == 0);
	CHECK(chown("f", getuid(), getgid()) == 0);
	CHECK(utimes("f", times) == 0);
	CHECK(stat("f", &st) == 0);
	CHECK((st.st_mode & 07777) == 0600 && st.st_uid == geteuid() && st.st_mtime == 2000);
	CHECK(st.st_nlink == 1 && st.st_blksize == (blksize_t)MIB && st.st_blocks == 1);
}

static void what_is_refused(void)
{
	put_text("f", "x");
	CHECK(mkdir("d", 0755) == 0);
	FAILS(link("d", "g"), EPERM);
	FAILS(link("f", "f"), EEXIST);
	FAILS(link("f", "d"), EEXIST);
	FAILS(link("g", "h"), ENOENT);
	FAILS(link("f", "%_"), EINVAL);
	FAILS(setxattr("f", "trusted.a", "b", 1, 0), EOPNOTSUPP);
	/* settable only while the file is being written */
	FAILS(setxattr("f", "user.mooncake.pin", "hard", 4, 0), EPERM);
	FAILS(removexattr("f", "user.mooncake.size"), EOPNOTSUPP);
	FAILS(getxattr("f", "security.selinux", NULL, 0), EOPNOTSUPP);
	FAILS(getxattr("f", "system.posix_acl_access", NULL, 0), EOPNOTSUPP);
	FAILS(getxattr("f", "user.other", NULL, 0), ENODATA);
	/* The key would end in a slash. */
	FAILS(open("%_", O_WRONLY | O_CREAT, 0644), EINVAL);
	FAILS(symlink("x", "%_"), EINVAL);
	/* In the root directory the key would be empty. */
	FAILS(open("../%_", O_WRONLY | O_CREAT, 0644), EINVAL);
	FAILS(symlink("x", "../%_"), EINVAL);
	FAILS(rename("f", "../%_"), EINVAL);
}

static void special_files_have_types(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = "sock" };
	static const mode_t kinds[] = { S_IFIFO, S_IFSOCK, S_IFREG, S_IFCHR, S_IFBLK };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct stat st;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		bool device = kinds[i] == S_IFCHR || kinds[i] == S_IFBLK;

		/* Only root may make devices. */
		if (device && geteuid())
			continue;
		CHECK(mknod("n", kinds[i] | 0640, device ? makedev(1, 3) : 0) == 0);
		CHECK(lstat("n", &st) == 0 && st.st_mode == (kinds[i] | 0640));
		CHECK(st.st_rdev == (device ? makedev(1, 3) : 0));
		FAILS(mknod("n", kinds[i] | 0640, 0), EEXIST);
		CHECK(unlink("n") == 0);
	}
	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	CHECK(lstat("sock", &st) == 0 && S_ISSOCK(st.st_mode));
}

static void names_share_a_file(void)
{
	struct stat a, b;
	int fd;

	put_text("f", "x");
	CHECK(linkat(AT_FDCWD, "f", AT_FDCWD, "g", 0) == 0);
	CHECK(stat("f", &a) == 0 && stat("g", &b) == 0 && a.st_ino == b.st_ino && a.st_nlink == 2 && b.st_nlink == 2);
	put_text("g", "longer");
	holds_text("f", "longer");
	/* A lock belongs to the file. */
	fd = opened("f", O_RDWR);
	CHECK(flock(fd, LOCK_EX) == 0);
	FAILS(flock(opened("g", O_RDWR), LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(rename("f", "g") == 0);
	holds_text("f", "longer");
	CHECK(unlink("f") == 0);
	CHECK(fstat(fd, &a) == 0 && stat("g", &b) == 0 && b.st_nlink == 1);
	holds_text("g", "longer");
	CHECK(close(fd) == 0);
	CHECK(unlink("g") == 0);
	absent("f");
	absent("g");
}

static void what_is_refused_at_once(void)
{
	put_text("f", "x");
	FAILS(fallocate(opened("f", O_RDWR), FALLOC_FL_ZERO_RANGE, 0, 10), EOPNOTSUPP);
	FAILS(fallocate(opened("f", O_RDWR), FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
	holds_text("f", "x");
}

static void generations_tell_versions_apart(void)
{
	char a[64], b[64];
	ssize_t n, m;
	int fd;

	put_text("f", "same");
	fd = opened("f", O_RDONLY);
	CHECK(fgetxattr(fd, "user.mooncake.crc", a, sizeof(a)) > 0);
	n = getxattr("f", "user.mooncake.generation", a, sizeof(a));
	put_text("f", "same");
	m = getxattr("f", "user.mooncake.generation", b, sizeof(b));
	CHECK(n > 0 && m > 0 && (n != m || memcmp(a, b, (size_t)n) != 0));
	/* A replaced version has no attributes: the key belongs to another version. */
	FAILS(fgetxattr(fd, "user.mooncake.crc", a, sizeof(a)), ESTALE);
	CHECK(close(fd) == 0);
	fd = opened("f", O_RDWR);
	wrote(fd, "more", 4);
	CHECK(fsync(fd) == 0 && fgetxattr(fd, "user.mooncake.crc", a, sizeof(a)) > 0);
	CHECK(close(fd) == 0);
	n = getxattr("f", "user.mooncake.locality", a, sizeof(a));
	CHECK(n == 5 && memcmp(a, "local", 5) == 0);
	n = getxattr("f", "user.mooncake.replicas", a, sizeof(a));
	CHECK(n == 1 && a[0] == '1');
	n = getxattr("f", "user.mooncake.pin", a, sizeof(a));
	CHECK(n == 4 && memcmp(a, "none", 4) == 0);
}

static void sizes_of_what_is_written_are_exact(void)
{
	int fd = opened("f", O_RDWR | O_CREAT | O_EXCL);
	struct stat st;

	CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
	wrote(fd, "12345", 5);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 5);
	CHECK(fsetxattr(fd, "user.mooncake.size", "1000", 4, 0) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 1000);
	CHECK(lseek(fd, 0, SEEK_END) == 1000);
	CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 1000);
	CHECK(ftruncate(fd, 7) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 7);
	CHECK(fsync(fd) == 0);
	put_text("f", "another");
	CHECK(stat("f", &st) == 0 && st.st_size == 7);
	put_text("f", "longer than before");
	CHECK(stat("f", &st) == 0 && st.st_size == 18);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 7);
	CHECK(close(fd) == 0);
	holds_text("f", "longer than before");
}

static void terminals_are_not_files(void)
{
	int fd, n;

	put_text("f", "x");
	fd = opened("f", O_RDONLY);
	CHECK(!isatty(fd) && errno == ENOTTY);
	FAILS(ioctl(fd, TIOCGWINSZ, &n), ENOTTY);
	FAILS(ioctl(fd, _IOR('f', 1, long), &n), ENOTTY);	/* FS_IOC_GETFLAGS */
	CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
	CHECK(close(fd) == 0);
}

static void attributes_of_an_object(void)
{
	char buf[256];
	ssize_t n;
	int fd;

	put_text("f", "123456789");
	n = getxattr("f", "user.mooncake.crc", buf, sizeof(buf));
	CHECK(n == 15 && memcmp(buf, "crc32c:e3069283", 15) == 0);
	n = getxattr("f", "user.mooncake.size", buf, sizeof(buf));
	CHECK(n == 1 && buf[0] == '9');
	n = getxattr("f", "user.mooncake.key", buf, sizeof(buf));
	CHECK(n > 2 && memcmp(buf + n - 2, "/f", 2) == 0);
	CHECK(getxattr("f", "user.mooncake.key", NULL, 0) == n);
	FAILS(getxattr("f", "user.mooncake.key", buf, 1), ERANGE);
	CHECK(listxattr("f", buf, sizeof(buf)) == 0);
	CHECK(listxattr(".", buf, sizeof(buf)) == 0);
	fd = opened("g", O_WRONLY | O_CREAT);
	wrote(fd, "ab", 2);
	CHECK(flistxattr(fd, buf, sizeof(buf)) == 0);
	n = fgetxattr(fd, "user.mooncake.state", buf, sizeof(buf));
	CHECK(n == 7 && memcmp(buf, "writing", 7) == 0);
	FAILS(fgetxattr(fd, "user.mooncake.crc", buf, sizeof(buf)), ENODATA);
	CHECK(close(fd) == 0);
	n = getxattr("g", "user.mooncake.state", buf, sizeof(buf));
	CHECK(n == 8 && memcmp(buf, "complete", 8) == 0);
}

static void listings(void)
{
	enum { FILES = 3000 };
	unsigned char type = 0, seen[FILES] = { 0 };
	struct dirent *e;
	struct stat st;
	char name[32];
	long middle = 0;
	unsigned n = 0;
	DIR *d;
	int fd;

	CHECK(mkdir("sub", 0755) == 0);
	CHECK(symlink("x", "link") == 0);
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "file%d", i);
		put_text(name, "x");
	}
	/* A file that is not closed yet is listed too. */
	fd = opened("open", O_WRONLY | O_CREAT);
	d = opendir(".");
	CHECK(d);
	while ((e = readdir(d))) {
		int i;

		if (n % 100 == 7)
			CHECK(lstat(e->d_name, &st) == 0 && st.st_ino == e->d_ino);
		if (sscanf(e->d_name, "file%d", &i) == 1)
			CHECK(i >= 0 && i < FILES && !seen[i]++ && e->d_type == DT_REG);
		if (++n == FILES / 2)
			middle = telldir(d);
	}
	CHECK(n == FILES + 5);
	rewinddir(d);
	CHECK(count_entries(d, "sub", &type) == FILES + 5 && type == DT_DIR);
	rewinddir(d);
	CHECK(count_entries(d, "link", &type) == FILES + 5 && type == DT_LNK);
	rewinddir(d);
	CHECK(count_entries(d, "open", &type) == FILES + 5 && type == DT_REG);
	seekdir(d, middle);
	CHECK(count_entries(d, "x", &type) == FILES + 5 - FILES / 2);
	closedir(d);
	CHECK(close(fd) == 0);
}

static void figures_of_the_pool(void)
{
	struct statvfs before, after;
	struct stat st;

	CHECK(statvfs(".", &before) == 0);
	CHECK(before.f_bsize == 4096 && before.f_frsize == 4096);
	CHECK(before.f_blocks > 0 && before.f_bfree <= before.f_blocks);
	CHECK(before.f_bavail <= before.f_blocks && before.f_namemax >= 255);
	CHECK(before.f_files > before.f_ffree && before.f_ffree > 1000000);
	put_file("f", pattern(9, 4 * MIB), 4 * MIB);
	CHECK(statvfs(".", &after) == 0);
	CHECK(after.f_blocks == before.f_blocks);
	CHECK(after.f_files - after.f_ffree == before.f_files - before.f_ffree + 1);
	/* Evictable memory counts as available. */
	CHECK(after.f_bavail > after.f_bfree && after.f_bavail <= after.f_blocks);
	CHECK(after.f_bfree <= before.f_bfree - 1024 && after.f_bfree >= before.f_bfree - 1100);
	CHECK(stat("f", &st) == 0 && st.st_blksize == (blksize_t)MIB);
	CHECK(st.st_blocks == (blkcnt_t)(4 * MIB / 512));
}

const struct call_case name_cases[] = {
	{ "directories", directories },
	{ "an_open_file_keeps_its_directory", an_open_file_keeps_its_directory },
	{ "many_make_the_same_directories", many_make_the_same_directories },
	{ "directories_are_renamed_when_empty", directories_are_renamed_when_empty },
	{ "directories_are_renamed_with_their_contents", directories_are_renamed_with_their_contents },
	{ "directories_are_renamed_in_use", directories_are_renamed_in_use },
	{ "files_are_found_while_their_directory_is_renamed", files_are_found_while_their_directory_is_renamed },
	{ "directories_are_renamed_while_they_are_listed", directories_are_renamed_while_they_are_listed },
	{ "names_are_changed_while_their_directory_is_renamed", names_are_changed_while_their_directory_is_renamed },
	{ "names_of_all_kinds", names_of_all_kinds },
	{ "long_paths", long_paths },
	{ "symbolic_links", symbolic_links },
	{ "attributes_are_kept", attributes_are_kept },
	{ "what_is_refused", what_is_refused },
	{ "special_files_have_types", special_files_have_types },
	{ "names_share_a_file", names_share_a_file },
	{ "what_is_refused_at_once", what_is_refused_at_once },
	{ "generations_tell_versions_apart", generations_tell_versions_apart },
	{ "sizes_of_what_is_written_are_exact", sizes_of_what_is_written_are_exact },
	{ "terminals_are_not_files", terminals_are_not_files },
	{ "attributes_of_an_object", attributes_of_an_object },
	{ "listings", listings },
	{ "figures_of_the_pool", figures_of_the_pool },
	{ NULL, NULL },
};
