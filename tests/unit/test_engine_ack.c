/* SPDX-License-Identifier: Apache-2.0
 * test_engine_ack.c - one answer to many WRITEs: only where both sides support it, in the right order with
 * refusals, and without repeating acknowledged WRITEs when the connection is lost. Also the bytes of the frames,
 * which must not change (tests/golden/lane: names with a number are of peers that have the feature with this
 * bit: MCE_FEATURE_ACK_UPTO, MCE_FEATURE_CAPS). */
#include <config.h>

#include "test_engine_fixture.h"
#include "test_engine_impostor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "engine/tcp/tcp_wire.h"

#define BLOCK 4096u
#define MANY 100u
#define FEW 8u

/* ---- the serving side ---- */

static int dial(const struct side *s, uint64_t features)
{
	struct mce_greeting g = { .version = 1, .version_min = 1, .token = 7, .epoch = 1, .features = features };
	int fd = mc_socket_connect(mce_engine_endpoint(s->e), SECONDS(5));
	uint8_t b[MCE_GREETING_SIZE];

	assert_true(fd >= 0);
	mce_greeting_pack(b, &g);
	assert_true(impostor_move(NULL, fd, b, sizeof(b), true));
	assert_true(impostor_move(NULL, fd, b, sizeof(b), false));
	assert_int_equal(mce_greeting_unpack(b, sizeof(b), &g), sizeof(b));
	assert_int_equal(g.features & MCE_FEATURE_ACK_UPTO, MCE_FEATURE_ACK_UPTO);
	return fd;
}

/* MANY numbered WRITEs of a byte in one call, that with number @bad outside of the region. */
static void ask_many(const struct side *s, int fd, unsigned bad)
{
	static uint8_t b[MANY * (MCE_REQ_SIZE + 1)];

	for (unsigned i = 0; i < MANY; i++) {
		struct mce_wire_req q = {
			.type = MCE_FRAME_WRITE, .len = 1, .id = 1000 + i, .seq = i + 1,
			.addr = (uintptr_t)s->mem + i, .rkey = mce_mr_rkey(s->mr), .whole_len = 1,
		};

		if (i + 1 == bad)
			q.addr = (uintptr_t)s->mem + s->len;
		q.whole = q.addr;
		mce_req_pack(b + i * (MCE_REQ_SIZE + 1), &q);
		b[i * (MCE_REQ_SIZE + 1) + MCE_REQ_SIZE] = (uint8_t)i;
	}
	assert_true(impostor_move(NULL, fd, b, sizeof(b), true));
}

static struct mce_wire_resp answer(int fd)
{
	struct mce_wire_resp a = { .type = 0 };
	uint8_t b[MCE_RESP_SIZE];

	assert_true(impostor_move(NULL, fd, b, sizeof(b), false));
	assert_int_equal(mce_resp_unpack(b, sizeof(b), &a), sizeof(b));
	return a;
}

static void one_ack_answers_many_writes(void **state)
{
	static const struct mce_conf conf = { .progress_timeout_ms = 60000 };
	struct mce_wire_resp a = { .id = 0 };
	unsigned frames = 0;
	struct side s;
	int fd;

	side_open(&s, &conf, BLOCK, MCE_ACCESS_WRITE, 1);
	fd = dial(&s, MCE_FEATURE_ACK_UPTO);
	ask_many(&s, fd, 0);
	for (uint64_t last = 0; last < MANY; frames++, last = a.id) {
		a = answer(fd);
		assert_int_equal(a.type, MCE_FRAME_ACK_UPTO);
		assert_true(a.id > last && a.id <= MANY);
		for (uint64_t i = 0; i < a.id; i++)
			assert_int_equal((uint8_t)s.mem[i], i);
	}
	/* The WRITEs arrived together, or nearly so. */
	assert_true(frames <= MANY / 4);
	close(fd);
	side_close(&s);
}

static void a_refused_write_has_its_own_ack(void **state)
{
	static const struct mce_conf conf = { .progress_timeout_ms = 60000 };
	struct mce_wire_resp a = { .id = 0 };
	const unsigned bad = MANY / 2;
	bool refused = false;
	struct side s;
	int fd;

	side_open(&s, &conf, BLOCK, MCE_ACCESS_WRITE, 1);
	fd = dial(&s, MCE_FEATURE_ACK_UPTO);
	ask_many(&s, fd, bad);
	while (a.type != MCE_FRAME_ACK_UPTO || a.id < MANY) {
		a = answer(fd);
		if (a.type == MCE_FRAME_ACK) {
			assert_false(refused);
			assert_int_equal(a.id, 1000 + bad - 1);
			assert_int_equal(mc_err_from_wire(a.status), -ERANGE);
			refused = true;
		} else {
			assert_int_equal(a.type, MCE_FRAME_ACK_UPTO);
			assert_true(refused == (a.id >= bad));
		}
	}
	close(fd);
	side_close(&s);
}

static void an_older_peer_gets_one_ack_per_write(void **state)
{
	static const struct mce_conf conf = { .progress_timeout_ms = 60000 };
	struct side s;
	int fd;

	side_open(&s, &conf, BLOCK, MCE_ACCESS_WRITE, 1);
	fd = dial(&s, 0);
	ask_many(&s, fd, 0);
	for (unsigned i = 0; i < MANY; i++) {
		struct mce_wire_resp a = answer(fd);

		assert_int_equal(a.type, MCE_FRAME_ACK);
		assert_int_equal(a.id, 1000 + i);
		assert_int_equal(a.status, 0);
	}
	close(fd);
	side_close(&s);
}

/* ---- the asking side ---- */

enum manner {
	ONCE,		/* one answer when all have arrived */
	EACH,		/* like peers without the feature */
	LOST,		/* one answer to half of them, then close; the rest on the next connection */
	REFUSES,	/* one refusal in the middle, one answer to the others */
	UNAGREED,	/* it does not have the feature and nevertheless answers so */
	AHEAD,		/* answers a WRITE that was not sent */
	NOUGHT,
	MANNERS,
};

struct server {
	struct impostor im;
	enum manner manner;
	unsigned conns, writes, again;	/* connections, WRITEs on the first, and later */
	uint64_t again_from;		/* the least address of the later ones */
};

static bool tell(struct server *v, int fd, uint8_t type, uint64_t id, int status)
{
	struct mce_wire_resp a = { .type = type, .id = id, .status = status ? mc_err_to_wire(status) : 0 };
	uint8_t b[MCE_RESP_SIZE];

	mce_resp_pack(b, &a);
	return impostor_move(&v->im, fd, b, sizeof(b), true);
}

/* The @n-th WRITE of this connection has arrived. False: close the connection. */
static bool take(struct server *v, int fd, const struct mce_wire_req *q, unsigned n)
{
	bool all = v->conns == 1 ? n == FEW : true;

	switch (v->manner) {
	case EACH:
		return tell(v, fd, MCE_FRAME_ACK, q->id, 0);
	case LOST:
		if (v->conns == 1 && n == FEW)
			(void)tell(v, fd, MCE_FRAME_ACK_UPTO, q->seq - FEW / 2, 0);
		if (v->conns == 1)
			return n < FEW;
		return tell(v, fd, MCE_FRAME_ACK_UPTO, q->seq, 0);
	case REFUSES:
		if (n == FEW / 2)
			return tell(v, fd, MCE_FRAME_ACK, q->id, -ERANGE);
		return !all || tell(v, fd, MCE_FRAME_ACK_UPTO, q->seq, 0);
	case AHEAD:
		return !all || tell(v, fd, MCE_FRAME_ACK_UPTO, q->seq + 1000, 0);
	case NOUGHT:
		return !all || tell(v, fd, MCE_FRAME_ACK_UPTO, 0, 0);
	default:
		return !all || tell(v, fd, MCE_FRAME_ACK_UPTO, q->seq, 0);
	}
}

static void serve(struct impostor *im, int fd)
{
	struct server *v = (struct server *)im;
	struct mce_greeting g = {
		.version = 1, .version_min = 1, .len_max = 1 << 20, .window = 256, .id = { .nonce = { 1, 2, 3 } },
		.features = v->manner == EACH || v->manner == UNAGREED ? 0 : MCE_FEATURE_ACK_UPTO,
	};
	uint8_t b[MCE_GREETING_SIZE], payload[BLOCK];
	struct mce_wire_req q = { .type = 0 };
	uint64_t last = 0;
	unsigned n = 0;

	if (!impostor_move(&v->im, fd, b, sizeof(b), false))
		return;
	mce_greeting_pack(b, &g);
	if (!impostor_move(&v->im, fd, b, sizeof(b), true))
		return;
	v->conns++;
	while (impostor_move(&v->im, fd, b, MCE_REQ_SIZE, false)) {
		if (mce_req_unpack(b, MCE_REQ_SIZE, &q) != MCE_REQ_SIZE || q.type != MCE_FRAME_WRITE ||
		    q.len != BLOCK || q.seq <= last || !impostor_move(&v->im, fd, payload, BLOCK, false))
			return;
		last = q.seq;
		v->writes += v->conns == 1;
		v->again += v->conns > 1;
		if (v->conns > 1 && q.addr < v->again_from)
			v->again_from = q.addr;
		if (!take(v, fd, &q, ++n))
			return;
	}
}

/* FEW WRITEs to addresses BLOCK, 2 * BLOCK, ... */
static void write_to(struct server *v, enum manner manner, int status[FEW])
{
	static char mem[FEW * BLOCK];
	struct mce_conf conf = { .conns = 1, .progress_timeout_ms = 60000 };
	struct mce_req reqs[FEW];
	struct iovec iov[FEW];
	struct mce_peer *peer;
	struct mce_batch b;
	struct side s;

	*v = (struct server){ .manner = manner, .again_from = UINT64_MAX };
	impostor_start(&v->im, serve);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, v->im.addr, &peer), 0);
	memset(reqs, 0, sizeof(reqs));
	for (unsigned i = 0; i < FEW; i++) {
		iov[i] = (struct iovec){ mem + i * BLOCK, BLOCK };
		reqs[i].op = MCE_WRITE;
		reqs[i].peer = peer;
		reqs[i].addr = (i + 1) * BLOCK;
		reqs[i].rkey = 1;
		reqs[i].iov = &iov[i];
		reqs[i].iovcnt = 1;
	}
	mce_batch_init(&b);
	assert_int_equal(mce_submit(s.e, &b, reqs, FEW), 0);
	assert_int_equal(mce_batch_wait(s.e, &b, reqs, FEW, SECONDS(60)), 0);
	for (unsigned i = 0; i < FEW; i++)
		status[i] = reqs[i].status;
	mce_peer_put(peer);
	side_close(&s);
	impostor_stop(&v->im);
}

static void many_writes_end_by_one_ack(void **state)
{
	int status[FEW];
	struct server v;

	for (int manner = ONCE; manner <= EACH; manner++) {
		write_to(&v, (enum manner)manner, status);
		for (unsigned i = 0; i < FEW; i++)
			assert_int_equal(status[i], 0);
		assert_int_equal(v.conns, 1);
		assert_int_equal(v.writes, FEW);
	}
	write_to(&v, REFUSES, status);
	for (unsigned i = 0; i < FEW; i++)
		assert_int_equal(status[i], i + 1 == FEW / 2 ? -ERANGE : 0);
}

static void acked_writes_are_not_repeated_after_a_loss(void **state)
{
	int status[FEW];
	struct server v;

	write_to(&v, LOST, status);
	for (unsigned i = 0; i < FEW; i++)
		assert_int_equal(status[i], 0);
	assert_int_equal(v.conns, 2);
	assert_int_equal(v.writes, FEW);
	assert_int_equal(v.again, FEW / 2);
	assert_int_equal(v.again_from, (FEW / 2 + 1) * BLOCK);
}

static void an_invalid_ack_ends_the_connection(void **state)
{
	int status[FEW];
	struct server v;

	for (int manner = UNAGREED; manner < MANNERS; manner++) {
		write_to(&v, (enum manner)manner, status);
		for (unsigned i = 0; i < FEW; i++)
			assert_int_equal(status[i], -MC_ETRANSFER);
		assert_true(v.conns > 1);
	}
}

/* ---- the bytes ---- */

struct frame {
	const char *name;
	uint8_t bytes[MCE_GREETING_SIZE];
	size_t len;
};

static const struct mce_wire_req a_read = {
	.type = MCE_FRAME_READ, .len = 0x10203, .id = 0x1112131415161718, .addr = 0x2122232425262728,
	.rkey = 0x3132333435363738, .whole = 0x4142434445464748, .whole_len = 0x5152535455565758,
};
static const struct mce_wire_resp a_resp = {
	.type = MCE_FRAME_DATA, .len = 0x10203, .id = 0x1112131415161718,
};

static void frame_greeting(struct frame *f, const char *name, uint64_t features)
{
	struct mce_greeting g = {
		.version = 1, .version_min = 1, .features = features, .token = 0x6162636465666768,
		.conn = 0x71727374, .epoch = 0x81828384, .len_max = 0x91929394, .window = 0xa1a2a3a4,
		.id = { .netns_dev = 0xb1b2b3b4b5b6b7b8, .netns_ino = 0xc1c2c3c4c5c6c7c8 },
	};

	for (unsigned i = 0; i < 16; i++) {
		g.id.nonce[i] = (uint8_t)(0xd0 + i);
		g.id.boot[i] = (uint8_t)(0xe0 + i);
	}
	f->name = name;
	f->len = MCE_GREETING_SIZE;
	mce_greeting_pack(f->bytes, &g);
}

static void frame_req(struct frame *f, const char *name, enum mce_frame type, uint64_t seq)
{
	struct mce_wire_req q = a_read;

	q.type = type;
	q.seq = seq;
	f->name = name;
	f->len = MCE_REQ_SIZE;
	mce_req_pack(f->bytes, &q);
}

static void frame_resp(struct frame *f, const char *name, enum mce_frame type, int32_t status)
{
	struct mce_wire_resp q = a_resp;

	q.type = type;
	q.len = type == MCE_FRAME_DATA ? q.len : 0;
	q.status = status;
	f->name = name;
	f->len = MCE_RESP_SIZE;
	mce_resp_pack(f->bytes, &q);
}

static void frame_cap(struct frame *f, const char *name)
{
	struct mc_capability c = {
		.offset = 0x2122232425262728, .len = 0x3132333435363738, .generation = 0x4142434445464748,
		.expires_s = 0x51525354, .rights = MC_CAPABILITY_READ,
	};

	frame_req(f, name, MCE_FRAME_READ, 0);
	for (unsigned i = 0; i < MC_CAPABILITY_MAC; i++)
		c.mac[i] = (uint8_t)(0xc0 + i);
	f->len = MCE_REQ_CAP_SIZE;
	mce_req_pack_cap(f->bytes, &c);
}

#define FRAMES 9

static void frames_make(struct frame f[FRAMES])
{
	frame_greeting(&f[0], "greeting", 0);
	frame_req(&f[1], "read", MCE_FRAME_READ, 0);
	frame_req(&f[2], "write", MCE_FRAME_WRITE, 0);
	frame_resp(&f[3], "data", MCE_FRAME_DATA, 0);
	frame_resp(&f[4], "ack", MCE_FRAME_ACK, 0x0f0e0d0c);
	frame_greeting(&f[5], "greeting1", MCE_FEATURE_ACK_UPTO);
	frame_req(&f[6], "write1", MCE_FRAME_WRITE, 0xf1f2f3f4f5f6f7f8);
	frame_resp(&f[7], "ack_upto1", MCE_FRAME_ACK_UPTO, 0);
	frame_cap(&f[8], "read4");
}

static void path_of(char buf[4096], const char *dir, const char *name)
{
	snprintf(buf, 4096, "%.4000s/%s.hex", dir, name);
}

static void frames_match_the_golden_bytes(void **state)
{
	struct frame f[FRAMES];
	char dir[4096], path[4096];

	snprintf(dir, sizeof(dir), "%s/tests/golden/lane", getenv("top_srcdir"));
	frames_make(f);
	for (unsigned i = 0; i < FRAMES; i++) {
		FILE *from;
		unsigned byte;

		path_of(path, dir, f[i].name);
		from = fopen(path, "r");
		assert_non_null(from);
		for (size_t k = 0; k < f[i].len; k++) {
			assert_int_equal(fscanf(from, "%2x", &byte), 1);
			if (f[i].bytes[k] != byte)
				fail_msg("%s: byte %zu is %02x, not %02x", path, k, f[i].bytes[k], byte);
		}
		assert_int_equal(fscanf(from, "%2x", &byte), EOF);
		fclose(from);
	}
}

/* Write the files that are missing in @dir. */
static int golden_write(const char *dir)
{
	struct frame f[FRAMES];
	char path[4096];

	frames_make(f);
	for (unsigned i = 0; i < FRAMES; i++) {
		FILE *to;

		path_of(path, dir, f[i].name);
		to = fopen(path, "wx");
		if (!to)
			continue;
		for (size_t k = 0; k < f[i].len; k++)
			fprintf(to, "%02x%s", f[i].bytes[k], (k + 1) % 32 ? "" : "\n");
		fclose(to);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_match_the_golden_bytes),
		cmocka_unit_test(one_ack_answers_many_writes),
		cmocka_unit_test(a_refused_write_has_its_own_ack),
		cmocka_unit_test(an_older_peer_gets_one_ack_per_write),
		cmocka_unit_test(many_writes_end_by_one_ack),
		cmocka_unit_test(acked_writes_are_not_repeated_after_a_loss),
		cmocka_unit_test(an_invalid_ack_ends_the_connection),
	};

	if (argc == 3 && !strcmp(argv[1], "write"))
		return golden_write(argv[2]);
	if (!getenv("top_srcdir")) {
		puts("skipped: top_srcdir is not set");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
