/* SPDX-License-Identifier: Apache-2.0
 * test_engine_segdesc.c - segment descriptors: upstream's forms, ours, and invalid ones. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "engine/upstream/segdesc.h"

/* As upstream's TCP transport publishes them. */
#define V12 "{\"buffers\":[{\"addr\":140211341242368,\"length\":67108864,\"name\":\"10.0.0.5:15317\"}]," \
	"\"name\":\"10.0.0.5:15317\",\"protocol\":\"tcp\",\"tcp_data_port\":16022," \
	"\"tcp_proto_version\":2,\"timestamp\":\"2026-08-22 10:11:12.000001\"}\n"
#define V13 "{\"buffers\":[{\"addr\":4096,\"length\":8192,\"name\":\"n\"},{\"addr\":65536,\"length\":1," \
	"\"name\":\"n\"}],\"name\":\"n\",\"protocol\":\"tcp\",\"rdma_server_name\":\"\"," \
	"\"tcp_data_host\":\"10.0.0.5\",\"tcp_data_port\":16022,\"tcp_proto_version\":2," \
	"\"timestamp\":\"2026-08-22 10:11:12.000001\"}\n"

static struct mce_segdesc *decode(const char *text)
{
	struct mce_segdesc *d = NULL;
	int r = mce_segdesc_decode(text, strlen(text), &d);

	if (r < 0)
		fail_msg("%s\n%s", mc_err_detail(r), text);
	return d;
}

static void upstream_0_3_12(void **state)
{
	struct mce_segdesc *d = decode(V12);

	assert_string_equal(d->name, "10.0.0.5:15317");
	assert_string_equal(d->protocol, "tcp");
	assert_string_equal(d->tcp_data_host, "");
	assert_string_equal(d->rdma_server_name, "");
	assert_string_equal(d->endpoint, "");
	assert_int_equal(d->tcp_data_port, 16022);
	assert_int_equal(d->tcp_proto_version, 2);
	assert_int_equal(d->nbuffers, 1);
	assert_int_equal(d->buffers[0].addr, 140211341242368);
	assert_int_equal(d->buffers[0].length, 67108864);
	assert_int_equal(d->buffers[0].rkey, 0);
	assert_false(d->opaque);
	mce_segdesc_free(d);
}

/* Decoding and encoding gives the same text, byte for byte. */
static void upstream_0_3_13(void **state)
{
	struct mce_segdesc *d = decode(V13);
	char *text;

	assert_string_equal(d->tcp_data_host, "10.0.0.5");
	assert_int_equal(d->nbuffers, 2);
	assert_int_equal(mce_segdesc_encode(d, &text), 0);
	assert_string_equal(text, V13);
	free(text);
	mce_segdesc_free(d);
}

/* Without tcp_proto_version the peer speaks the first protocol; unknown members are ignored. */
static void oldest(void **state)
{
	struct mce_segdesc *d = decode("{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":1,"
				       "\"later\":{\"a\":[1,2]},\"buffers\":[]}");

	assert_int_equal(d->tcp_proto_version, 0);
	assert_int_equal(d->nbuffers, 0);
	assert_int_equal(d->first, 0);
	mce_segdesc_free(d);
}

/* Upstream writes buffers in the order of registration. */
static void first_of_upstream(void **state)
{
	struct mce_segdesc *d = decode("{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":1,\"buffers\":["
				       "{\"name\":\"n\",\"addr\":8192,\"length\":100},"
				       "{\"name\":\"n\",\"addr\":4096,\"length\":10}]}");

	assert_int_equal(d->first, 8192);
	assert_int_equal(d->buffers[0].addr, 4096);
	mce_segdesc_free(d);
}

static void rdma(void **state)
{
	struct mce_segdesc *d = decode(
		"{\"name\":\"r\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"mlx5_0\",\"lid\":7,"
		"\"gid\":\"00:11\"},{\"name\":\"mlx5_1\",\"lid\":65535,\"gid\":\"22:33\"}],"
		"\"buffers\":[{\"name\":\"cpu:0\",\"addr\":4096,\"length\":100,\"rkey\":[1,4294967295],"
		"\"lkey\":[3,4]}],\"priority_matrix\":{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]]}}");
	struct mce_segdesc *again;
	char *text;

	assert_int_equal(d->ndevices, 2);
	assert_string_equal(d->devices[1].name, "mlx5_1");
	assert_int_equal(d->devices[1].lid, 65535);
	assert_string_equal(d->devices[0].gid, "00:11");
	assert_int_equal(d->buffers[0].rkeys[1], 4294967295);
	assert_int_equal(d->buffers[0].lkeys[0], 3);
	assert_string_equal(d->priority_matrix, "{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]]}");
	assert_int_equal(mce_segdesc_encode(d, &text), 0);
	again = decode(text);
	assert_string_equal(again->priority_matrix, d->priority_matrix);
	assert_int_equal(again->buffers[0].rkeys[1], 4294967295);
	assert_int_equal(again->ndevices, 2);
	free(text);
	mce_segdesc_free(again);
	mce_segdesc_free(d);
}

static void ours(void **state)
{
	char name[] = "node-7", tcp[] = "tcp", at[] = "cpu:1", host[] = "10.1.2.3",
	     endpoint[] = "10.1.2.3:7000";
	struct mce_segdesc_buffer b[] = {
		{ .name = at, .addr = 0x7f0000200000, .length = 100, .rkey = 0xfedcba9876543210 },
		{ .addr = 0x7f0000100000, .length = 0x1000, .rkey = 1 },
	};
	struct mce_segdesc d = {
		.name = name, .protocol = tcp, .tcp_data_host = host, .tcp_data_port = 65535,
		.tcp_proto_version = 2, .buffers = b, .nbuffers = 2, .endpoint = endpoint,
	};
	struct mce_segdesc *got;
	char *text;

	assert_int_equal(mce_segdesc_encode(&d, &text), 0);
	assert_non_null(strstr(text, "\"mc_endpoint\":\"10.1.2.3:7000\""));
	assert_non_null(strstr(text, "\"mc_rkey\":\"0xfedcba9876543210\""));
	got = decode(text);
	assert_string_equal(got->endpoint, endpoint);
	/* Buffers are sorted by address, and the first of the text is known.  A buffer without a name gets the
	 * segment's name. */
	assert_true(got->first == 0x7f0000200000);
	assert_string_equal(got->buffers[0].name, "node-7");
	assert_int_equal(got->buffers[0].rkey, 1);
	assert_true(got->buffers[1].rkey == 0xfedcba9876543210);
	/* "YYYY-mm-dd HH:MM:SS.uuuuuu" */
	assert_int_equal(strlen(got->timestamp), 26);
	free(text);
	mce_segdesc_free(got);
}

static void several_protocols(void **state)
{
	struct mce_segdesc *d = decode("{\"name\":\"n\",\"protocol\":[\"rdma\",\"tcp\"],\"buffers\":"
				       "[{\"name\":\"n\",\"addr\":1,\"length\":1}]}");
	char *text;

	assert_string_equal(d->protocol, "rdma,tcp");
	assert_true(mce_segdesc_speaks(d, "tcp"));
	assert_true(mce_segdesc_speaks(d, "rdma"));
	assert_false(mce_segdesc_speaks(d, "tc"));
	assert_false(mce_segdesc_speaks(d, ""));
	assert_int_equal(d->nbuffers, 1);
	assert_int_equal(mce_segdesc_encode(d, &text), 0);
	assert_non_null(strstr(text, "\"protocol\":[\"rdma\",\"tcp\"]"));
	free(text);
	mce_segdesc_free(d);
}

/* Buffers that are not plain memory are omitted, and the descriptor is marked opaque. */
static void other_memory(void **state)
{
	struct mce_segdesc *d = decode("{\"name\":\"f\",\"protocol\":\"nvmeof\",\"buffers\":"
				       "[{\"file_path\":\"/x\",\"length\":5}]}");

	assert_true(d->opaque);
	assert_int_equal(d->nbuffers, 0);
	mce_segdesc_free(d);
}

static void buffers_are_sorted_by_address(void **state)
{
	struct mce_segdesc *d = decode(
		"{\"name\":\"n\",\"protocol\":\"tcp\",\"buffers\":["
		"{\"name\":\"c\",\"addr\":9223372036854775807,\"length\":9223372036854775807},"
		"{\"name\":\"b\",\"addr\":8192,\"length\":4096},"
		"{\"name\":\"a\",\"addr\":4096,\"length\":4096}]}");

	/* adjacent buffers are not joined */
	assert_int_equal(d->nbuffers, 3);
	assert_string_equal(d->buffers[0].name, "a");
	assert_string_equal(d->buffers[1].name, "b");
	assert_string_equal(d->buffers[2].name, "c");
	mce_segdesc_free(d);
}

#define N "\"name\":\"n\",\"protocol\":\"tcp\""
#define BUFFER(b) "{" N ",\"buffers\":[" b "]}"
#define RDMA(rest) "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\"}],\"buffers\":" \
	"[{\"name\":\"n\",\"addr\":1,\"length\":1," rest "}]}"

static void refused(void **state)
{
	static const char *const texts[] = {
		"", " ", "{", "[]", "null", "1", "\"x\"", "{}", "{\"name\":\"n\"}",
		"{\"name\":\"\",\"protocol\":\"tcp\"}", "{\"name\":7,\"protocol\":\"tcp\"}",
		"{\"name\":\"n\",\"protocol\":\"tcp,\"}",
		"{\"name\":\"n\",\"protocol\":[]}", "{\"name\":\"n\",\"protocol\":[1]}",
		"{\"name\":\"n\",\"protocol\":[\"a,b\"]}", "{\"name\":\"n\",\"protocol\":[\"\"]}",
		"{" N "} x", "{" N ",\"tcp_data_port\":65536}", "{" N ",\"tcp_data_port\":-1}",
		"{" N ",\"tcp_data_port\":\"1\"}", "{" N ",\"tcp_data_host\":1}",
		"{" N ",\"buffers\":{}}", BUFFER("1"), BUFFER("{}"),
		BUFFER("{\"name\":\"\",\"addr\":1,\"length\":1}"),
		BUFFER("{\"name\":\"n\",\"addr\":0,\"length\":1}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":0}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":-1}"),
		BUFFER("{\"name\":\"n\",\"addr\":1.5,\"length\":1}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":18446744073709551616}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":1,\"mc_rkey\":1}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":1,\"mc_rkey\":\"12\"}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":1,\"mc_rkey\":\"0x\"}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":1,\"mc_rkey\":\"0x-1\"}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":1,\"mc_rkey\":\"0x1g\"}"),
		BUFFER("{\"name\":\"n\",\"addr\":1,\"length\":1,\"mc_rkey\":\"0x11112222333344445\"}"),
		RDMA("\"lkey\":[1]"), RDMA("\"rkey\":[1]"), RDMA("\"rkey\":[1,2],\"lkey\":[1,2]"),
		RDMA("\"rkey\":[1],\"lkey\":[]"), RDMA("\"rkey\":[-1],\"lkey\":[1]"),
		RDMA("\"rkey\":[4294967296],\"lkey\":[1]"), RDMA("\"rkey\":\"1\",\"lkey\":[1]"),
		"{" N ",\"devices\":[{\"lid\":1}]}", "{" N ",\"devices\":[{\"name\":\"d\",\"lid\":65536}]}",
		"{" N ",\"devices\":{\"name\":\"d\"}}", "{" N ",\"priority_matrix\":[]}",
		"{" N ",\"mc_endpoint\":\"nowhere\"}", "{" N ",\"mc_endpoint\":\"h:0\"}",
		"{" N ",\"mc_endpoint\":\":5\"}", "{" N ",\"mc_endpoint\":5}",
	};
	struct mce_segdesc *d = (void *)&texts;
	int r;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		r = mce_segdesc_decode(texts[i], strlen(texts[i]), &d);
		if (r != -EINVAL)
			fail_msg("%d for %s", r, texts[i]);
		/* the detail is specific */
		assert_string_not_equal(mc_err_detail(r), mc_strerror(r));
		assert_ptr_equal(d, &texts);
	}
	/* the length ends the text, not a NUL; a NUL inside is refused too */
	assert_int_equal(mce_segdesc_decode(V13, sizeof(V13) / 2, &d), -EINVAL);
	assert_int_equal(mce_segdesc_decode(V13 "\0", sizeof(V13), &d), -EINVAL);
}

static void name_too_long(void **state)
{
	size_t len = MCE_SEGDESC_NAME_MAX + 100;
	char *text = malloc(len + 1);
	struct mce_segdesc *d;
	int n;

	n = sprintf(text, "{\"protocol\":\"tcp\",\"name\":\"");
	memset(text + n, 'a', len - (size_t)n);
	memcpy(text + len - 2, "\"}", 3);
	assert_int_equal(mce_segdesc_decode(text, len, &d), -EINVAL);
	free(text);
}

static void not_encoded(void **state)
{
	char name[] = "n", tcp[] = "tcp", latin1[] = "\xe9", matrix[] = "{";
	struct mce_segdesc_buffer wraps = { .addr = UINT64_MAX, .length = 2 };
	struct mce_segdesc_buffer empty = { .addr = 1 };
	struct mce_segdesc d = { .protocol = tcp };
	char *text = name;

	assert_int_equal(mce_segdesc_encode(&d, &text), -EINVAL);
	d.name = latin1;
	assert_int_equal(mce_segdesc_encode(&d, &text), -EINVAL);
	d.name = name;
	d.protocol = NULL;
	assert_int_equal(mce_segdesc_encode(&d, &text), -EINVAL);
	d.protocol = tcp;
	d.priority_matrix = matrix;
	assert_int_equal(mce_segdesc_encode(&d, &text), -EINVAL);
	d.priority_matrix = NULL;
	d.nbuffers = 1;
	d.buffers = &wraps;
	assert_int_equal(mce_segdesc_encode(&d, &text), -EINVAL);
	d.buffers = &empty;
	assert_int_equal(mce_segdesc_encode(&d, &text), -EINVAL);
	assert_ptr_equal(text, name);
}

/* The descriptor of a large node is processed quickly. */
static void many_buffers(void **state)
{
	enum { COUNT = 100000 };
	struct mce_segdesc_buffer *b = calloc(COUNT, sizeof(*b));
	char name[] = "n", tcp[] = "tcp";
	struct mce_segdesc d = { .name = name, .protocol = tcp, .buffers = b, .nbuffers = COUNT };
	struct mce_segdesc *got;
	char *text;

	for (unsigned i = 0; i < COUNT; i++) {
		b[i].addr = 0x1000 + (uint64_t)(COUNT - i) * 0x2000;
		b[i].length = 0x1000;
		b[i].rkey = i + 1;
	}
	assert_int_equal(mce_segdesc_encode(&d, &text), 0);
	got = decode(text);
	assert_int_equal(got->nbuffers, COUNT);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(got->buffers[COUNT - 1 - i].addr, b[i].addr);
		assert_int_equal(got->buffers[COUNT - 1 - i].rkey, i + 1);
	}
	mce_segdesc_free(got);
	free(text);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(upstream_0_3_12),
		cmocka_unit_test(upstream_0_3_13),
		cmocka_unit_test(oldest),
		cmocka_unit_test(first_of_upstream),
		cmocka_unit_test(rdma),
		cmocka_unit_test(ours),
		cmocka_unit_test(several_protocols),
		cmocka_unit_test(other_memory),
		cmocka_unit_test(buffers_are_sorted_by_address),
		cmocka_unit_test(refused),
		cmocka_unit_test(name_too_long),
		cmocka_unit_test(not_encoded),
		cmocka_unit_test(many_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
