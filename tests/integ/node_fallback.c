/* SPDX-License-Identifier: Apache-2.0
 * node_fallback.c cold DAEMON - a program whose calls its daemon passes to the master.
 * node_fallback.c MASTER - a program that has found the daemon of its node, when that is killed and when it is
 * there again.  Waits for a line on standard input between the three. */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs.h>

#define SIZE 100000

static mcs_t *store;

static void check(bool ok, const char *what, long r)
{
	if (ok)
		return;
	printf("wrong: %s: %ld %s\n", what, r, r < 0 ? mcs_error_detail((int)r) : "");
	exit(1);
}

#define CHECK(expr, wanted) do { long got_ = (long)(expr); check(got_ == (wanted), #expr, got_); } while (0)

static struct mcs_key key(const char *text)
{
	return (struct mcs_key){ text, strlen(text) };
}

static int put(const char *name, const void *data, unsigned flags)
{
	struct iovec iov = { (void *)(uintptr_t)data, SIZE };
	struct mcs_put_item item = { .key = key(name), .iov = &iov, .iovcnt = 1 };
	struct mcs_put_opts opts = { .flags = flags };
	int r = mcs_put_batch(store, &item, 1, &opts, 10000);

	return r < 0 ? r : item.result;
}

/* Every kind of call once, with its own keys. */
static void use(const char *a, const char *b, char fill)
{
	static char data[SIZE], back[SIZE];
	struct iovec iov[2] = { { back, SIZE }, { back, SIZE } };
	struct mcs_get_item items[2] = {
		{ .key = key(a), .iov = &iov[0], .iovcnt = 1 },
		{ .key = key("not there"), .iov = &iov[1], .iovcnt = 1 },
	};
	struct mcs_key keys[2] = { key(a), key("not there") };
	struct mcs_object *o;
	struct mcs_info info;
	struct mcs_map map;
	uint8_t present[2];
	int results[2];
	char *got;

	memset(data, fill, SIZE);
	CHECK(put(a, data, 0), 0);
	CHECK(put(b, data, MCS_PUT_EXCL), 0);
	CHECK(put(b, data, MCS_PUT_EXCL), -MCS_EEXISTS);
	CHECK(mcs_get_batch(store, items, 2, 10000), 1);
	CHECK(items[0].result, SIZE);
	CHECK(items[1].result, -MCS_ENOOBJECT);
	CHECK(memcmp(data, back, SIZE), 0);
	CHECK(mcs_get_alloc(store, keys[0], (void **)&got, 10000), SIZE);
	CHECK(memcmp(data, got, SIZE), 0);
	free(got);
	CHECK(mcs_exist(store, keys, 2, present, 10000), 1);
	CHECK(mcs_stat(store, keys[0], &info, 10000), 0);
	CHECK(info.size, SIZE);
	CHECK(mcs_stat_batch(store, keys, 2, (struct mcs_info[2]){ { 0 } }, results, 10000), 1);
	CHECK(mcs_object_open(store, keys[0], &o, 10000), 0);
	memset(back, 0, SIZE);
	CHECK(mcs_object_read(o, 0, iov, 1, 10000), SIZE);
	CHECK(memcmp(data, back, SIZE), 0);
	mcs_object_close(o);
	CHECK(mcs_map(store, keys[0], 0, &map, 10000), 0);
	CHECK(memcmp(data, map.data, SIZE), 0);
	CHECK(mcs_map_held(store, &map), 0);
	mcs_unmap(store, &map);
	CHECK(mcs_prefetch(store, keys[0], 10000), 0);
	CHECK(mcs_remove(store, key(b), 0, 10000), 0);
	CHECK(mcs_health(store), 0);
}

static void next(const char *text)
{
	char line[16];

	printf("%s\n", text);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(2);
}

/* Calls without a ring operation, on a handle that knows only the daemon's address. */
static int cold(const struct mcs_conf *conf)
{
	static char data[SIZE];
	struct mcs_key keys[2] = { key("cold/b"), key("cold/c") };
	struct mcs_entry entry;
	uint8_t present[2];
	mcs_list_t *list;

	CHECK(mcs_open(conf, &store), 0);
	CHECK(put("cold/a", data, 0), 0);
	CHECK(put("cold/b", data, 0), 0);
	CHECK(mcs_rename(store, key("cold/b"), key("cold/c"), 0, 10000), 0);
	CHECK(mcs_list_open(store, key("cold/"), 0, &list), 0);
	CHECK(mcs_list_next(list, &entry, 10000), 1);
	CHECK(mcs_list_next(list, &entry, 10000), 1);
	CHECK(mcs_list_next(list, &entry, 10000), 0);
	mcs_list_close(list);
	CHECK(mcs_exist(store, keys, 2, present, 10000), 1);
	check(present[1], "the new name is not there", 0);
	CHECK(mcs_remove_match(store, key("cold/"), NULL, MCS_REMOVE_FORCE, 10000), 2);
	mcs_close(store);
	return 0;
}

int main(int argc, char **argv)
{
	static char data[SIZE];
	struct mcs_conf conf;
	struct mcs_map map;
	const char *pointer;

	mcs_conf_init(&conf);
	conf.timeout_ms = 10000;
	if (argc == 3) {
		conf.daemon = argv[2];
		return cold(&conf);
	}
	conf.master = argv[argc - 1];
	CHECK(mcs_open(&conf, &store), 0);
	check(mcs_daemon(store) != NULL, "the daemon is not found", 0);
	use("first", "first too", 1);
	memset(data, 2, SIZE);
	CHECK(put("held", data, 0), 0);
	CHECK(mcs_map(store, key("held"), 0, &map, 10000), 0);
	pointer = map.data;
	next("found");

	/* The daemon was killed: no call fails, and the map is no longer held, but its memory can
	 * still be read. */
	use("second", "second too", 3);
	CHECK(mcs_map_held(store, &map), -MCS_EREPLICA_GONE);
	CHECK(memcmp(pointer, data, SIZE), 0);
	mcs_unmap(store, &map);
	next("alone");
	/* Until a line says "end": the library looks for the daemon from time to time. */
	for (int i = 0;; i++) {
		char a[32], b[32];

		snprintf(a, sizeof(a), "third %d", i);
		snprintf(b, sizeof(b), "third too %d", i);
		use(a, b, (char)i);
		printf("again %d\n", i);
		fflush(stdout);
		if (!fgets(a, sizeof(a), stdin) || a[0] == 'e')
			break;
	}
	mcs_close(store);
	return 0;
}
