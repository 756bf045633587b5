/* SPDX-License-Identifier: Apache-2.0
 * test_proto_nomem.c - every allocation of proto/ and common/ fails once: each step of a client and
 * a server either works or returns -ENOMEM or the error that the failure causes at the peer;
 * nothing leaks or hangs, and the same client and server work again afterwards. Linked with --wrap
 * for malloc, calloc and realloc. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"

#define MOST 1000

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static atomic_long until_failure;	/* number of the allocation that fails; 0: none */
static atomic_bool has_failed;

static bool fails(void)
{
	long left = until_failure;

	while (left > 0)
		if (atomic_compare_exchange_weak(&until_failure, &left, left - 1)) {
			if (left > 1)
				return false;
			has_failed = true;
			return true;
		}
	return false;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

static void arm(long n)
{
	has_failed = false;
	until_failure = n;
}

static bool disarm(void)
{
	until_failure = 0;
	return has_failed;
}

static int exist(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	static const char present[MCP_BATCH_MAX];
	struct mcp_exist_reply reply;
	struct mcp_exist rq;
	int r;

	r = mcp_decode(&mcp_desc_exist, body, len, &rq);
	if (r < 0)
		return r;
	/* Ten bytes per key, so that the reply is large too. */
	reply.present = mcp_bytes(present, rq.keys.count * 10);
	return mcp_answer(a, &mcp_desc_exist_reply, &reply);
}

static const struct mcp_handler handlers[] = { { MCP_EXIST, exist }, { 0, NULL } };
static char path[64];

static int start(struct mcp_server **ret)
{
	const char *addrs[] = { path, NULL };
	struct mcp_server_conf conf = {
		.net = test_net(), .addrs = addrs, .local_name = "nomem", .loops = 2, .software = "x",
		.handlers = handlers,
	};

	return mcp_server_start(&conf, ret);
}

static int call(struct mcp_client *c, unsigned n)
{
	static struct mcp_key keys[5000];
	struct mcp_exist rq = { .keys = mcp_seq(keys, n) };
	struct mcp_reply mem = { 0 };
	struct mcp_exist_reply reply;
	int r;

	for (unsigned i = 0; i < n; i++)
		keys[i].key = mcp_bytes("a key of so many letters", 24);
	r = mcp_call(c, MCP_EXIST, &rq, &reply, &mem, mc_deadline_ms(5000));
	if (r == 0)
		assert_int_equal(reply.present.len, n * 10);
	mcp_reply_done(&mem);
	return r;
}

static void expect_error(int r)
{
	if (r != 0 && r != -ENOMEM && r != -MC_ERPC && r != -MC_ELIMIT && r != -MC_EINTERNAL)
		fail_msg("%d: %s", r, mc_err_detail(r));
}

/* Each call returns an error or succeeds; the caller checks that the same calls work with memory. */
static void try_calls(struct mcp_client *c)
{
	expect_error(call(c, 3));
	expect_error(call(c, 5000));
	expect_error(call(c, 3));
}

static void server_starts_whole_or_not_at_all(void **state)
{
	struct mcp_server *s;
	bool failed = true;
	long n;
	int r;

	for (n = 1; failed && n < MOST; n++) {
		s = NULL;
		arm(n);
		r = start(&s);
		failed = disarm();
		assert_int_equal(r, failed ? -ENOMEM : 0);
		assert_true(!s == failed);
		mcp_server_stop(s);
	}
	assert_in_range(n, 10, MOST - 1);
}

static void clients_recover(void **state)
{
	struct mcp_server *s;

	assert_int_equal(start(&s), 0);
	for (int t = 0; t < 2; t++) {
		struct mcp_client_conf conf = { .net = test_net(), .addrs = t ? "local:nomem" : path };
		bool failed = true;
		long n;

		for (n = 1; failed && n < MOST; n++) {
			struct mcp_client *c = NULL;
			int r;

			arm(n);
			r = mcp_client_open(&conf, &c);
			if (r == 0)
				try_calls(c);
			else
				assert_int_equal(r, -ENOMEM);
			failed = disarm();
			if (c) {
				/* The failure may have ended the connection, which the next call
				 * detects. */
				if (call(c, 5000) < 0)
					assert_int_equal(call(c, 5000), 0);
				assert_int_equal(call(c, 3), 0);
			}
			mcp_client_close(c);
		}
		assert_in_range(n, 8, MOST - 1);
	}
	mcp_server_stop(s);
}

static void stop_needs_no_memory(void **state)
{
	struct mcp_client_conf conf = { .net = test_net(), .addrs = path };
	struct mcp_client *c[2];
	struct mcp_server *s;

	assert_int_equal(start(&s), 0);
	for (int t = 0; t < 2; t++) {
		conf.addrs = t ? "local:nomem" : path;
		assert_int_equal(mcp_client_open(&conf, &c[t]), 0);
		assert_int_equal(call(c[t], 3), 0);
	}
	arm(1);
	mcp_server_stop(s);
	mcp_client_close(c[0]);
	mcp_client_close(c[1]);
	assert_false(disarm());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(server_starts_whole_or_not_at_all),
		cmocka_unit_test(clients_recover),
		cmocka_unit_test(stop_needs_no_memory),
	};

	mc_log_open(&(struct mc_log_conf){ .program = "test", .levels = "err" });
	snprintf(path, sizeof(path), "unix:@mc-proto-nomem-%d", (int)getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
