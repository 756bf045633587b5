/* SPDX-License-Identifier: Apache-2.0
 * test_client_attrs.c - attributes of files in the C API, with a master in this process. */
#include <config.h>

#include "test_client_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static mcs_t *s;

static int setup(void **state)
{
	(void)state;
	fixture_master(NULL);
	s = fixture_store_with(16 * MIB, 1, fixture_master_addr());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mcs_close(s);
	fixture_master_stop();
	return 0;
}

static struct mcs_info stat_of(const char *name)
{
	struct mcs_key key = fixture_key(name);
	struct mcs_info info;
	int result;

	assert_int_equal(mcs_stat_batch(s, &key, 1, &info, &result, -1), 1);
	return info;
}

static void a_put_carries_attributes(void **state)
{
	static char bytes[3 << 16];
	const struct mcs_attrs a = {
		.set = MCS_ATTR_MODE | MCS_ATTR_UID | MCS_ATTR_MTIME, .mode = 0640, .uid = 5, .mtime_ns = UINT64_MAX,
	};
	const struct mcs_attrs fifo = { .set = MCS_ATTR_MODE | MCS_ATTR_RDEV, .mode = S_IFIFO | 0600, .rdev = 9 };
	struct mcs_put_opts opts = { .attrs = &a, .flags = MCS_PUT_EXCL };
	struct iovec iov = { bytes, sizeof(bytes) };
	struct mcs_info info;
	mcs_stream_t *st;

	(void)state;
	assert_int_equal(mcs_put(s, fixture_key("put"), &iov, 1, &opts, -1), 0);
	/* Without bytes, and without EXCL, a put is one request. */
	assert_int_equal(mcs_put(s, fixture_key("empty"), NULL, 0, &opts, -1), 0);
	opts.flags = 0;
	assert_int_equal(mcs_put(s, fixture_key("empty 2"), NULL, 0, &opts, -1), 0);
	assert_int_equal(mcs_stream_open(s, fixture_key("stream"), sizeof(bytes), &opts, &st, -1), 0);
	assert_int_equal(mcs_stream_write(st, 0, &iov, 1, -1), 0);
	assert_int_equal(mcs_stream_commit(st, sizeof(bytes), -1), 0);
	for (unsigned i = 0; i < 4; i++) {
		static const char *const names[] = { "put", "empty", "empty 2", "stream" };

		info = stat_of(names[i]);
		assert_int_equal(info.attrs.set, a.set);
		assert_int_equal(info.attrs.mode, 0640);
		assert_int_equal(info.attrs.uid, 5);
		assert_true(info.attrs.mtime_ns == UINT64_MAX);
	}
	assert_int_equal(mcs_stream_open(s, fixture_key("stream 2"), sizeof(bytes), NULL, &st, -1), 0);
	assert_int_equal(mcs_stream_write(st, 0, &iov, 1, -1), 0);
	mcs_stream_set_attrs(st, &a);
	assert_int_equal(mcs_stream_commit(st, sizeof(bytes), -1), 0);
	assert_int_equal(stat_of("stream 2").attrs.mode, 0640);
	opts = (struct mcs_put_opts){ .attrs = &fifo, .kind = MCS_SPECIAL };
	assert_int_equal(mcs_put(s, fixture_key("fifo"), NULL, 0, &opts, -1), 0);
	info = stat_of("fifo");
	assert_int_equal(info.kind, MCS_SPECIAL);
	assert_int_equal(info.attrs.mode, S_IFIFO | 0600);
	assert_int_equal(info.attrs.rdev, 9);
}

static void attributes_change(void **state)
{
	const struct mcs_attrs a = { .set = MCS_ATTR_GID, .gid = 6 };
	const struct mcs_xattr x = { { "name", 4 }, { "value", 5 } };
	struct mcs_key key = fixture_key("f");
	struct mcs_info info, before;
	struct mcs_xattr *xattrs;
	unsigned n;

	(void)state;
	fixture_put_ok(s, "f", 1000, 1);
	before = stat_of("f");
	assert_int_equal(before.attrs.set, 0);
	assert_int_equal(mcs_set_attrs(s, key, before.generation, 0, NULL, &a, &x, &info, -1), 0);
	assert_int_equal(info.generation, before.generation);
	assert_int_equal(info.attrs.gid, 6);
	assert_int_equal(mcs_set_attrs(s, key, 0, MCS_XATTR_CREATE, NULL, NULL, &x, NULL, -1), -EEXIST);
	assert_int_equal(mcs_set_attrs(s, key, 1, 0, NULL, &a, NULL, NULL, -1), -ESTALE);
	assert_int_equal(mcs_set_attrs(s, fixture_key("none"), 0, 0, NULL, &a, NULL, NULL, -1), -MCS_ENOOBJECT);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0x100, NULL, &a, NULL, NULL, -1), -MCS_EPARAM);
	assert_int_equal(mcs_get_xattrs(s, key, &xattrs, &n, &info, -1), 0);
	assert_int_equal(n, 1);
	assert_int_equal(xattrs[0].name.len, 4);
	assert_memory_equal(xattrs[0].name.data, "name", 4);
	assert_int_equal(xattrs[0].value.len, 5);
	assert_memory_equal(xattrs[0].value.data, "value", 5);
	assert_int_equal(info.size, 1000);
	free(xattrs);
	fixture_expect(s, "f", 1000, 1);
}

static void a_change_needs_the_owner_that_was_seen(void **state)
{
	const struct mcs_attrs mode = { .set = MCS_ATTR_MODE, .mode = 0600 }, five = { .set = MCS_ATTR_UID, .uid = 5 };
	const struct mcs_attrs zero = { .set = MCS_ATTR_UID }, none = { .set = MCS_ATTR_MODE, .uid = 5 };
	struct mcs_key key = fixture_key("owned");

	(void)state;
	fixture_put_ok(s, "owned", 10, 1);
	/* An object without the attribute has no owner, also not 0. */
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &zero, &mode, NULL, NULL, -1), -ESTALE);
	assert_int_equal(stat_of("owned").attrs.set, 0);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &none, &mode, NULL, NULL, -1), 0);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &none, &five, NULL, NULL, -1), 0);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &none, &mode, NULL, NULL, -1), -ESTALE);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &zero, &mode, NULL, NULL, -1), -ESTALE);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &five, &zero, NULL, NULL, -1), 0);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, &zero, &mode, NULL, NULL, -1), 0);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, NULL, &mode, NULL, NULL, -1), 0);
}

static int put_if(const char *key, unsigned set, uint32_t owner, uint64_t *ret_generation)
{
	const struct mcs_attrs cond = { .set = set, .owner = owner };
	const struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT, .attrs = &cond };
	struct iovec iov = { (void *)(uintptr_t)"bytes", 5 };
	struct mcs_put_item item = { .key = fixture_key(key), .iov = &iov, .iovcnt = 1 };

	(void)mcs_put_batch(s, &item, 1, &opts, -1);
	*ret_generation = item.generation;
	return item.result;
}

static void a_put_replaces_objects_of_one_owner_only(void **state)
{
	const struct mcs_attrs five = { .set = MCS_ATTR_UID | MCS_ATTR_MODE, .uid = 5, .mode = 06755 };
	const struct mcs_attrs six = { .set = MCS_ATTR_UID, .uid = 6 };
	uint64_t generation, was, now;

	(void)state;
	assert_int_equal(put_if("mine", MCS_ATTR_IF_OWNER, 5, &generation), 0);
	assert_true(generation == stat_of("mine").generation);
	assert_int_equal(stat_of("mine").attrs.set, 0);
	assert_int_equal(put_if("mine", MCS_ATTR_IF_NO_OWNER, 0, &generation), 0);
	assert_int_equal(put_if("mine", MCS_ATTR_IF_OWNER, 0, &now), -EPERM);
	assert_int_equal(now, 0);
	assert_true(generation == stat_of("mine").generation);
	assert_int_equal(mcs_set_attrs(s, fixture_key("mine"), 0, 0, NULL, &five, NULL, NULL, -1), 0);
	assert_int_equal(put_if("mine", MCS_ATTR_IF_NO_OWNER, 0, &now), -EPERM);
	assert_int_equal(put_if("mine", MCS_ATTR_IF_OWNER, 6, &now), -EPERM);
	/* A change of the owner ends set-user-ID, and so does a new version. */
	assert_int_equal(stat_of("mine").attrs.mode, 06755);
	assert_int_equal(mcs_set_attrs(s, fixture_key("mine"), 0, 0, NULL, &six, NULL, NULL, -1), 0);
	assert_int_equal(stat_of("mine").attrs.mode, 0755);
	assert_int_equal(put_if("mine", MCS_ATTR_IF_OWNER, 6, &generation), 0);
	assert_int_equal(mcs_rename_version(s, fixture_key("mine"), fixture_key("moved"), 0, &was, &now, -1), 0);
	assert_true(was == generation && now == stat_of("moved").generation && now != was);
}

static void names_of_extended_attributes_are_checked(void **state)
{
	struct mcs_key key = fixture_key("named");
	struct mcs_xattr x = { { "mooncake.crc", 12 }, { "x", 1 } };

	(void)state;
	fixture_put_ok(s, "named", 10, 1);
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, NULL, NULL, &x, NULL, -1), -MCS_EPARAM);
	assert_non_null(strstr(mcs_error_detail(-MCS_EPARAM), "reserved"));
	x.name = (struct mcs_key){ "a\0b", 3 };
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, NULL, NULL, &x, NULL, -1), -MCS_EPARAM);
	assert_non_null(strstr(mcs_error_detail(-MCS_EPARAM), "NUL"));
	x.name.len = 0;
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, NULL, NULL, &x, NULL, -1), -ERANGE);
	x.name = (struct mcs_key){ "mooncak", 7 };
	assert_int_equal(mcs_set_attrs(s, key, 0, 0, NULL, NULL, &x, NULL, -1), 0);
}

static void listings_and_watches_show_changes(void **state)
{
	const struct mcs_attrs a = { .set = MCS_ATTR_MODE | MCS_ATTR_UID, .mode = 0600, .uid = 5 };
	struct mcs_event event;
	struct mcs_entry e;
	mcs_watch_t *watch;
	mcs_list_t *l;
	unsigned all = 0;

	(void)state;
	fixture_put_ok(s, "d/a", 10, 1);
	fixture_put_ok(s, "d/b", 10, 1);
	assert_int_equal(mcs_watch_open(s, fixture_key("d/"), 1u << MCS_EVENT_ATTRS, &watch, -1), 0);
	assert_int_equal(mcs_set_attrs(s, fixture_key("d/b"), 0, 0, NULL, &a, NULL, NULL, -1), 0);
	assert_int_equal(mcs_watch_next(watch, &event, 5000), 1);
	assert_int_equal(event.type, MCS_EVENT_ATTRS);
	assert_memory_equal(event.key.data, "d/b", 3);
	mcs_watch_close(watch);
	fixture_put_ok(s, "d/implied/x", 10, 1);
	fixture_put_ok(s, "d/implied/sub/x", 10, 1);
	assert_int_equal(mcs_put(s, fixture_key("d/marked/"), NULL, 0, &(struct mcs_put_opts){
				 .attrs = &a, .kind = MCS_DIR }, -1), 0);
	assert_int_equal(mcs_list_open(s, fixture_key("d/"), 1, &l), 0);
	for (; mcs_list_next(l, &e, -1) == 1; all++) {
		const char *name = e.name.data;

		if (*name == 'a') {
			assert_int_equal(e.attrs.set, 0);
		} else if (*name == 'b') {
			assert_int_equal(e.attrs.set, a.set | MCS_ATTR_CTIME);
			assert_int_equal(e.attrs.mode, 0600);
			assert_int_equal(e.attrs.uid, 5);
		} else if (*name == 'i') {
			assert_int_equal(e.attrs.set, MCS_ATTR_MTIME | MCS_ATTR_CTIME);
			assert_int_equal(e.attrs.nlink, 3);
			assert_true(e.attrs.mtime_ns > 0);
		} else {
			assert_int_equal(e.attrs.set, a.set | MCS_ATTR_MTIME | MCS_ATTR_CTIME);
			assert_int_equal(e.attrs.mode, 0600);
			assert_int_equal(e.attrs.nlink, 2);
		}
	}
	mcs_list_close(l);
	assert_int_equal(all, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_put_carries_attributes, setup, teardown),
		cmocka_unit_test_setup_teardown(attributes_change, setup, teardown),
		cmocka_unit_test_setup_teardown(a_change_needs_the_owner_that_was_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(a_put_replaces_objects_of_one_owner_only, setup, teardown),
		cmocka_unit_test_setup_teardown(names_of_extended_attributes_are_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(listings_and_watches_show_changes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
