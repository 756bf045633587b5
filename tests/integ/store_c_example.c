/* SPDX-License-Identifier: Apache-2.0
 * store_c_example.c - a user's program that has only store_c.h.
 *
 *	store_c_example MASTER alone		contributes memory and uses it
 *	store_c_example MASTER owner		contributes memory until its input ends
 *	store_c_example MASTER user [HOST]	uses the memory of others */
#include <mooncake/store_c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define SEGMENT (64 * MIB)

#define EXPECT(expr, want) do { \
	long long got_ = (long long)(expr), want_ = (long long)(want); \
	if (got_ != want_) { \
		fprintf(stderr, "line %d: %s is %lld, not %lld\n", __LINE__, #expr, got_, want_); \
		exit(1); \
	} \
} while (0)

static void fill(unsigned char *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 31 + i / 127 + seed * 7);
}

static void single(mooncake_store_t s)
{
	unsigned char *a = malloc(3 * MIB), *b = malloc(3 * MIB);

	fill(a, 3 * MIB, 1);
	EXPECT(mooncake_store_put(s, "one", a, 100000, NULL), 0);
	EXPECT(mooncake_store_is_exist(s, "one"), 1);
	EXPECT(mooncake_store_get_size(s, "one"), 100000);
	memset(b, 0x5a, 3 * MIB);
	EXPECT(mooncake_store_get_into(s, "one", b, 3 * MIB), 100000);
	EXPECT(memcmp(a, b, 100000), 0);
	EXPECT(b[100000], 0x5a);
	memset(b, 0x5a, 3 * MIB);
	EXPECT(mooncake_store_get_into(s, "one", b, 99999), -600);
	EXPECT(mooncake_store_get_into(s, "one", b, 0), -600);
	EXPECT(b[0], 0x5a);
	/* The first value is kept. */
	EXPECT(mooncake_store_put(s, "one", a + 1, 50, NULL), 0);
	EXPECT(mooncake_store_get_size(s, "one"), 100000);
	EXPECT(mooncake_store_put_from(s, "big", a, 3 * MIB, NULL), 0);
	EXPECT(mooncake_store_get_into(s, "big", b, 3 * MIB), 3 * MIB);
	EXPECT(memcmp(a, b, 3 * MIB), 0);
	EXPECT(mooncake_store_get_into(s, "none", b, 10), -704);
	EXPECT(mooncake_store_get_size(s, "none"), -704);
	EXPECT(mooncake_store_is_exist(s, "none"), 0);
	EXPECT(mooncake_store_remove(s, "one", 1), 0);
	EXPECT(mooncake_store_remove(s, "one", 1), -704);
	EXPECT(mooncake_store_is_exist(s, "one"), 0);
	free(a);
	free(b);
}

static void registered(mooncake_store_t s)
{
	unsigned char *buf = aligned_alloc(4096, 2 * MIB);
	void *none = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(none != MAP_FAILED, 1);
	EXPECT(mooncake_store_register_buffer(s, buf, 2 * MIB), 0);
	EXPECT(mooncake_store_register_buffer(s, buf, 2 * MIB), -600);
	EXPECT(mooncake_store_register_buffer(s, buf + 100, 50), -600);
	EXPECT(mooncake_store_register_buffer(s, buf, 0), -600);
	EXPECT(mooncake_store_register_buffer(s, NULL, 10), -1);
	EXPECT(mooncake_store_register_buffer(s, none, MIB), -600);
	munmap(none, MIB);
	EXPECT(mooncake_store_register_buffer(s, none, MIB), -600);
	fill(buf, MIB, 9);
	EXPECT(mooncake_store_put_from(s, "reg", buf, MIB, NULL), 0);
	EXPECT(mooncake_store_get_into(s, "reg", buf + MIB, MIB), MIB);
	EXPECT(memcmp(buf, buf + MIB, MIB), 0);
	EXPECT(mooncake_store_unregister_buffer(s, buf), 0);
	EXPECT(mooncake_store_unregister_buffer(s, buf), -600);
	free(buf);
}

static void batches(mooncake_store_t s)
{
	enum { N = 5 };
	const char *keys[N] = { "b0", "b1", "", "b3", "b4" };
	unsigned char *in[N], *out[N];
	size_t sizes[N] = { 10, 70000, 10, 0, MIB }, rooms[N] = { 10, 69999, 10, 10, 2 * MIB };
	int results[N], exist[N];
	int64_t got[N];

	for (int i = 0; i < N; i++) {
		in[i] = malloc(MIB);
		out[i] = malloc(2 * MIB);
		fill(in[i], MIB, 20 + (unsigned)i);
	}
	EXPECT(mooncake_store_batch_put_from(s, keys, (void **)in, sizes, N, NULL, results), 0);
	EXPECT(results[0], 0);
	EXPECT(results[1], 0);
	EXPECT(results[2], -600);
	EXPECT(results[3], -600);
	EXPECT(results[4], 0);
	EXPECT(mooncake_store_batch_is_exist(s, keys, N, exist), 0);
	EXPECT(exist[0] + exist[1] + exist[4], 3);
	EXPECT(exist[2] + exist[3], 0);
	EXPECT(mooncake_store_batch_get_into(s, keys, (void **)out, rooms, N, got), 0);
	EXPECT(got[0], 10);
	EXPECT(got[1], -600);
	EXPECT(got[2], -704);
	EXPECT(got[3], -704);
	EXPECT(got[4], MIB);
	EXPECT(memcmp(in[0], out[0], 10), 0);
	EXPECT(memcmp(in[4], out[4], MIB), 0);
	/* Existing keys of a batch are no error. */
	sizes[2] = sizes[3] = 1;
	EXPECT(mooncake_store_batch_put_from(s, keys, (void **)in, sizes, N, NULL, results), 0);
	EXPECT(results[0] + results[1] + results[3] + results[4], 0);
	EXPECT(mooncake_store_get_size(s, "b3"), 1);
	EXPECT(mooncake_store_batch_put_from(s, keys, (void **)in, sizes, 0, NULL, results), 0);
	for (int i = 0; i < N; i++) {
		free(in[i]);
		free(out[i]);
	}
}

static void removing(mooncake_store_t s)
{
	EXPECT(mooncake_store_put(s, "rm-1", "x", 1, NULL), 0);
	EXPECT(mooncake_store_put(s, "rm-2", "x", 1, NULL), 0);
	EXPECT(mooncake_store_put(s, "keep-1", "x", 1, NULL), 0);
	EXPECT(mooncake_store_is_exist(s, "rm-2"), 1);
	EXPECT(mooncake_store_remove(s, "rm-2", 0), -706);
	EXPECT(mooncake_store_remove_by_regex(s, "^rm-", 0), 1);
	EXPECT(mooncake_store_remove_by_regex(s, "^rm-", 1), 1);
	EXPECT(mooncake_store_remove_by_regex(s, "(", 0), -600);
	EXPECT(mooncake_store_is_exist(s, "keep-1"), 1);
	EXPECT(mooncake_store_remove_all(s, 1) > 0, 1);
	EXPECT(mooncake_store_remove_all(s, 1), 0);
	EXPECT(mooncake_store_is_exist(s, "keep-1"), 0);
}

static void replicas(mooncake_store_t s)
{
	const char *preferred[] = { "nobody:1" };
	mooncake_replicate_config_t c = { 1, 1, 0, preferred, 1 };

	EXPECT(mooncake_store_put(s, "cfg", "abc", 3, &c), 0);
	EXPECT(mooncake_store_get_size(s, "cfg"), 3);
	c.replica_num = 2;
	EXPECT(mooncake_store_put(s, "cfg2", "abc", 3, &c), 0);
	c.replica_num = 0;
	EXPECT(mooncake_store_put(s, "cfg3", "abc", 3, &c), -600);
	c = (mooncake_replicate_config_t){ 1, 0, 1, NULL, 0 };
	EXPECT(mooncake_store_put(s, "cfg4", "abc", 3, &c), 0);
	EXPECT(mooncake_store_remove(s, "cfg4", 1), 0);
}

static void bad_arguments(mooncake_store_t s)
{
	const char *keys[] = { "k", NULL };
	void *bufs[] = { NULL, keys };
	size_t sizes[] = { 1, 1 };
	int64_t got[2];
	int results[2];
	char c, name[4];

	EXPECT(mooncake_store_put(NULL, "k", "v", 1, NULL), -1);
	EXPECT(mooncake_store_put(s, NULL, "v", 1, NULL), -1);
	EXPECT(mooncake_store_put(s, "k", NULL, 1, NULL), -1);
	EXPECT(mooncake_store_put(s, "k", "v", 0, NULL), -600);
	EXPECT(mooncake_store_put(s, "", "v", 1, NULL), -600);
	EXPECT(mooncake_store_put_from(s, "k0", &c, 0, NULL), 0);
	EXPECT(mooncake_store_is_exist(s, "k0"), 0);
	EXPECT(mooncake_store_is_exist(s, ""), 0);
	EXPECT(mooncake_store_is_exist(s, NULL), -1);
	EXPECT(mooncake_store_get_size(s, ""), -704);
	EXPECT(mooncake_store_get_size(NULL, "k"), -1);
	EXPECT(mooncake_store_get_into(s, "", &c, 1), -704);
	EXPECT(mooncake_store_get_into(s, "k", NULL, 1), -1);
	EXPECT(mooncake_store_remove(s, "", 0), -704);
	EXPECT(mooncake_store_remove(s, NULL, 0), -1);
	EXPECT(mooncake_store_remove_by_regex(s, NULL, 0), -1);
	EXPECT(mooncake_store_remove_all(NULL, 0), -1);
	EXPECT(mooncake_store_get_hostname(s, name, sizeof(name)), -1);
	EXPECT(mooncake_store_get_hostname(s, NULL, 10), -1);
	EXPECT(mooncake_store_batch_put_from(s, keys, bufs, sizes, 2, NULL, results), 0);
	EXPECT(results[0], -1);
	EXPECT(results[1], -1);
	EXPECT(mooncake_store_batch_get_into(s, keys, bufs, sizes, 2, got), 0);
	EXPECT(got[0], -1);
	EXPECT(got[1], -1);
	EXPECT(mooncake_store_batch_get_into(s, NULL, bufs, sizes, 2, got), -1);
	EXPECT(mooncake_store_batch_is_exist(s, keys, 2, NULL), -1);
	EXPECT(mooncake_store_health_check(NULL), -1);
	EXPECT(mooncake_store_setup(NULL, "127.0.0.1", NULL, 0, 0, NULL, NULL, NULL), -1);
	EXPECT(mooncake_store_setup(s, NULL, NULL, 0, 0, NULL, NULL, NULL), -1);
	EXPECT(mooncake_store_init_all(NULL, NULL, NULL, 0), -1);
	mooncake_store_destroy(NULL);
}

/* Before setup, calls return an error and do not crash. */
static void before_setup(const char *master)
{
	mooncake_store_t s = mooncake_store_create();
	const char *keys[] = { "k" };
	size_t sizes[] = { 1 };
	int64_t got[1] = { 7 };
	int results[1] = { 7 };
	char c, *bufs[] = { &c }, name[100];

	EXPECT(s != NULL, 1);
	EXPECT(mooncake_store_health_check(s), 1);
	EXPECT(mooncake_store_put(s, "k", "v", 1, NULL), -600);
	EXPECT(mooncake_store_put_from(s, "k", &c, 1, NULL), -600);
	EXPECT(mooncake_store_get_into(s, "k", &c, 1), -600);
	EXPECT(mooncake_store_get_size(s, "k"), -600);
	EXPECT(mooncake_store_is_exist(s, "k"), -600);
	EXPECT(mooncake_store_remove(s, "k", 0), -600);
	EXPECT(mooncake_store_remove_all(s, 0), -600);
	EXPECT(mooncake_store_remove_by_regex(s, "k", 0), -600);
	EXPECT(mooncake_store_register_buffer(s, &c, 1), -600);
	EXPECT(mooncake_store_unregister_buffer(s, &c), -600);
	EXPECT(mooncake_store_get_hostname(s, name, sizeof(name)), -600);
	EXPECT(mooncake_store_batch_put_from(s, keys, (void **)bufs, sizes, 1, NULL, results), -600);
	EXPECT(results[0], -600);
	EXPECT(mooncake_store_batch_get_into(s, keys, (void **)bufs, sizes, 1, got), -600);
	EXPECT(got[0], -600);
	EXPECT(mooncake_store_batch_is_exist(s, keys, 1, results), -600);

	EXPECT(mooncake_store_setup(s, "", "", 0, 0, "tcp", "", master), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", 1, 0, "tcp", "", master), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", 16 * MIB - 1, 0, "tcp", "", master), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", 0, 0, "bogus", "", master), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", 0, 0, "", "", master), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", SEGMENT, 0, "rpc_only", "", master), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", 0, 0, "tcp", "", ""), -600);
	EXPECT(mooncake_store_setup(s, "127.0.0.1", "", 0, 0, "tcp", "", "etcd://"), -600);
	EXPECT(mooncake_store_health_check(s), 1);
	mooncake_store_destroy(s);
}

static int use(mooncake_store_t s)
{
	char name[256];

	EXPECT(mooncake_store_get_hostname(s, name, sizeof(name)), 0);
	EXPECT(strchr(name, ':') != NULL, 1);
	single(s);
	registered(s);
	batches(s);
	replicas(s);
	removing(s);
	bad_arguments(s);
	EXPECT(mooncake_store_health_check(s), 0);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "", *host = argc > 3 ? argv[3] : "127.0.0.1";
	int owner = strcmp(mode, "user") != 0;
	mooncake_store_t s;

	if (argc < 3) {
		fprintf(stderr, "usage: store_c_example MASTER alone|owner|user [HOST]\n");
		return 2;
	}
	before_setup(argv[1]);
	s = mooncake_store_create();
	EXPECT(mooncake_store_setup(s, host, "P2PHANDSHAKE", owner ? SEGMENT : 0, 16 * MIB, NULL,
				    NULL, argv[1]), 0);
	if (strcmp(mode, "owner")) {
		use(s);
	} else {
		puts("ready");
		fflush(stdout);
		while (getchar() != EOF)
			;
	}
	/* A second setup replaces the first. */
	if (!strcmp(mode, "alone")) {
		EXPECT(mooncake_store_setup(s, host, "", SEGMENT, 0, "rdma", "mlx5_0", argv[1]), 0);
		use(s);
	}
	mooncake_store_destroy(s);
	puts("done");
	return 0;
}
