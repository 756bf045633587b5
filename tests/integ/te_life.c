/* SPDX-License-Identifier: Apache-2.0
 * te_life.c - engines, peers and memory that are created and destroyed: 1,000 engines without a
 * leaked descriptor or thread, memory that is unregistered during transfers, a peer that is killed
 * in the middle and restarted under its name with another address map, an idle engine. */
#include "te_pair.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define BYTES (16u << 20)
#define ROUNDS 1000u
#define IDLE_S 3u

static struct mce_te *open_engine(const char *name)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = name };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

static unsigned entries(const char *dir)
{
	unsigned n = 0;
	DIR *d = opendir(dir);

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* /proc shows a thread for a moment after it was joined. */
static void settled(unsigned fds, unsigned threads)
{
	time_t end = time(NULL) + 10;

	while ((entries("/proc/self/fd") > fds || entries("/proc/self/task") > threads) && time(NULL) < end)
		usleep(1000);
	CHECK(entries("/proc/self/fd") <= fds);
	CHECK(entries("/proc/self/task") <= threads);
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

/* ---- create and close engines ------------------------------------------------------------------- */

static void engines(void)
{
	static unsigned char mine[4096], theirs[4096];
	struct mce_te *stays = open_engine("127.0.0.1");
	unsigned rounds = getenv("SANITIZER") && *getenv("SANITIZER") ? ROUNDS / 10 : ROUNDS;
	unsigned fds = 0, threads = 0;

	CHECK(mce_te_register(stays, theirs, sizeof(theirs), "*", 1) == 0);
	for (unsigned i = 0; i < rounds; i++) {
		struct mce_te *te = open_engine("127.0.0.1");
		segment_id_t id;

		CHECK(mce_te_register(te, mine, sizeof(mine), "*", 1) == 0);
		CHECK(mce_te_open_segment(te, mce_te_name(stays), 0, &id) == 0);
		CHECK(move(te, OPCODE_WRITE, mine, id, (uint64_t)(uintptr_t)theirs, 64) == STATUS_COMPLETED);
		CHECK(mce_te_notify(te, id, "a", "b") == 0);
		mce_te_close(te);
		/* The first engines create resources that stay. */
		if (i == 4) {
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
		}
	}
	settled(fds, threads);
	mce_te_close(stays);
}

/* ---- memory goes ------------------------------------------------------------------------------- */

struct flip {
	struct mce_te *te;
	unsigned char *mem;
	int stop;
};

/* While the memory is unregistered, only its owner may write to it: it must keep the owner's bytes. */
static void *flip_main(void *arg)
{
	struct flip *f = arg;

	for (unsigned i = 0; !__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE); i++) {
		CHECK(mce_te_register(f->te, f->mem, BYTES, "*", 1) == 0);
		usleep(2000u << i % 8);
		CHECK(mce_te_unregister(f->te, f->mem) == 0);
		memset(f->mem, (int)(i & 0x7f), BYTES);
		CHECK(f->mem[0] == (i & 0x7f) && f->mem[BYTES - 1] == (i & 0x7f));
		CHECK(memcmp(f->mem, f->mem + 1, BYTES - 1) == 0);
	}
	return NULL;
}

static void unregistered_during(int from, int to)
{
	struct flip f = { .te = open_engine("127.0.0.1"), .mem = malloc(BYTES) };
	struct te_note note = { .addr = (uint64_t)(uintptr_t)f.mem };
	pthread_t thread;
	char c;

	CHECK(f.mem);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(f.te));
	te_tell(to, &note, sizeof(note));
	CHECK(pthread_create(&thread, NULL, flip_main, &f) == 0);
	te_hear(from, &c, 1);
	__atomic_store_n(&f.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	mce_te_close(f.te);
	free(f.mem);
}

static void memory_goes(int tcp)
{
	unsigned char *mine = malloc(BYTES);
	unsigned done = 0, failed = 0;
	time_t end = time(NULL) + 20;
	struct te_pair p;
	struct te_note note;
	struct mce_te *te;
	segment_id_t id;

	if (tcp)
		setenv("MC_FORCE_TCP", "1", 1);
	te_pair_start(&p, unregistered_during);
	te = open_engine("127.0.0.1");
	te_hear(p.from, &note, sizeof(note));
	CHECK(mine && mce_te_open_segment(te, note.name, 0, &id) == 0);
	memset(mine, 0xff, BYTES);
	while ((done < 20 || failed < 20) && time(NULL) < end) {
		int status = move(te, OPCODE_WRITE, mine, id, note.addr, BYTES);

		CHECK(status == STATUS_COMPLETED || status == STATUS_FAILED);
		if (status == STATUS_COMPLETED)
			done++;
		else
			failed++;
	}
	/* both results occurred */
	CHECK(done && failed);
	te_pair_end(&p);
	mce_te_close(te);
	free(mine);
	unsetenv("MC_FORCE_TCP");
}

/* ---- a peer goes ------------------------------------------------------------------------------- */

static void serve_as(const char *name, int from, int to)
{
	struct te_note note = { .len = BYTES };
	struct mce_te *te = open_engine(name);
	unsigned char *mem = malloc(BYTES);
	char c;

	CHECK(mem && mce_te_register(te, mem, BYTES, "*", 1) == 0);
	te_fill(mem, BYTES, 9);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	te_hear(from, &c, 1);
	mce_te_close(te);
	free(mem);
}

static void serve(int from, int to)
{
	serve_as("127.0.0.1", from, to);
}

/* Same after a restart, under the name of the first peer. */
static void serve_again(int from, int to)
{
	struct te_note note;

	te_hear(from, &note, sizeof(note));
	setenv("MC_LEGACY_RPC_PORT_BINDING", "1", 1);
	serve_as(note.name, from, to);
}

static void killed_in_the_middle(int tcp)
{
	unsigned char *mine = malloc(BYTES);
	struct te_note first, second;
	struct te_pair p, later;
	struct mce_te *te;
	segment_id_t id;
	int status;

	if (tcp)
		setenv("MC_FORCE_TCP", "1", 1);
	setenv("MC_TCP_PROGRESS_TIMEOUT_SEC", "2", 1);
	te_pair_start(&p, serve);
	te_pair_start(&later, serve_again);
	te = open_engine("127.0.0.1");
	te_hear(p.from, &first, sizeof(first));
	CHECK(mine && mce_te_open_segment(te, first.name, 0, &id) == 0);
	CHECK(move(te, OPCODE_READ, mine, id, first.addr, BYTES) == STATUS_COMPLETED);
	CHECK(te_filled(mine, BYTES, 9));
	CHECK(kill(p.pid, SIGKILL) == 0);
	status = move(te, OPCODE_READ, mine, id, first.addr, BYTES);
	CHECK(status == STATUS_FAILED || status == STATUS_COMPLETED);
	CHECK(waitpid(p.pid, NULL, 0) == p.pid);
	CHECK(move(te, OPCODE_READ, mine, id, first.addr, BYTES) == STATUS_FAILED);
	CHECK(mce_te_probe(te, first.name) < 0);
	close(p.to);
	close(p.from);
	/* the same name, other addresses and keys */
	te_tell(later.to, &first, sizeof(first));
	te_hear(later.from, &second, sizeof(second));
	CHECK(!strcmp(first.name, second.name));
	memset(mine, 0, BYTES);
	CHECK(mce_te_probe(te, second.name) == 0);
	CHECK(move(te, OPCODE_READ, mine, id, second.addr, BYTES) == STATUS_COMPLETED);
	CHECK(te_filled(mine, BYTES, 9));
	te_pair_end(&later);
	mce_te_close(te);
	free(mine);
	unsetenv("MC_FORCE_TCP");
	unsetenv("MC_TCP_PROGRESS_TIMEOUT_SEC");
}

/* ---- idle --------------------------------------------------------------------------------------- */

static int64_t cpu_us(void)
{
	struct rusage u;

	CHECK(getrusage(RUSAGE_SELF, &u) == 0);
	return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* An engine with a peer, connections and memory uses no CPU time without requests. */
static void idle(void)
{
	unsigned char *mine = malloc(BYTES);
	struct te_note note;
	struct te_pair p;
	struct mce_te *te;
	segment_id_t id;
	int64_t used;

	setenv("MC_FORCE_TCP", "1", 1);
	te_pair_start(&p, serve);
	te = open_engine("127.0.0.1");
	te_hear(p.from, &note, sizeof(note));
	CHECK(mine && mce_te_register(te, mine, BYTES, "*", 1) == 0);
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	CHECK(move(te, OPCODE_READ, mine, id, note.addr, BYTES) == STATUS_COMPLETED);
	used = cpu_us();
	sleep(IDLE_S);
	used = cpu_us() - used;
	printf("idle for %u s: %lld us of CPU time\n", IDLE_S, (long long)used);
	CHECK(used < IDLE_S * 10000 || (getenv("SANITIZER") && *getenv("SANITIZER")));
	mce_te_close(te);
	te_pair_end(&p);
	free(mine);
	unsetenv("MC_FORCE_TCP");
}

int main(void)
{
	idle();
	memory_goes(0);
	memory_goes(1);
	killed_in_the_middle(0);
	killed_in_the_middle(1);
	engines();
	return 0;
}
