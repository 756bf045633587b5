/* SPDX-License-Identifier: Apache-2.0
 * test_meta_client.c - metadata clients against our server in this process, and parts that need no server:
 * keys, addresses, base64.  Real servers are in tests/integ/meta_*.sh. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "engine/upstream/rpc_meta.h"
#include "meta/meta_i.h"
#include "meta/redis_i.h"
#include "meta/server_http.h"

#define SECONDS(n) mc_deadline_ms((n) * 1000)

struct fixture {
	struct mcd_server *server;
	struct mcd_client *m;
	int port;
	char conn[64];
};

static void server_start(struct fixture *f)
{
	char addr[64];
	struct mcd_server_conf conf = { .addr = addr };

	snprintf(addr, sizeof(addr), "127.0.0.1:%d", f->port);
	assert_int_equal(mcd_server_start(&conf, &f->port, &f->server), 0);
	snprintf(f->conn, sizeof(f->conn), "http://127.0.0.1:%d/metadata", f->port);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	setenv("MC_METADATA_TTL_SEC", "3", 1);
	server_start(f);
	assert_int_equal(mcd_open(f->conn, &f->m), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	mcd_close(f->m);
	mcd_server_stop(f->server);
	free(f);
	return 0;
}

static void expect(struct mcd_client *m, const char *key, const char *wanted)
{
	char *text = NULL;
	int r = mcd_get(m, key, &text, SECONDS(20));

	if (wanted) {
		assert_int_equal(r, 0);
		assert_string_equal(text, wanted);
	} else {
		assert_int_equal(r, -ENOENT);
	}
	free(text);
}

static void texts_are_published_and_removed(void **state)
{
	struct fixture *f = *state;

	expect(f->m, "a", NULL);
	assert_int_equal(mcd_publish(f->m, "a", "", SECONDS(20)), 0);
	expect(f->m, "a", "");
	assert_int_equal(mcd_publish(f->m, "a", "2", SECONDS(20)), 0);
	expect(f->m, "a", "2");
	assert_int_equal(mcd_unpublish(f->m, "a", SECONDS(20)), 0);
	assert_int_equal(mcd_unpublish(f->m, "a", SECONDS(20)), 0);
	expect(f->m, "a", NULL);
}

/* Several threads publish and unpublish one key: no call is lost, and an older
 * text never replaces a newer one. */
struct worker {
	struct fixture *f;
	unsigned n;
};

static void *work(void *arg)
{
	const struct worker *w = arg;
	char key[32], text[32];

	snprintf(key, sizeof(key), "own%u", w->n);
	for (unsigned i = 0; i < 30; i++) {
		snprintf(text, sizeof(text), "%u.%u", w->n, i);
		assert_int_equal(mcd_publish(w->f->m, "shared", text, SECONDS(20)), 0);
		assert_int_equal(mcd_publish(w->f->m, key, text, SECONDS(20)), 0);
		expect(w->f->m, key, text);
		if (i % 10 == 9)
			assert_int_equal(mcd_unpublish(w->f->m, key, SECONDS(20)), 0);
	}
	return NULL;
}

static void threads_publish_one_key_in_order(void **state)
{
	struct worker w[6];
	pthread_t t[6];

	for (unsigned i = 0; i < 6; i++) {
		w[i] = (struct worker){ *state, i };
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (unsigned i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(mcd_publish(w->f->m, "shared", "last", SECONDS(20)), 0);
	expect(w->f->m, "shared", "last");
}

static void wait_until(struct mcd_client *m, const char *key, const char *wanted)
{
	uint64_t end = SECONDS(20);
	char *text;
	int r;

	for (;;) {
		text = NULL;
		r = mcd_get(m, key, &text, SECONDS(20));
		if (wanted ? r == 0 && !strcmp(text, wanted) : r == -ENOENT) {
			free(text);
			return;
		}
		free(text);
		if (mc_now_ns() > end)
			fail_msg("%s is not %s", key, wanted ? wanted : "gone");
		usleep(10000);
	}
}

/* The server restarts empty after an outage: it receives the published texts
 * again, but no unpublished one. */
static void a_restarted_server_receives_the_texts(void **state)
{
	struct fixture *f = *state;
	struct mcd_client *other;

	assert_int_equal(mcd_publish(f->m, "a", "1", SECONDS(20)), 0);
	assert_int_equal(mcd_publish(f->m, "b", "1", SECONDS(20)), 0);
	mcd_server_stop(f->server);
	assert_int_equal(mcd_publish(f->m, "a", "2", SECONDS(20)), -ECONNREFUSED);
	assert_int_equal(mcd_publish(f->m, "c", "3", SECONDS(20)), -ECONNREFUSED);
	assert_int_equal(mcd_unpublish(f->m, "b", SECONDS(20)), -ECONNREFUSED);
	server_start(f);
	wait_until(f->m, "a", "2");
	wait_until(f->m, "c", "3");
	expect(f->m, "b", NULL);
	/* deleted by another client: put again by the next refresh */
	assert_int_equal(mcd_open(f->conn, &other), 0);
	assert_int_equal(mcd_unpublish(other, "a", SECONDS(20)), 0);
	mcd_close(other);
	wait_until(f->m, "a", "2");
}

/* A child of fork() does not use our connections and does not refresh our texts. */
static void a_forked_child_is_refused(void **state)
{
	struct fixture *f = *state;
	char *text = NULL;
	int status;
	pid_t pid;

	assert_int_equal(mcd_publish(f->m, "a", "1", SECONDS(20)), 0);
	pid = fork();
	if (pid == 0) {
		bool good = mcd_get(f->m, "a", &text, SECONDS(20)) == -MC_EUNAVAILABLE &&
			mcd_publish(f->m, "a", "2", SECONDS(20)) == -MC_EUNAVAILABLE &&
			mcd_unpublish(f->m, "a", SECONDS(20)) == -MC_EUNAVAILABLE;

		mcd_close(f->m);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	expect(f->m, "a", "1");
}

/* Without a refresher thread, publishing fails and the key is not published later. */
static void publish_without_refresher_fails(void **state)
{
	struct fixture *f = *state;
	char *text = NULL;
	int r;

	assert_int_equal(mc_fault_set("meta.client.refresher=error:EAGAIN"), 0);
	r = mcd_publish(f->m, "a", "1", SECONDS(20));
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(r, -ENOMEM);
	assert_false(mcd_will_retry(r));
	assert_int_equal(mcd_get(f->m, "a", &text, SECONDS(20)), -ENOENT);
	assert_int_equal(mcd_publish(f->m, "a", "2", SECONDS(20)), 0);
	expect(f->m, "a", "2");
}

static void texts_expire_after_close(void **state)
{
	struct fixture *f = *state;
	struct mcd_client *dies;

	assert_int_equal(mcd_open(f->conn, &dies), 0);
	assert_int_equal(mcd_publish(dies, "dies", "1", SECONDS(20)), 0);
	assert_int_equal(mcd_publish(f->m, "lives", "1", SECONDS(20)), 0);
	mcd_close(dies);
	expect(f->m, "dies", "1");
	wait_until(f->m, "dies", NULL);
	expect(f->m, "lives", "1");
}

/* The record with the address of a live node cannot be replaced. */
static void a_live_node_keeps_its_record(void **state)
{
	struct mce_rpc_meta a = { .host = "127.0.0.1" }, b = { .host = "127.0.0.1", .port = 9 }, got;
	char bound[MC_ADDR_MAX], host[MC_ADDR_MAX];
	struct fixture *f = *state;
	struct mcd_client *m2;
	int fd = mc_socket_listen("127.0.0.1:0", 8, 0, bound);

	assert_true(fd >= 0);
	assert_int_equal(mc_addr_split(bound, host, sizeof(host), 0, &a.port), 0);
	assert_int_equal(mcd_open(f->conn, &m2), 0);
	assert_int_equal(mce_rpc_meta_publish(f->m, "n", &a, SECONDS(20)), 0);
	assert_int_equal(mce_rpc_meta_publish(f->m, "n", &a, SECONDS(20)), 0);
	assert_int_equal(mce_rpc_meta_publish(m2, "n", &b, SECONDS(20)), -EEXIST);
	assert_non_null(strstr(mc_err_detail(-EEXIST), bound));
	assert_int_equal(mce_rpc_meta_get(m2, "n", &got, SECONDS(20)), 0);
	assert_int_equal(got.port, a.port);
	/* a node that could not publish the record cannot delete it either */
	assert_int_equal(mce_rpc_meta_unpublish(m2, "n", SECONDS(20)), 0);
	assert_int_equal(mce_rpc_meta_get(m2, "n", &got, SECONDS(20)), 0);
	close(fd);
	assert_int_equal(mce_rpc_meta_publish(m2, "n", &b, SECONDS(20)), 0);
	assert_int_equal(mce_rpc_meta_get(f->m, "n", &got, SECONDS(20)), 0);
	assert_int_equal(got.port, 9);
	assert_int_equal(mce_rpc_meta_unpublish(m2, "n", SECONDS(20)), 0);
	mcd_close(m2);
}

/* forget deletes both records of a segment, with and without a cluster id, and no record with a similar key. */
static void forget(void **state)
{
	static const char *const its[] = {
		"mooncake/ram/seg", "mooncake/rpc_meta/seg", "mooncake/east/ram/seg",
	};
	static const char *const others[] = {
		"mooncake/ram/aseg", "mooncake/program/seg", "ram/seg", "mooncake/ram/seg2",
		"mooncake/seg",
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(mcd_publish(f->m, its[i], "x", SECONDS(20)), 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(mcd_publish(f->m, others[i], "x", SECONDS(20)), 0);
	assert_int_equal(mcd_server_forget(f->server, "seg"), 3);
	assert_int_equal(mcd_server_forget(f->server, ""), 0);
	for (unsigned i = 0; i < 5; i++)
		expect(f->m, others[i], "x");
	assert_int_equal(mcd_publish(f->m, "mooncake/nvmeof/seg", "x", SECONDS(20)), 0);
	assert_int_equal(mcd_server_forget(f->server, "nvmeof/seg"), 1);
}

/* A server that accepts connections and does not answer. */
#define CALLS 3u	/* connections: our calls and the refresher's */

static int wait_called(int listener)
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };
	int fd;

	assert_int_equal(poll(&pfd, 1, 20000), 1);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	return fd;
}

static void deadline_of(const char *conn, int listener)
{
	int called[CALLS];
	struct mcd_client *m;
	uint64_t before;
	char *text;

	assert_int_equal(mcd_open(conn, &m), 0);
	before = mc_now_ns();
	assert_int_equal(mcd_get(m, "k", &text, mc_deadline_ms(300)), -ETIMEDOUT);
	assert_int_equal(mcd_publish(m, "k", "t", mc_deadline_ms(300)), -ETIMEDOUT);
	assert_int_equal(mcd_get(m, "k", &text, mc_deadline_ms(0)), -ETIMEDOUT);
	assert_true(mc_now_ns() - before > 500 * MC_NS_PER_MS);
	/* Close during a call of the refresher, which is the next connection after the others have ended. */
	for (unsigned i = 0; i < CALLS; i++)
		called[i] = wait_called(listener);
	before = mc_now_ns();
	mcd_close(m);
	assert_true(mc_now_ns() - before < 3 * MC_NS_PER_SEC);
	for (unsigned i = 0; i < CALLS; i++)
		close(called[i]);
}

static void deadlines(void **state)
{
	char bound[MC_ADDR_MAX], conn[300];
	int fd = mc_socket_listen("127.0.0.1:0", 8, 0, bound);

	assert_true(fd >= 0);
	snprintf(conn, sizeof(conn), "http://%s/metadata", bound);
	deadline_of(conn, fd);
	snprintf(conn, sizeof(conn), "etcd://%s", bound);
	deadline_of(conn, fd);
	snprintf(conn, sizeof(conn), "redis://%s", bound);
	deadline_of(conn, fd);
	close(fd);
}

static void keys(void **state)
{
	char key[MCD_KEY_MAX], name[MCD_KEY_MAX + 1];

	assert_int_equal(mce_key_segment("n:1", key), 0);
	assert_string_equal(key, "mooncake/ram/n:1");
	assert_int_equal(mce_key_segment("nvmeof/n", key), 0);
	assert_string_equal(key, "mooncake/nvmeof/n");
	assert_int_equal(mce_key_rpc("n", key), 0);
	assert_string_equal(key, "mooncake/rpc_meta/n");
	setenv("MC_METADATA_CLUSTER_ID", "east", 1);
	assert_int_equal(mce_key_rpc("n", key), 0);
	assert_string_equal(key, "mooncake/east/rpc_meta/n");
	assert_int_equal(mce_key_segment("n", key), 0);
	assert_string_equal(key, "mooncake/east/ram/n");
	unsetenv("MC_METADATA_CLUSTER_ID");
	assert_int_equal(mce_key_rpc("", key), -EINVAL);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(mce_key_segment(name, key), -EINVAL);
}

static void connection_strings(void **state)
{
	static const char *const bad[] = {
		"", "host", "mysql://h:1", "P2PHANDSHAKE", "://h:1", "http://", "http:///metadata",
		"etcd://", "etcd://u@h:1", "etcd://:p@h:1", "etcd://u:p@",
		"etcd://http://u:p@h:1", "etcd://h:x", "etcd://h:0", "h:1,", "h:70000", "h:1/x", "redis://",
		"redis://h:1/256", "redis://h:1/x", "redis://user@h:1", "redis://h:0",
	};
	static const char *const good[] = {
		"http://h/metadata", "https://h:1/metadata?x=1", "etcd://h", "etcd://u:p%40:@h:1,h2", "h:1", "h:1,h2:2",
		"etcd://http://h:1,https://h2:2", "etcd://u:p@http://h:1", "[::1]:2379", "redis://h",
		"redis://:p@h:1/255",
		"redis://u:p@[::1]:6379",
	};
	struct mcd_client *m = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (mcd_open(bad[i], &m) != -EINVAL)
			fail_msg("%s was taken", bad[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		if (mcd_open(good[i], &m) < 0)
			fail_msg("%s: %s", good[i], mc_err_detail(-EINVAL));
		mcd_close(m);
	}
	assert_true(mcd_is_p2p("P2PHANDSHAKE"));
	assert_false(mcd_is_p2p("p2phandshake:1"));
}

static void redis_addresses(void **state)
{
	struct mcd_redis_where w;

	setenv("MC_REDIS_PASSWORD", "env", 1);
	setenv("MC_REDIS_USERNAME", "bob", 1);
	setenv("MC_REDIS_DB_INDEX", "7", 1);
	assert_int_equal(mcd_redis_where_parse("h", &w), 0);
	assert_string_equal(w.addr, "h:6379");
	assert_string_equal(w.user, "bob");
	assert_string_equal(w.password, "env");
	assert_int_equal(w.db, 7);
	mcd_redis_where_done(&w);
	assert_int_equal(mcd_redis_where_parse(":a%40b%@[::1]:1/3", &w), 0);
	assert_string_equal(w.addr, "[::1]:1");
	assert_null(w.user);
	assert_string_equal(w.password, "a@b%");
	assert_int_equal(w.db, 3);
	mcd_redis_where_done(&w);
	/* out of range: the default, as upstream does it */
	setenv("MC_REDIS_DB_INDEX", "256", 1);
	assert_int_equal(mcd_redis_where_parse("h:1", &w), 0);
	assert_int_equal(w.db, 0);
	mcd_redis_where_done(&w);
	unsetenv("MC_REDIS_PASSWORD");
	unsetenv("MC_REDIS_USERNAME");
	unsetenv("MC_REDIS_DB_INDEX");
}

static void base64(void **state)
{
	static const char *const pairs[][2] = {
		{ "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
		{ "\xff\xfe?>", "//4/Pg==" },
	};
	static const char *const bad[] = { "Z", "Zg", "Zg=", "Zg===", "Z===", "====", "Zm9v!", "Zm9\n", "Z=g=" };
	unsigned char all[256];
	char *text, *back;
	size_t len;

	for (unsigned i = 0; i < 6; i++) {
		text = mcd_base64_encode(pairs[i][0], strlen(pairs[i][0]));
		assert_string_equal(text, pairs[i][1]);
		assert_int_equal(mcd_base64_decode(text, &back, &len), 0);
		assert_string_equal(back, pairs[i][0]);
		free(text);
		free(back);
	}
	for (unsigned i = 0; i < 9; i++)
		if (mcd_base64_decode(bad[i], &back, &len) != -EINVAL)
			fail_msg("%s was taken", bad[i]);
	for (unsigned i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	text = mcd_base64_encode(all, 256);
	assert_int_equal(mcd_base64_decode(text, &back, &len), 0);
	assert_int_equal(len, 256);
	assert_memory_equal(back, all, 256);
	free(text);
	free(back);
}

int main(void)
{
	static const struct mc_log_conf quiet = { .levels = "err" };
#define WITH(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH(texts_are_published_and_removed),
		WITH(threads_publish_one_key_in_order),
		WITH(a_restarted_server_receives_the_texts),
		WITH(texts_expire_after_close),
		WITH(a_forked_child_is_refused),
		WITH(publish_without_refresher_fails),
		WITH(a_live_node_keeps_its_record),
		WITH(forget),
		cmocka_unit_test(deadlines),
		cmocka_unit_test(keys),
		cmocka_unit_test(connection_strings),
		cmocka_unit_test(redis_addresses),
		cmocka_unit_test(base64),
	};

	mc_log_open(&quiet);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
