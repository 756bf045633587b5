/* SPDX-License-Identifier: Apache-2.0
 * perf_master.c - a master under its C client: memory per object, exists, gets and puts in batches, the
 * index alone, listing.  The master runs in a separate process, on a Unix socket, with one RPC thread;
 * the table has its CPU time next to wall-clock time, which gives keys per second and core.
 *
 *	perf_master [OBJECTS [PART]]
 *
 * PERF_POLICY: the eviction policy.  OBJECTS: default 10^6 or PERF_OBJECTS; PART: wire, sizes, latency, core,
 * evict, or of full_pool.h leased, segments, pinned; default: all of them.
 *
 * With 10^7 objects or more, keys have 32 bytes, which changes the memory per object. */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "master/ops/ops.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "proto/rpc_client.h"
#include "tests/perf/full_pool.h"
#include "tests/perf/row.h"

#define BATCH_MAX 5000u
#define KEY_LEN 64u
#define FULL_MAX 300000u	/* objects of the pools of full_pool.h */

/* Length of the keys: the last half contains all digits of the number. */
static unsigned key_len = KEY_LEN;

static const struct mcp_id me = { 1, 2 };

static void die(const char *what, int err)
{
	fprintf(stderr, "perf_master: %s: %s\n", what, mc_err_detail(err));
	exit(1);
}

/* 64 bytes, like a prefix hash in hex. */
static void make_key(char key[KEY_LEN + 1], uint64_t n)
{
	uint64_t h = (n + 1) * 0x9e3779b97f4a7c15ull;

	snprintf(key, KEY_LEN + 1, "%016llx%016llx%016llx%016llx", (unsigned long long)h,
		 (unsigned long long)n, (unsigned long long)(h * 3), (unsigned long long)(h * 5));
}

static uint64_t rss_of(pid_t pid)
{
	unsigned long long size, rss = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%llu %llu", &size, &rss) != 2)
			rss = 0;
		fclose(f);
	}
	return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t cpu_ns_of(pid_t pid)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* ---- the master's process ---- */

static struct mc_options *options;

/* With a journal, the master writes checkpoints continuously in the background. */
static char *journal_dir;
static uint64_t *longest_hold;	/* shared: longest lock of a checkpoint in ns, and the CPU time of that lock */

static void conf_of(struct mcm_conf *conf)
{
	int r = mcm_conf_defaults(conf, &options);

	if (r < 0)
		die("options", r);
	conf->rpc_thread_num = 1;
	conf->enable_metric_reporting = false;
	conf->eviction_high_watermark_ratio = 1;
	if (getenv("PERF_POLICY"))
		conf->eviction_policy = getenv("PERF_POLICY");
	conf->client_ttl = 3600 * 1000;
}

static pid_t master_start(const char *addr)
{
	const char *addrs[] = { addr, NULL };
	struct mcm_listen where = { .addrs = addrs };
	struct mcm_conf conf;
	struct mcm *m;
	pid_t pid;
	int r;

	pid = fork();
	if (pid)
		return pid;
	/* A killed benchmark leaves no process behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	conf_of(&conf);
	if (journal_dir) {
		conf.journal_dir = journal_dir;
		conf.rpc_thread_num = 4;
	}
	r = mcm_start(&conf, &where, &m);
	if (r < 0)
		die("master", r);
	for (;;) {
		if (journal_dir && mcm_checkpoint(m) >= 0 && m->journal->longest_ns > longest_hold[0]) {
			longest_hold[0] = m->journal->longest_ns;
			longest_hold[1] = m->journal->longest_cpu_ns;
		}
		usleep(100000);
	}
}

/* ---- the client ---- */

struct bench {
	struct mcp_client *c;
	pid_t master;
	struct mcp_key key[BATCH_MAX];
	struct mcp_put_item item[BATCH_MAX];
	struct mcp_put_done done[BATCH_MAX];
	char text[BATCH_MAX][KEY_LEN + 1];
};

static void call(struct bench *b, uint16_t type, const void *rq, void *ret, struct mcp_reply *mem)
{
	int r = mcp_call(b->c, type, rq, ret, mem, mc_deadline_ms(60000));

	if (r < 0)
		die("call", r);
}

static void client_start(struct bench *b, const char *addr, uint64_t segment)
{
	struct mcp_client_conf conf = {
		.addrs = addr, .client = me, .channel = MCP_CHANNEL_CONTROL, .software = "perf",
	};
	struct mcp_register reg = { .client = me, .name = mcp_bytes("perf:1", 6), .engine = me };
	struct mcp_mount mount = {
		.segment = { 3, 4 }, .client = me, .epoch = 1, .size = segment,
		.name = mcp_bytes("perf:1", 6), .endpoint = mcp_bytes("perf:2", 6),
		.protocol = mcp_bytes("tcp", 3),
	};
	struct mcp_register_reply registered;
	struct mcp_mount_reply mounted;
	struct mcp_reply mem = { 0 };
	int r, tries;

	r = mcp_client_open(&conf, &b->c);
	if (r < 0)
		die("client", r);
	for (tries = 0, r = -1; r < 0 && tries < 500; tries++) {
		r = mcp_call(b->c, MCP_REGISTER, &reg, &registered, &mem, mc_deadline_ms(1000));
		if (r < 0)
			usleep(10000);
	}
	if (r < 0)
		die("register", r);
	mcp_reply_done(&mem);
	call(b, MCP_MOUNT, &mount, &mounted, &mem);
	mcp_reply_done(&mem);
}

static void bench_end(struct bench *b)
{
	mcp_client_close(b->c);
	kill(b->master, SIGKILL);
	waitpid(b->master, NULL, 0);
}

static void fill_keys(struct bench *b, uint64_t first, unsigned n, uint64_t step, uint64_t wrap)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		make_key(b->text[i], (first + i * step) % wrap);
		b->key[i].key = mcp_bytes(b->text[i], key_len);
		b->item[i] = (struct mcp_put_item){ .key = b->key[i].key, .size = 4096 };
	}
}

/* One batch of puts, start and end. */
static void put_batch(struct bench *b, unsigned n)
{
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(b->item, n) };
	struct mcp_put_end end = { .items = mcp_seq(b->done, n) };
	struct mcp_put_start_reply started;
	struct mcp_put_end_reply ended;
	struct mcp_reply mem = { 0 };
	struct mcp_put_grant g;
	struct mcp_iter it;
	unsigned i = 0;

	call(b, MCP_PUT_START, &rq, &started, &mem);
	mcp_iter_init(&it, &started.grants, &mcp_desc_put_grant);
	while (mcp_iter_next(&it, &g)) {
		if (g.status)
			die("put", mc_err_from_wire(g.status));
		b->done[i] = (struct mcp_put_done){ .key = b->key[i].key, .generation = g.generation, .crc = 1 };
		i++;
	}
	mcp_reply_done(&mem);
	call(b, MCP_PUT_END, &end, &ended, &mem);
	mcp_reply_done(&mem);
}

struct timing {
	uint64_t wall, cpu;
};

static struct timing timing_begin(const struct bench *b)
{
	return (struct timing){ mc_now_ns(), cpu_ns_of(b->master) };
}

static void timing_print(const struct bench *b, const char *what, struct timing t, uint64_t n)
{
	double wall = (double)(mc_now_ns() - t.wall), cpu = (double)(cpu_ns_of(b->master) - t.cpu);

	perf_row(what, "rate", (double)n * 1e3 / wall, "M/s");
	perf_row(what, "per core", (double)n * 1e3 / cpu, "M/s of the master's CPU time");
}

static void put_all(struct bench *b, uint64_t objects)
{
	uint64_t i;
	unsigned n;

	for (i = 0; i < objects; i += n) {
		n = objects - i < 500 ? (unsigned)(objects - i) : 500;
		fill_keys(b, i, n, 1, UINT64_MAX);
		put_batch(b, n);
	}
}

static void remove_all(struct bench *b, uint64_t objects)
{
	struct mcp_remove_match rq = { .flags = MCP_REMOVE_FORCE };
	struct mcp_remove_match_reply reply;
	struct mcp_reply mem = { 0 };

	call(b, MCP_REMOVE_MATCH, &rq, &reply, &mem);
	if (reply.removed != objects)
		die("remove all", -MC_EINTERNAL);
	mcp_reply_done(&mem);
}

static void memory_print(const struct bench *b, const char *what, uint64_t before, uint64_t objects)
{
	double one = (double)(rss_of(b->master) - before) / (double)objects;

	perf_row(what, "RSS of one", one, "B");
	perf_row(what, "key of one", key_len, "B of these");
	perf_row(what, "all else", one - key_len, "B of these");
}

static void bench_puts(struct bench *b, uint64_t objects)
{
	uint64_t before = rss_of(b->master);
	struct timing t = timing_begin(b);

	put_all(b, objects);
	timing_print(b, "put start+end, batches of 500", t, objects);
	memory_print(b, "objects in the master's memory", before, objects);
	/* Pages that the kernel has already zeroed, as in a master that has run for a while. */
	remove_all(b, objects);
	t = timing_begin(b);
	put_all(b, objects);
	timing_print(b, "put start+end, 500, memory touched", t, objects);
}

static void bench_exists(struct bench *b, uint64_t objects, unsigned batch, uint32_t flags,
			 const char *what)
{
	struct mcp_exist rq = { .flags = flags, .keys = mcp_seq(b->key, batch) };
	uint64_t total = perf_n(2000000, 20000), done, encode = 0, began;
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	struct timing t = timing_begin(b);
	unsigned i;

	for (done = 0; done < total; done += batch) {
		began = mc_now_ns();
		/* in an order that does not favour the index */
		fill_keys(b, done * 7919, batch, 104729, objects);
		encode += mc_now_ns() - began;
		call(b, MCP_EXIST, &rq, &reply, &mem);
		for (i = 0; i < batch; i++)
			if (!((const uint8_t *)reply.present.data)[i])
				die("a key is missing", -MC_ENOOBJECT);
		mcp_reply_done(&mem);
	}
	/* The time for generating the keys is not measured. */
	t.wall += encode;
	timing_print(b, what, t, total);
}

static void bench_gets(struct bench *b, uint64_t objects, unsigned batch)
{
	struct mcp_get rq = { .flags = MCP_GET_LEASE, .keys = mcp_seq(b->key, batch) };
	uint64_t total = perf_n(500000, 5000), done, other = 0, began;
	static struct mcp_pin pin[BATCH_MAX];
	struct mcp_release release = { .pins = mcp_seq(pin, batch) };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_object o;
	struct mcp_iter it;
	struct timing t = timing_begin(b);
	unsigned i;

	for (done = 0; done < total; done += batch) {
		began = mc_now_ns();
		fill_keys(b, done * 7919, batch, 104729, objects);
		other += mc_now_ns() - began;
		call(b, MCP_GET, &rq, &reply, &mem);
		mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
		for (i = 0; mcp_iter_next(&it, &o); i++)
			pin[i].pin = o.pin;
		mcp_reply_done(&mem);
		mcp_send(b->c, MCP_RELEASE, &release);
	}
	t.wall += other;
	timing_print(b, "get with lease+release, 500", t, total);
}

static void bench_list(struct bench *b, uint64_t objects)
{
	struct mcp_list rq = { .flags = MCP_LIST_DIR, .limit = 1000 };
	struct timing t = timing_begin(b);
	struct mcp_list_reply reply;
	struct mcp_reply mem = { 0 };
	uint8_t cursor[64];
	uint64_t n = 0;

	do {
		call(b, MCP_LIST, &rq, &reply, &mem);
		n += reply.entries.count;
		memcpy(cursor, reply.cursor.data, reply.cursor.len);
		rq.cursor = mcp_bytes(cursor, reply.cursor.len);
		mcp_reply_done(&mem);
	} while (rq.cursor.len);
	if (n != objects)
		die("listing", -MC_EINTERNAL);
	timing_print(b, "listing of one directory", t, n);
}

/* The same requests to masters of all sizes. */
static void bench_sizes(struct bench *b, uint64_t most)
{
	struct mcp_exist one = { .flags = MCP_EXIST_PEEK, .keys = mcp_seq(b->key, 1) };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	char what[64], addr[64];
	uint64_t n, i, before, cpu, puts = perf_n(50000, 1000), asks = perf_n(20000, 200);
	struct timing t;

	for (n = 10000; n <= most; n *= 10) {
		snprintf(addr, sizeof(addr), "unix:@perf-master-%d-%llu", (int)getpid(),
			 (unsigned long long)n);
		key_len = n >= 10000000 ? 32 : KEY_LEN;
		b->master = master_start(addr);
		client_start(b, addr, (n + 60000) * 4096);
		before = rss_of(b->master);
		put_all(b, n);
		snprintf(what, sizeof(what), "%llu objects, put start+end, 500", (unsigned long long)n);
		if (n >= 1000000)
			memory_print(b, what, before, n);
		t = timing_begin(b);
		for (i = 0; i < puts; i += 500) {
			fill_keys(b, n + i, 500, 1, UINT64_MAX);
			put_batch(b, 500);
		}
		timing_print(b, what, t, puts);
		snprintf(what, sizeof(what), "%llu objects, exists, 500", (unsigned long long)n);
		bench_exists(b, n, 500, 0, what);
		snprintf(what, sizeof(what), "%llu objects, one exist", (unsigned long long)n);
		cpu = cpu_ns_of(b->master);
		for (i = 0; i < asks; i++) {
			fill_keys(b, i * 7919, 1, 1, n);
			call(b, MCP_EXIST, &one, &reply, &mem);
			mcp_reply_done(&mem);
		}
		perf_row(what, "CPU time", (double)(cpu_ns_of(b->master) - cpu) / 1e3 / (double)asks, "us");
		bench_end(b);
	}
	key_len = KEY_LEN;
}

/* A full pool: each put evicts. */
static void bench_evict(struct bench *b, uint64_t objects)
{
	uint64_t total = perf_n(200000, 2000), i;
	struct timing t = timing_begin(b);

	for (i = 0; i < total; i += 500) {
		fill_keys(b, objects + i, 500, 1, UINT64_MAX);
		put_batch(b, 500);
	}
	timing_print(b, "put start+end when full (evicting)", t, total);
}

/* ---- latency of one request during heavy requests of other clients ---- */

#define ASKS perf_n(20000, 200)

static const char *busy_addr;
static volatile bool busy_end;

static struct mcp_client *another_client(uint64_t id)
{
	struct mcp_client_conf conf = {
		.addrs = busy_addr, .client = { 9, id }, .channel = MCP_CHANNEL_CONTROL, .software = "perf",
	};
	struct mcp_client *c;
	int r = mcp_client_open(&conf, &c);

	if (r < 0)
		die("client", r);
	return c;
}

static void *remove_nothing(void *arg)
{
	struct mcp_remove_match rq = { .pattern = mcp_bytes("^no (such|other) key$", 21) };
	struct mcp_client *c = another_client(1);
	struct mcp_remove_match_reply reply;
	struct mcp_reply mem = { 0 };

	while (!busy_end) {
		if (mcp_call(c, MCP_REMOVE_MATCH, &rq, &reply, &mem, mc_deadline_ms(60000)) < 0)
			die("remove", -MC_EINTERNAL);
		mcp_reply_done(&mem);
	}
	mcp_client_close(c);
	return arg;
}

static void *list_everything(void *arg)
{
	struct mcp_list rq = { .limit = 1000 };
	struct mcp_client *c = another_client(2);
	struct mcp_list_reply reply;
	struct mcp_reply mem = { 0 };
	uint8_t cursor[64];

	while (!busy_end) {
		if (mcp_call(c, MCP_LIST, &rq, &reply, &mem, mc_deadline_ms(60000)) < 0)
			die("list", -MC_EINTERNAL);
		memcpy(cursor, reply.cursor.data, reply.cursor.len);
		rq.cursor = mcp_bytes(cursor, reply.cursor.len);
		mcp_reply_done(&mem);
	}
	mcp_client_close(c);
	return arg;
}

static double latency_print(struct mc_hist *h, const char *what)
{
	double most = (double)mc_hist_quantile(h, 0.999) / 1e3;

	perf_row(what, "p50", (double)mc_hist_quantile(h, 0.5) / 1e3, "us");
	perf_row(what, "p99", (double)mc_hist_quantile(h, 0.99) / 1e3, "us");
	perf_row(what, "p99.9", most, "us");
	free(h);
	return most;
}

/* p99.9 in microseconds. */
static double ask_often(struct bench *b, uint64_t objects, const char *what)
{
	struct mcp_exist rq = { .flags = MCP_EXIST_PEEK, .keys = mcp_seq(b->key, 1) };
	struct mc_hist *h = calloc(1, sizeof(*h));
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	uint64_t began, asks = ASKS;
	unsigned i;

	if (!h)
		die("memory", -ENOMEM);
	for (i = 0; i < asks; i++) {
		fill_keys(b, (uint64_t)i * 7919, 1, 1, objects);
		began = mc_now_ns();
		call(b, MCP_EXIST, &rq, &reply, &mem);
		mc_hist_add(h, mc_now_ns() - began);
		mcp_reply_done(&mem);
	}
	return latency_print(h, what);
}

/* ---- limits of the machine: bytes to and fro between two processes ---- */

static void *spin(void *arg)
{
	volatile bool *end = arg;

	while (!*end)
		;
	return arg;
}

/* p99.9 of a ping-pong, with @spinners busy threads beside it. */
static double ping_pong(unsigned spinners, const char *what)
{
	struct mc_hist *h = calloc(1, sizeof(*h));
	volatile bool end = false;
	char bytes[64] = { 0 };
	struct mc_thread thread[16];
	uint64_t began, asks = ASKS;
	int pair[2];
	unsigned i;
	pid_t pid;

	if (!h || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		die("memory", -ENOMEM);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		/* Same scheduling as the master's loops. */
		mc_thread_prompt();
		while (read(pair[1], bytes, sizeof(bytes)) == sizeof(bytes))
			if (write(pair[1], bytes, sizeof(bytes)) != sizeof(bytes))
				break;
		_exit(0);
	}
	for (i = 0; i < spinners; i++)
		if (mc_thread_start(&thread[i], "spin", spin, (void *)&end) < 0)
			die("threads", -EAGAIN);
	for (i = 0; i < asks; i++) {
		began = mc_now_ns();
		if (write(pair[0], bytes, sizeof(bytes)) != sizeof(bytes) ||
		    read(pair[0], bytes, sizeof(bytes)) != sizeof(bytes))
			die("ping-pong", -errno);
		mc_hist_add(h, mc_now_ns() - began);
	}
	end = true;
	for (i = 0; i < spinners; i++)
		mc_thread_join(thread[i]);
	close(pair[0]);
	close(pair[1]);
	waitpid(pid, NULL, 0);
	return latency_print(h, what);
}

static void bench_latency(struct bench *b, uint64_t objects)
{
	char addr[64], dir[] = "/tmp/perf-master-XXXXXX", command[64];
	double raw[2], ours[2];
	struct mc_thread thread[2];

	longest_hold = mmap(NULL, 2 * sizeof(*longest_hold), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (longest_hold == MAP_FAILED)
		die("memory", -errno);
	/* One busy thread: the checkpoint; three: removal and listing too, whose clients mostly
	 * wait for the server. */
	raw[0] = ping_pong(1, "raw round trip, 1 spinning thread beside it");
	raw[1] = ping_pong(3, "raw round trip, 3 spinning threads beside it");
	if (!mkdtemp(dir))
		die("directory", -errno);
	journal_dir = dir;
	snprintf(addr, sizeof(addr), "unix:@perf-master-busy-%d", (int)getpid());
	busy_addr = addr;
	b->master = master_start(addr);
	client_start(b, addr, objects * 4096);
	put_all(b, objects);
	ours[0] = ask_often(b, objects, "one exist, checkpoints beside it");
	if (mc_thread_start(&thread[0], "remove", remove_nothing, NULL) < 0 ||
	    mc_thread_start(&thread[1], "list", list_everything, NULL) < 0)
		die("threads", -ENOMEM);
	ours[1] = ask_often(b, objects, "one exist, remove, listing, checkpoint too");
	busy_end = true;
	perf_row("one exist, checkpoints beside it", "p99.9", ours[0] / raw[0], "times the raw one");
	perf_row("one exist, remove, listing, checkpoint too", "p99.9", ours[1] / raw[1],
		 "times the raw one");
	perf_row("checkpoints beside all that", "longest lock", (double)longest_hold[0] / 1e3, "us");
	perf_row("checkpoints beside all that", "CPU time of it", (double)longest_hold[1] / 1e3,
		 "us at most");
	mc_thread_join(thread[0]);
	mc_thread_join(thread[1]);
	bench_end(b);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	if (system(command) != 0)
		fprintf(stderr, "perf_master: %s is left\n", dir);
	journal_dir = NULL;
}

/* ---- the index alone, without RPC ---- */

static void core_mount(struct mcm *m, uint64_t size)
{
	struct mcp_mount rq = {
		.segment = { 3, 4 }, .client = me, .epoch = 1, .size = size,
		.name = mcp_bytes("perf:1", 6), .endpoint = mcp_bytes("perf:2", 6),
		.protocol = mcp_bytes("tcp", 3),
	};
	struct mcp_mount_reply reply;

	if (mcm_client_opened(m, me) < 0 || mcm_mount(m, me, NULL, &rq, &reply) < 0)
		die("mount", -MC_EINTERNAL);
}

/* Put @n objects of 4 KiB from number @first on.  With @worst, return the longest CPU time of one
 * put, which other programs do not disturb. */
static uint64_t core_puts(struct mcm *m, struct mcm_session *s, uint64_t first, uint64_t n,
			  bool worst)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .size = 4096 };
	struct mcp_put_done done = { .crc = 1 };
	struct mcm_put_granted granted;
	uint64_t i, began = 0, took, most = 0;
	char text[KEY_LEN + 1];

	for (i = first; i < first + n; i++) {
		make_key(text, i);
		done.key = item.key = mcp_bytes(text, KEY_LEN);
		if (worst)
			began = cpu_ns_of(getpid());
		if (mcm_put_start(m, s, &rq, &item, &granted) < 0)
			die("put", -MC_EINTERNAL);
		took = worst ? cpu_ns_of(getpid()) - began : 0;
		most = took > most ? took : most;
		done.generation = granted.generation;
		if (mcm_put_end(m, s, &done) < 0)
			die("put end", -MC_EINTERNAL);
	}
	return most;
}

static void promise_all(struct mcm *m, uint64_t first, uint64_t n)
{
	char text[KEY_LEN + 1];
	struct mcp_bytes key;
	uint8_t present;
	uint64_t i;

	for (i = first; i < first + n; i++) {
		make_key(text, i);
		key = mcp_bytes(text, KEY_LEN);
		mcm_exist(m, 0, &key, 1, &present);
	}
}

/* Evict 1 GiB of 4 KiB objects for as many new ones, one put after the other. */
static void bench_core_evict(void)
{
	uint64_t n = perf_n(262144, 4096), cpu, empty, full, worst;
	struct mcm_session *s = NULL;
	struct mcm_conf conf;
	struct mcm *m;
	int r;

	conf_of(&conf);
	r = mcm_core_new(&conf, &m);
	if (r == 0)
		r = mcm_session_new(m, me, &s);
	if (r < 0)
		die("core", r);
	core_mount(m, n * 4096);
	cpu = cpu_ns_of(getpid());
	core_puts(m, s, 0, n, false);
	empty = cpu_ns_of(getpid()) - cpu;
	cpu = cpu_ns_of(getpid());
	core_puts(m, s, n, n, false);
	full = cpu_ns_of(getpid()) - cpu;
	worst = core_puts(m, s, 2 * n, n, true);
	perf_row("1 GiB of 4 KiB objects put, empty pool", "in total", (double)empty / 1e9, "s");
	perf_row("1 GiB of 4 KiB objects put, full pool", "in total", (double)full / 1e9, "s");
	perf_row("1 GiB of 4 KiB objects put, full pool", "evicting", (double)full / 1e9 -
		 (double)empty / 1e9, "s of it");
	perf_row("1 GiB of 4 KiB objects put, full pool", "worst put", (double)worst / 1e3, "us");
	promise_all(m, 2 * n, n);
	cpu = cpu_ns_of(getpid());
	core_puts(m, s, 3 * n, n / 4, false);
	full = cpu_ns_of(getpid()) - cpu;
	perf_row("put of 4 KiB, all others have promise leases", "one", (double)full * 4e-3 / (double)n, "us");
	mcm_session_free(m, s);
	mcm_core_free(m);
	mc_options_free(options);
}

/* Exists. */
static void bench_core(uint64_t objects)
{
	static char text[500][KEY_LEN + 1];
	struct mcp_bytes key[500];
	uint8_t present[500];
	struct mcm_session *s;
	struct mcm_conf conf;
	uint64_t i, began, spent = 0, total = perf_n(2000000, 20000);
	struct mcm *m;
	unsigned j;
	int r;

	conf_of(&conf);
	r = mcm_core_new(&conf, &m);
	if (r == 0)
		r = mcm_session_new(m, me, &s);
	if (r < 0)
		die("core", r);
	for (i = 0; i < objects; i++) {
		struct mcm_put_request rq = { .flags = MCP_PUT_COMMIT, .copies = 1 };
		struct mcp_put_item item = { .size = 0 };
		struct mcm_put_granted granted;

		make_key(text[0], i);
		item.key = mcp_bytes(text[0], KEY_LEN);
		if (mcm_put_start(m, s, &rq, &item, &granted) < 0)
			die("core put", -MC_EINTERNAL);
	}
	for (i = 0; i < total; i += 500) {
		for (j = 0; j < 500; j++) {
			make_key(text[j], (i * 7919 + j * 104729) % objects);
			key[j] = mcp_bytes(text[j], KEY_LEN);
		}
		began = cpu_ns_of(getpid());
		mcm_exist(m, 0, key, 500, present);
		spent += cpu_ns_of(getpid()) - began;
	}
	perf_row("exists in the index alone, 500", "per core", (double)total * 1e3 / (double)spent, "M/s");
	mcm_session_free(m, s);
	mcm_core_free(m);
	mc_options_free(options);
}

static void bench_wire(struct bench *b, uint64_t objects)
{
	char addr[64];

	snprintf(addr, sizeof(addr), "unix:@perf-master-%d", (int)getpid());
	b->master = master_start(addr);
	client_start(b, addr, objects * 4096);
	bench_puts(b, objects);
	bench_exists(b, objects, 500, 0, "exists, batches of 500");
	bench_exists(b, objects, 5000, 0, "exists, batches of 5000");
	bench_exists(b, objects, 500, MCP_EXIST_PEEK, "exists without promise, 500");
	ask_often(b, objects, "one exist, without other requests");
	bench_gets(b, objects, 500);
	bench_list(b, objects);
	bench_evict(b, objects);
	bench_end(b);
}

int main(int argc, char **argv)
{
	const char *number = argc > 1 ? argv[1] : getenv("PERF_OBJECTS");
	uint64_t objects = number ? strtoull(number, NULL, 10) : perf_n(1000000, 10000);
	const char *part = argc > 2 ? argv[2] : "";
	static struct bench b;

	if (!objects)
		objects = 1;
	if (!*part || !strcmp(part, "wire"))
		bench_wire(&b, objects);
	if (!*part || !strcmp(part, "sizes"))
		bench_sizes(&b, objects);
	if (!*part || !strcmp(part, "latency"))
		bench_latency(&b, objects < 1000000 ? objects : 1000000);
	if (!*part || !strcmp(part, "core"))
		bench_core(objects);
	if (!*part || !strcmp(part, "evict"))
		bench_core_evict();
	perf_full(objects < FULL_MAX ? objects : FULL_MAX, part);
	return 0;
}
