/* SPDX-License-Identifier: Apache-2.0
 * te_alloc.c - requests cost no allocation each: 100,000 in one batch, over each path, and prepared lists that are
 * posted again and again, with all allocations of this process counted. */
#include "te_pair.h"

#include <mooncake/mce_te.h>

#define N 100000u
#define PIECE 64u
#define BYTES (N * PIECE * 2ul)
#define ROUNDS 1000u

static unsigned long allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTED 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static void counted(void)
{
	__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
	counted();
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	counted();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	counted();
	return __libc_realloc(p, n);
}
#else
#define COUNTED 0
#endif

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

static void serve(int from, int to, int managed)
{
	struct te_note note = { .len = BYTES };
	struct mce_te *te = open_engine();
	void *mem;
	char c;

	if (managed) {
		CHECK(mce_te_manage(te, BYTES, -1, &mem) == 0);
	} else {
		mem = malloc(BYTES);
		CHECK(mem && mce_te_register(te, mem, BYTES, "*", 1) == 0);
	}
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	te_hear(from, &c, 1);
	mce_te_close(te);
	if (!managed)
		free(mem);
}

static void serve_user(int from, int to)
{
	serve(from, to, 0);
}

static void serve_managed(int from, int to)
{
	serve(from, to, 1);
}

static unsigned long count(void)
{
	return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}

static void run(struct mce_te *te, const struct transfer_request *r)
{
	struct mce_te_batch_status st;
	batch_id_t b;

	CHECK(mce_te_batch_new(te, N, &b) == 0 && mce_te_submit(te, b, r, N, NULL) == 0);
	CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_status(te, b, &st) == 0);
	CHECK(st.status == STATUS_COMPLETED && st.ended == N);
	CHECK(mce_te_batch_free(te, b) == 0);
}

static unsigned long posted(struct mce_te *te, const struct transfer_request *r)
{
	unsigned long before = 0;
	batch_id_t b;

	CHECK(mce_te_batch_new(te, 100, &b) == 0 && mce_te_prepare(te, b, r, 100) == 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i == 10)
			before = count();
		CHECK(mce_te_post(te, b, NULL) == 0 && mce_te_wait(te, b, 60000) == 0);
	}
	before = count() - before;
	CHECK(mce_te_batch_free(te, b) == 0);
	return before;
}

static void path(const char *name, int managed, int tcp)
{
	struct transfer_request *r = calloc(N, sizeof(*r));
	unsigned char *here = malloc(N * PIECE);
	unsigned long before, many, again;
	struct te_pair p;
	struct te_note note;
	struct mce_te *te;
	segment_id_t id;

	if (tcp)
		setenv("MC_FORCE_TCP", "1", 1);
	te_pair_start(&p, managed ? serve_managed : serve_user);
	te = open_engine();
	te_hear(p.from, &note, sizeof(note));
	CHECK(r && here && mce_te_open_segment(te, note.name, 0, &id) == 0);
	for (size_t i = 0; i < N; i++)
		r[i] = (struct transfer_request){ OPCODE_READ, here + i * PIECE, id,
						  note.addr + i * 2 * PIECE, PIECE };
	/* The first run creates the connections and fills the pools. */
	run(te, r);
	before = count();
	run(te, r);
	many = count() - before;
	again = posted(te, r);
	printf("%s: %lu allocations for %u requests, %lu for %u posts of 100\n", name, many, N, again,
	       ROUNDS - 10);
	fflush(stdout);
	CHECK(many <= 100 && again <= 100);
	te_pair_end(&p);
	mce_te_close(te);
	free(here);
	free(r);
	unsetenv("MC_FORCE_TCP");
}

int main(void)
{
	if (!COUNTED) {
		printf("SKIP: the sanitizer has its own malloc\n");
		return 77;
	}
	path("managed memory", 1, 0);
	path("user memory", 0, 0);
	path("tcp", 0, 1);
	return 0;
}
