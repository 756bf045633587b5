/* SPDX-License-Identifier: Apache-2.0
 * replay_main.c - runs a fuzz target without a fuzzer: every file of its corpus, then seeded
 * mutations of them.  Link it with one file that has LLVMFuzzerTestOneInput().
 *
 *	fuzz_ROOM_NAME [-n RUNS] [-s SEED] [FILE|DIR]...
 *
 * Without a FILE the corpus is tests/fuzz/corpus/fuzz_ROOM_NAME/.  RUNS is 50000 mutations unless
 * -n or MC_FUZZ_RUNS say otherwise, but no more than MC_FUZZ_SECONDS (5; a target may be built with
 * another default, FUZZ_SECONDS; 0 ends within the first second) of them.  Inputs end at a
 * page that cannot be read, so that reading past the end is found without a sanitizer.  When an
 * input kills the target it is saved as crash-fuzz_ROOM_NAME; give that FILE with -n 0 to see it
 * again. */
#include <config.h>

#ifdef MC_FUZZING
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* libFuzzer does all the work.  Without arguments, as "make check" runs it, it would never end. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argv;
	if (*argc > 1)
		return 0;
	puts("built for libFuzzer: give it a directory and -max_total_time=SECONDS");
	exit(77);
}
#else

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define INPUT_MAX 65536u
#define CORPUS_MAX 4096
#define HANG_SECONDS 30		/* for 64 inputs */
#ifndef FUZZ_SECONDS
#define FUZZ_SECONDS 5
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	uint8_t *data;
	size_t size;
};

static struct input corpus[CORPUS_MAX];
static size_t corpus_n;
static uint8_t *arena_end;		/* begin of the unreadable page */
static uint8_t work[INPUT_MAX];

/* splitmix64: its state is one number, so input i is a function of the seed and i. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
	return n ? next_random(state) % n : 0;
}

static void die(const char *what, const char *path)
{
	fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
	exit(2);
}

static void load_file(const char *path)
{
	struct input *in = &corpus[corpus_n];
	FILE *f = fopen(path, "re");

	if (!f)
		die("cannot read", path);
	if (corpus_n == CORPUS_MAX) {
		errno = E2BIG;
		die("too many inputs, at", path);
	}
	in->data = malloc(INPUT_MAX);
	if (!in->data)
		die("no memory for", path);
	in->size = fread(in->data, 1, INPUT_MAX, f);
	corpus_n++;
	fclose(f);
}

static int not_hidden(const struct dirent *de)
{
	return de->d_name[0] != '.';
}

static void load(const char *path)
{
	struct dirent **names;
	struct stat st;
	char file[4096];
	int n;

	if (stat(path, &st) < 0)
		die("cannot read", path);
	if (!S_ISDIR(st.st_mode)) {
		load_file(path);
		return;
	}
	/* Sorted, because mutations depend on the order. */
	n = scandir(path, &names, not_hidden, alphasort);
	if (n < 0)
		die("cannot list", path);
	for (int i = 0; i < n; i++) {
		snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
		load_file(file);
		free(names[i]);
	}
	free(names);
}

static size_t insert_random(uint64_t *rng, uint8_t *p, size_t size)
{
	size_t at = below(rng, size + 1), n = 1 + below(rng, 16);

	if (size + n > INPUT_MAX)
		return size;
	memmove(p + at + n, p + at, size - at);
	for (size_t i = 0; i < n; i++)
		p[at + i] = (uint8_t)next_random(rng);
	return size + n;
}

static size_t remove_part(uint64_t *rng, uint8_t *p, size_t size)
{
	size_t at = below(rng, size), n = 1 + below(rng, size - at < 32 ? size - at : 32);

	memmove(p + at, p + at + n, size - at - n);
	return size - n;
}

/* Repeat a part of the input right behind it: tests values that must not occur twice. */
static size_t copy_part(uint64_t *rng, uint8_t *p, size_t size)
{
	size_t at = below(rng, size), n = 1 + below(rng, size - at < 64 ? size - at : 64);

	if (size + n > INPUT_MAX)
		return size;
	memmove(p + at + n, p + at, size - at);
	return size + n;
}

/* Lengths and counts fail at the limits of their types. */
static void set_edge_value(uint64_t *rng, uint8_t *p, size_t size)
{
	static const uint64_t edges[] = {
		0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000,
		0xffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff,
	};
	uint64_t v = edges[below(rng, sizeof(edges) / sizeof(edges[0]))];
	size_t width = (size_t)1 << below(rng, 4);

	if (width <= size)
		memcpy(p + below(rng, size - width + 1), &v, width);
}

/* Write a part of another input over, or behind, a part of this one. */
static size_t splice(uint64_t *rng, uint8_t *p, size_t size)
{
	const struct input *other = &corpus[below(rng, corpus_n)];
	size_t from = below(rng, other->size + 1), at = below(rng, size + 1);
	size_t n = below(rng, other->size - from + 1);

	if (n > INPUT_MAX - at)
		n = INPUT_MAX - at;
	memcpy(p + at, other->data + from, n);
	return at + n > size ? at + n : size;
}

static size_t mutate(uint64_t *rng, uint8_t *p, size_t size)
{
	/* Choose the two that change most less often: an input that fails at once tests little. */
	switch (size ? below(rng, 14) : 4) {
	case 0:
	case 1:
		p[below(rng, size)] ^= (uint8_t)(1u << below(rng, 8));
		return size;
	case 2:
	case 3:
		p[below(rng, size)] = (uint8_t)next_random(rng);
		return size;
	case 4:
	case 5:
		return insert_random(rng, p, size);
	case 6:
	case 7:
		return remove_part(rng, p, size);
	case 8:
	case 9:
		set_edge_value(rng, p, size);
		return size;
	case 10:
	case 11:
		return copy_part(rng, p, size);
	case 12:
		return splice(rng, p, size);
	default:
		return below(rng, size + 1);	/* cut */
	}
}

/* Input @i of @seed into work[]: first the corpus as it is, then mutations. */
static size_t make_input(uint64_t seed, uint64_t i)
{
	uint64_t rng = seed ^ i * 0xd1342543de82ef95ull;
	const struct input *from;
	size_t size;

	from = i < corpus_n ? &corpus[i] : &corpus[below(&rng, corpus_n)];
	size = from->size;
	memcpy(work, from->data, size);
	if (i >= corpus_n)
		do {
			size = mutate(&rng, work, size);
		} while (below(&rng, 2));
	return size;
}

static void make_arena(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *p = mmap(NULL, INPUT_MAX + page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + INPUT_MAX, page, PROT_NONE) < 0)
		die("no memory for", "inputs");
	arena_end = p + INPUT_MAX;
}

static void run_inputs(uint64_t seed, uint64_t runs, long seconds, uint64_t *progress)
{
	time_t end = time(NULL) + seconds;

	for (uint64_t i = 0; i < corpus_n + runs; i++) {
		size_t size = make_input(seed, i);

		*progress = i;
		if (i % 64 == 0)
			alarm(HANG_SECONDS);
		memcpy(arena_end - size, work, size);
		LLVMFuzzerTestOneInput(arena_end - size, size);
		if (i >= corpus_n && i % 64 == 0 && time(NULL) > end)
			break;
	}
}

static void save_crash(const char *name, uint64_t seed, uint64_t i)
{
	size_t size = make_input(seed, i);
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "crash-%s", name);
	f = fopen(path, "we");
	if (f) {
		fwrite(work, 1, size, f);
		fclose(f);
	}
	fprintf(stderr, "%s: input %llu of seed %llu failed, saved as %s\n", name,
		(unsigned long long)i, (unsigned long long)seed, path);
}

static long number(const char *s, long otherwise)
{
	return s && *s ? strtol(s, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	const char *name = program_invocation_short_name, *top = getenv("top_srcdir");
	uint64_t runs = (uint64_t)number(getenv("MC_FUZZ_RUNS"), 50000), seed = 1, *progress;
	int opt, status;
	char dir[4096];
	pid_t pid;

	if (!strncmp(name, "lt-", 3))
		name += 3;
	while ((opt = getopt(argc, argv, "n:s:")) >= 0) {
		if (opt == '?')
			return 2;
		*(opt == 'n' ? &runs : &seed) = (uint64_t)number(optarg, 0);
	}
	for (int i = optind; i < argc; i++)
		load(argv[i]);
	if (optind >= argc) {
		snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", top ? top : ".", name);
		load(dir);
	}
	if (corpus_n == 0) {
		fprintf(stderr, "%s: the corpus is empty\n", name);
		return 2;
	}
	make_arena();
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED)
		die("no memory for", "progress");

	/* In a child, so that the parent can report which input failed. */
	pid = fork();
	if (pid < 0)
		die("cannot fork", name);
	if (pid == 0) {
		run_inputs(seed, runs, number(getenv("MC_FUZZ_SECONDS"), FUZZ_SECONDS), progress);
		exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		save_crash(name, seed, *progress);
		return 1;
	}
	for (size_t i = 0; i < corpus_n; i++)
		free(corpus[i].data);
	return 0;
}
#endif
