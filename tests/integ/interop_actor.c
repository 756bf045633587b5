/* SPDX-License-Identifier: Apache-2.0
 * interop_actor.c - our side of the tests with upstream's nodes; interop_actor.py is upstream's side and
 * has the same commands:
 *
 *	interop_actor serve META LEN		offer LEN bytes; print "NAME"; then, per line of input,
 *						"fill SEED" or "check SEED" all of it, print "ok" or the error
 *	interop_actor read|write META NAME LEN SEED VERSION
 *						every size, then 8 threads: move all of the other side's memory
 *
 * VERSION forces the protocol's version; 0: as in the segment descriptor.  Both sides compute a byte's
 * value from its position and the seed. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/net.h"
#include "engine/mce.h"
#include "engine/upstream/handshake.h"
#include "engine/upstream/rpc_meta.h"
#include "meta/meta.h"
#include "engine/upstream/segdesc.h"

#define WORDS 131073u
#define BLOCK (8ull * WORDS)
#define THREADS 8u
#define BATCH 64u
#define SECONDS(n) mc_deadline_ms((n) * 1000)

static uint64_t block[WORDS];

static void die(const char *what, int err)
{
	printf("%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static void block_init(void)
{
	uint64_t w = 1;

	for (unsigned i = 0; i < WORDS; i++)
		block[i] = w = w * 6364136223846793005ull + 1442695040888963407ull;
}

/* Number of bytes from position @pos on that are contiguous in the block; *ret is their begin. */
static uint64_t piece(uint64_t pos, uint64_t n, uint64_t seed, const char **ret)
{
	uint64_t at = (pos + seed * 65537) % BLOCK;

	*ret = (const char *)block + at;
	return n < BLOCK - at ? n : BLOCK - at;
}

static void fill(char *mem, uint64_t pos, uint64_t n, uint64_t seed)
{
	const char *from;
	uint64_t take;

	for (; n; n -= take, pos += take, mem += take) {
		take = piece(pos, n, seed, &from);
		memcpy(mem, from, take);
	}
}

static void check(const char *mem, uint64_t pos, uint64_t n, uint64_t seed)
{
	const char *want;
	uint64_t take;

	for (; n; n -= take, pos += take, mem += take) {
		take = piece(pos, n, seed, &want);
		if (memcmp(mem, want, take)) {
			printf("bytes from %" PRIu64 " on differ, seed %" PRIu64 "\n", pos, seed);
			exit(1);
		}
	}
}

static char *memory(uint64_t len)
{
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		die("mmap", -ENOMEM);
	return mem;
}

/* ---- addresses of the nodes ---- */

static char *own_text;

static int tell_own(void *arg, const char *peer_text, size_t len, char **ret_text)
{
	*ret_text = strdup(own_text);
	return *ret_text ? 0 : -ENOMEM;
}

static void describe(struct mce_engine *e, const char *name, const char *mem, uint64_t len)
{
	struct mce_segdesc_buffer buffer = {
		.name = (char *)name, .addr = (uintptr_t)mem, .length = len,
	};
	struct mce_segdesc d = {
		.name = (char *)name, .protocol = (char *)"tcp", .tcp_data_host = (char *)"127.0.0.1",
		.tcp_data_port = mce_engine_upstream_port(e), .tcp_proto_version = 2,
		.buffers = &buffer, .nbuffers = 1,
	};
	int r = mce_segdesc_encode(&d, &own_text);

	if (r < 0)
		die("segment", r);
}

static void publish(const char *conn, const char *name, int port)
{
	struct mce_rpc_meta rpc = { .host = "127.0.0.1", .port = port };
	char key[MCD_KEY_MAX];
	struct mcd_client *m;
	int r;

	r = mcd_open(conn, &m);
	if (r == 0)
		r = mce_key_segment(name, key);
	if (r == 0)
		r = mcd_publish(m, key, own_text, SECONDS(10));
	if (r == 0)
		r = mce_rpc_meta_publish(m, name, &rpc, SECONDS(10));
	if (r < 0)
		die("publish", r);
}

static char *lookup(const char *conn, const char *name)
{
	char host[MC_ADDR_MAX], key[MCD_KEY_MAX], *text = NULL;
	struct mcd_client *m;
	int port, r;

	if (mcd_is_p2p(conn)) {
		r = mc_addr_split(name, host, sizeof(host), -1, &port);
		if (r == 0)
			r = mce_handshake_call(host, port, MCE_HANDSHAKE_METADATA,
					       "{\"name\":\"interop\",\"protocol\":\"tcp\",\"buffers\":[]}",
					       SECONDS(10), &text);
	} else {
		r = mcd_open(conn, &m);
		if (r == 0)
			r = mce_key_segment(name, key);
		if (r == 0)
			r = mcd_get(m, key, &text, SECONDS(10));
		if (r == 0)
			mcd_close(m);
	}
	if (r < 0)
		die("look-up", r);
	return text;
}

/* ---- serving ---- */

static void serve(const char *conn, uint64_t len)
{
	struct mce_conf conf = { .upstream = true, .bind_host = "127.0.0.1" };
	struct mce_handshake_conf hconf = { .host = "127.0.0.1", .metadata = tell_own };
	struct mce_mr_attr attr = { .len = len, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .fd = -1 };
	struct mce_handshake *h;
	struct mce_engine *e;
	char name[64], line[64];
	struct mce_mr *mr;
	uint64_t seed;
	int r;

	attr.base = memory(len);
	r = mce_engine_open(&conf, &e);
	if (r == 0)
		r = mce_mr_register(e, &attr, &mr);
	if (r == 0)
		r = mce_handshake_open(&hconf, &h);
	if (r < 0)
		die("serve", r);
	snprintf(name, sizeof(name), "127.0.0.1:%d", mce_handshake_port(h));
	describe(e, name, attr.base, len);
	if (!mcd_is_p2p(conn))
		publish(conn, name, mce_handshake_port(h));
	printf("%s\n", name);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "fill %" SCNu64, &seed) == 1)
			fill(attr.base, 0, len, seed);
		else if (sscanf(line, "check %" SCNu64, &seed) == 1)
			check(attr.base, 0, len, seed);
		else
			die(line, -EINVAL);
		printf("ok\n");
		fflush(stdout);
	}
	mce_handshake_close(h);
	mce_engine_close(e);
}

/* ---- driving ---- */

struct drive {
	struct mce_engine *e;
	struct mce_peer *peer;
	enum mce_op op;
	uint64_t addr, len, seed;
	char *mem;
};

static const uint64_t sizes[] = {
	1, 2, 3, 8, 23, 24, 25, 100, 4095, 4096, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 5 << 20,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct worker {
	const struct drive *d;
	uint64_t from, to;
	pthread_t thread;
};

static void move(const struct drive *d, struct mce_req *reqs, unsigned n)
{
	struct mce_batch b;
	int r;

	mce_batch_init(&b);
	mce_submit(d->e, &b, reqs, n);
	r = mce_batch_wait(d->e, &b, reqs, n, SECONDS(120));
	for (unsigned i = 0; i < n && r == 0; i++)
		r = reqs[i].status;
	if (r < 0)
		die(d->op == MCE_READ ? "read" : "write", r);
	if (reqs[0].path != MCE_PATH_UPSTREAM)
		die("path", -EINVAL);
}

/* Batches of requests of all sizes, back to back, over this worker's part of the memory. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	const struct drive *d = w->d;
	struct mce_req reqs[BATCH];
	struct iovec iov[BATCH];
	uint64_t pos = w->from, n;
	unsigned size = 0, k;

	while (pos < w->to) {
		memset(reqs, 0, sizeof(reqs));
		for (k = 0; k < BATCH && pos < w->to; k++, pos += n) {
			n = sizes[size++ % SIZES];
			if (n > w->to - pos)
				n = w->to - pos;
			iov[k] = (struct iovec){ d->mem + pos, n };
			reqs[k] = (struct mce_req){
				.op = d->op, .peer = d->peer, .addr = d->addr + pos, .iov = &iov[k], .iovcnt = 1,
			};
		}
		move(d, reqs, k);
	}
	return NULL;
}

static void run_threads(const struct drive *d)
{
	struct worker w[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){
			.d = d, .from = d->len / THREADS * i,
			.to = i == THREADS - 1 ? d->len : d->len / THREADS * (i + 1),
		};
		if (pthread_create(&w[i].thread, NULL, worker_main, &w[i]))
			die("thread", -EAGAIN);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
}

/* All sizes one after the other, the largest last. */
static void run_sizes(const struct drive *d)
{
	for (unsigned i = 0; i <= SIZES; i++) {
		uint64_t n = i < SIZES && sizes[i] < d->len ? sizes[i] : d->len, pos = d->len - n;
		struct iovec iov = { d->mem + pos, n };
		struct mce_req req = {
			.op = d->op, .peer = d->peer, .addr = d->addr + pos, .iov = &iov, .iovcnt = 1,
		};

		move(d, &req, 1);
		if (d->op == MCE_READ)
			check(d->mem + pos, pos, n, d->seed);
	}
}

static void drive(struct drive *d, const char *conn, const char *name, unsigned version)
{
	struct mce_conf conf = { .port = 0 };
	struct mce_segdesc *desc;
	char *text = lookup(conn, name);
	int r;

	r = mce_segdesc_decode(text, strlen(text), &desc);
	if (r == 0)
		r = mce_engine_open(&conf, &d->e);
	if (r == 0)
		/* Release 0.3.12 sends no host. */
		r = mce_peer_get_upstream(d->e, desc->tcp_data_host[0] ? desc->tcp_data_host : "127.0.0.1",
					  desc->tcp_data_port,
					  version ? version : desc->tcp_proto_version, &d->peer);
	if (r == 0 && (desc->nbuffers != 1 || desc->buffers[0].length != d->len || desc->endpoint[0]))
		r = mc_fail(-EINVAL, "not the segment that was expected: %s", text);
	if (r < 0)
		die("drive", r);
	d->addr = desc->buffers[0].addr;
	d->mem = memory(d->len);
	if (d->op == MCE_WRITE)
		fill(d->mem, 0, d->len, d->seed);
	run_sizes(d);
	memset(d->mem, 0, d->op == MCE_READ ? d->len : 0);
	run_threads(d);
	check(d->mem, 0, d->len, d->seed);
	mce_peer_put(d->peer);
	mce_engine_close(d->e);
	mce_segdesc_free(desc);
	free(text);
	munmap(d->mem, d->len);
}

int main(int argc, char **argv)
{
	struct drive d = { .op = MCE_READ };

	block_init();
	if (argc == 4 && !strcmp(argv[1], "serve")) {
		serve(argv[2], strtoull(argv[3], NULL, 0));
		return 0;
	}
	if (argc != 7)
		die("arguments", -EINVAL);
	d.op = strcmp(argv[1], "write") ? MCE_READ : MCE_WRITE;
	d.len = strtoull(argv[4], NULL, 0);
	d.seed = strtoull(argv[5], NULL, 0);
	drive(&d, argv[2], argv[3], (unsigned)atoi(argv[6]));
	return 0;
}
