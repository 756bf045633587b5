/* SPDX-License-Identifier: Apache-2.0
 * fuzz_meta_client.c - decoders of the metadata client: answers of servers and connection strings; the
 * first byte chooses the decoder. */
#include <config.h>

#include <hiredis.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/upstream/rpc_meta.h"
#include "tiers/blob/blob_i.h"
#include "meta/redis_i.h"
#include "meta/seat.h"
#include "meta/seat_i.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void etcd(const char *text, size_t size)
{
	char *value = NULL;
	int64_t n = 0;

	if (mcd_etcd_range_decode(text, size, &value, &n) == 0)
		check(strlen(value) <= size);
	free(value);
	if (mcd_etcd_grant_decode(text, size, &n) == 0)
		check(n != 0);
	(void)mcd_etcd_keepalive_decode(text, size, &n);
	if (mcd_etcd_token_decode(text, size, &value) == 0) {
		/* the token becomes part of a header line */
		if (!*value || strpbrk(value, "\r\n"))
			abort();
		free(value);
	}
}

/* Feed the input in pieces; the first byte is their size. */
static void redis(const char *p, size_t size)
{
	redisReader *reader = redisReaderCreate();
	size_t step = size ? (unsigned char)*p % 64 + 1 : 1, total = 0, n;
	redisReply *reply = NULL;
	char *text = NULL;
	int r = 0;

	check(reader != NULL);
	for (size_t at = size ? 1 : 0; r == 0 && at < size; at += n) {
		n = size - at < step ? size - at : step;
		r = mcd_redis_feed(reader, &total, p + at, n, &reply);
	}
	check((r == 1) == (reply != NULL));
	if (reply && mcd_redis_value(reply, "server", "key", &text) == 0)
		check(strlen(text) < size);
	free(text);
	freeReplyObject(reply);
	redisReaderFree(reader);
}

static void base64(const char *s)
{
	char *plain, *again;
	size_t len;

	if (mcd_base64_decode(s, &plain, &len) < 0)
		return;
	check(len <= strlen(s) / 4 * 3);
	again = mcd_base64_encode(plain, len);
	/* Unused bits of the last character may differ. */
	check(again && strlen(again) == strlen(s));
	free(again);
	free(plain);
}

static void connection(const char *s)
{
	struct mcd_redis_where where;
	struct mcd_client *m;

	if (mcd_open(s, &m) == 0)
		mcd_close(m);
	if (mcd_redis_where_parse(s, &where) == 0) {
		check(*where.addr && where.db >= 0 && where.db <= 255);
		mcd_redis_where_done(&where);
	}
}

static void names(const char *s)
{
	char key[MCD_KEY_MAX];

	if (mce_key_segment(s, key) == 0)
		check(strlen(key) < MCD_KEY_MAX && !strncmp(key, "mooncake/", 9));
	if (mce_key_rpc(s, key) == 0)
		check(strlen(key) < MCD_KEY_MAX && !strncmp(key, "mooncake/", 9));
}

/* The state and the leader's name of several masters. */
static void seat(const char *s)
{
	const struct mcd_seat_conf conf = { .conn = "redis://h", .cluster = "c", .name = "h:1#0", .ttl_ms = 1000 };
	char leader[MCD_SEAT_NAME_MAX], addr[MCD_SEAT_NAME_MAX];
	struct mcd_seat_view v = { .exists = false };
	struct mcd_seat *seat;
	int port = -1;

	check(mcd_seat_open(&conf, &seat) == 0);
	if (mcd_seat_state_decode(seat, s, &v) == 0) {
		check(v.exists && v.term > 0 && v.n <= MCD_SEAT_MEMBERS_MAX);
		for (unsigned i = 0; i < v.n; i++)
			check(*v.member[i] != 0);
	}
	mcd_seat_close(seat);
	if (mcd_seat_leader_decode(s, leader, &port) == 0) {
		mcd_seat_address(leader, addr);
		check(*leader && strlen(addr) <= strlen(leader) && port >= 0 && port <= 65535);
	}
}

static int count_name(void *arg, const char *name)
{
	check(strlen(name) <= 1024);
	return ++*(unsigned *)arg > 1000;
}

static void s3_list(const char *p, size_t size)
{
	char *next = NULL;
	unsigned n = 0;
	int r = mct_s3_list_decode(p, size, count_name, &n, &next);

	check(r == 0 || !next);
	free(next);
}

/* Decoders that are newer than most of the corpus. */
static void newer(unsigned which, const char *p, size_t size, const char *s)
{
	switch (which % 3) {
	case 0:
		seat(s);
		break;
	case 1:
		(void)mcd_etcd_turn_decode(p, size, "bWluZQ==", "c3RhdGU=");
		(void)mcd_etcd_swap_decode(p, size, "bWluZQ==");
		break;
	default:
		s3_list(p, size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mce_rpc_meta rpc = { .port = -1 };
	const char *p;
	char *s;

	if (size < 1)
		return 0;
	p = (const char *)data + 1;
	s = strndup(p, size - 1);
	check(s != NULL);
	if (data[0] >= 0x80) {
		newer(data[0] - 0x80u, p, size - 1, s);
		free(s);
		return 0;
	}
	switch (data[0] % 6) {
	case 0:
		etcd(p, size - 1);
		break;
	case 1:
		redis(p, size - 1);
		break;
	case 2:
		if (mce_rpc_meta_decode(p, size - 1, &rpc) == 0)
			check(*rpc.host && rpc.port > 0 && rpc.port <= 65535);
		break;
	case 3:
		base64(s);
		break;
	case 4:
		connection(s);
		break;
	default:
		names(s);
	}
	free(s);
	return 0;
}
