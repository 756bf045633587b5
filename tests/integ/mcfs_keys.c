/* SPDX-License-Identifier: Apache-2.0
 * mcfs_keys.c - keys of random bytes and of all lengths, put by the library, are files of a mount and have
 * their key as an attribute; files that are written there are objects under their keys.
 *
 *	mcfs_keys MASTER MOUNT SEED [NAME-MAX] */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <mooncake/mcfs_ioctl.h>
#include <mooncake/mcs.h>

#define RANDOM 300u
#define KEY_MAX 4096u
#define KEYS_MAX (RANDOM + 64u)

struct key {
	size_t len;
	char bytes[KEY_MAX];
	bool seen;
};

static struct key *keys;
static unsigned nkeys;
static mcs_t *store;
static unsigned rng;

static unsigned rnd(void)
{
	rng = rng * 1664525u + 1013904223u;
	return rng >> 8;
}

static void die(const char *what)
{
	fprintf(stderr, "mcfs_keys: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The group of the object under the @i-th key. */
static const char *group_of(unsigned i)
{
	return i % 3 ? "" : i % 2 ? "odd group" : "even";
}

static void put_value(const void *key, size_t len, const char *value, const char *group)
{
	struct iovec iov = { (void *)(uintptr_t)value, strlen(value) };
	struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT, .group = { group, strlen(group) } };
	int r = mcs_put(store, (struct mcs_key){ key, len }, &iov, 1, &opts, -1);

	if (r < 0) {
		fprintf(stderr, "mcfs_keys: put of %zu bytes: %s\n", len, mcs_error_detail(r));
		exit(1);
	}
}

static void add(const void *bytes, size_t len)
{
	struct key *k = &keys[nkeys];
	char value[32];

	k->len = len;
	memcpy(k->bytes, bytes, len);
	snprintf(value, sizeof(value), "%u", nkeys);
	put_value(bytes, len, value, group_of(nkeys++));
}

/* Keys that a path cannot contain literally; none is a directory of another. */
static void add_odd(void)
{
	static const struct { const char *bytes; size_t len; } odd[] = {
		{ "/lead", 5 }, { "//two", 5 }, { ".mcfs", 5 }, { ".", 1 }, { "..", 2 }, { "\0", 1 },
		{ "a//b", 4 }, { "c/./d", 5 }, { "c/../d", 6 }, { "%", 1 }, { "%2F", 3 }, { "%_", 2 },
		{ "%2E", 3 }, { "%2Emcfs", 7 }, { "%00", 3 }, { "%2500", 5 }, { "d/.mcfs", 7 },
		{ "e\0/\0f", 5 }, { "\xff\xfe/\x80", 4 }, { "\n", 1 }, { "...", 3 }, { "%%", 2 },
		{ "\x7f\x1b[2J", 5 }, { "d/%2Emcfs", 9 },
	};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		add(odd[i].bytes, odd[i].len);
}

/* The first component makes random keys distinct, so that none is a directory of another. */
static void add_random(void)
{
	static const char special[] = "/.%\0_2EF";
	char bytes[KEY_MAX];

	for (unsigned i = 0; i < RANDOM; i++) {
		size_t len = 1 + rnd() % 300, n = (size_t)snprintf(bytes, sizeof(bytes), "%u", 1000 + i);

		for (; len--; n++) {
			bytes[n] = rnd() % 4 ? (char)rnd() : special[rnd() % (sizeof(special) - 1)];
			if (n % 97 == 96)
				bytes[n] = '/';
		}
		/* A key that ends in a slash is a directory. */
		if (bytes[n - 1] == '/')
			bytes[n - 1] = 'x';
		add(bytes, n);
	}
}

/* Keys and names of maximum length. */
static void add_long(size_t name_max)
{
	char bytes[KEY_MAX];

	memset(bytes, 'L', sizeof(bytes));
	for (size_t i = 255; i < KEY_MAX - 1; i += 256)
		bytes[i] = '/';
	add(bytes, KEY_MAX);
	memset(bytes, 'N', sizeof(bytes));
	add(bytes, name_max);
	if (name_max > 2047)
		name_max = 2047;
	for (size_t i = name_max; i < KEY_MAX - 1; i += name_max + 1)
		bytes[i] = '/';
	bytes[0] = 'O';
	add(bytes, KEY_MAX);
}

static struct key *find(const char *bytes, size_t len)
{
	for (unsigned i = 0; i < nkeys; i++)
		if (keys[i].len == len && memcmp(keys[i].bytes, bytes, len) == 0)
			return &keys[i];
	return NULL;
}

/* A file found by the scan: check its key and value, then write a new value. */
static void check_file(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char key[KEY_MAX], value[48] = "", want[32];
	struct key *k;
	ssize_t n;

	if (fd < 0)
		die(name);
	n = fgetxattr(fd, "user.mooncake.key", key, sizeof(key));
	k = n > 0 ? find(key, (size_t)n) : NULL;
	if (!k || k->seen) {
		fprintf(stderr, "mcfs_keys: %s has a key of %zd bytes, which is %s\n", name, n,
			k ? "there twice" : "no file's");
		exit(1);
	}
	k->seen = true;
	n = fgetxattr(fd, "user.mooncake.group", value, sizeof(value) - 1);
	if (n < 0 || (size_t)n != strlen(group_of((unsigned)(k - keys))) ||
	    memcmp(value, group_of((unsigned)(k - keys)), (size_t)n) != 0) {
		fprintf(stderr, "mcfs_keys: %s is of group \"%.*s\"\n", name, (int)n, value);
		exit(1);
	}
	memset(value, 0, sizeof(value));
	snprintf(want, sizeof(want), "%u", (unsigned)(k - keys));
	n = read(fd, value, sizeof(value) - 1);
	if (n < 0 || close(fd) < 0)
		die(name);
	if (strcmp(value, want) != 0) {
		fprintf(stderr, "mcfs_keys: %s holds \"%s\" instead of \"%s\"\n", name, value, want);
		exit(1);
	}
	fd = openat(dir, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
	snprintf(value, sizeof(value), "again %s", want);
	if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value) || close(fd) < 0)
		die(name);
}

static void walk(int dir)
{
	DIR *d = fdopendir(dir);
	struct dirent *e;

	if (!d)
		die("directory");
	while ((errno = 0, e = readdir(d))) {
		int sub;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (e->d_type == DT_REG) {
			check_file(dirfd(d), e->d_name);
			continue;
		}
		if (e->d_type != DT_DIR)
			die("a name is neither file nor directory");
		sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (sub < 0)
			die(e->d_name);
		walk(sub);
	}
	if (errno)
		die("readdir");
	closedir(d);
}

/* Check that the objects have the values that were written to the files. */
static void check_objects(void)
{
	for (unsigned i = 0; i < nkeys; i++) {
		char want[32], got[32] = "";
		struct iovec iov = { got, sizeof(got) - 1 };

		snprintf(want, sizeof(want), "again %u", i);
		if (!keys[i].seen || mcs_get(store, (struct mcs_key){ keys[i].bytes, keys[i].len }, &iov, 1, -1)
		    < 0 || strcmp(got, want) != 0) {
			fprintf(stderr, "mcfs_keys: key %u of %zu bytes: %s\n", i, keys[i].len,
				keys[i].seen ? "has another value than its file" : "is no file");
			exit(1);
		}
	}
}

/* A key one byte too long for any file name: no file shows it, but client programs can use it. */
static void check_nameless(int mount)
{
	static struct mcfs_ioc_stat st = { .version = MCFS_IOC_VERSION, .key_len = KEY_MAX };

	memset(st.key, 'S', KEY_MAX);
	put_value(st.key, KEY_MAX, "nameless", "");
	if (ioctl(mount, MCFS_IOC_STAT, &st) < 0 || st.size != strlen("nameless"))
		die("ioctl STAT of 4096 bytes without a slash");
	if (mcs_remove(store, (struct mcs_key){ st.key, KEY_MAX }, MCS_REMOVE_FORCE, -1) < 0)
		die("remove");
}

int main(int argc, char **argv)
{
	size_t name_max = argc > 4 ? (size_t)atoi(argv[4]) : 1000;
	struct mcs_conf conf;
	int dir;

	if (argc < 4 || name_max < 100 || name_max > 4095)
		return 2;
	rng = (unsigned)atoi(argv[3]);
	keys = calloc(KEYS_MAX, sizeof(*keys));
	mcs_conf_init(&conf);
	conf.master = argv[1];
	if (!keys || mcs_open(&conf, &store) < 0)
		die("store");
	add_odd();
	add_random();
	add_long(name_max);
	dir = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		die(argv[2]);
	check_nameless(dir);
	walk(dir);
	check_objects();
	mcs_close(store);
	printf("%u keys are files, and back\n", nkeys);
	free(keys);
	return 0;
}
