/* SPDX-License-Identifier: Apache-2.0
 * test_proto_golden.c - the wire format stays as it was released; see tests/golden/README. */
#include <config.h>

#include <errno.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "proto/codec.h"
#include "tests/unit/test_proto_dump.h"
#include "tests/unit/test_proto_fill.h"

#define PER_LINE 32

struct transcript {
	uint8_t data[2][8192];		/* request, reply */
	size_t len[2];
};

static const char *path_of(const char *dir, const char *name)
{
	static char path[8192];

	snprintf(path, sizeof(path), "%.4096s/%.64s.hex", dir, name);
	return path;
}

/* The message as this tree encodes it: a frame with every field set. */
static void encode(uint16_t type, bool reply, struct fill *f, void *msg, struct mcp_buf *b)
{
	const struct mcp_desc *d = mcp_desc_of(type, reply);
	struct mcp_frame frame = { .type = type, .id = 0x04030201 };

	frame.flags = reply ? MCP_FRAME_REPLY : mcp_desc_of(type, true) ? 0 : MCP_FRAME_ONEWAY;
	frame.id = frame.flags & MCP_FRAME_ONEWAY ? 0 : frame.id;
	fill_struct(f, d, msg);
	assert_int_equal(mcp_frame_append(b, frame, d, msg), 0);
}

static void write_one(FILE *to, const char *what, uint16_t type, bool reply)
{
	const struct mcp_desc *d = mcp_desc_of(type, reply);
	struct fill f = { .plain = true };
	struct mcp_buf b = { 0 };
	void *msg = malloc(4096);

	encode(type, reply, &f, msg, &b);
	fputs("# ", to);
	mcp_dump(d, msg, 10, to);
	fprintf(to, "\n%s\n", what);
	for (size_t i = 0; i < b.len; i++)
		fprintf(to, "%02x%s", b.data[i], (i + 1) % PER_LINE && i + 1 < b.len ? "" : "\n");
	fill_free(&f);
	mcp_buf_free(&b);
	free(msg);
}

static void write_all(const char *dir)
{
	for (uint16_t type = 0; type < 1000; type++) {
		const struct mcp_desc *d = mcp_desc_of(type, false);
		FILE *to;

		if (!d)
			continue;
		to = fopen(path_of(dir, mcp_desc_str(d)), "wx");
		if (!to && errno == EEXIST)
			continue;
		if (!to) {
			perror(path_of(dir, mcp_desc_str(d)));
			exit(1);
		}
		write_one(to, "request", type, false);
		if (mcp_desc_of(type, true))
			write_one(to, "reply", type, true);
		fclose(to);
	}
}

static void read_transcript(const char *path, struct transcript *t)
{
	FILE *from = fopen(path, "r");
	char line[16384];
	int part = -1;

	if (!from)
		fail_msg("%s is missing", path);
	memset(t, 0, sizeof(*t));
	while (fgets(line, sizeof(line), from)) {
		if (line[0] == '#')
			continue;
		if (!strcmp(line, "request\n") || !strcmp(line, "reply\n")) {
			part = line[2] == 'p';
			continue;
		}
		assert_true(part >= 0);
		for (char *p = line; p[0] != '\n' && p[0]; p += 2) {
			unsigned byte;

			assert_int_equal(sscanf(p, "%2x", &byte), 1);
			assert_true(t->len[part] < sizeof(t->data[part]));
			t->data[part][t->len[part]++] = (uint8_t)byte;
		}
	}
	fclose(from);
}

/* The bytes that @version's tree sent decode to the same message, with fields that are newer set to
 * 0. */
static void check_decode(const struct transcript *t, uint16_t type, bool reply, unsigned version)
{
	const struct mcp_desc *d = mcp_desc_of(type, reply);
	struct fill f = { .plain = true, .version = version };
	void *msg = malloc(4096), *back = malloc(4096);
	struct mcp_frame frame;

	fill_struct(&f, d, msg);
	assert_int_equal(mcp_frame_unpack(t->data[reply], MCP_FRAME_MAX, &frame), 0);
	assert_int_equal(frame.type, type);
	assert_int_equal(frame.length, t->len[reply] - MCP_FRAME_HEADER);
	assert_int_equal(mcp_decode(d, t->data[reply] + MCP_FRAME_HEADER, frame.length, back), 0);
	assert_true(fill_same(d, msg, back));
	fill_free(&f);
	free(msg);
	free(back);
}

/* This tree sends exactly these bytes. */
static void check_encode(const struct transcript *t, uint16_t type, bool reply)
{
	struct fill f = { .plain = true };
	void *msg = malloc(4096);
	struct mcp_buf b = { 0 };

	encode(type, reply, &f, msg, &b);
	assert_int_equal(t->len[reply], b.len);
	assert_memory_equal(t->data[reply], b.data, b.len);
	fill_free(&f);
	mcp_buf_free(&b);
	free(msg);
}

/* Check all messages in @version's directory; returns their number. */
static int check_version(unsigned version)
{
	struct transcript *t = malloc(sizeof(*t));
	char dir[4096];
	int count = 0;

	snprintf(dir, sizeof(dir), "%s/tests/golden/v%u", getenv("top_srcdir"), version);
	for (uint16_t type = 0; type < 1000; type++) {
		const struct mcp_desc *d = mcp_desc_of(type, false);

		/* A message that was added later has no transcript of an older version. */
		if (!d || (version < MCP_VERSION && access(path_of(dir, mcp_desc_str(d)), F_OK) < 0))
			continue;
		read_transcript(path_of(dir, mcp_desc_str(d)), t);
		for (int reply = 0; reply < 2; reply++) {
			if (reply && !mcp_desc_of(type, true)) {
				assert_int_equal(t->len[1], 0);
				continue;
			}
			check_decode(t, type, reply, version);
			if (version == MCP_VERSION)
				check_encode(t, type, reply);
		}
		count++;
	}
	free(t);
	return count;
}

static void version_1_is_understood(void **state)
{
	assert_int_equal(check_version(1), 18);
}

static void version_2_is_understood(void **state)
{
	assert_int_equal(check_version(2), 26);
}

static void version_3_is_as_it_was(void **state)
{
	assert_int_equal(check_version(3), 48);
}

/* Masters of version 3 before high availability sent no takeover_ms. */
static void a_register_reply_without_takeover_is_understood(void **state)
{
	struct transcript *t = malloc(sizeof(*t));
	struct mcp_register_reply reply;
	char dir[4096];

	snprintf(dir, sizeof(dir), "%s/tests/golden/v3", getenv("top_srcdir"));
	read_transcript(path_of(dir, "register"), t);
	assert_int_equal(mcp_decode(&mcp_desc_register_reply, t->data[1] + MCP_FRAME_HEADER,
				    t->len[1] - MCP_FRAME_HEADER - sizeof(reply.takeover_ms), &reply), 0);
	assert_int_equal(reply.earlier, 2893323226570760737);
	assert_int_equal(reply.takeover_ms, 0);
	free(t);
}

/* Masters of version 3 before the nonces of JOIN: the bodies end where these begin. */
static void masters_without_nonces_are_understood(void **state)
{
	struct transcript *t = malloc(sizeof(*t));
	const size_t nonce = 16, receiver = 4 + strlen("receiver");
	struct mcp_feed_reply reply;
	struct mcp_join join;
	struct mcp_feed feed;
	char dir[4096];

	(void)state;
	snprintf(dir, sizeof(dir), "%s/tests/golden/v3", getenv("top_srcdir"));
	read_transcript(path_of(dir, "join"), t);
	assert_int_equal(mcp_decode(&mcp_desc_join, t->data[0] + MCP_FRAME_HEADER,
				    t->len[0] - MCP_FRAME_HEADER - nonce - sizeof(join.records), &join), 0);
	assert_true(join.name.len == 4 && mcp_id_zero(join.nonce) && !join.records);
	read_transcript(path_of(dir, "feed"), t);
	assert_int_equal(mcp_decode(&mcp_desc_feed, t->data[0] + MCP_FRAME_HEADER,
				    t->len[0] - MCP_FRAME_HEADER - nonce - receiver, &feed), 0);
	assert_true(feed.promise_ms == 875770417 && mcp_id_zero(feed.nonce) && !feed.receiver.len);
	assert_int_equal(mcp_decode(&mcp_desc_feed_reply, t->data[1] + MCP_FRAME_HEADER,
				    t->len[1] - MCP_FRAME_HEADER - nonce, &reply), 0);
	assert_true(reply.complete && mcp_id_zero(reply.nonce));
	free(t);
}

/* Owners of version 3 before offers of disks and comparisons with snapshots: the bodies end where these begin. */
static void a_mount_without_confirms_is_understood(void **state)
{
	struct transcript *t = malloc(sizeof(*t));
	struct mcp_mount msg;
	const size_t added = sizeof(msg.offers) + sizeof(msg.cluster) + sizeof(msg.confirms) + sizeof(msg.nof) +
			     4 + strlen("key");
	char dir[4096];

	snprintf(dir, sizeof(dir), "%s/tests/golden/v3", getenv("top_srcdir"));
	read_transcript(path_of(dir, "mount"), t);
	assert_int_equal(mcp_decode(&mcp_desc_mount, t->data[0] + MCP_FRAME_HEADER,
				    t->len[0] - MCP_FRAME_HEADER - added, &msg), 0);
	assert_int_equal(msg.seen, 8101815670912281193);
	assert_true(!msg.offers && !msg.cluster && !msg.confirms);
	free(t);
}

/* Clients of version 3 before copies on NoF disks, and before they told which of their disks are paused. */
static void clients_without_nof_disks_are_understood(void **state)
{
	struct transcript *t = malloc(sizeof(*t));
	const size_t list = 8, name = 4 + 4, id = 4 + 16;
	struct mcp_heartbeat beat;
	struct mcp_put_end end;
	size_t head, added;
	char dir[4096];

	(void)state;
	snprintf(dir, sizeof(dir), "%s/tests/golden/v3", getenv("top_srcdir"));
	read_transcript(path_of(dir, "put_end"), t);
	head = MCP_FRAME_HEADER;
	assert_int_equal(mcp_decode(&mcp_desc_put_end, t->data[0] + head, t->len[0] - head, &end), 0);
	added = 1 + list + end.preferred_nof.raw_len;
	assert_true(end.nof && end.preferred_nof.count && end.preferred_nof.raw_len >= name);
	assert_int_equal(mcp_decode(&mcp_desc_put_end, t->data[0] + head, t->len[0] - head - added, &end), 0);
	assert_true(end.items.count && end.tenant.len && !end.nof && !end.preferred_nof.count);
	read_transcript(path_of(dir, "heartbeat"), t);
	assert_int_equal(mcp_decode(&mcp_desc_heartbeat, t->data[0] + head, t->len[0] - head, &beat), 0);
	added = list + beat.paused.raw_len;
	assert_true(beat.paused.count && beat.paused.raw_len >= id);
	assert_int_equal(mcp_decode(&mcp_desc_heartbeat, t->data[0] + head, t->len[0] - head - added, &beat), 0);
	assert_true(beat.fenced.count && !beat.paused.count);
	free(t);
}

/* Peers of version 3 before inode numbers. */
static void attributes_without_inode_numbers_are_understood(void **state)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MODE, .mode = 0640, .nlink = 3, .ino = 5 };
	struct mcp_buf b = { 0 };
	struct mcp_attrs ret;

	(void)state;
	assert_int_equal(mcp_encode(&mcp_desc_attrs, &a, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_attrs, b.data, b.len, &ret), 0);
	assert_int_equal(ret.ino, 5);
	assert_int_equal(mcp_decode(&mcp_desc_attrs, b.data, b.len - sizeof(a.ino), &ret), 0);
	assert_true(ret.mode == 0640 && ret.nlink == 3 && !ret.ino);
	mcp_buf_free(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_1_is_understood),
		cmocka_unit_test(version_2_is_understood),
		cmocka_unit_test(version_3_is_as_it_was),
		cmocka_unit_test(a_register_reply_without_takeover_is_understood),
		cmocka_unit_test(masters_without_nonces_are_understood),
		cmocka_unit_test(a_mount_without_confirms_is_understood),
		cmocka_unit_test(clients_without_nof_disks_are_understood),
		cmocka_unit_test(attributes_without_inode_numbers_are_understood),
	};

	if (argc == 3 && !strcmp(argv[1], "write")) {
		write_all(argv[2]);
		return 0;
	}
	if (!getenv("top_srcdir")) {
		puts("skipped: top_srcdir is not set");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
