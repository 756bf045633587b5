/* SPDX-License-Identifier: Apache-2.0
 * te_memory.c - managed memory of all sizes, freed and allocated again; tens of thousands of
 * registrations, of which nothing may stay behind. */
#include "te_pair.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mooncake/mce_te.h>

#define KIB 1024ul
#define MIB (1024ul * 1024)
/* More than an epoch page has slots for. */
#define REGISTRATIONS 70000u

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

static int move(struct mce_te *te, int opcode, void *here, segment_id_t id, uint64_t there, uint64_t len)
{
	struct transfer_request r = { opcode, here, id, there, len };
	struct mce_te_batch_status st;
	batch_id_t b;

	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_submit(te, b, &r, 1, NULL) == 0);
	CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_status(te, b, &st) == 0);
	CHECK(mce_te_batch_free(te, b) == 0);
	return st.status;
}

/* ---- managed memory ---------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
	const unsigned char *x = *(unsigned char *const *)a, *y = *(unsigned char *const *)b;

	return x < y ? -1 : x > y;
}

/* Blocks of all sizes at once: disjoint, zeroed or not, registered. */
static void blocks(struct mce_te *te)
{
	static const size_t sizes[] = { 1, 100, 8 * KIB, 8 * KIB + 1, 64 * KIB, MIB - 1, MIB, 3 * MIB };
	enum { ROUND = sizeof(sizes) / sizeof(sizes[0]), N = 16 * ROUND };
	unsigned char *at[N], *sorted[N], here[8] = "bytes";
	size_t len[N];
	void *p;

	for (unsigned i = 0; i < N; i++) {
		len[i] = sizes[i % ROUND];
		CHECK(mce_te_manage(te, len[i], -1, &p) == 0);
		sorted[i] = at[i] = p;
		CHECK((uintptr_t)p % 64 == 0);
		at[i][0] = (unsigned char)i;
		at[i][len[i] - 1] = (unsigned char)i;
	}
	for (unsigned i = 0; i < N; i++)
		CHECK(at[i][0] == (unsigned char)i && at[i][len[i] - 1] == (unsigned char)i);
	qsort(sorted, N, sizeof(sorted[0]), by_address);
	for (unsigned i = 0; i + 1 < N; i++)
		CHECK(sorted[i + 1] - sorted[i] >= 8192);
	CHECK(move(te, OPCODE_WRITE, here, LOCAL_SEGMENT, (uint64_t)(uintptr_t)at[4], 8) == STATUS_COMPLETED);
	CHECK(!memcmp(at[4], here, 8));
	/* an address inside a block belongs to the engine, but is not a block; nor is the user's memory */
	CHECK(mce_te_unmanage(te, at[3] + 1) == -2 && mce_te_unmanage(te, here) == -2);
	for (unsigned i = 0; i < N; i++)
		CHECK(mce_te_unmanage(te, at[(i * 7) % N]) == 0);
	for (unsigned i = 0; i < N; i++)
		CHECK(mce_te_unmanage(te, at[i]) == -2);
}

/* Freed memory is merged again: the largest block can be allocated as often as before. */
static void whole_again(struct mce_te *te)
{
	void *large[8], *p;
	uint64_t addr, len;

	CHECK(mce_te_first_buffer(te, LOCAL_SEGMENT, &addr, &len) == 0 && len >= 256 * MIB);
	for (unsigned i = 0; i < len / (256 * MIB) && i < 8; i++) {
		CHECK(mce_te_manage(te, 256 * MIB, -1, &large[i]) == 0);
		CHECK((uint64_t)(uintptr_t)large[i] >= addr && (uint64_t)(uintptr_t)large[i] < addr + len);
	}
	for (unsigned i = 0; i < len / (256 * MIB) && i < 8; i++)
		CHECK(mce_te_unmanage(te, large[i]) == 0);
	/* a block larger than the largest one is a separate region, which ends with it */
	CHECK(mce_te_manage(te, 300 * MIB, -1, &p) == 0);
	addr = (uint64_t)(uintptr_t)p;
	CHECK(move(te, OPCODE_READ, large, LOCAL_SEGMENT, addr + 300 * MIB - 8, 8) == STATUS_COMPLETED);
	CHECK(mce_te_unmanage(te, p) == 0 && mce_te_unmanage(te, p) == -2);
	CHECK(move(te, OPCODE_READ, large, LOCAL_SEGMENT, addr, 8) == STATUS_FAILED);
	CHECK(mce_te_manage(te, 4096, 0, &p) == 0 && mce_te_unmanage(te, p) == 0);
	CHECK(mce_te_manage(te, 0, -1, &p) < 0 && mce_te_manage(te, SIZE_MAX, -1, &p) < 0);
}

/* "KernelPageSize:" of the mapping at @at, in KiB. */
static unsigned page_kib(const void *at)
{
	unsigned long long first, end, addr = (uintptr_t)at;
	bool inside = false;
	unsigned kib = 0;
	char line[512];
	FILE *f = fopen("/proc/self/smaps", "re");

	CHECK(f);
	while (!kib && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &first, &end) == 2)
			inside = first <= addr && addr < end;
		else if (inside)
			(void)sscanf(line, "KernelPageSize: %u", &kib);
	}
	fclose(f);
	return kib;
}

/* Reserved huge pages are used, for many blocks and for a larger one; when there are not enough,
 * small pages are used. */
static void huge_pages(void)
{
	struct mce_te *te = open_engine();
	void *small, *large, *more;

	CHECK(mce_te_manage(te, 8 * KIB, -1, &small) == 0 && mce_te_manage(te, 300 * MIB, -1, &large) == 0);
	CHECK(page_kib(small) == 2048 && page_kib(large) == 2048);
	memset(large, 1, 300 * MIB);
	CHECK(mce_te_manage(te, 300 * MIB, -1, &more) == 0);
	CHECK(page_kib(more) == 4);
	CHECK(mce_te_unmanage(te, large) == 0 && mce_te_unmanage(te, more) == 0 && mce_te_unmanage(te, small) == 0);
	mce_te_close(te);
}

/* The files behind the memory: no process can truncate them, and other users cannot open them. */
static unsigned sealed_files(void)
{
	char path[64], name[64];
	unsigned n = 0;
	struct stat st;

	for (int fd = 3; fd < 1024; fd++) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, name, sizeof(name) - 1);
		if (len < 0)
			continue;
		name[len] = '\0';
		if (strncmp(name, "/memfd:mooncake-te", strlen("/memfd:mooncake-te")))
			continue;
		CHECK(fcntl(fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
		CHECK(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600);
		n++;
	}
	return n;
}

static void managed(void)
{
	struct mce_te *te = open_engine();
	char *text;

	for (unsigned i = 0; i < 3; i++)
		blocks(te);
	CHECK(sealed_files() > 0);
	whole_again(te);
	CHECK(mce_te_metrics(&text) == 0);
	CHECK(strstr(text, "# TYPE mooncake_transfer_bytes_total counter\n"));
	CHECK(strstr(text, "mooncake_transfer_requests_total{path=\"local\",op=\"write\"} 3\n"));
	CHECK(strstr(text, "mooncake_transfer_bytes_total{path=\"local\",op=\"write\"} 24\n"));
	free(text);
	mce_te_close(te);
}

/* ---- registrations ----------------------------------------------------------------------------- */

static void serve(int from, int to)
{
	struct te_note note = { .len = 4096 };
	struct mce_te *te = open_engine();
	void *mem = malloc(4096);
	char c;

	CHECK(mem);
	for (unsigned i = 0; i < REGISTRATIONS; i++) {
		CHECK(mce_te_register(te, mem, 4096, "*", 1) == 0);
		CHECK(mce_te_unregister(te, mem) == 0);
	}
	CHECK(mce_te_register(te, mem, 4096, "*", 1) == 0);
	te_fill(mem, 4096, 1);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	te_hear(from, &c, 1);
	mce_te_close(te);
	free(mem);
}

/* When all slots are used, the path between processes still works. */
static void registrations(void)
{
	unsigned char here[4096];
	struct te_note note;
	struct te_pair p;
	struct mce_te *te;
	segment_id_t id;
	char *text;

	te_pair_start(&p, serve);
	te_hear(p.from, &note, sizeof(note));
	te = open_engine();
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	CHECK(move(te, OPCODE_READ, here, id, note.addr, 4096) == STATUS_COMPLETED);
	CHECK(te_filled(here, 4096, 1));
	CHECK(mce_te_links(te, 1, &text) == 0);
	/* Yama and containers may forbid access between processes, whatever is registered. */
	CHECK(strstr(text, "\"process_vm\":{\"requests\":1") ||
	      !access("/proc/sys/kernel/yama/ptrace_scope", F_OK));
	free(text);
	te_pair_end(&p);
	mce_te_close(te);
}

/* A peer finds the buffer that was registered first, whatever its address. */
static void first_one(const char *piece)
{
	unsigned char *mem = malloc(MIB);
	struct mce_te *owner, *te;
	uint64_t addr, len;
	segment_id_t id;

	setenv("MC_MAX_MR_SIZE", piece, 1);
	owner = open_engine();
	te = open_engine();
	CHECK(mem && mce_te_register(owner, mem + MIB / 2, MIB / 2, "*", 1) == 0);
	CHECK(mce_te_register(owner, mem, MIB / 4, "*", 1) == 0);
	CHECK(mce_te_open_segment(te, mce_te_name(owner), 0, &id) == 0);
	CHECK(mce_te_first_buffer(te, id, &addr, &len) == 0);
	CHECK(addr == (uint64_t)(uintptr_t)(mem + MIB / 2) && len == MIB / 2);
	CHECK(mce_te_unregister(owner, mem + MIB / 2) == 0);
	CHECK(mce_te_open_segment(te, mce_te_name(owner), MCE_TE_FRESH, &id) == 0);
	CHECK(mce_te_first_buffer(te, id, &addr, &len) == 0);
	CHECK(addr == (uint64_t)(uintptr_t)mem && len == MIB / 4);
	mce_te_close(te);
	mce_te_close(owner);
	free(mem);
	unsetenv("MC_MAX_MR_SIZE");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "huge")) {
		huge_pages();
		return 0;
	}
	registrations();
	managed();
	first_one("1000000000");
	first_one("65536");
	return 0;
}
