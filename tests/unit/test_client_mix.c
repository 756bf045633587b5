/* SPDX-License-Identifier: Apache-2.0
 * test_client_mix.c - eight threads use every call of the store at once, over TCP, against a
 * master with a journal, tenants and an HTTP service, whose memory is too small for them. No
 * call returns an unexpected error, and no reader gets bytes that were never put. Meant for
 * ThreadSanitizer, useful without.
 *
 *	MC_MIX_STEPS=N	calls of each thread, 600 unless said otherwise */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/net/socket.h"
#include "common/sys/thread.h"

#define THREADS 8u
#define STORES 4u		/* two threads each */
#define KEYS 60u
#define SIZE_MAX_OF_ONE 60000u
#define WORD sizeof(uint64_t)

static struct mcm *master;
static mcs_t *owner[2], *store[STORES];
static unsigned steps = 600;
static bool done;
static unsigned reads, misses;

/* ---- contents: each word is the first word plus its position ---- */

struct work {
	struct mc_thread thread;
	unsigned number;
	mcs_t *s;
	uint64_t rnd;
	uint64_t *data, *back;
};

static uint64_t next(struct work *w)
{
	w->rnd ^= w->rnd << 13;
	w->rnd ^= w->rnd >> 7;
	w->rnd ^= w->rnd << 17;
	return w->rnd >> 11;
}

static size_t fill(struct work *w)
{
	size_t n = 1 + next(w) % (next(w) % 4 ? 500 : SIZE_MAX_OF_ONE / WORD), i;
	uint64_t first = next(w) << 16;

	for (i = 0; i < n; i++)
		w->data[i] = first + i;
	return n * WORD;
}

static void check(const uint64_t *p, size_t len)
{
	size_t i;

	assert_int_equal(len % WORD, 0);
	for (i = 1; i < len / WORD; i++)
		if (p[i] != p[0] + i)
			fail_msg("word %zu of %zu is not of this object", i, len / WORD);
	__atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED);
}

static struct mcs_key name_of(struct work *w, char name[32])
{
	unsigned k = (unsigned)(next(w) % KEYS);

	snprintf(name, 32, k % 3 ? "d%u/k%u" : "k%u", k % 3 ? k % 5 : k, k);
	return fixture_key(name);
}

/* @r is a success, or an error that a busy pool may cause: the object is missing or leased, or
 * there is no space. */
static void may(int64_t r, const char *what)
{
	static const int fine[] = {
		MCS_ENOOBJECT, MCS_ELEASED, MCS_EEXISTS, MCS_ENOSPACE, MCS_EREPLICA_GONE,
		MCS_EQUOTA,
	};
	unsigned i;

	if (r >= 0)
		return;
	for (i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		if (r == -fine[i]) {
			__atomic_fetch_add(&misses, 1, __ATOMIC_RELAXED);
			return;
		}
	fail_msg("%s: %s (%d)", what, mcs_error_detail((int)r), (int)r);
}

/* ---- one call each ---- */

static void do_put(struct work *w)
{
	static const char *const group[] = { "", "", "red", "blue" };
	struct mcs_put_opts opts = {
		.flags = (next(w) % 2 ? MCS_PUT_UPSERT : next(w) % 4 ? 0 : MCS_PUT_EXCL) |
			 (next(w) % 8 ? 0 : MCS_PUT_SOFT_PIN),
		.replicas = 1 + next(w) % 2, .soft_pin_ms = 50,
		.data_type = MCS_TYPE_KVCACHE,
	};
	struct iovec iov = { w->data, fill(w) };
	char name[32];

	if (!(opts.flags & MCS_PUT_UPSERT))
		opts.group = fixture_key(group[next(w) % 4]);
	may(mcs_put(w->s, name_of(w, name), &iov, 1, &opts, -1), "put");
}

static void do_batch(struct work *w)
{
	struct mcs_put_item put[4] = { 0 };
	struct mcs_get_item get[4] = { 0 };
	struct iovec iov = { w->data, fill(w) }, into[4];
	struct mcs_key key[4];
	struct mcs_info info[4];
	uint8_t present[4];
	char name[4][32];
	unsigned i;
	int result[4];

	for (i = 0; i < 4; i++) {
		key[i] = name_of(w, name[i]);
		put[i] = (struct mcs_put_item){ .key = key[i], .iov = &iov, .iovcnt = 1 };
		into[i] = (struct iovec){ (char *)w->back + i * SIZE_MAX_OF_ONE, SIZE_MAX_OF_ONE };
		get[i] = (struct mcs_get_item){ .key = key[i], .whole = 1, .iov = &into[i], .iovcnt = 1 };
	}
	may(next(w) % 2 ? mcs_put_batch(w->s, put, 4, NULL, -1) : mcs_upsert_batch(w->s, put, 4, NULL, -1),
	    "put of many");
	for (i = 0; i < 4; i++)
		may(put[i].result, "put of one of many");
	may(mcs_exist(w->s, key, 4, present, -1), "exist");
	may(mcs_stat_batch(w->s, key, 4, info, result, -1), "stat of many");
	may(mcs_get_batch(w->s, get, 4, -1), "get of many");
	for (i = 0; i < 4; i++) {
		may(get[i].result, "get of one of many");
		if (get[i].result > 0)
			check(into[i].iov_base, (size_t)get[i].result);
	}
	if (next(w) % 4 == 0)
		may(mcs_remove_batch(w->s, key, 4, MCS_REMOVE_FORCE, NULL, -1), "remove of many");
}

static void do_get(struct work *w)
{
	struct iovec iov = { w->back, SIZE_MAX_OF_ONE };
	struct mcs_replicas rep;
	struct mcs_info info;
	void *data = NULL;
	char name[32];
	struct mcs_key key = name_of(w, name);
	int64_t n;

	switch (next(w) % 4) {
	case 0:
		n = mcs_get(w->s, key, &iov, 1, -1);
		break;
	case 1:
		iov.iov_len = WORD * (1 + next(w) % 100);
		n = mcs_get_range(w->s, key, WORD * (next(w) % 50), &iov, 1, -1);
		break;
	case 2:
		n = mcs_get_alloc(w->s, key, &data, -1);
		if (n > 0)
			check(data, (size_t)n);
		free(data);
		may(n, "get into new memory");
		return;
	default:
		may(mcs_stat(w->s, key, &info, -1), "stat");
		n = mcs_replicas(w->s, &key, 1, next(w) % 2 ? MCS_PROMISE : 0, &rep, -1);
		may(n, "replicas");
		if (n >= 0)
			mcs_replicas_free(&rep, 1);
		return;
	}
	may(n, "get");
	if (n > 0)
		check(w->back, (size_t)n);
}

static void do_open(struct work *w)
{
	struct iovec iov = { w->back, SIZE_MAX_OF_ONE };
	const void *mapped;
	mcs_object_t *o;
	char name[32];
	int64_t n;
	int r = mcs_object_open(w->s, name_of(w, name), &o, -1);

	may(r, "open");
	if (r < 0)
		return;
	n = mcs_object_read(o, 0, &iov, 1, -1);
	may(n, "read");
	if (n > 0)
		check(w->back, (size_t)n);
	if (mcs_object_map(o, &mapped, -1) == 0) {
		may(mcs_object_verify(o), "verify");
		check(mapped, mcs_object_info(o)->size);
	}
	mcs_object_close(o);
}

static void do_names(struct work *w)
{
	static const char *const prefix[] = { "", "d1/", "k" };
	struct mcs_entry entry;
	mcs_list_t *list;
	char a[32], b[32];
	int dir, r;

	switch (next(w) % 8) {
	case 0:
		dir = (int)(next(w) % 2);
		may(mcs_list_open(w->s, fixture_key(prefix[next(w) % 2]), dir, &list), "listing");
		while ((r = mcs_list_next(list, &entry, -1)) > 0)
			;
		may(r, "listing");
		mcs_list_close(list);
		break;
	case 1:
		may(mcs_remove_match(w->s, fixture_key(prefix[1 + next(w) % 2]), "[37]$",
				     next(w) % 2 ? MCS_REMOVE_FORCE : 0, -1), "remove by pattern");
		break;
	case 2:
	case 3:
		may(mcs_remove(w->s, name_of(w, a), next(w) % 2 ? MCS_REMOVE_FORCE : 0, -1), "remove");
		break;
	default:
		may(mcs_rename(w->s, name_of(w, a), name_of(w, b),
			       next(w) % 2 ? MCS_RENAME_NOREPLACE : 0, -1), "rename");
	}
}

static void do_task(struct work *w)
{
	const char *names[] = { mcs_hostname(owner[next(w) % 2]), NULL };
	struct mcs_task_opts opts = {
		.kind = next(w) % 2 ? MCS_TASK_EVICT : MCS_TASK_DRAIN, .sources = names,
	};
	struct mcs_task *tasks = NULL;
	char id[MCS_TASK_ID];
	int r;

	/* Refused while the previous task still runs. */
	r = mcs_task_create(w->s, &opts, id, -1);
	may(mcs_tasks(w->s, NULL, &tasks, -1), "tasks");
	free(tasks);
	if (r == 0)
		(void)mcs_task_cancel(w->s, id, -1);
}

static void do_pool(struct work *w)
{
	struct mcs_segment *segments = NULL;
	struct mcs_tenant *tenants = NULL;
	struct mcs_event event;
	struct mcs_pool pool;
	mcs_watch_t *watch;
	char *text;

	may(mcs_pool_stat(w->s, &pool, -1), "pool");
	may(mcs_segments(w->s, &segments, -1), "segments");
	free(segments);
	may(mcs_tenants(w->s, NULL, &tenants, -1), "tenants");
	free(tenants);
	may(mcs_quota_set(w->s, "blue", (1 + next(w) % 3) * MIB, -1), "quota");
	may(mcs_watch_open(w->s, fixture_key(""), 0, &watch, -1), "watch");
	may(mcs_watch_next(watch, &event, 20), "event");
	mcs_watch_close(watch);
	text = mcs_metrics_text();
	assert_non_null(text);
	free(text);
}

static void *worker(void *arg)
{
	struct work *w = arg;
	unsigned i;

	w->data = malloc(SIZE_MAX_OF_ONE + WORD);
	w->back = malloc(4 * SIZE_MAX_OF_ONE);
	for (i = 0; i < steps; i++) {
		switch (next(w) % 32) {
		case 0:
			do_pool(w);
			break;
		case 1:
			do_task(w);
			break;
		case 2:
		case 3:
		case 4:
			do_batch(w);
			break;
		case 5:
		case 6:
			do_open(w);
			break;
		case 7:
		case 8:
		case 9:
		case 10:
			do_names(w);
			break;
		case 11:
		case 12:
		case 13:
		case 14:
		case 15:
		case 16:
		case 17:
		case 18:
			do_get(w);
			break;
		default:
			do_put(w);
		}
	}
	free(w->data);
	free(w->back);
	return NULL;
}

/* ---- beside them ---- */

/* HTTP requests of operators and of Prometheus. */
static void *observer(void *arg)
{
	static const char *const path[] = {
		"/metrics", "/metrics/summary", "/health", "/get_all_keys", "/get_all_segments",
		"/api/v1/tenant_quotas",
	};
	char addr[64], buf[4096];
	unsigned i;
	int fd, n;

	(void)arg;
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", mcm_http_port(master));
	for (i = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); i++) {
		fd = mc_socket_connect(addr, mc_deadline_ms(20000));
		assert_true(fd >= 0);
		n = snprintf(buf, sizeof(buf), "GET %s HTTP/1.0\r\n\r\n", path[i % 6]);
		assert_int_equal(send(fd, buf, (size_t)n, MSG_NOSIGNAL), n);
		while ((n = (int)recv(fd, buf, sizeof(buf), 0)) > 0 || (n < 0 && errno == EAGAIN))
			if (n < 0)
				usleep(1000);
		close(fd);
		usleep(5000);
	}
	return NULL;
}

/* Clients of another tenant that connect and disconnect, one of them without closing its handle. */
static void *visitor(void *arg)
{
	struct mcs_conf conf;
	mcs_t *s;
	int r;

	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		mcs_conf_init(&conf);
		conf.master = mcm_addr(master, 0);
		conf.tenant = "blue";
		conf.timeout_ms = 20000;
		r = mcs_open(&conf, &s);
		assert_int_equal(r, 0);
		r = fixture_put(s, "mine", 5000, 7, MCS_PUT_UPSERT);
		may(r, "a visitor's put");
		/* the patterns of other tenants do not match it */
		if (r == 0 && mcs_remove(s, fixture_key("mine"), MCS_REMOVE_FORCE, -1) < 0)
			__atomic_fetch_add(&misses, 1, __ATOMIC_RELAXED);
		mcs_close(s);
	}
	return NULL;
}

static char dir[] = "/tmp/mc-mix-XXXXXX";
static struct mc_options *options;

static void start(void)
{
	static const char *const addrs[] = { "127.0.0.1:0", NULL };
	const struct mcm_listen where = { .addrs = addrs, .http_addr = "127.0.0.1:0" };
	struct mcm_conf conf;
	unsigned i;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
	conf.default_kv_lease_ttl = 100;
	conf.journal_dir = dir;
	conf.journal_checkpoint_size = 65536;
	conf.journal_sync = (char *)"fdatasync";
	conf.enable_multi_tenants = true;
	conf.rpc_thread_num = 3;
	conf.client_ttl = 3600 * 1000;
	assert_int_equal(mcm_start(&conf, &where, &master), 0);
	for (i = 0; i < 2; i++)
		owner[i] = fixture_store_with(2 * MIB, 0, mcm_addr(master, 0));
	assert_int_equal(mcs_quota_set(owner[0], "default", 3 * MIB, -1), 0);
	assert_int_equal(mcs_quota_set(owner[0], "blue", MIB, -1), 0);
	for (i = 0; i < STORES; i++)
		store[i] = fixture_store_with(0, i % 2, mcm_addr(master, 0));
}

static void stop(void)
{
	char command[64];
	unsigned i;

	for (i = 0; i < STORES; i++)
		mcs_close(store[i]);
	for (i = 0; i < 2; i++)
		mcs_close(owner[i]);
	mcm_stop(master);
	mc_options_free(options);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

static void everything_at_once(void **state)
{
	struct work work[THREADS];
	struct mc_thread beside[2];
	unsigned i;

	(void)state;
	if (getenv("MC_MIX_STEPS"))
		steps = (unsigned)atoi(getenv("MC_MIX_STEPS"));
	start();
	assert_int_equal(mc_thread_start(&beside[0], "observer", observer, NULL), 0);
	assert_int_equal(mc_thread_start(&beside[1], "visitor", visitor, NULL), 0);
	for (i = 0; i < THREADS; i++) {
		work[i] = (struct work){
			.number = i, .s = store[i % STORES],
			.rnd = (i + 1) * 0x9e3779b97f4a7c15ull,
		};
		assert_int_equal(mc_thread_start(&work[i].thread, "worker", worker, &work[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		mc_thread_join(work[i].thread);
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++)
		mc_thread_join(beside[i]);
	printf("%u objects read, %u calls found nothing, no room, or a reader\n", reads, misses);
	/* The calls succeeded often enough: the test did not run on errors only. */
	assert_true(reads > THREADS * steps / 20);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
