/* SPDX-License-Identifier: Apache-2.0
 * test_master_upgrade.c - this master with the journal that a killed master of format 1 left, used
 * by clients of protocol versions 1 and 2, which send and know only the fields of their version. The
 * released transcripts define these fields. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/net/socket.h"
#include "proto/codec_i.h"
#include "tests/unit/test_proto_fill.h"

#define MIB (1u << 20)
#define FIELDS_MAX 32
#define TABLES_MAX 256u

/* The version of the client. */
static unsigned old_version;

/* ---- the tables of that version ---- */

static const struct mcp_desc *old_table(const struct mcp_desc *d)
{
	static struct {
		const struct mcp_desc *now;
		unsigned version;
		struct mcp_desc then;
		struct mcp_field field[FIELDS_MAX];
	} known[TABLES_MAX];
	static unsigned n;
	unsigned i, k;

	for (i = 0; i < n; i++)
		if (known[i].now == d && known[i].version == old_version)
			return &known[i].then;
	assert_true(n < TABLES_MAX);
	n++;
	known[i].now = d;
	known[i].version = old_version;
	known[i].then = *d;
	known[i].then.fields = known[i].field;
	known[i].then.elem = NULL;
	for (k = 0; d->fields[k].kind != MCP_F_END; k++) {
		if (d->fields[k].kind == MCP_F_SINCE && d->fields[k].offset > old_version)
			break;
		assert_true(k < FIELDS_MAX - 1);
		known[i].field[k] = d->fields[k];
		if (d->fields[k].elem)
			known[i].field[k].elem = old_table(d->fields[k].elem);
	}
	known[i].field[k].kind = MCP_F_END;
	return &known[i].then;
}

/* Read the request or the reply of a transcript; returns its length. */
static size_t transcript(const char *name, bool reply, uint8_t *ret, size_t max)
{
	const char *top = getenv("top_srcdir");
	char path[512], line[16384];
	bool ours = false;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/golden/v%u/%s.hex", top ? top : "..", old_version, name);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		unsigned byte, i;

		if (line[0] == '#')
			continue;
		if (line[0] == 'r') {
			ours = !strcmp(line, reply ? "reply\n" : "request\n");
			continue;
		}
		for (i = 0; ours && sscanf(line + 2 * i, "%2x", &byte) == 1; i++) {
			assert_true(n < max);
			ret[n++] = (uint8_t)byte;
		}
	}
	if (f)
		fclose(f);
	return n;
}

/* This test sends exactly the messages of an old version, and understands exactly those; returns their number. */
static unsigned compare_messages(unsigned version)
{
	uint8_t mem[8192];
	unsigned found = 0;

	old_version = version;
	for (uint16_t type = 1; type < 1000; type++)
		for (int reply = 0; reply < 2; reply++) {
			const struct mcp_desc *d = mcp_desc_of(type, reply);
			struct fill f = { .plain = true, .version = version };
			struct mcp_buf b = { 0 };
			void *msg;
			size_t n;

			n = d ? transcript(mcp_desc_str(mcp_desc_of(type, false)), reply, mem,
					   sizeof(mem)) : 0;
			if (!n)
				continue;
			msg = calloc(1, d->size);
			fill_struct(&f, old_table(d), msg);
			assert_int_equal(mcp_encode(old_table(d), msg, &b), 0);
			assert_int_equal(b.len, n - MCP_FRAME_HEADER);
			assert_memory_equal(b.data, mem + MCP_FRAME_HEADER, b.len);
			mcp_buf_free(&b);
			fill_free(&f);
			free(msg);
			found++;
		}
	return found;
}

static void these_are_the_messages_of_old_versions(void **state)
{
	(void)state;
	assert_int_equal(compare_messages(1), 34);
	assert_int_equal(compare_messages(2), 50);
}

/* ---- a client of that version ---- */

static const struct mcp_id me = { 7, 1 };
static uint8_t answer[1 << 20];

static void receive(int fd, void *to, size_t len)
{
	uint64_t end = mc_deadline_ms(20000);
	ssize_t n;

	for (; len; len -= (size_t)n, to = (char *)to + n) {
		n = recv(fd, to, len, 0);
		if (n > 0)
			continue;
		assert_true(n < 0 && errno == EAGAIN && mc_now_ns() < end);
		usleep(1000);
		n = 0;
	}
}

/* Returns the status; @ret points into the last reply. */
static int call(int fd, uint16_t type, const void *msg, void *ret)
{
	struct mcp_frame f = { .type = type, .id = 77 };
	struct mcp_buf b = { 0 };
	uint8_t head[MCP_FRAME_HEADER];
	bool oneway = !mcp_desc_of(type, true);

	if (oneway)
		f = (struct mcp_frame){ .type = type, .flags = MCP_FRAME_ONEWAY };
	assert_int_equal(mcp_frame_append(&b, f, old_table(mcp_desc_of(type, false)), msg), 0);
	assert_int_equal(send(fd, b.data, b.len, MSG_NOSIGNAL), (ssize_t)b.len);
	mcp_buf_free(&b);
	if (oneway)
		return 0;
	receive(fd, head, sizeof(head));
	assert_int_equal(mcp_frame_unpack(head, sizeof(answer), &f), 0);
	receive(fd, answer, f.length);
	assert_int_equal(f.id, 77);
	if (f.status)
		return mc_err_from_wire(f.status);
	assert_int_equal(mcp_decode(old_table(mcp_desc_of(type, true)), answer, f.length, ret), 0);
	return 0;
}

static int greet(const char *addr, enum mcp_channel lane)
{
	struct mcp_hello hello = {
		.magic = MCP_MAGIC, .version = (uint16_t)old_version, .min_version = 1, .client = me,
		.lane = (uint8_t)lane, .software = fx_bytes("old"),
	};
	struct mcp_hello_reply reply;
	int fd = mc_socket_connect(addr, mc_deadline_ms(20000));

	assert_true(fd >= 0);
	assert_int_equal(call(fd, MCP_HELLO, &hello, &reply), 0);
	assert_int_equal(reply.version, old_version);
	return fd;
}

/* Register, send a heartbeat, mount the memory that the old master knew. */
static int come_back(const char *addr)
{
	struct mcp_register reg = { .client = me, .name = fx_bytes("test") };
	int fd = greet(addr, MCP_CHANNEL_CONTROL), beat = greet(addr, MCP_CHANNEL_HEARTBEAT);
	struct mcp_heartbeat hb = { .client = me, .sequence = 1 };
	struct mcp_heartbeat_reply beaten;
	struct mcp_register_reply registered;
	struct mcp_mount_reply mounted;
	uint64_t objects = 0;

	assert_int_equal(call(fd, MCP_REGISTER, &reg, &registered), 0);
	assert_true(registered.heartbeat_ms > 0);
	for (uint64_t i = 1; i <= 2; i++) {
		char name[] = { 's', 'e', 'g', '-', (char)('0' + i), 0 };
		struct mcp_mount mount = {
			.segment = { 7, i }, .client = me, .epoch = 100 + i, .size = MIB,
			.base = 0x10000 + (i << 40), .rkey = 5, .name = fx_bytes(name),
			.endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
		};

		assert_int_equal(call(fd, MCP_MOUNT, &mount, &mounted), 0);
		assert_int_equal(mounted.reattached, 1);
		objects += mounted.objects;
	}
	assert_true(objects > 0);
	assert_int_equal(call(beat, MCP_HEARTBEAT, &hb, &beaten), 0);
	assert_int_equal(beaten.reattach, 0);
	close(beat);
	return fd;
}

/* Get an object with a lease, renew the pin and release it. Returns the object's status. */
static int get(int fd, const char *key, uint64_t *ret_size)
{
	struct mcp_key k = { .key = fx_bytes(key) };
	struct mcp_get rq = { .flags = MCP_GET_LEASE, .keys = mcp_seq(&k, 1) };
	struct mcp_get_reply reply;
	struct mcp_object o = { 0 };
	struct mcp_pin pin;
	struct mcp_release release = { .pins = mcp_seq(&pin, 1) };
	struct mcp_renew renew = { .pins = mcp_seq(&pin, 1) };
	struct mcp_iter it;

	assert_int_equal(call(fd, MCP_GET, &rq, &reply), 0);
	assert_int_equal(reply.objects.count, 1);
	mcp_iter_init(&it, &reply.objects, old_table(&mcp_desc_object));
	assert_true(mcp_iter_next(&it, &o));
	*ret_size = o.size;
	pin.pin = o.pin;
	if (o.pin) {
		call(fd, MCP_RENEW, &renew, NULL);
		call(fd, MCP_RELEASE, &release, NULL);
	}
	return mc_err_from_wire(o.status);
}

/* Such a client cannot be fenced, so it may not begin to write: no put, also of an object without memory, and no copy.
 * Requests about puts that have been begun are answered. */
static void expect_no_writes(int fd)
{
	struct mcp_put_item item = { .key = fx_bytes("new"), .size = 3000 };
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(&item, 1) };
	struct mcp_put_done done = { .key = fx_bytes("under way"), .crc = 42, .generation = 64 };
	struct mcp_put_start_reply started;
	struct mcp_put_end_reply ended;		/* the reply to a revoke has the same layout */
	struct mcp_put_end rq_end = { .items = mcp_seq(&done, 1) };
	struct mcp_put_revoke rq_revoke = { .items = mcp_seq(&done, 1) };
	struct mcp_task_fetch fetch = { .max = 4 };
	struct mcp_task_fetch_reply fetched;
	struct mcp_status st = { 0 };
	struct mcp_iter it;

	assert_int_equal(call(fd, MCP_PUT_START, &rq, &started), -MC_EVERSION);
	rq.flags = MCP_PUT_COMMIT;
	item.size = 0;
	assert_int_equal(call(fd, MCP_PUT_START, &rq, &started), -MC_EVERSION);
	if (old_version > 1)
		assert_int_equal(call(fd, MCP_TASK_FETCH, &fetch, &fetched), -MC_EVERSION);
	for (int i = 0; i < 2; i++) {
		if (i)
			assert_int_equal(call(fd, MCP_PUT_END, &rq_end, &ended), 0);
		else
			assert_int_equal(call(fd, MCP_PUT_REVOKE, &rq_revoke, &ended), 0);
		mcp_iter_init(&it, &ended.results, old_table(&mcp_desc_status));
		assert_true(mcp_iter_next(&it, &st));
		assert_int_equal(mc_err_from_wire(st.status), -MC_ESTALE_PUT);
	}
}

static unsigned listed(int fd, const char *prefix)
{
	struct mcp_list rq = { .limit = 2, .prefix = fx_bytes(prefix) };
	struct mcp_list_reply reply;
	uint8_t cursor[64];
	unsigned n = 0;

	do {
		assert_int_equal(call(fd, MCP_LIST, &rq, &reply), 0);
		n += reply.entries.count;
		assert_true(reply.cursor.len <= sizeof(cursor));
		memcpy(cursor, reply.cursor.data, reply.cursor.len);
		rq.cursor = mcp_bytes(cursor, reply.cursor.len);
	} while (rq.cursor.len);
	return n;
}

static void expect(int fd, const char *key, int want, uint64_t want_size)
{
	uint64_t size = 0;

	assert_int_equal(get(fd, key, &size), want);
	assert_int_equal(size, want_size);
}

/* ---- the master ---- */

static char addr[64];
static struct mc_options *options;

static struct mcm *start(void)
{
	const char *addrs[] = { addr, NULL };
	const struct mcm_listen where = { .addrs = addrs };
	struct mcm_conf conf;
	struct mcm *m;

	snprintf(addr, sizeof(addr), "unix:@mc-upgrade-%d", (int)getpid());
	assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
	conf.journal_dir = jx_dir;
	conf.rpc_thread_num = 1;
	assert_int_equal(mcm_start(&conf, &where, &m), 0);
	return m;
}

static void stop(struct mcm *m)
{
	mcm_stop(m);
	mc_options_free(options);
}

static void old_journal(void)
{
	static const char *const files[] = { "checkpoint-0000000000000003", "journal-0000000000000003" };
	const char *top = getenv("top_srcdir");
	char from[512], to[512];

	for (int i = 0; i < 2; i++) {
		snprintf(from, sizeof(from), "%s/tests/golden/journal-v1/%s", top ? top : "..", files[i]);
		snprintf(to, sizeof(to), "%s/%s", jx_dir, files[i]);
		jx_copy_file(from, to);
	}
}

/* ---- tests ---- */

static void old_client(unsigned version)
{
	struct mcp_rename mv = { .from = fx_bytes("c/d"), .to = fx_bytes("e/f") };
	struct mcp_key keys[] = { { fx_bytes("hard") }, { fx_bytes("nothing") } };
	struct mcp_exist ask = { .keys = mcp_seq(keys, 2) };
	struct mcp_remove rm = { .flags = MCP_REMOVE_FORCE, .keys = mcp_seq(keys, 1) };
	struct mcp_remove_match match = { .flags = MCP_REMOVE_FORCE, .pattern = fx_bytes("^two$") };
	struct mcp_remove_match_reply matched;
	struct mcp_rename_reply renamed;
	struct mcp_remove_reply removed;
	struct mcp_exist_reply exist;
	struct mcp_segments all = { 0 };
	struct mcp_segments_reply segments;
	struct mcp_stats stats = { 0 };
	struct mcp_stats_reply figures;
	struct mcm *m;
	int fd;

	old_version = version;
	old_journal();
	m = start();
	fd = come_back(addr);
	/* objects of the old master */
	expect(fd, "c/d", 0, 5000);
	expect(fd, "late/\xc3\xa4", 0, 6000);
	expect(fd, "two", 0, 70000);
	expect(fd, "empty", 0, 0);
	expect(fd, "gone", -MC_ENOOBJECT, 0);
	expect(fd, "under way", -MC_ENOOBJECT, 0);
	assert_int_equal(listed(fd, ""), 5);
	/* other calls */
	expect_no_writes(fd);
	expect(fd, "new", -MC_ENOOBJECT, 0);
	assert_int_equal(call(fd, MCP_RENAME, &mv, &renamed), 0);
	assert_true(renamed.generation > 0);
	assert_int_equal(call(fd, MCP_EXIST, &ask, &exist), 0);
	assert_memory_equal(exist.present.data, "\1\0", 2);
	assert_int_equal(call(fd, MCP_REMOVE, &rm, &removed), 0);
	assert_int_equal(call(fd, MCP_REMOVE_MATCH, &match, &matched), 0);
	assert_int_equal(matched.removed, 1);
	assert_int_equal(call(fd, MCP_SEGMENTS, &all, &segments), 0);
	assert_int_equal(segments.segments.count, 2);
	assert_int_equal(call(fd, MCP_STATS, &stats, &figures), 0);
	assert_int_equal(figures.objects, 3);
	assert_int_equal(figures.capacity, 2 * MIB);
	close(fd);
	stop(m);

	/* once more, with the files that this master has written */
	m = start();
	fd = come_back(addr);
	expect(fd, "late/\xc3\xa4", 0, 6000);
	expect(fd, "e/f", 0, 5000);
	expect(fd, "c/d", -MC_ENOOBJECT, 0);
	expect(fd, "two", -MC_ENOOBJECT, 0);
	expect(fd, "hard", -MC_ENOOBJECT, 0);
	assert_int_equal(listed(fd, ""), 3);
	close(fd);
	stop(m);
}

static void an_old_client_at_a_new_master_over_an_old_journal(void **state)
{
	for (unsigned version = 1; version <= 2; version++) {
		jx_teardown(state);
		assert_int_equal(mkdir(jx_dir, 0700), 0);
		old_client(version);
	}
}

/* A message type that the master does not know is refused as not supported. */
static void newer_records_are_refused(void **state)
{
	struct mcp_frame f = { .type = 999, .id = 77 };
	struct mcp_unmount um = { .segment = { 7, 2 } };
	struct mcp_unmount_reply lost;
	uint8_t head[MCP_FRAME_HEADER];
	struct mcm *m = start();
	int fd = come_back(addr);

	(void)state;
	mcp_frame_pack(&f, head);
	assert_int_equal(send(fd, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
	receive(fd, head, sizeof(head));
	assert_int_equal(mcp_frame_unpack(head, 0, &f), 0);
	assert_int_equal(mc_err_from_wire(f.status), -MC_ENOTSUP);
	/* the connection remains usable */
	expect(fd, "e/f", 0, 5000);
	assert_int_equal(call(fd, MCP_UNMOUNT, &um, &lost), 0);
	close(fd);
	stop(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(these_are_the_messages_of_old_versions),
		cmocka_unit_test(an_old_client_at_a_new_master_over_an_old_journal),
		cmocka_unit_test(newer_records_are_refused),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
