/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_stranger.c - messages of upstream's nodes that connect their NICs with those of an engine, on fake NICs.
 * Input: messages.  One that begins with '{' is a text up to the next NUL.  Any other one has 4 bytes:
 *	u8 paths: bits 0-1 the sender's NIC, bits 2-3 the receiver's: two that exist, an unknown device, another node
 *	u8 bit 0 a GID, bit 1 ready_ack is present, bit 2 it is true, bits 3-7 number of queue pairs
 *	u8 mtu / 16
 *	u8 the first queue pair's number
 *
 * Each answer is a message of the same kind: with the pairs' names exchanged, and queue pairs or a reason.  There are
 * never more connections than the limit, and nothing is left of them when they end. */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "engine/engine_i.h"
#include "engine/rdma/upstream_i.h"
#include "tests/lib/fake_verbs.h"

#define NAME "127.0.0.1:7000"
#define MOST 3u			/* connections */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mce_engine *e;
static long objects;		/* of the NICs, without connections */

static void check(bool ok)
{
	if (!ok)
		abort();
}

static int refuse_all(const char *host, int port, const char *text, uint64_t deadline, char **ret_reply)
{
	(void)host, (void)port, (void)text, (void)deadline, (void)ret_reply;
	return -ECONNREFUSED;
}

static void begin(void)
{
	static const struct mc_log_conf quiet = { .program = "fuzz", .levels = "err" };
	const struct mce_conf conf = {
		.rdma_devices = "fake0,fake1", .upstream_name = NAME, .upstream_setup = refuse_all,
	};
	char most[8];

	snprintf(most, sizeof(most), "%u", MOST);
	check(mc_log_open(&quiet) >= 0 && setenv("MC_MAX_EP_PER_CTX", most, 1) == 0);
	fake_reset(2);
	mce_verbs_replace(fake_verbs());
	check(mce_engine_open(&conf, &e) == 0 && mce_rdma_of(e));
	objects = fake_live_objects();
}

static void answer(const char *text, size_t len)
{
	struct mce_setup in, out;
	char *reply = NULL;

	if (mce_engine_upstream_setup(e, text, len, &reply) < 0) {
		check(!reply);
		return;
	}
	check(mce_setup_decode(text, len, &in) == 0 && mce_setup_decode(reply, strlen(reply), &out) == 0);
	if (in.ready_ack)
		check(!*out.local && !*out.peer && !out.nqps);
	else
		check(!strcmp(in.local, out.peer) && !strcmp(in.peer, out.local) && (out.nqps > 0) == !*out.reply &&
		      (!out.nqps || out.nqps == in.nqps));
	free(reply);
}

static void built(const uint8_t p[4])
{
	static const char *const from[] = { "10.0.0.1:1@mlx5_0", "10.0.0.1:1@mlx5_1", "10.0.0.2:2@mlx5_0", "" };
	static const char *const to[] = { NAME "@fake0", NAME "@fake1", NAME "@fake2", "10.0.0.2:2@fake0" };
	struct mce_setup s = {
		.has_gid = p[1] & 1, .has_ready_ack = p[1] & 2, .ready_ack = p[1] & 4, .nqps = p[1] / 8 % 17,
		.mtu = p[2] * 16u, .lid = p[2], .gid = { 0xfe, 0x80, p[3] },
	};
	char *text;

	snprintf(s.local, sizeof(s.local), "%s", from[p[0] % 4]);
	snprintf(s.peer, sizeof(s.peer), "%s", to[p[0] / 4 % 4]);
	for (unsigned i = 0; i < s.nqps; i++)
		s.qpn[i] = p[3] + i;
	check(mce_setup_encode(&s, &text) == 0);
	answer(text, strlen(text));
	free(text);
}

static void count_run(void *arg)
{
	check(mce_rdma_of(e)->nstrangers <= MOST);
	if (arg)
		mce_rdma_strangers_end(mce_rdma_of(e));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool end = true;
	size_t len;

	if (!e)
		begin();
	while (size) {
		if (*data == '{') {
			len = strnlen((const char *)data, size);
			answer((const char *)data, len);
			len += len < size;
		} else {
			uint8_t p[4] = { 0 };

			len = size < sizeof(p) ? size : sizeof(p);
			memcpy(p, data, len);
			built(p);
		}
		data += len;
		size -= len;
		mce_io_call(&mce_rdma_of(e)->ctl, count_run, NULL);
	}
	mce_io_call(&mce_rdma_of(e)->ctl, count_run, &end);
	check(fake_live_objects() == objects);
	return 0;
}
