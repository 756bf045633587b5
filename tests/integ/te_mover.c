/* SPDX-License-Identifier: Apache-2.0
 * te_mover.c - an engine that executes commands, for tests of peers and links that fail:
 *
 *	te_mover METADATA NAME		then per line of input, with a line of output each:
 *	offer BYTES			register that much memory; print our name
 *	open NAME			open that segment; print the address of its first buffer
 *	echo BYTES			write a pattern there and read it back: "same", "different", or the error
 *	stream OP BYTES DEADLINE_MS	transfer (0: without a deadline) again and again until it fails: "moving" after
 *					the first, at the end its status, the duration of the last one (ms), and the
 *					number of reconnects
 *	rate OP BYTES COUNT SECONDS	COUNT requests of BYTES in one batch again and again: bytes per second
 *	again BYTES			unregister the memory and register that much of it
 *	count				descriptors, threads
 *	held				descriptors, threads, registrations
 *	paths				the paths that requests took, by showLinks(), each followed by a space */
#include "te_pair.h"

#include <dirent.h>
#include <inttypes.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define ROOM (64u << 20)
/* Tasks of a transfer, and their maximum number for "rate". */
#define TASKS 16u
#define COUNT_MAX 4096u

static struct mce_te *te;
static unsigned char *mem;	/* ROOM bytes: the second half receives the bytes that the first half sent */
static segment_id_t segment;
static uint64_t there;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static const char *name_of(int status)
{
	return status == STATUS_COMPLETED ? "completed" : status == STATUS_TIMEOUT ? "timeout" : "failed";
}

static int opcode(const char *op)
{
	return *op == 'w' ? OPCODE_WRITE : OPCODE_READ;
}

static unsigned metric(const char *name)
{
	char *text, *at, line[64];
	unsigned n = 0;

	snprintf(line, sizeof(line), "\nmooncake_transfer_%s ", name);
	CHECK(mce_te_metrics(&text) == 0);
	at = strstr(text, line);
	CHECK(at && sscanf(at + strlen(line), "%u", &n) == 1);
	free(text);
	return n;
}

/* Move @count requests of @size, from @at on. */
static int move(int op, unsigned char *at, uint64_t size, unsigned count, int64_t deadline_ms)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = deadline_ms };
	static struct transfer_request r[COUNT_MAX];
	struct mce_te_batch_status st;
	batch_id_t b;

	for (unsigned i = 0; i < count; i++)
		r[i] = (struct transfer_request){ op, at + i * size, segment, there + i * size, size };
	CHECK(mce_te_batch_new(te, count, &b) == 0);
	CHECK(mce_te_submit(te, b, r, count, &opts) == 0 && mce_te_wait(te, b, 120000) == 0);
	CHECK(mce_te_batch_status(te, b, &st) == 0 && mce_te_batch_free(te, b) == 0);
	return st.status;
}

static void stream(const char *op, uint64_t size, int64_t deadline_ms)
{
	unsigned anew;
	double began;
	int status;

	for (unsigned n = 0;; n++) {
		anew = metric("reconnects_total");
		began = now();
		status = move(opcode(op), mem, size / TASKS, TASKS, deadline_ms);
		if (status != STATUS_COMPLETED)
			break;
		if (n == 0)
			printf("moving\n");
		fflush(stdout);
	}
	printf("%s %.0f %u\n", name_of(status), (now() - began) * 1e3, metric("reconnects_total") - anew);
}

static void echo(uint64_t size)
{
	static unsigned seed;
	unsigned char *back = mem + ROOM / 2;
	int status;

	te_fill(mem, size, ++seed);
	memset(back, 0, size);
	status = move(OPCODE_WRITE, mem, size / TASKS, TASKS, 0);
	if (status == STATUS_COMPLETED)
		status = move(OPCODE_READ, back, size / TASKS, TASKS, 0);
	if (status != STATUS_COMPLETED)
		printf("%s\n", name_of(status));
	else
		printf("%s\n", memcmp(mem, back, size) ? "different" : "same");
}

static void rate(const char *op, uint64_t size, unsigned count, double seconds)
{
	double began = now();
	uint64_t bytes = 0;

	CHECK(count <= COUNT_MAX && size * count <= ROOM);
	while (now() - began < seconds) {
		CHECK(move(opcode(op), mem, size, count, 0) == STATUS_COMPLETED);
		bytes += size * count;
	}
	printf("%.0f\n", (double)bytes / (now() - began));
}

static void open_there(const char *name)
{
	uint64_t len;
	int r;

	r = mce_te_open_segment(te, name, MCE_TE_FRESH, &segment);
	if (r == 0)
		r = mce_te_first_buffer(te, segment, &there, &len);
	if (r < 0)
		printf("error %s\n", mce_te_error_detail(r));
	else
		printf("open %" PRIx64 "\n", there);
}

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void paths(void)
{
	static const char *const all[] = { "local", "mapped", "process_vm", "tcp", "upstream" };
	char *text, want[64];

	CHECK(mce_te_links(te, 1, &text) == 0);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(want, sizeof(want), "\"%s\":{\"requests\":", all[i]);
		if (strstr(text, want))
			printf("%s ", all[i]);
	}
	printf("\n");
	free(text);
}

static void again(uint64_t size)
{
	CHECK(mce_te_unregister(te, mem) == 0 && mce_te_register(te, mem, size, "*", 1) == 0);
	printf("ok\n");
}

static void obey(const char *line)
{
	char word[160] = "";
	uint64_t size;
	unsigned count;
	double x;

	if (sscanf(line, "offer %" SCNu64, &size) == 1 && size <= ROOM) {
		CHECK(mce_te_register(te, mem, size, "*", 1) == 0);
		printf("%s\n", mce_te_name(te));
	} else if (sscanf(line, "again %" SCNu64, &size) == 1 && size <= ROOM) {
		again(size);
	} else if (sscanf(line, "open %159s", word) == 1) {
		open_there(word);
	} else if (sscanf(line, "echo %" SCNu64, &size) == 1 && size <= ROOM / 2) {
		echo(size);
	} else if (sscanf(line, "stream %159s %" SCNu64 " %lf", word, &size, &x) == 3 && size <= ROOM) {
		stream(word, size, (int64_t)x);
	} else if (sscanf(line, "rate %159s %" SCNu64 " %u %lf", word, &size, &count, &x) == 4) {
		rate(word, size, count, x);
	} else if (!strcmp(line, "count\n")) {
		printf("%u %u\n", entries("/proc/self/fd"), entries("/proc/self/task"));
	} else if (!strcmp(line, "paths\n")) {
		paths();
	} else if (!strcmp(line, "held\n")) {
		printf("%u %u %u\n", entries("/proc/self/fd"), entries("/proc/self/task"),
		       metric("regions"));
	} else {
		CHECK(!"a line that says something");
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct mce_te_conf conf = { .size = sizeof(conf) };
	char line[256];

	CHECK(argc == 3);
	conf.metadata = argv[1];
	conf.name = argv[2];
	mem = calloc(1, ROOM);
	CHECK(mem && mce_te_open(&conf, &te) == 0);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	mce_te_close(te);
	free(mem);
	return 0;
}
