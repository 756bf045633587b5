/* SPDX-License-Identifier: Apache-2.0
 * test_proto_codec.c - encoder, decoder and dumper over all tables of msg.def, and over tables of
 * this test for features that no message uses yet. */
#include <config.h>

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "proto/codec.h"
#include "proto/codec_i.h"
#include "tests/unit/test_proto_dump.h"
#include "tests/unit/test_proto_fill.h"

#define ROUNDS 300

/* A copy of exact size at an odd address, so that the sanitizers find reads past the end and
 * unaligned reads. */
static uint8_t *copy_at_odd(const struct mcp_buf *b, size_t len, uint8_t **ret_mem)
{
	*ret_mem = malloc(len + 1);
	if (len)
		memcpy(*ret_mem + 1, b->data, len);
	return *ret_mem + 1;
}

static void every_table_round_trips(void **state)
{
	const struct mcp_desc *d;
	unsigned tables = 0;

	for (unsigned i = 0; (d = fill_table(i)); i++, tables++) {
		for (uint64_t round = 0; round < ROUNDS; round++) {
			struct fill f = { .seed = round * 1000 + i };
			void *msg = malloc(d->size), *back = malloc(d->size);
			struct mcp_buf b = { 0 }, again = { 0 };
			uint8_t *mem, *data;

			fill_struct(&f, d, msg);
			assert_int_equal(mcp_encode(d, msg, &b), 0);
			data = copy_at_odd(&b, b.len, &mem);
			memset(back, 0xee, d->size);
			assert_int_equal(mcp_decode(d, data, b.len, back), 0);
			assert_true(fill_same(d, msg, back));
			/* a decoded message can be encoded again */
			assert_int_equal(mcp_encode(d, back, &again), 0);
			assert_int_equal(again.len, b.len);
			assert_memory_equal(again.data, b.data, b.len);
			free(mem);
			free(msg);
			free(back);
			mcp_buf_free(&b);
			mcp_buf_free(&again);
			fill_free(&f);
		}
	}
	assert_true(tables >= 45);
}

/* Encode the plain message up to field @end; elements of lists have all of their fields.  Returns the length. */
static size_t length_up_to(const struct mcp_desc *d, unsigned end, struct mcp_buf *b)
{
	struct mcp_field cut[32];
	struct mcp_desc older = *d;
	struct fill f = { .plain = true };
	void *msg = malloc(d->size);
	size_t len;

	memcpy(cut, d->fields, end * sizeof(*cut));
	cut[end] = (struct mcp_field){ .kind = MCP_F_END };
	older.fields = cut;
	fill_struct(&f, d, msg);
	assert_int_equal(mcp_encode(&older, msg, b), 0);
	len = b->len;
	fill_free(&f);
	free(msg);
	return len;
}

/* Does a message of @len bytes end where an older version ended? */
static bool ends_at_a_version(const struct mcp_desc *d, size_t len)
{
	for (unsigned i = 0; d->fields[i].kind != MCP_F_END; i++) {
		struct mcp_buf b = { 0 };
		bool same;

		if (d->fields[i].kind != MCP_F_SINCE)
			continue;
		/* In a plain message, the older fields have their full length. */
		same = length_up_to(d, i, &b) == len;
		mcp_buf_free(&b);
		if (same)
			return true;
	}
	return false;
}

/* A proper prefix is incomplete unless it ends at an MCP_SINCE: it must be refused, and the decoder
 * must not read beyond its end. */
static void every_prefix_is_refused(void **state)
{
	const struct mcp_desc *d;

	for (unsigned i = 0; (d = fill_table(i)); i++) {
		struct fill f = { .plain = true };
		void *msg = malloc(d->size), *back = malloc(d->size), *before = malloc(d->size);
		struct mcp_buf b = { 0 };

		fill_struct(&f, d, msg);
		assert_int_equal(mcp_encode(d, msg, &b), 0);
		memset(back, 0xee, d->size);
		memcpy(before, back, d->size);
		for (size_t len = 0; len < b.len; len++) {
			uint8_t *mem, *data = copy_at_odd(&b, len, &mem);

			if (ends_at_a_version(d, len)) {
				free(mem);
				continue;
			}
			assert_int_equal(mcp_decode(d, data, len, back), -MC_EPROTO);
			assert_non_null(strstr(mc_err_detail(-MC_EPROTO), mcp_desc_str(d)));
			free(mem);
		}
		assert_memory_equal(back, before, d->size);
		free(msg);
		free(back);
		free(before);
		mcp_buf_free(&b);
		fill_free(&f);
	}
}

/* Damaged input is refused, or decodes to a message that can be dumped and encoded. */
static void damaged_input_is_safe(void **state)
{
	FILE *null = fopen("/dev/null", "w");
	const struct mcp_desc *d;
	unsigned passed = 0;

	for (unsigned i = 0; (d = fill_table(i)); i++) {
		for (uint64_t round = 0; round < ROUNDS; round++) {
			struct fill f = { .seed = round * 77 + i };
			void *msg = malloc(d->size);
			struct mcp_buf b = { 0 };
			uint8_t *mem, *data;

			fill_struct(&f, d, msg);
			assert_int_equal(mcp_encode(d, msg, &b), 0);
			data = copy_at_odd(&b, b.len, &mem);
			for (uint64_t k = fill_random(&f) % 4; k < 4; k++)
				data[fill_random(&f) % b.len] = (uint8_t)fill_random(&f);
			b.len -= fill_random(&f) % 2 && b.len > 4 ? 4 : 0;
			if (mcp_decode(d, data, b.len, msg) == 0) {
				mcp_dump(d, msg, 3, null);
				assert_int_equal(mcp_encode(d, msg, &b), 0);
				passed++;
			}
			free(mem);
			free(msg);
			mcp_buf_free(&b);
			fill_free(&f);
		}
	}
	assert_true(passed > 1000);
	fclose(null);
}

/* The decoder interprets the outermost table, so it gives the expected result of an element's own code. */
static void elem_loads_as_decoded(const struct mcp_desc *d, const uint8_t *data, size_t len, unsigned *good)
{
	void *decoded = malloc(d->size), *loaded = malloc(d->size);
	bool decodes = mcp_decode(d, data, len, decoded) == 0;

	assert_int_equal(d->elem->check(data, data + len), decodes);
	if (decodes) {
		memset(loaded, 0xee, d->size);
		d->elem->load(data, data + len, loaded);
		assert_true(fill_same(d, decoded, loaded));
		++*good;
	}
	free(decoded);
	free(loaded);
}

static void code_of_elements_agrees_with_their_tables(void **state)
{
	unsigned elems = 0, good = 0, all = 0;
	const struct mcp_desc *d;

	for (unsigned i = 0; (d = fill_table(i)); i++) {
		elems += !!d->elem;
		for (uint64_t round = 0; d->elem && round < ROUNDS; round++) {
			struct fill f = { .seed = round * 31 + i };
			void *msg = malloc(d->size);
			struct mcp_buf b = { 0 };
			uint8_t *mem, *data;
			uint64_t size = 5;

			fill_struct(&f, d, msg);
			assert_int_equal(mcp_encode(d, msg, &b), 0);
			assert_true(d->elem->measure(msg, &size));
			assert_int_equal(size, 5 + b.len);
			mem = malloc(b.len + 1);
			assert_ptr_equal(d->elem->write(msg, mem), mem + b.len);
			assert_memory_equal(mem, b.data, b.len);
			free(mem);
			for (size_t len = b.len; len <= b.len; len -= 1 + fill_random(&f) % 4, all++) {
				data = copy_at_odd(&b, len, &mem);
				elem_loads_as_decoded(d, data, len, &good);
				for (unsigned k = 0; len && k < 3; k++, all++) {
					data[fill_random(&f) % len] = (uint8_t)fill_random(&f);
					elem_loads_as_decoded(d, data, len, &good);
				}
				free(mem);
			}
			free(msg);
			mcp_buf_free(&b);
			fill_free(&f);
		}
	}
	assert_true(elems >= 10);
	assert_true(good > 10000 && good < all);
}

static void unknown_tails_are_skipped(void **state)
{
	const struct mcp_desc *d;

	for (unsigned i = 0; (d = fill_table(i)); i++) {
		struct fill f = { .seed = i };
		void *msg = malloc(d->size), *back = malloc(d->size);
		struct mcp_buf b = { 0 };

		fill_struct(&f, d, msg);
		assert_int_equal(mcp_encode(d, msg, &b), 0);
		assert_int_equal(mcp_buf_reserve(&b, 9), 0);
		memset(b.data + b.len, 0xff, 9);
		for (size_t more = 1; more <= 9; more++) {
			assert_int_equal(mcp_decode(d, b.data, b.len + more, back), 0);
			assert_true(fill_same(d, msg, back));
		}
		free(msg);
		free(back);
		mcp_buf_free(&b);
		fill_free(&f);
	}
}

/* ---- one malformation at a time, in exist { u32 flags; list keys { bytes key } } ---- */

static void put32(struct mcp_buf *b, uint32_t v)
{
	assert_int_equal(mcp_buf_reserve(b, 4), 0);
	mcp_put_u32(b->data + b->len, v);
	b->len += 4;
}

static void expect(const struct mcp_desc *d, const uint32_t *words, size_t n, const char *why)
{
	struct mcp_buf b = { 0 };
	union {
		struct mcp_exist exist;
		struct mcp_put_start_reply grants;
	} ret;

	for (size_t i = 0; i < n; i++)
		put32(&b, words[i]);
	if (why) {
		assert_int_equal(mcp_decode(d, b.data, b.len, &ret), -MC_EPROTO);
		assert_string_equal(mc_err_detail(-MC_EPROTO), why);
	} else {
		assert_int_equal(mcp_decode(d, b.data, b.len, &ret), 0);
	}
	mcp_buf_free(&b);
}

#define EXPECT(d, why, ...) do { \
	const uint32_t words[] = { __VA_ARGS__ }; \
	expect(d, words, sizeof(words) / 4, why); \
} while (0)

static void malformed_lists_are_named(void **state)
{
	const struct mcp_desc *d = &mcp_desc_exist;

	EXPECT(d, NULL, 0, 0, 0);
	/* one key of 4 bytes; the same, with bytes behind it in its element */
	EXPECT(d, NULL, 0, 1, 12, 8, 4, 0);
	EXPECT(d, NULL, 0, 1, 16, 12, 4, 0, 0);
	EXPECT(d, "malformed exist: exist.keys: truncated", 0, 1);
	EXPECT(d, "malformed exist: exist.keys: ends outside the message", 0, 1, 13, 8, 4, 0);
	EXPECT(d, "malformed exist: exist.keys: ends outside the message", 0, 1, 0xffffffff, 8, 4, 0);
	EXPECT(d, "malformed exist: exist.keys: fewer elements than its count", 0, 2, 12, 8, 4, 0);
	EXPECT(d, "malformed exist: exist.keys: bytes behind the last element", 0, 0, 12, 8, 4, 0);
	EXPECT(d, "malformed exist: exist.keys: an element ends outside the list", 0, 1, 12, 9, 4, 0);
	EXPECT(d, "malformed exist: exist.keys: an element ends outside the list",
	       0, 1, 12, 0xfffffffc, 4, 0);
	EXPECT(d, "malformed exist: key.key: ends outside the message", 0, 1, 12, 8, 5, 0);
	EXPECT(d, "malformed exist: key.key: ends outside the message", 0, 1, 12, 8, 0xffffffff, 0);
	EXPECT(d, "malformed exist: key.key: missing", 0, 1, 4, 0);
	EXPECT(d, "malformed exist: exist.keys: too many elements", 0, MCP_BATCH_MAX + 1, 0);
}

/* Three bytes are too few for the length of an element. */
static void rest_of_a_list_is_no_element(void **state)
{
	const uint32_t words[] = { 0, 2, 15, 8, 4, 0, 0 };
	struct mcp_buf b = { 0 };
	struct mcp_exist rq;
	uint8_t *mem, *data;

	for (size_t i = 0; i < sizeof(words) / 4; i++)
		put32(&b, words[i]);
	data = copy_at_odd(&b, b.len - 1, &mem);
	assert_int_equal(mcp_decode(&mcp_desc_exist, data, b.len - 1, &rq), -MC_EPROTO);
	assert_string_equal(mc_err_detail(-MC_EPROTO),
			    "malformed exist: exist.keys: fewer elements than its count");
	free(mem);
	mcp_buf_free(&b);
}

static void lists_in_lists_are_checked(void **state)
{
	const struct mcp_desc *d = &mcp_desc_put_start_reply;

	/* status, generation, one replica: id, offset */
	EXPECT(d, NULL, 1, 52, 48, 0, 7, 0, 1, 28, 24, 1, 0, 2, 0, 3, 0);
	EXPECT(d, NULL, 1, 24, 20, 0, 7, 0, 0, 0);
	EXPECT(d, "malformed put_start_reply: put_grant.replicas: fewer elements than its count",
	       1, 52, 48, 0, 7, 0, 2, 28, 24, 1, 0, 2, 0, 3, 0);
	EXPECT(d, "malformed put_start_reply: replica.offset: truncated",
	       1, 48, 44, 0, 7, 0, 1, 24, 20, 1, 0, 2, 0, 3);
	EXPECT(d, "malformed put_start_reply: put_grant.replicas: ends outside the message",
	       1, 52, 48, 0, 7, 0, 1, 32, 24, 1, 0, 2, 0, 3, 0);
	EXPECT(d, "malformed put_start_reply: put_grant.replicas: missing", 1, 16, 12, 0, 7, 0);
}

/* ---- messages that the encoder refuses ---- */

static void encoder_refuses_and_appends_nothing(void **state)
{
	struct mcp_exist too_many = { .keys = mcp_seq("", MCP_BATCH_MAX + 1) };
	struct mcp_exist nowhere = { .keys = mcp_seq(NULL, 1) };
	struct mcp_key no_bytes = { { NULL, 3 } };
	struct mcp_exist inside = { .keys = mcp_seq(&no_bytes, 1) };
	struct mcp_rename huge = { .from = { "", UINT32_MAX }, .to = { "", 20 } };
	struct mcp_exist fine = { 0 };
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_encode(&mcp_desc_exist, &fine, &b), 0);
	assert_int_equal(b.len, 16);
	assert_int_equal(mcp_encode(&mcp_desc_exist, &too_many, &b), -MC_EPARAM);
	assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "exist.keys"));
	assert_int_equal(mcp_encode(&mcp_desc_exist, &nowhere, &b), -MC_EPARAM);
	assert_int_equal(mcp_encode(&mcp_desc_exist, &inside, &b), -MC_EPARAM);
	assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "key.key"));
	assert_int_equal(mcp_encode(&mcp_desc_rename, &huge, &b), -MC_EPARAM);
	assert_int_equal(b.len, 16);
	mcp_buf_free(&b);
	assert_null(b.data);
}

/* ---- versions ---- */

/* A message in three versions: version 2 added b and text, version 3 added items. */
struct grown {
	uint32_t a;
	uint64_t b;
	struct mcp_bytes text;
	struct mcp_seq items;
};

#define FIELD(f, kind, elem) { #f, elem, offsetof(struct grown, f), kind }
#define SINCE { NULL, NULL, 2, MCP_F_SINCE }
#define END { NULL, NULL, 0, MCP_F_END }
static const struct mcp_field fields_v1[] = { FIELD(a, MCP_F_U32, NULL), END };
static const struct mcp_field fields_v2[] = {
	FIELD(a, MCP_F_U32, NULL), SINCE, FIELD(b, MCP_F_U64, NULL), FIELD(text, MCP_F_BYTES, NULL), END
};
static const struct mcp_desc v1 = { "grown", fields_v1, sizeof(struct grown), NULL };
static const struct mcp_desc v2 = { "grown", fields_v2, sizeof(struct grown), NULL };
static const struct mcp_field fields_v3[] = {
	FIELD(a, MCP_F_U32, NULL), SINCE, FIELD(b, MCP_F_U64, NULL), FIELD(text, MCP_F_BYTES, NULL),
	SINCE, FIELD(items, MCP_F_LIST, &v2), END
};
static const struct mcp_desc v3 = { "grown", fields_v3, sizeof(struct grown), NULL };
/* No field is required, and the last row is a marker. */
static const struct mcp_field fields_loose[] = { SINCE, FIELD(a, MCP_F_U32, NULL), SINCE, END };
static const struct mcp_desc loose = { "loose", fields_loose, sizeof(struct grown), NULL };

static const struct mcp_desc *const versions[] = { &v1, &v2, &v3 };

static void versions_understand_each_other(void **state)
{
	static const struct grown inner[] = { { .a = 5, .b = 6, .text = { "x", 1 } }, { .a = 7 } };
	const struct grown full = {
		.a = 1, .b = 2, .text = { "hello", 5 }, .items = { 2, 0, inner, NULL }
	};

	for (int from = 0; from < 3; from++) {
		for (int to = 0; to < 3; to++) {
			int both = from < to ? from : to;
			struct mcp_buf b = { 0 };
			struct grown got;

			memset(&got, 0xee, sizeof(got));
			assert_int_equal(mcp_encode(versions[from], &full, &b), 0);
			assert_int_equal(mcp_decode(versions[to], b.data, b.len, &got), 0);
			assert_int_equal(got.a, 1);
			assert_true(fill_same(versions[both], &full, &got));
			/* fields that the sender did not know are 0 */
			if (to >= 1 && from < 1) {
				assert_int_equal(got.b, 0);
				assert_int_equal(got.text.len, 0);
			}
			if (to >= 2 && from < 2) {
				struct mcp_iter it;
				struct grown elem;

				assert_int_equal(got.items.count, 0);
				mcp_iter_init(&it, &got.items, &v2);
				assert_false(mcp_iter_next(&it, &elem));
			}
			mcp_buf_free(&b);
		}
	}
}

/* Elements may have another version than their message. */
static void older_elements_are_completed(void **state)
{
	struct mcp_buf b = { 0 };
	struct grown got, elem;
	struct mcp_iter it;

	put32(&b, 1);
	put32(&b, 2), put32(&b, 0);
	put32(&b, 0);
	/* two elements: version 1; version 2, with bytes behind it */
	put32(&b, 2), put32(&b, 4 + 4 + 4 + 20);
	put32(&b, 4), put32(&b, 11);
	put32(&b, 20), put32(&b, 12), put32(&b, 13), put32(&b, 0), put32(&b, 0), put32(&b, 99);
	assert_int_equal(mcp_decode(&v3, b.data, b.len, &got), 0);
	assert_int_equal(got.items.count, 2);
	mcp_iter_init(&it, &got.items, &v2);
	memset(&elem, 0xee, sizeof(elem));
	assert_true(mcp_iter_next(&it, &elem));
	assert_int_equal(elem.a, 11);
	assert_int_equal(elem.b, 0);
	assert_int_equal(elem.text.len, 0);
	assert_true(mcp_iter_next(&it, &elem));
	assert_int_equal(elem.a, 12);
	assert_int_equal(elem.b, 13);
	assert_false(mcp_iter_next(&it, &elem));
	mcp_buf_free(&b);
}

/* A body may end where a version ends, and nowhere else. */
static void versions_end_at_their_borders(void **state)
{
	const struct grown full = { .a = 1, .b = 2, .text = { "abc", 3 } };
	struct mcp_buf b = { 0 };
	struct grown got;

	assert_int_equal(mcp_encode(&v3, &full, &b), 0);
	assert_int_equal(b.len, 4 + 8 + 7 + 8);
	for (size_t len = 0; len <= b.len; len++) {
		bool border = len == 4 || len == 4 + 8 + 7 || len == b.len;

		assert_int_equal(mcp_decode(&v3, b.data, len, &got), border ? 0 : -MC_EPROTO);
	}
	assert_int_equal(mcp_decode(&v3, b.data, 5, &got), -MC_EPROTO);
	assert_string_equal(mc_err_detail(-MC_EPROTO), "malformed grown: grown.b: truncated");
	mcp_buf_free(&b);

	memset(&got, 0xee, sizeof(got));
	assert_int_equal(mcp_decode(&loose, NULL, 0, &got), 0);
	assert_int_equal(got.a, 0);
	assert_int_equal(mcp_decode(&loose, "\7\0\0\0", 4, &got), 0);
	assert_int_equal(got.a, 7);
	assert_int_equal(mcp_decode(&loose, "\7\0\0", 3, &got), -MC_EPROTO);
}

/* ---- tables ---- */

static void types_find_their_tables(void **state)
{
	assert_ptr_equal(mcp_desc_of(MCP_GET, false), &mcp_desc_get);
	assert_ptr_equal(mcp_desc_of(MCP_GET, true), &mcp_desc_get_reply);
	assert_ptr_equal(mcp_desc_of(MCP_RELEASE, false), &mcp_desc_release);
	assert_null(mcp_desc_of(MCP_RELEASE, true));
	assert_null(mcp_desc_of(0, false));
	assert_null(mcp_desc_of(14, false));
	assert_null(mcp_desc_of(9, false));
	assert_null(mcp_desc_of(UINT16_MAX, true));
	assert_string_equal(mcp_desc_str(&mcp_desc_get_reply), "get_reply");
}

/* ---- dump ---- */

static void dump(const struct mcp_desc *d, const void *msg, unsigned items, char *ret, size_t len)
{
	FILE *f = fmemopen(ret, len, "w");

	mcp_dump(d, msg, items, f);
	fclose(f);
}

static void dump_is_one_line(void **state)
{
	struct mcp_key keys[] = { { mcp_bytes("a\"\\", 3) }, { mcp_bytes("\0\n\xff", 3) }, { { 0 } } };
	struct mcp_get get = { .flags = 3, .keys = mcp_seq(keys, 3) }, back;
	struct mcp_replica replica = { .segment = { 1, 0xab }, .offset = UINT64_MAX };
	struct mcp_put_grant grant = { -705, 9, mcp_seq(&replica, 1) };
	char text[2048], want[2048], many[300];
	struct mcp_buf b = { 0 };

	dump(&mcp_desc_get, &get, 10, text, sizeof(text));
	strcpy(want, "get { flags=3 keys=[{key=\"a\\\"\\\\\"} {key=\"\\x00\\x0a\\xff\"} {key=\"\"}] tenant=\"\" }");
	assert_string_equal(text, want);
	assert_int_equal(mcp_encode(&mcp_desc_get, &get, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_get, b.data, b.len, &back), 0);
	dump(&mcp_desc_get, &back, 10, text, sizeof(text));
	assert_string_equal(text, want);
	dump(&mcp_desc_get, &back, 1, text, sizeof(text));
	assert_string_equal(text, "get { flags=3 keys=[{key=\"a\\\"\\\\\"}]+2 tenant=\"\" }");
	dump(&mcp_desc_put_grant, &grant, 1, text, sizeof(text));
	assert_string_equal(text, "put_grant { status=-705 generation=9 replicas=[{segment="
			    "000000000000000100000000000000ab offset=18446744073709551615 "
			    "state=0 medium=0 "
			    "expires_s=0 mac=00000000000000000000000000000000}] }");
	memset(many, 'k', sizeof(many));
	keys[0].key = mcp_bytes(many, sizeof(many));
	dump(&mcp_desc_key, &keys[0], 1, text, sizeof(text));
	assert_int_equal(strlen(text), strlen("key { key=\"\"+44 }") + MCP_DUMP_BYTES);
	assert_non_null(strstr(text, "kk\"+44 }"));
	mcp_buf_free(&b);
}

/* Capabilities cost no byte where there are none. */
static void an_absent_field_is_not_sent(void **state)
{
	struct mcp_replica rep = { .segment = { 1, 2 }, .offset = 3, .medium = 1 }, back;
	struct mcp_mount mount = { .nof = 1 };
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_encode(&mcp_desc_replica, &rep, &b), 0);
	assert_int_equal(b.len, 16 + 8 + 1 + 1);
	memset(&back, 0xee, sizeof(back));
	assert_int_equal(mcp_decode(&mcp_desc_replica, b.data, b.len, &back), 0);
	assert_true(fill_same(&mcp_desc_replica, &rep, &back));
	rep.expires_s = 1;
	mcp_buf_reset(&b);
	assert_int_equal(mcp_encode(&mcp_desc_replica, &rep, &b), 0);
	assert_int_equal(b.len, 16 + 8 + 1 + 1 + 4 + 16);
	mcp_buf_reset(&b);
	assert_int_equal(mcp_encode(&mcp_desc_mount, &mount, &b), 0);
	assert_int_equal(b.data[b.len - 1], 1);
	mcp_buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_table_round_trips),
		cmocka_unit_test(every_prefix_is_refused),
		cmocka_unit_test(damaged_input_is_safe),
		cmocka_unit_test(code_of_elements_agrees_with_their_tables),
		cmocka_unit_test(unknown_tails_are_skipped),
		cmocka_unit_test(malformed_lists_are_named),
		cmocka_unit_test(rest_of_a_list_is_no_element),
		cmocka_unit_test(lists_in_lists_are_checked),
		cmocka_unit_test(encoder_refuses_and_appends_nothing),
		cmocka_unit_test(versions_understand_each_other),
		cmocka_unit_test(older_elements_are_completed),
		cmocka_unit_test(versions_end_at_their_borders),
		cmocka_unit_test(types_find_their_tables),
		cmocka_unit_test(dump_is_one_line),
		cmocka_unit_test(an_absent_field_is_not_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
