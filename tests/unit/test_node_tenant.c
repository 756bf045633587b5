/* SPDX-License-Identifier: Apache-2.0
 * test_node_tenant.c - daemons of different tenants: a program that uses a daemon gets the keys of
 * the daemon's tenant. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/net/packet.h"
#include "common/sys/clock.h"
#include "tests/unit/node_fixture.h"

#define KEY "k"

static char dir[64], path[96], addr[112];
static uint64_t hot_size = NODE_HOT;

struct node {
	mcs_t *store;
	struct mcn *daemon;
};

static void tune(struct mcm_conf *conf)
{
	conf->enable_multi_tenants = true;
}

static mcs_t *opened(const char *tenant, uint64_t segment, const char *daemon)
{
	struct mcs_conf conf;
	mcs_t *s = NULL;
	int r;

	mcs_conf_init(&conf);
	conf.master = fixture_master_addr();
	conf.segment_size = segment;
	conf.segment_kind = "memfd";
	conf.tenant = tenant;
	conf.daemon = daemon;
	conf.timeout_ms = 20000;
	r = mcs_open(&conf, &s);
	if (r < 0)
		fail_msg("mcs_open: %s", mcs_error_detail(r));
	return s;
}

/* False: another daemon of this machine uses the port.  @rights: of this test's user, ":TENANT:ROLE"; NULL: all. */
static bool up_for(struct node *n, const char *tenant, int port, const char *rights)
{
	char uids[64];
	struct mcn_conf conf = {
		.master = fixture_master_addr(), .tenant = tenant, .path = path, .port = port,
		.hot_size = hot_size, .hot_ms = 60000,
	};
	int r;

	snprintf(uids, sizeof(uids), "%u%s", (unsigned)geteuid(), rights ? rights : "");
	conf.uids = rights ? uids : NULL;
	n->store = opened(tenant, 16 * MIB, NULL);
	conf.store = n->store;
	r = mcn_start(&conf, &n->daemon);
	if (r == -EADDRINUSE && port) {
		mcs_close(n->store);
		return false;
	}
	assert_int_equal(r, 0);
	return true;
}

static bool up(struct node *n, const char *tenant, int port)
{
	return up_for(n, tenant, port, NULL);
}

static void down(struct node *n)
{
	mcn_stop(n->daemon);
	mcs_close(n->store);
}

static int setup(void **state)
{
	mcs_t *s;

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/mc-tenant.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(addr, sizeof(addr), "unix:%s", path);
	fixture_master(tune);
	s = opened(NULL, 0, "off");
	assert_int_equal(mcs_quota_set(s, "default", 16 * MIB, -1), 0);
	assert_int_equal(mcs_quota_set(s, "red", 16 * MIB, -1), 0);
	assert_int_equal(mcs_quota_set(s, "blue", 16 * MIB, -1), 0);
	mcs_close(s);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_master_stop();
	return rmdir(dir);
}

/* A program that names a daemon gets the keys of the daemon's tenant, in calls that the daemon
 * serves and in calls that go to the master. */
static void keys_of_the_daemon(void **state)
{
	mcs_t *c, *red, *plain;
	struct mcs_info info;
	mcs_list_t *list;
	struct mcs_entry e;
	struct node n;

	(void)state;
	assert_true(up(&n, "red", 0));
	c = opened(NULL, 0, addr);
	red = opened("red", 0, "off");
	plain = opened("default", 0, "off");
	fixture_put_ok(plain, KEY, 1000, 1);
	assert_int_equal(mcs_stat(c, fixture_key(KEY), &info, -1), -MCS_ENOOBJECT);
	fixture_put_ok(c, KEY, 2000, 2);
	fixture_expect(c, KEY, 2000, 2);
	fixture_expect(red, KEY, 2000, 2);
	fixture_expect(plain, KEY, 1000, 1);
	assert_int_equal(mcs_list_open(c, fixture_key(""), 0, &list), 0);
	assert_int_equal(mcs_list_next(list, &e, -1), 1);
	assert_int_equal(e.size, 2000);
	assert_int_equal(mcs_list_next(list, &e, -1), 0);
	mcs_list_close(list);
	assert_int_equal(mcs_rename(c, fixture_key(KEY), fixture_key("moved"), 0, -1), 0);
	fixture_expect(red, "moved", 2000, 2);
	fixture_expect(plain, KEY, 1000, 1);
	mcs_close(c);
	mcs_close(red);
	mcs_close(plain);
	down(&n);
}

/* When a daemon of another tenant replaces the daemon that a program knows, the program does not
 * use it. */
static void another_in_its_place(void **state)
{
	struct node n;
	mcs_t *c;

	(void)state;
	assert_true(up(&n, "red", 0));
	c = opened(NULL, 0, addr);
	fixture_put_ok(c, KEY, 1000, 1);
	down(&n);
	assert_true(up(&n, "blue", 0));
	assert_int_equal(fixture_put(c, KEY, 1000, 3, 0), -MCS_ERPC);
	down(&n);
	assert_true(up(&n, NULL, 0));
	assert_int_equal(fixture_put(c, KEY, 1000, 3, 0), -MCS_ERPC);
	down(&n);
	assert_true(up(&n, "red", 0));
	fixture_put_ok(c, KEY, 1000, 3);
	mcs_close(c);
	down(&n);
}

/* A program that names no daemon uses the tenant default, whichever daemon listens on the default
 * port. */
static void found_by_itself(void **state)
{
	struct node n;
	mcs_t *c;

	(void)state;
	if (!up(&n, "red", MCFS_SOCKET_PORT))
		skip();
	c = opened(NULL, 0, NULL);
	assert_null(mcs_daemon(c));
	fixture_put_ok(n.store, KEY, 1000, 1);
	assert_int_equal(fixture_put(c, KEY, 1000, 2, MCS_PUT_EXCL), 0);
	fixture_expect(n.store, KEY, 1000, 1);
	fixture_expect(c, KEY, 1000, 2);
	mcs_close(c);
	down(&n);
	if (!up(&n, "default", MCFS_SOCKET_PORT))
		skip();
	c = opened(NULL, 0, NULL);
	assert_non_null(mcs_daemon(c));
	mcs_close(c);
	down(&n);
}

/* Names that do not fit into the greeting are refused, not truncated. */
static void long_name(void **state)
{
	struct mcs_conf conf;
	char name[201];
	struct node n;
	mcs_t *s;

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_true(up(&n, name, 0));
	mcs_conf_init(&conf);
	conf.daemon = addr;
	assert_int_equal(mcs_open(&conf, &s), -MCS_EPARAM);
	assert_non_null(strstr(mcs_error_detail(-MCS_EPARAM), "names of master, host and tenant"));
	down(&n);
}

/* ---- users that are confined by an entry of --allow_uids ---- */

static int opens(const char *daemon)
{
	struct mcs_conf conf;
	mcs_t *s = NULL;
	int r;

	mcs_conf_init(&conf);
	conf.master = fixture_master_addr();
	conf.daemon = daemon;
	r = mcs_open(&conf, &s);
	if (r == 0)
		mcs_close(s);
	return r;
}

/* The own segment's descriptor: 0, or the daemon's error.  The segment of copies has only objects of this tenant. */
static int maps_segment(unsigned id)
{
	struct mcfs_msg msg = { .magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION, .type = MCFS_MSG_HELLO };
	uint64_t deadline = mc_deadline_ms(5000);
	int sock = mc_packet_connect(addr, deadline), fd = -1;

	assert_true(sock >= 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(mc_packet_send(sock, &msg, sizeof(msg), -1, deadline), 0);
		assert_int_equal(mc_packet_recv(sock, &msg, sizeof(msg), &fd, deadline), sizeof(msg));
		if (!i)
			msg = (struct mcfs_msg){ .magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION,
						 .type = MCFS_MSG_SEGMENT, .id = id };
	}
	close(sock);
	assert_int_equal(fd >= 0, msg.status == 0);
	if (fd >= 0)
		close(fd);
	return msg.status;
}

static void a_user_of_a_tenant_maps_copies_only(void **state)
{
	struct mcs_map map;
	struct node n;
	mcs_t *c;

	(void)state;
	assert_true(up_for(&n, "red", 0, ":red"));
	assert_int_equal(maps_segment(0), -EACCES);
	assert_int_equal(maps_segment(1), 0);
	c = opened(NULL, 0, addr);
	fixture_put_ok(c, KEY, 100000, 1);
	fixture_expect(c, KEY, 100000, 1);
	/* A map shows a copy, and a copy of the new version after a put. */
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(fixture_put(c, KEY, 100000, i, MCS_PUT_UPSERT), 0);
		assert_int_equal(mcs_map(c, fixture_key(KEY), 0, &map, -1), 0);
		assert_int_equal(map.size, 100000);
		assert_int_equal(fixture_same(map.data, 100000, i, 0), 1);
		mcs_unmap(c, &map);
	}
	assert_int_equal(mcs_remove(c, fixture_key(KEY), MCS_REMOVE_FORCE, -1), 0);
	mcs_close(c);
	down(&n);
	/* Without room for a copy it is read through the ring. */
	hot_size = 64 << 10;
	assert_true(up_for(&n, "red", 0, ":red"));
	hot_size = NODE_HOT;
	c = opened(NULL, 0, addr);
	fixture_put_ok(c, KEY, 100000, 3);
	fixture_expect(c, KEY, 100000, 3);
	assert_int_equal(mcs_map(c, fixture_key(KEY), 0, &map, -1), -ENOBUFS);
	mcs_close(c);
	down(&n);
	/* The daemon starts again with another list. */
	assert_true(up_for(&n, "red", 0, ""));
	assert_int_equal(maps_segment(0), 0);
	c = opened(NULL, 0, addr);
	fixture_put_ok(c, KEY, 100000, 1);
	assert_int_equal(mcs_map(c, fixture_key(KEY), 0, &map, -1), 0);
	mcs_unmap(c, &map);
	mcs_close(c);
	down(&n);
}

static void a_user_of_another_tenant_is_refused(void **state)
{
	struct node n;

	(void)state;
	assert_true(up_for(&n, "red", 0, ":blue"));
	assert_int_equal(opens(addr), -EACCES);
	assert_non_null(strstr(mcs_error_detail(-EACCES), "\"blue\""));
	down(&n);
	assert_true(up_for(&n, NULL, 0, ":blue"));
	assert_int_equal(opens(addr), -EACCES);
	down(&n);
	assert_true(up_for(&n, "red", 0, ":default"));
	assert_int_equal(opens(addr), -EACCES);
	down(&n);
	assert_true(up_for(&n, NULL, 0, ":default"));
	assert_int_equal(opens(addr), 0);
	down(&n);
}

static void a_reader_changes_nothing(void **state)
{
	static const char *const rights[] = { "::reader", ":red:reader" };
	struct mcs_info info;
	uint8_t present = 0;
	struct mcs_key key = fixture_key(KEY);
	struct node n;
	mcs_t *c;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_true(up_for(&n, "red", 0, rights[i]));
		fixture_put_ok(n.store, KEY, 3000, 1);
		c = opened(NULL, 0, addr);
		fixture_expect(c, KEY, 3000, 1);
		assert_int_equal(mcs_stat(c, key, &info, -1), 0);
		assert_int_equal(mcs_exist(c, &key, 1, &present, -1), 1);
		assert_int_equal(present, 1);
		assert_int_equal(fixture_put(c, KEY, 10, 2, 0), -EACCES);
		assert_int_equal(fixture_put(c, "new", 10, 2, 0), -EACCES);
		assert_int_equal(mcs_remove(c, key, MCS_REMOVE_FORCE, -1), -EACCES);
		fixture_expect(n.store, KEY, 3000, 1);
		mcs_close(c);
		down(&n);
	}
}

static void a_wrong_list_is_refused(void **state)
{
	struct mcn_conf conf = { .path = path, .uids = "1000:red:admin" };
	struct mcn *daemon = NULL;

	(void)state;
	conf.store = opened("red", 0, "off");
	assert_int_equal(mcn_start(&conf, &daemon), -EINVAL);
	assert_non_null(strstr(mcs_error_detail(-EINVAL), "\"1000:red:admin\""));
	mcs_close((mcs_t *)conf.store);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(keys_of_the_daemon),
		TEST(another_in_its_place),
		TEST(found_by_itself),
		TEST(long_name),
		TEST(a_user_of_a_tenant_maps_copies_only),
		TEST(a_user_of_another_tenant_is_refused),
		TEST(a_reader_changes_nothing),
		TEST(a_wrong_list_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
