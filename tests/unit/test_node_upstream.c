/* SPDX-License-Identifier: Apache-2.0
 * test_node_upstream.c - the service for upstream's dummy clients: messages that upstream's program sent, and
 * hostile connections. */
#include <config.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "node/upstream/peer.h"
#include "node/upstream/upstream_i.h"
#include "tests/unit/node_fixture.h"

/* As upstream's client sent it: put("cfg", "v", options). */
static const uint8_t put_request[] = {
	0x43, 0x98, 0x71, 0x49, 0x04, 0xfd, 0x80, 0x0c, 0x84, 0x0c, 0xfd, 0x04, 0x04, 0x04, 0x06, 0x85, 0x04,
	0x0b, 0x84, 0x80, 0x0c, 0x80, 0x0c, 0x84, 0x80, 0x0c, 0x0b, 0x06, 0x80, 0x0c, 0x85, 0x84, 0x80, 0x0c,
	0xff, 0xfd, 0x04, 0x04, 0x89, 0x89, 0xff, 0xff, 0x00, 0x03, 0x63, 0x66, 0x67, 0x01, 0x76, 0x02, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x09, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02,
	0x05, 0x73, 0x65, 0x67, 0x2d, 0x61, 0x05, 0x73, 0x65, 0x67, 0x2d, 0x62, 0x03, 0x6f, 0x6c, 0x64, 0x01,
	0x02, 0x6e, 0x31, 0x01, 0x03, 0x00, 0x01, 0x01, 0x03, 0x67, 0x72, 0x70, 0xd0, 0x64, 0x92, 0xd6, 0x20,
	0x55, 0x4a, 0x8d, 0xaf, 0x70, 0x10, 0x98, 0x8a, 0x68, 0x5f, 0x10,
};
/* get_into_ranges() of one range */
static const uint8_t ranges_request[] = {
	0xa9, 0x0a, 0x81, 0xff, 0x04, 0xfd, 0x84, 0x04, 0x84, 0x84, 0x80, 0x0c, 0x84, 0x84, 0x84, 0x04, 0x84,
	0x84, 0x84, 0x04, 0x84, 0x84, 0x84, 0x04, 0x82, 0x80, 0x0c, 0xfd, 0x0b, 0xfd, 0x84, 0xfd, 0x04, 0x86,
	0xfd, 0xfd, 0x04, 0x04, 0x80, 0x0c, 0x80, 0x0c, 0xff, 0xff, 0xfd, 0xfd, 0x04, 0x04, 0x80, 0x0c, 0x80,
	0x0c, 0xff, 0xff, 0xfd, 0x80, 0x0c, 0x04, 0xff, 0xfd, 0xfd, 0x04, 0x04, 0x89, 0x89, 0xff, 0x04, 0x80,
	0x0c, 0xff, 0xfd, 0x80, 0x0c, 0x04, 0x04, 0x04, 0x01, 0xff, 0xff, 0x01, 0xff, 0x04, 0x85, 0x04, 0xff,
	0x01, 0xff, 0x01, 0xfd, 0x04, 0x04, 0x89, 0x89, 0xff, 0xff, 0x00, 0x01, 0x00, 0x00, 0x10, 0x70, 0x3d,
	0x7f, 0x00, 0x00, 0x01, 0x01, 0x02, 0x62, 0x31, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x01, 0x01,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xd0, 0x64, 0x92, 0xd6, 0x20,
	0x55, 0x4a, 0x8d, 0xaf, 0x70, 0x10, 0x98, 0x8a, 0x68, 0x5f, 0x10,
};
/* put_batch() of two values with the traits of counts of 4 bytes, as for a value of 70000 bytes */
static const uint8_t wide_request[] = {
	0x2f, 0x48, 0x8f, 0x7d, 0x14, 0xfd, 0x84, 0x80, 0x0c, 0x84, 0x84, 0x0c, 0xfd, 0x04, 0x04, 0x04, 0x06,
	0x85, 0x04, 0x0b, 0x84, 0x80, 0x0c, 0x80, 0x0c, 0x84, 0x80, 0x0c, 0x0b, 0x06, 0x80, 0x0c, 0x85, 0x84,
	0x80, 0x0c, 0xff, 0xfd, 0x04, 0x04, 0x89, 0x89, 0xff, 0xff, 0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00,
	0x00, 0x00, 0x62, 0x31, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x78, 0x79, 0x7a, 0x01, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};

static bool text_is(struct mcs_key k, const char *wanted)
{
	return k.len == strlen(wanted) && !memcmp(k.data, wanted, k.len);
}

static const struct mcn_up_call *call_of(const char *name)
{
	const struct mcn_up_call *c = mcn_up_calls;

	while (strcmp(c->name, name) != 0)
		c++;
	return c;
}

static int decode(const char *name, const void *data, size_t len, struct mcn_up_memory *m, struct mcn_up_arg *ret)
{
	const struct mcn_up_call *c = call_of(name);

	return mcn_up_decode(data, len, c->asks, c->types, m, ret);
}

/* ---- messages ---- */

static void test_a_put_of_upstream_is_decoded(void **state)
{
	struct mcn_up_arg a[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };
	const struct mcn_up_config *c;

	(void)state;
	assert_int_equal(decode("put_dummy_helper", put_request, sizeof(put_request), &m, a), 0);
	assert_true(text_is(a[0].text, "cfg") && text_is(a[1].text, "v"));
	c = a[2].config;
	assert_true(c->replicas == 2 && c->nof_replicas == 3 && c->dfs_replicas == 4);
	assert_true(c->soft_pin == MCS_SOFT_PIN_ENABLE && c->has_soft_pin_ms && c->soft_pin_ms == 777 && c->hard_pin);
	assert_true(c->preferred.n == 2 && text_is(c->preferred.v[1], "seg-b") && text_is(c->preferred_one, "old"));
	assert_true(c->preferred_nof.n == 1 && text_is(c->preferred_nof.v[0], "n1") && c->same_node);
	assert_true(c->data_type == MCS_TYPE_WEIGHT && !c->host_id.len && c->groups.n == 1);
	assert_true(text_is(c->groups.v[0], "grp"));
	assert_true(a[3].id.first == 0x8d4a5520d69264d0ull && a[3].id.second == 0x105f688a981070afull);
	mcn_up_memory_done(&m);
}

static void test_nested_lists_are_decoded(void **state)
{
	struct mcn_up_arg a[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };

	(void)state;
	assert_int_equal(decode("get_into_ranges_shm_helper", ranges_request, sizeof(ranges_request), &m, a), 0);
	assert_true(a[0].numbers.n == 1 && a[1].rows.n == 1 && text_is(a[1].rows.v[0].strings.v[0], "b1"));
	assert_true(a[4].rows.v[0].rows.v[0].numbers.n == 1 && a[4].rows.v[0].rows.v[0].numbers.v[0] == 1);
	mcn_up_memory_done(&m);
}

static void test_counts_of_four_bytes_are_decoded(void **state)
{
	struct mcn_up_arg a[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };

	(void)state;
	assert_int_equal(decode("put_batch_dummy_helper", wide_request, sizeof(wide_request), &m, a), 0);
	assert_true(a[0].strings.n == 1 && text_is(a[0].strings.v[0], "b1") && text_is(a[1].strings.v[0], "xyz"));
	mcn_up_memory_done(&m);
}

/* 0.3.14 appends optional fields, here without and with a value. */
static void test_optional_fields_of_later_releases_are_left_out(void **state)
{
	uint8_t b[sizeof(put_request) + 6];
	struct mcn_up_arg a[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };
	size_t n = sizeof(b);

	(void)state;
	memcpy(b, put_request, 5);
	b[4] |= 1;
	b[5] = (uint8_t)n;
	b[6] = 0;
	memcpy(b + 7, put_request + 5, sizeof(put_request) - 5);
	memset(b + n - 4, 0, 4);
	assert_int_equal(decode("put_dummy_helper", b, n, &m, a), 0);
	assert_true(text_is(a[0].text, "cfg") && a[3].id.first == 0x8d4a5520d69264d0ull);
	mcn_up_memory_done(&m);
	b[n - 4] = 1;
	assert_int_equal(decode("put_dummy_helper", b, n, &m, a), 1);
	mcn_up_memory_done(&m);
	assert_int_equal(decode("put_dummy_helper", b, n - 5, &m, a), -MC_EPROTO);
	mcn_up_memory_done(&m);
}

static void test_a_message_is_complete_or_refused(void **state)
{
	uint8_t more[sizeof(put_request) + 1] = { 0 };
	struct mcn_up_arg a[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };

	(void)state;
	for (size_t n = 0; n < sizeof(put_request); n++) {
		assert_int_equal(decode("put_dummy_helper", put_request, n, &m, a), -MC_EPROTO);
		mcn_up_memory_done(&m);
	}
	memcpy(more, put_request, sizeof(put_request));
	assert_int_equal(decode("put_dummy_helper", more, sizeof(more), &m, a), -MC_EPROTO);
	mcn_up_memory_done(&m);
	/* of other types */
	assert_int_equal(decode("ping", put_request, sizeof(put_request), &m, a), -MC_EPROTO);
	assert_int_equal(decode("service_ready_internal", put_request, sizeof(put_request), &m, a), -MC_EPROTO);
	assert_int_equal(decode("service_ready_internal", NULL, 0, &m, a), 0);
}

/* A count is compared with the bytes that are left before memory is allocated, and all counts have a limit. */
static void test_lists_have_limits(void **state)
{
	const struct mcn_up_call *c = call_of("batchIsExist_internal");
	size_t n = MCN_UP_ELEMENTS_MAX + 1, len = 9 + 4 * n;
	struct mcn_up_arg a[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };
	uint32_t hash = c->asks | 1, count = 0xffffffff;
	uint8_t *b = calloc(1, len);

	(void)state;
	memcpy(b, &hash, 4);
	b[4] = 2 << 3;
	memcpy(b + 5, &count, 4);
	assert_int_equal(mcn_up_decode(b, len, c->asks, c->types, &m, a), -MC_EPROTO);
	mcn_up_memory_done(&m);
	count = (uint32_t)n;
	memcpy(b + 5, &count, 4);
	assert_int_equal(mcn_up_decode(b, len, c->asks, c->types, &m, a), -MC_ELIMIT);
	mcn_up_memory_done(&m);
	count = (uint32_t)n - 1;
	memcpy(b + 5, &count, 4);
	assert_int_equal(mcn_up_decode(b, len - 4, c->asks, c->types, &m, a), 0);
	assert_true(a[0].strings.n == n - 1);
	mcn_up_memory_done(&m);
	free(b);
}

static void test_answers_are_those_of_upstream(void **state)
{
	/* without the text of the types, which is optional */
	static const uint8_t put_ok[] = { 21, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0xcc, 0x68, 0x28, 0xaf, 1 };
	static const uint8_t miss[] = { 21, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x81, 0x33, 0xb8,
					0, 0x40, 0xfd, 0xff, 0xff };
	struct mcn_up_answer a = { 0 };

	(void)state;
	mcn_up_answer_begin(&a, call_of("put_dummy_helper")->answers, 0);
	mcn_up_put_result(&a, 0);
	assert_int_equal(mcn_up_answer_end(&a, 7), 0);
	assert_true(a.len == sizeof(put_ok) && !memcmp(a.data, put_ok, a.len));
	mcn_up_answer_begin(&a, call_of("getSize_internal")->answers, 0);
	mcn_up_put_size(&a, -MCS_ENOOBJECT);
	assert_int_equal(mcn_up_answer_end(&a, 8), 0);
	assert_true(a.len == sizeof(miss) && !memcmp(a.data, miss, a.len));
	/* more than 255 elements: counts of two bytes, which the traits tell */
	mcn_up_answer_begin(&a, call_of("batch_put_from_dummy_helper")->answers, 256);
	mcn_up_put_count(&a, 256);
	assert_true(a.data[16] == 0xcf && a.data[20] == 1 << 3 && a.data[21] == 0 && a.data[22] == 1 && a.len == 23);
	mcn_up_answer_fail(&a, MCN_UP_NO_FUNCTION, NULL);
	assert_int_equal(mcn_up_answer_end(&a, 9), 0);
	assert_true(a.data[2] == 11 && a.data[20] == 31 && a.len == 52);
	mcn_up_answer_done(&a);
}

static void test_options_follow_upstreams_rules(void **state)
{
	struct mcs_key group = { "g", 1 }, names[2] = { { "a", 1 }, { "b", 1 } };
	struct mcn_up_config c = { .replicas = 1 };
	struct mcs_put_opts o;
	const char **lists = NULL;

	(void)state;
	c.preferred = (struct mcn_up_strings){ names, 2 };
	c.preferred_one = (struct mcs_key){ "first", 5 };
	assert_int_equal(mcn_up_opts(&c, 1, false, &o, &lists), 0);
	assert_string_equal(o.preferred[0], "first");
	assert_string_equal(o.preferred[2], "b");
	assert_null(o.preferred[3]);
	assert_true(!(o.flags & MCS_PUT_NOF) && o.replicas == 1);
	free(lists);
	lists = NULL;
	c.nof_replicas = 2;
	c.preferred_nof = (struct mcn_up_strings){ names, 1 };
	assert_int_equal(mcn_up_opts(&c, 1, false, &o, &lists), 0);
	assert_true((o.flags & MCS_PUT_NOF) && o.nof_replicas == 2);
	assert_string_equal(o.preferred_nof[0], "a");
	assert_null(o.preferred_nof[1]);
	free(lists);
	lists = NULL;
	c.same_node = true;
	assert_int_equal(mcn_up_opts(&c, 1, false, &o, &lists), -MCS_EPARAM);
	c.same_node = false;
	c.has_groups = true;
	c.groups = (struct mcn_up_strings){ &group, 1 };
	assert_int_equal(mcn_up_opts(&c, 2, true, &o, &lists), -MCS_EPARAM);
	c.has_groups = false;
	c.replicas = 0;
	assert_int_equal(mcn_up_opts(&c, 1, true, &o, &lists), -MCS_EPARAM);
	assert_null(lists);
}

/* ---- users ---- */

static void test_the_user_of_a_connection_is_found(void **state)
{
	static char table[] =
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
		"   0: 0100007F:C384 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001  0 1 1 0 100\n"
		"   1: 0100007F:9C40 0100007F:C384 06 00000000:00000000 03:00000000 00000000     0  0 0 3 0\n"
		"   2: 0100007F:9C42 0100007F:C384 01 00000000:00000000 00:00000000 00000000  1002  0 2 1 0 20\n";
	FILE *f = fmemopen(table, sizeof(table) - 1, "r");
	uid_t uid = 7;

	(void)state;
	assert_int_equal(mcn_up_peer_find(f, "0100007F:9C42", "0100007F:C384", &uid), 0);
	assert_int_equal(uid, 1002);
	/* closed already: the kernel shows user 0 */
	rewind(f);
	assert_int_equal(mcn_up_peer_find(f, "0100007F:9C40", "0100007F:C384", &uid), -ENOENT);
	/* a listener with the port of a peer on another host */
	rewind(f);
	assert_int_equal(mcn_up_peer_find(f, "0100007F:C384", "0100007F:9999", &uid), -ENOENT);
	assert_int_equal(uid, 1002);
	fclose(f);
}

/* ---- connections ---- */

static struct mcn_up *service;

static int service_setup(void **state)
{
	struct mcn_up_conf conf = { .host = "" };
	int r = -EADDRINUSE;

	(void)state;
	fixture_master(NULL);
	node_start(NODE_SEGMENT);
	conf.node = node_daemon();
	for (unsigned i = 0; r == -EADDRINUSE && i < 100; i++) {
		conf.port = 20000 + (int)((unsigned)getpid() + 37 * i) % 12000;
		r = mcn_up_start(&conf, &service);
	}
	assert_int_equal(r, 0);
	return 0;
}

static int reader_setup(void **state)
{
	static char uids[64];

	(void)snprintf(uids, sizeof(uids), "%u:default:reader", (unsigned)geteuid());
	node_uids = uids;
	return service_setup(state);
}

static int service_teardown(void **state)
{
	(void)state;
	node_uids = NULL;
	mcn_up_stop(service);
	node_stop();
	fixture_master_stop();
	return 0;
}

static unsigned nconns(void)
{
	MC_LOCKED(&service->lock);
	return service->nconns;
}

static uint64_t held_bytes(void)
{
	MC_LOCKED(&service->lock);
	return service->bytes;
}

static int tcp_open(void)
{
	int fd = mc_socket_connect(mcn_up_address(service), mc_deadline_ms(5000));

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	return fd;
}

static void tcp_ask(int fd, uint32_t function, uint32_t sequence, const void *body, uint32_t len)
{
	uint32_t head[5] = { 21, sequence, function, len, 0 };

	assert_int_equal(send(fd, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
	assert_int_equal(send(fd, body, len, MSG_NOSIGNAL), len);
}

/* The bytes of an answer; its error and sequence. */
static uint32_t tcp_answer(int fd, uint8_t *ret, size_t size, uint8_t *ret_error, uint32_t *ret_sequence)
{
	uint8_t head[MCN_UP_ANSWER_HEAD];
	uint32_t len;

	assert_int_equal(recv(fd, head, sizeof(head), MSG_WAITALL), sizeof(head));
	memcpy(ret_sequence, head + 4, 4);
	memcpy(&len, head + 8, 4);
	*ret_error = head[2];
	assert_true(len <= size);
	assert_int_equal(recv(fd, ret, len, MSG_WAITALL), len);
	return len;
}

/* The daemon closes the connection, within its deadlines. */
static void tcp_expect_end(int fd)
{
	char c;

	assert_true(recv(fd, &c, 1, 0) <= 0);
	close(fd);
}

static void test_other_protocols_end_the_connection(void **state)
{
	static const char *const starts[] = { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x15\x01xxxxxxxxxxxxxxxxxxxxxx",
					      "\x15\x00\x01xxxxxxxxxxxxxxxxxxxx" };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		int fd = tcp_open();

		assert_true(send(fd, starts[i], 22, MSG_NOSIGNAL) == 22);
		tcp_expect_end(fd);
	}
}

static void test_a_request_that_is_too_long_is_answered(void **state)
{
	uint32_t head[5] = { 21, 1, call_of("ping")->function, (uint32_t)MCN_UP_FRAME_MAX, 1 }, sequence;
	static const uint8_t part[MIB];
	uint8_t b[256], error;
	int fd = tcp_open();

	(void)state;
	assert_int_equal(send(fd, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
	for (uint64_t n = 0; n < MCN_UP_FRAME_MAX; n += sizeof(part))
		assert_int_equal(send(fd, part, sizeof(part), MSG_NOSIGNAL), sizeof(part));
	assert_int_equal(send(fd, part, 1, MSG_NOSIGNAL), 1);
	(void)tcp_answer(fd, b, sizeof(b), &error, &sequence);
	assert_true(error == MCN_UP_BAD_ARGUMENTS && sequence == 1 && !memcmp(b + 5, "the request is too long", 23));
	/* the connection stays */
	tcp_ask(fd, call_of("service_ready_internal")->function, 7, "", 0);
	assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 5);
	assert_true(!error && sequence == 7);
	close(fd);
}

static void test_unknown_functions_and_types_have_an_answer(void **state)
{
	uint8_t b[256], error;
	uint32_t sequence;
	int fd = tcp_open();

	(void)state;
	tcp_ask(fd, 0x12345678, 5, "abc", 3);
	(void)tcp_answer(fd, b, sizeof(b), &error, &sequence);
	assert_true(error == MCN_UP_NO_FUNCTION && sequence == 5);
	/* The options of 0.3.12 have other fields, so its put has another hash. */
	tcp_ask(fd, call_of("put_dummy_helper")->function, 6, "\x21\x1e\xcb\xa1xyz", 7);
	(void)tcp_answer(fd, b, sizeof(b), &error, &sequence);
	assert_true(error == MCN_UP_BAD_ARGUMENTS && sequence == 6);
	/* the connection stays */
	tcp_ask(fd, call_of("service_ready_internal")->function, 7, "", 0);
	assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 5);
	assert_true(!error && sequence == 7 && b[4] == 1);
	close(fd);
}

static void test_a_client_without_memory_cannot_put(void **state)
{
	uint8_t b[256], error;
	uint32_t sequence, len;
	int32_t code;
	int fd = tcp_open();

	(void)state;
	tcp_ask(fd, call_of("put_dummy_helper")->function, 1, put_request, sizeof(put_request));
	len = tcp_answer(fd, b, sizeof(b), &error, &sequence);
	assert_true(!error && len == 9 && b[4] == 0);
	memcpy(&code, b + 5, 4);
	assert_int_equal(code, -600);
	close(fd);
}

static void test_a_reader_is_refused_a_put(void **state)
{
	uint8_t b[256], error;
	uint32_t sequence;
	int fd = tcp_open();

	(void)state;
	tcp_ask(fd, call_of("put_dummy_helper")->function, 1, put_request, sizeof(put_request));
	(void)tcp_answer(fd, b, sizeof(b), &error, &sequence);
	assert_int_equal(error, MCN_UP_BAD_ARGUMENTS);
	tcp_ask(fd, call_of("service_ready_internal")->function, 2, "", 0);
	assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 5);
	close(fd);
}

static struct mc_mutex gate = MC_MUTEX_INIT;

static void wait_at_gate(void *arg)
{
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	mc_mutex_lock(&gate);
	mc_mutex_unlock(&gate);
}

/* The server's end of the only connection, with place for @bytes that have not been received. */
static struct mcn_up_conn *conn_with_place(int bytes)
{
	struct mcn_up_conn *c;

	while (nconns() != 1)
		mc_sleep_ms(1);
	c = mc_list_first(&service->conns, struct mcn_up_conn, link);
	assert_int_equal(setsockopt(c->stream.fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
	return c;
}

struct late {
	struct mcn_up_conn *conn;
	int fd;
	uint64_t before_ms;
};

/* Loop: as if it had been stopped for a time, in which the client sent a request. */
static void ask_while_stopped(void *arg)
{
	const struct mcn_up_call *c = call_of("isExist_internal");
	uint8_t body[] = { 0, 0, 0, 0, 3, 'k', 'e', 'y' };
	struct late *late = arg;

	memcpy(body, &c->asks, 4);
	late->conn->empty = mc_now_ns() - late->before_ms * MC_NS_PER_MS;
	tcp_ask(late->fd, c->function, 1, body, sizeof(body));
}

/* The client does not wait any more, and may use its memory otherwise. */
static void test_a_request_that_is_read_late_is_not_carried_out(void **state)
{
	struct late late = { .fd = tcp_open(), .before_ms = MCN_UP_CALL_MS + 1 };
	uint8_t b[256], error;
	uint32_t sequence;

	(void)state;
	late.conn = conn_with_place(1 << 20);
	assert_int_equal(mc_evloop_call(service->loop, ask_while_stopped, &late), 0);
	(void)tcp_answer(late.fd, b, sizeof(b), &error, &sequence);
	assert_int_equal(error, MCN_UP_TIMED_OUT);
	late.before_ms = MCN_UP_CALL_MS - 5000;
	assert_int_equal(mc_evloop_call(service->loop, ask_while_stopped, &late), 0);
	(void)tcp_answer(late.fd, b, sizeof(b), &error, &sequence);
	assert_int_equal(error, MCN_UP_OK);
	close(late.fd);
}

/* Requests of one byte more than the buffer take two receives each; the last of them ends with the loop's turn. */
static void test_a_request_that_ends_with_a_turn_is_answered(void **state)
{
	enum { N = 32, BODY = MCN_UP_IN + 1 - MCN_UP_REQUEST_HEAD, ALL = N * (MCN_UP_IN + 1) };
	static const uint8_t body[BODY];
	struct timeval limit = { .tv_sec = 10 };
	uint64_t end = mc_deadline_ms(5000);
	struct mcn_up_conn *c;
	uint8_t b[256], error;
	uint32_t sequence;
	bool waits = false;
	int fd = tcp_open(), n = 0;

	(void)state;
	c = conn_with_place(2 * ALL);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	mc_mutex_lock(&gate);
	assert_int_equal(mc_evloop_post(service->loop, wait_at_gate, &waits), 0);
	while (!__atomic_load_n(&waits, __ATOMIC_ACQUIRE))
		mc_sleep_ms(1);
	for (uint32_t i = 0; i < N; i++)
		tcp_ask(fd, 0x12345678, i, body, BODY);
	while (n != ALL && mc_now_ns() < end)
		(void)ioctl(c->stream.fd, FIONREAD, &n);
	mc_mutex_unlock(&gate);
	assert_int_equal(n, ALL);
	for (uint32_t i = 0; i < N; i++)
		(void)tcp_answer(fd, b, sizeof(b), &error, &sequence);
	assert_true(error == MCN_UP_NO_FUNCTION && sequence == N - 1);
	close(fd);
}

/* More requests than a connection may have running, in small pieces, and answers that are read late. */
static void test_many_requests_at_a_time_are_all_answered(void **state)
{
	enum { N = 3 * MCN_UP_CONN_JOBS };
	const struct mcn_up_call *c = call_of("isExist_internal");
	uint8_t b[256], error, seen[N] = { 0 }, body[] = { 0, 0, 0, 0, 3, 'k', 'e', 'y' };
	uint32_t sequence;
	int fd = tcp_open();

	(void)state;
	memcpy(body, &c->asks, 4);
	for (uint32_t i = 0; i < N; i++)
		tcp_ask(fd, c->function, i, body, sizeof(body));
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 6);
		assert_true(!error && sequence < N && !seen[sequence]++);
	}
	close(fd);
}

static size_t unread(struct mcn_up_conn *c)
{
	MC_LOCKED(&c->send_lock);
	return c->out_len;
}

/* Its requests wait in its own socket, and its answers count as its user's memory. */
static void test_requests_wait_until_answers_are_read(void **state)
{
	enum { N = 60000, AT_ONCE = 600, LITTLE = 4096 };
	static uint32_t heads[AT_ONCE][5];
	uint32_t sequence;
	uint64_t end = mc_deadline_ms(10000);
	struct timeval limit = { .tv_sec = 10 };
	int fd = tcp_open(), little = LITTLE, much = 1 << 20;
	struct mcn_up_conn *c = conn_with_place(1 << 20);
	uint8_t b[256], error;

	(void)state;
	assert_int_equal(setsockopt(c->stream.fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	for (unsigned i = 0; i < AT_ONCE; i++)
		memcpy(heads[i], (uint32_t[]){ 21, i, 0x12345678, 0, 0 }, sizeof(heads[i]));
	for (unsigned i = 0; i < N / AT_ONCE; i++)
		assert_int_equal(send(fd, heads, sizeof(heads), MSG_NOSIGNAL), sizeof(heads));
	while (unread(c) <= MCN_UP_OUT_PAUSE && mc_now_ns() < end)
		mc_sleep_ms(1);
	mc_sleep_ms(100);
	assert_in_range(unread(c), MCN_UP_OUT_PAUSE + 1, MCN_UP_OUT_PAUSE + LITTLE);
	assert_true(held_bytes() > MCN_UP_OUT_PAUSE);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &much, sizeof(much)), 0);
	assert_int_equal(setsockopt(c->stream.fd, SOL_SOCKET, SO_SNDBUF, &much, sizeof(much)), 0);
	for (unsigned i = 0; i < N; i++)
		(void)tcp_answer(fd, b, sizeof(b), &error, &sequence);
	while (held_bytes() && mc_now_ns() < end)
		mc_sleep_ms(1);
	assert_true(!held_bytes() && !unread(c));
	close(fd);
}

/* The memory for requests is used up: the client waits, and is served when some is free again. */
static void test_requests_wait_for_memory(void **state)
{
	const struct mcn_up_call *c = call_of("isExist_internal");
	uint8_t b[256], error, body[] = { 0, 0, 0, 0, 3, 'k', 'e', 'y' };
	uint64_t end = mc_deadline_ms(5000);
	unsigned waiting = 0;
	uint32_t sequence;
	int fd = tcp_open();

	(void)state;
	memcpy(body, &c->asks, 4);
	mc_mutex_lock(&service->lock);
	service->bytes = MCN_UP_BYTES_MAX - sizeof(body) + 1;
	mc_mutex_unlock(&service->lock);
	tcp_ask(fd, c->function, 1, body, sizeof(body));
	while (waiting != 1 && mc_now_ns() < end) {
		mc_mutex_lock(&service->lock);
		waiting = service->waiting;
		mc_mutex_unlock(&service->lock);
	}
	assert_int_equal(waiting, 1);
	assert_true(recv(fd, b, 1, MSG_DONTWAIT) < 0);
	mc_mutex_lock(&service->lock);
	service->bytes = 0;
	mc_mutex_unlock(&service->lock);
	assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 6);
	tcp_ask(fd, c->function, 2, body, sizeof(body));
	assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 6);
	assert_true(!error && sequence == 2 && !service->waiting);
	close(fd);
}

static void set_running(struct mcn_up_conn *c, unsigned n)
{
	MC_LOCKED(&service->lock);
	c->user->running = n;
}

/* Some threads are left to other users. */
static void test_calls_of_a_user_have_a_limit(void **state)
{
	const struct mcn_up_call *call = call_of("isExist_internal");
	uint8_t b[256], error, body[] = { 0, 0, 0, 0, 3, 'k', 'e', 'y' };
	uint32_t sequence;
	int fd = tcp_open();
	struct mcn_up_conn *c = conn_with_place(1 << 20);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	(void)state;
	memcpy(body, &call->asks, 4);
	set_running(c, MCN_UP_UID_WORKERS);
	tcp_ask(fd, call->function, 1, body, sizeof(body));
	assert_int_equal(poll(&p, 1, 200), 0);
	set_running(c, MCN_UP_UID_WORKERS - 1);
	tcp_ask(fd, call->function, 2, body, sizeof(body));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 6);
	set_running(c, 0);
	close(fd);
}

/* It leaves in a message, and with calls that are running. */
static void test_a_client_that_leaves_is_forgotten(void **state)
{
	const struct mcn_up_call *c = call_of("isExist_internal");
	uint8_t body[] = { 0, 0, 0, 0, 3, 'k', 'e', 'y' };
	uint64_t end = mc_deadline_ms(5000);
	unsigned n = 1;

	(void)state;
	memcpy(body, &c->asks, 4);
	for (unsigned i = 0; i < 20; i++) {
		uint32_t head[5] = { 21, 1, call_of("put_dummy_helper")->function, 1 << 20, 0 };
		int fd = tcp_open();

		tcp_ask(fd, c->function, i, body, sizeof(body));
		assert_int_equal(send(fd, head, sizeof(head) - i, MSG_NOSIGNAL), sizeof(head) - i);
		close(fd);
	}
	while (n && mc_now_ns() < end)
		n = nconns();
	assert_int_equal(n, 0);
	assert_true(service->bytes == 0 && service->waiting == 0);
}

/* A request of the unix socket that names no memory, too many descriptors, and nothing at all. */
static void test_strange_requests_for_memory_are_refused(void **state)
{
	char name[MC_ADDR_MAX];
	uint32_t type[12] = { 0 };
	int32_t status = 1;
	int fd;

	(void)state;
	(void)snprintf(name, sizeof(name), "unix:@@mooncake_client_%s.sock", strrchr(mcn_up_address(service), ':') + 1);
	fd = mc_socket_connect(name, mc_deadline_ms(5000));
	assert_true(fd >= 0 && fcntl(fd, F_SETFL, 0) == 0);
	assert_int_equal(send(fd, type, 44, MSG_NOSIGNAL), 44);
	assert_int_equal(recv(fd, &status, 4, MSG_WAITALL), 4);
	assert_int_equal(status, -1);
	tcp_expect_end(fd);
	fd = mc_socket_connect(name, mc_deadline_ms(5000));
	assert_true(fd >= 0 && fcntl(fd, F_SETFL, 0) == 0);
	type[0] = 77;
	assert_int_equal(send(fd, type, 4, MSG_NOSIGNAL), 4);
	tcp_expect_end(fd);
	/* the cache that upstream's daemon shares: none */
	fd = mc_socket_connect(name, mc_deadline_ms(5000));
	assert_true(fd >= 0 && fcntl(fd, F_SETFL, 0) == 0);
	type[0] = 1;
	assert_int_equal(send(fd, type, 28, MSG_NOSIGNAL), 28);
	assert_int_equal(recv(fd, type, 16, MSG_WAITALL), 16);
	assert_int_equal((int32_t)type[0], -1);
	tcp_expect_end(fd);
	assert_int_equal(mcn_up_dummies_count(service->dummies), 0);
}

/* A program whose sockets are those of IPv6. */
static void test_a_client_with_a_mapped_address_is_served(void **state)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6 };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint8_t b[256], error;
	uint32_t sequence;

	(void)state;
	to.sin6_port = htons((uint16_t)atoi(strrchr(mcn_up_address(service), ':') + 1));
	assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr), 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		skip();
	tcp_ask(fd, call_of("service_ready_internal")->function, 7, "", 0);
	assert_int_equal(tcp_answer(fd, b, sizeof(b), &error, &sequence), 5);
	close(fd);
}

static void test_a_second_service_cannot_have_the_port(void **state)
{
	struct mcn_up_conf conf = { .node = node_daemon(), .host = "" };
	struct mcn_up *other = NULL;

	(void)state;
	conf.port = atoi(strrchr(mcn_up_address(service), ':') + 1);
	assert_int_equal(mcn_up_start(&conf, &other), -EADDRINUSE);
	assert_null(other);
}

#define WITH_SERVICE(t) cmocka_unit_test_setup_teardown(t, service_setup, service_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_put_of_upstream_is_decoded),
		cmocka_unit_test(test_nested_lists_are_decoded),
		cmocka_unit_test(test_counts_of_four_bytes_are_decoded),
		cmocka_unit_test(test_optional_fields_of_later_releases_are_left_out),
		cmocka_unit_test(test_a_message_is_complete_or_refused),
		cmocka_unit_test(test_lists_have_limits),
		cmocka_unit_test(test_answers_are_those_of_upstream),
		cmocka_unit_test(test_options_follow_upstreams_rules),
		cmocka_unit_test(test_the_user_of_a_connection_is_found),
		WITH_SERVICE(test_other_protocols_end_the_connection),
		WITH_SERVICE(test_a_request_that_is_too_long_is_answered),
		WITH_SERVICE(test_unknown_functions_and_types_have_an_answer),
		WITH_SERVICE(test_a_client_without_memory_cannot_put),
		cmocka_unit_test_setup_teardown(test_a_reader_is_refused_a_put, reader_setup, service_teardown),
		WITH_SERVICE(test_a_request_that_is_read_late_is_not_carried_out),
		WITH_SERVICE(test_a_request_that_ends_with_a_turn_is_answered),
		WITH_SERVICE(test_many_requests_at_a_time_are_all_answered),
		WITH_SERVICE(test_requests_wait_until_answers_are_read),
		WITH_SERVICE(test_requests_wait_for_memory),
		WITH_SERVICE(test_calls_of_a_user_have_a_limit),
		WITH_SERVICE(test_a_client_that_leaves_is_forgotten),
		WITH_SERVICE(test_strange_requests_for_memory_are_refused),
		WITH_SERVICE(test_a_client_with_a_mapped_address_is_served),
		WITH_SERVICE(test_a_second_service_cannot_have_the_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
