/* SPDX-License-Identifier: Apache-2.0
 * transfer_engine_bench.c - upstream's benchmark of the transfer engine: a target lends memory, the threads of
 * an initiator read or write it in batches. */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mooncake/mce_te.h>

#include "common/env.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/gpu/gpu.h"
#include "common/metrics.h"
#include "common/options/options.h"
#include "common/net/guard.h"
#include "common/net/protocol.h"
#include "common/process/stdfds.h"
#include "common/sys/thread.h"

#define OPT MC_OPT_FIELD
struct conf {
#include "tools/transfer_engine_bench.def"
};
#undef OPT

#define OPT(...) MC_OPT_ROW(struct conf, __VA_ARGS__)
static const struct mc_opt_row rows[] = {
#include "tools/transfer_engine_bench.def"
	{ .name = NULL },
};
#undef OPT

/* The run fails when a batch takes longer. */
#define BATCH_MS 120000

struct bench {
	/* constant while threads run */
	struct conf conf;
	struct mce_te *te;
	unsigned char *mem;
	segment_id_t segment;
	uint64_t remote, room;	/* first address, and the smaller size of both sides */
	/* atomic */
	bool stop;
	uint64_t batches, failed;
	struct mc_hist latency;	/* latency of each batch, ns */
};

struct worker {
	struct bench *b;
	unsigned index;
	struct mc_thread thread;
};

/* Copy the library's error detail to ours. */
static int library_result(int r)
{
	return r < 0 ? mc_fail(r, "%s", mce_te_error_detail(r)) : r;
}

/* ---- one thread -------------------------------------------------------------------------------- */

/* The ranges of the threads are adjacent, as in upstream. */
static void fill_batch(const struct worker *w, struct transfer_request *r)
{
	const struct conf *c = &w->b->conf;
	uint64_t places = w->b->room / c->block_size;

	for (uint64_t i = 0; i < (uint64_t)c->batch_size; i++) {
		uint64_t at = (i * (uint64_t)c->threads + w->index) % places * c->block_size;

		r[i].opcode = strcmp(c->operation, "read") ? OPCODE_WRITE : OPCODE_READ;
		r[i].source = w->b->mem + at;
		r[i].target_id = w->b->segment;
		r[i].target_offset = w->b->remote + at;
		r[i].length = c->block_size;
	}
}

static int run_batch(struct bench *b, const struct transfer_request *r)
{
	struct mce_te_batch_status st;
	uint64_t begin = mc_now_ns();
	batch_id_t id;
	int e;

	e = mce_te_batch_new(b->te, (size_t)b->conf.batch_size, &id);
	if (e < 0)
		return e;
	e = mce_te_submit(b->te, id, r, (size_t)b->conf.batch_size, NULL);
	if (e == 0)
		e = mce_te_wait(b->te, id, BATCH_MS);
	if (e < 0)
		(void)mce_te_cancel(b->te, id);
	else
		e = mce_te_batch_status(b->te, id, &st);
	(void)mce_te_batch_free(b->te, id);
	if (e < 0)
		return e;
	mc_hist_add(&b->latency, mc_now_ns() - begin);
	return st.status == STATUS_COMPLETED ? 0 : -EIO;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;
	struct transfer_request *r;

	r = calloc((size_t)b->conf.batch_size, sizeof(*r));
	if (!r) {
		__atomic_fetch_add(&b->failed, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	fill_batch(w, r);
	while (!__atomic_load_n(&b->stop, __ATOMIC_RELAXED)) {
		int e = run_batch(b, r);

		__atomic_fetch_add(e < 0 ? &b->failed : &b->batches, 1, __ATOMIC_RELAXED);
		if (e < 0) {
			fprintf(stderr, "worker %u: a batch failed: %s\n", w->index,
				e == -EIO ? "the target refused or was lost" : mce_te_error_detail(e));
			break;
		}
	}
	free(r);
	return NULL;
}

/* ---- the run ----------------------------------------------------------------------------------- */

static int unit_of(const char *name, double *ret)
{
	static const struct {
		const char *name;
		double bytes;
	} units[] = {
		{ "GB", 1e9 }, { "GiB", 1073741824.0 }, { "Gb", 1e9 / 8 }, { "MB", 1e6 },
		{ "MiB", 1048576.0 }, { "Mb", 1e6 / 8 }, { "KB", 1e3 }, { "KiB", 1024.0 }, { "Kb", 1e3 / 8 },
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(units[i].name, name)) {
			*ret = units[i].bytes;
			return 0;
		}
	return mc_fail(-EINVAL, "unknown unit: %s", name);
}

static void print_json(const struct bench *b, double seconds, double rate)
{
	const struct conf *c = &b->conf;
	const struct mc_hist *h = &b->latency;
	json_t *o;

	o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:f, s:{s:f, s:f, s:f, s:f}}",
		      "operation", c->operation, "segment", c->segment_id, "memory", c->memory,
		      "block_size", (json_int_t)c->block_size, "batch_size", (json_int_t)c->batch_size,
		      "threads", (json_int_t)c->threads, "seconds", seconds,
		      "batches", (json_int_t)b->batches, "failed", (json_int_t)b->failed,
		      "bytes", (json_int_t)(b->batches * (uint64_t)c->batch_size * c->block_size),
		      "bytes_per_second", rate, "batch_latency_us",
		      "p50", (double)mc_hist_quantile(h, 0.5) / 1e3,
		      "p90", (double)mc_hist_quantile(h, 0.9) / 1e3,
		      "p99", (double)mc_hist_quantile(h, 0.99) / 1e3, "max", (double)h->max / 1e3);
	json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	printf("\n");
	json_decref(o);
}

static void bench_report(const struct bench *b, double seconds)
{
	const struct conf *c = &b->conf;
	double rate, unit = 1;

	rate = (double)b->batches * (double)c->batch_size * (double)c->block_size / seconds;
	if (c->json) {
		print_json(b, seconds, rate);
		return;
	}
	(void)unit_of(c->report_unit, &unit);
	printf("Test completed: duration %.2f, batch count %" PRIu64 ", throughput %.*f %s/s\n", seconds,
	       b->batches, (int)c->report_precision, rate / unit, c->report_unit);
}

static int run_threads(struct bench *b)
{
	unsigned n = (unsigned)b->conf.threads, started = 0;
	struct worker *w = calloc(n, sizeof(*w));
	uint64_t begin, end;
	int r = 0;

	if (!w)
		return -ENOMEM;
	begin = mc_now_ns();
	end = begin + b->conf.duration * MC_NS_PER_MS;
	while (started < n && r == 0) {
		w[started] = (struct worker){ .b = b, .index = started };
		r = mc_thread_start(&w[started].thread, "bench", worker_main, &w[started]);
		started += r == 0;
	}
	while (r == 0 && mc_now_ns() < end && !__atomic_load_n(&b->failed, __ATOMIC_RELAXED))
		mc_sleep_ms(10);
	__atomic_store_n(&b->stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < started; i++)
		mc_thread_join(w[i].thread);
	free(w);
	if (r == 0)
		bench_report(b, (double)(mc_now_ns() - begin) / 1e9);
	return r < 0 ? r : b->failed ? mc_fail(-EIO, "batches have failed") : 0;
}

static int run_initiator(struct bench *b)
{
	uint64_t len;
	int r;

	r = mce_te_open_segment(b->te, b->conf.segment_id, 0, &b->segment);
	if (r == 0)
		r = mce_te_first_buffer(b->te, b->segment, &b->remote, &len);
	if (r < 0)
		return library_result(r);
	b->room = len < b->conf.buffer_size ? len : b->conf.buffer_size;
	if (b->room < b->conf.block_size)
		return mc_fail(-EINVAL, "the buffers are smaller than a block");
	return run_threads(b);
}

static int run_target(struct bench *b)
{
	if (strcmp(b->conf.metadata_server, "P2PHANDSHAKE") == 0)
		printf("Transfer Engine RPC using P2P handshake, listening on %s\n", mce_te_address(b->te));
	printf("Target is ready, segment %s\n", mce_te_name(b->te));
	fflush(stdout);
	for (int sig = 0; sig != SIGINT && sig != SIGTERM;)
		sig = mc_signals_wait();
	return 0;
}

/* ---- set-up ------------------------------------------------------------------------------------ */

static int check_conf(const struct conf *c)
{
	double unit;
	int r;

	if (strcmp(c->mode, "initiator") && strcmp(c->mode, "target"))
		return mc_fail(-EINVAL, "mode must be initiator or target, not %s", c->mode);
	if (strcmp(c->operation, "read") && strcmp(c->operation, "write"))
		return mc_fail(-EINVAL, "operation must be read or write, not %s", c->operation);
	if (strcmp(c->memory, "managed") && strcmp(c->memory, "user"))
		return mc_fail(-EINVAL, "memory must be managed or user, not %s", c->memory);
	r = mc_protocol_parse(c->protocol);
	if (r < 0 || r == MC_PROTOCOL_RPC_ONLY)
		return r < 0 ? r : mc_fail(-EINVAL, "protocol %s moves no bytes, use tcp or rdma", c->protocol);
	return unit_of(c->report_unit, &unit);
}

/* Memory of a GPU, for the engine of which this process loads the driver. */
static int memory_open_gpu(struct bench *b, size_t len, void **ret)
{
	const struct mc_gpu_driver *d = mc_gpu_load();
	char location[32];
	int r;

	if (!d)
		return mc_fail(-MC_ENOTSUP, "--use_vram=true: %s", mc_err_detail(-MC_ENOTSUP));
	r = d->alloc((int)b->conf.gpu_id, len, ret);
	if (r < 0)
		return r;
	snprintf(location, sizeof(location), "%s:%d", d->name, (int)b->conf.gpu_id);
	r = library_result(mce_te_register(b->te, *ret, len, location, 1));
	if (r < 0)
		d->free(*ret);
	return r;
}

static int memory_fill(void *to, size_t len)
{
	static char bytes[1 << 20];
	int r = 0;

	memset(bytes, 0x5a, sizeof(bytes));
	for (size_t at = 0; at < len && r == 0; at += sizeof(bytes))
		r = mc_gpu_memcpy((char *)to + at, bytes, len - at < sizeof(bytes) ? len - at : sizeof(bytes));
	return r;
}

static int memory_open(struct bench *b)
{
	size_t len = b->conf.buffer_size;
	void *at;
	int r;

	if (b->conf.use_vram) {
		r = memory_open_gpu(b, len, &at);
		if (r < 0)
			return r;
	} else if (!strcmp(b->conf.memory, "managed")) {
		r = mce_te_manage(b->te, len, (int)b->conf.numa_node, &at);
	} else {
		at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED)
			return mc_fail(-errno, "cannot allocate %zu bytes", len);
		(void)madvise(at, len, MADV_HUGEPAGE);
		r = mce_te_register(b->te, at, len, "*", 1);
	}
	if (r < 0)
		return library_result(r);
	b->mem = at;
	return b->conf.init_mem ? memory_fill(at, len) : 0;
}

/* User memory is freed at process exit, after the engine was closed. */
static void memory_close(struct bench *b)
{
	if (b->mem && !b->conf.use_vram && !strcmp(b->conf.memory, "managed"))
		(void)mce_te_unmanage(b->te, b->mem);
	else if (b->mem)
		(void)mce_te_unregister(b->te, b->mem);
	if (b->mem && b->conf.use_vram)
		mc_gpu()->free(b->mem);
}

/* Apply the rules for addresses that other hosts reach, and for these hosts.  The engine listens at the host of
 * its name, or with a metadata server at MC_TCP_BIND_ADDRESS, without which it takes all addresses.  *name
 * becomes the loopback where that is the default. */
static int check_address(const struct bench *b, const char **name, const char *own)
{
	const struct mc_guard g = {
		.harm = "read and write the memory of this program", .allowed = b->conf.allow_insecure,
	};
	const char *bind = mc_env_str("MC_TCP_BIND_ADDRESS"), *all = "0.0.0.0";
	bool named = !strcmp(b->conf.metadata_server, "P2PHANDSHAKE") || mc_env_on("MC_LEGACY_RPC_PORT_BINDING");
	int r = 0;

	if (named && **name)
		r = mc_guard_listen(&g, "local_server_name", *name);
	else if (named)
		*name = mc_guard_default(&g, "local_server_name", own);
	else if (bind)
		r = mc_guard_listen(&g, "MC_TCP_BIND_ADDRESS", bind);
	else if (mc_guard_default(&g, "MC_TCP_BIND_ADDRESS", all) != all)
		(void)setenv("MC_TCP_BIND_ADDRESS", MC_GUARD_LOOPBACK, 1);
	/* This program has warned; the library is not to repeat it. */
	if (b->conf.allow_insecure)
		(void)setenv(MC_GUARD_ENV, "1", 1);
	if (*b->conf.upstream_peers)
		(void)setenv("MC_UPSTREAM_PEERS", b->conf.upstream_peers, 1);
	(void)setenv("MC_RDMA_WITH_SECURITY", b->conf.rdma_with_security, 1);
	if (!**name)
		*name = own;
	return r;
}

static int bench_run(struct bench *b)
{
	char host[256] = "localhost";
	struct mce_te_conf te = {
		.size = sizeof(te), .metadata = b->conf.metadata_server,
		.name = b->conf.local_server_name, .nic_filter = b->conf.device_name,
		.nic_priority_matrix = b->conf.nic_priority_matrix,
		.protocol = strcmp(b->conf.protocol, "rdma") ? "tcp" : "rdma",
	};
	int r;

	(void)gethostname(host, sizeof(host) - 1);
	r = check_address(b, &te.name, host);
	if (r == 0)
		r = library_result(mce_te_open(&te, &b->te));
	if (r == 0)
		r = memory_open(b);
	if (r == 0)
		r = strcmp(b->conf.mode, "target") ? run_initiator(b) : run_target(b);
	if (b->te)
		memory_close(b);
	return r;
}

int main(int argc, char **argv)
{
	const struct mc_program prog = {
		.name = "transfer_engine_bench",
		.synopsis = "[OPTION]...",
		.summary = "Measure transfers between two nodes' memory",
		.rows = rows,
	};
	static struct bench b;
	struct mc_options *o = NULL;
	int r;

	mc_stdfds_open();
	r = mc_options_parse(&prog, argc, argv, &b.conf, &o);
	if (r > 0)
		return 0;
	mc_env_scrub();
	if (r == 0)
		mc_options_report(o);
	if (r == 0 && mc_options_argc(o))
		r = mc_fail(-EINVAL, "unexpected argument \"%s\"; options begin with --", mc_options_argv(o, 0));
	if (r == 0)
		r = check_conf(&b.conf);
	if (r < 0) {
		fprintf(stderr, "transfer_engine_bench: %s\n", mc_err_detail(r));
		mc_options_free(o);
		return 2;
	}
	if (!strcmp(b.conf.mode, "target"))
		mc_signals_block();
	r = bench_run(&b);
	if (r == 0 && (fflush(stdout) || ferror(stdout)))
		r = mc_fail(-EIO, "cannot write to standard output: %s", mc_strerror(errno));
	if (r < 0)
		fprintf(stderr, "transfer_engine_bench: %s\n", mc_err_detail(r));
	mce_te_close(b.te);
	mc_options_free(o);
	return r < 0 ? 1 : 0;
}
