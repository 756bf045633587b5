/* SPDX-License-Identifier: Apache-2.0
 * test_engine_map_identity.c - same-host transfers between peers with identities: rights of mappings, and their end. */
#include <config.h>

#include "test_engine_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/principal.h"
#include "common/sys/clock.h"
#include "tests/lib/tls_net.h"

#define LEN (1u << 20)
#define NAME "map-identity"
#define NOBODY 65534
#define WRITER 0x11ull
#define READER 0x22ull
#define SUCCESSOR 0x33ull

static uint64_t revoked;		/* serial number; atomic */
static struct mc_credential writer, reader, successor;

static bool admit(void *arg, const struct mc_principal *p)
{
	return p->serial != __atomic_load_n(&revoked, __ATOMIC_SEQ_CST);
}

static struct mce_engine *engine_open(const struct mc_net *net)
{
	const struct mce_conf conf = { .net = net, .peer_admitted = net ? admit : NULL };
	struct mce_engine *e;

	assert_int_equal(mce_engine_open(&conf, &e), 0);
	return e;
}

/* An owner with a region that nothing can truncate, as a store's segment. */
struct lender {
	struct mce_engine *e;
	struct mce_mr *mr;
	char *mem;
	int fd;
};

static void lender_open(struct lender *o, const struct mc_net *net)
{
	struct mce_mr_attr attr = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };

	tls_net_present(NULL);
	o->e = engine_open(net);
	o->fd = attr.fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(o->fd >= 0);
	assert_int_equal(fchmod(o->fd, 0600), 0);
	assert_int_equal(ftruncate(o->fd, LEN), 0);
	assert_int_equal(fcntl(o->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	attr.base = o->mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
	assert_true(o->mem != MAP_FAILED);
	memset(o->mem, 'o', LEN);
	assert_int_equal(mce_mr_register(o->e, &attr, &o->mr), 0);
}

static void lender_close(struct lender *o)
{
	mce_engine_close(o->e);
	munmap(o->mem, LEN);
	close(o->fd);
}

/* A client with that credential; the peer keeps its mappings. */
static struct mce_engine *client_open(const struct mc_credential *c, const struct lender *o, struct mce_peer **ret_peer)
{
	struct mce_engine *e;

	tls_net_present(c);
	e = engine_open(tls_net());
	assert_int_equal(mce_peer_get(e, mce_engine_endpoint(o->e), ret_peer), 0);
	return e;
}

static void client_close(struct mce_engine *e, struct mce_peer *peer)
{
	mce_peer_put(peer);
	mce_engine_close(e);
}

static int move(struct mce_engine *e, struct mce_peer *peer, const struct lender *o, enum mce_op op, enum mce_path *ret)
{
	char buf[100];
	int r;

	memset(buf, 'c', sizeof(buf));
	r = transfer(e, peer, op, mce_mr_base(o->mr), mce_mr_rkey(o->mr), buf, sizeof(buf), ret);
	if (r == 0 && op == MCE_READ)
		assert_memory_equal(buf, o->mem, sizeof(buf));
	return r;
}

/* Mappings of the region in this process, which owner and clients share, with these rights ("rw-s"). */
static unsigned mappings(const char *rights)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], has[8];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, NAME) && sscanf(line, "%*s %7s", has) == 1 && !strcmp(has, rights);
	fclose(f);
	return n;
}

static void a_client_maps_to_read_and_write(void **state)
{
	enum mce_path path;
	struct mce_engine *e;
	struct mce_peer *peer;
	struct lender o;

	lender_open(&o, tls_net());
	e = client_open(&writer, &o, &peer);
	assert_int_equal(move(e, peer, &o, MCE_READ, &path), 0);
	assert_int_equal(path, MCE_PATH_MAPPED);
	assert_int_equal(move(e, peer, &o, MCE_WRITE, &path), 0);
	assert_int_equal(path, MCE_PATH_MAPPED);
	assert_int_equal(o.mem[0], 'c');
	assert_int_equal(mappings("rw-s"), 2);
	client_close(e, peer);
	lender_close(&o);
}

static void a_reader_maps_to_read_only(void **state)
{
	enum mce_path path;
	struct mce_engine *e;
	struct mce_peer *peer;
	struct lender o;

	lender_open(&o, tls_net());
	e = client_open(&reader, &o, &peer);
	assert_int_equal(move(e, peer, &o, MCE_READ, &path), 0);
	assert_int_equal(path, MCE_PATH_MAPPED);
	assert_true(move(e, peer, &o, MCE_WRITE, &path) < 0);
	assert_int_equal(o.mem[0], 'o');
	/* The owner's own, and the reader's. */
	assert_int_equal(mappings("rw-s"), 1);
	assert_int_equal(mappings("r--s"), 1);
	client_close(e, peer);
	lender_close(&o);
}

static void a_revoked_client_loses_the_mapping_until_it_has_another_credential(void **state)
{
	uint64_t end;
	enum mce_path path = MCE_PATH_NONE;
	struct mce_engine *e;
	struct mce_peer *peer;
	struct lender o;

	lender_open(&o, tls_net());
	e = client_open(&writer, &o, &peer);
	assert_int_equal(move(e, peer, &o, MCE_READ, &path), 0);
	assert_int_equal(mappings("rw-s"), 2);
	__atomic_store_n(&revoked, WRITER, __ATOMIC_SEQ_CST);
	end = SECONDS(20);
	while (move(e, peer, &o, MCE_READ, &path) == 0)
		assert_true(mc_now_ns() < end);
	assert_int_equal(mappings("rw-s"), 1);
	tls_net_present(&successor);
	while (move(e, peer, &o, MCE_READ, &path) < 0 || path != MCE_PATH_MAPPED)
		assert_true(mc_now_ns() < end);
	assert_int_equal(mappings("rw-s"), 2);
	__atomic_store_n(&revoked, 0, __ATOMIC_SEQ_CST);
	client_close(e, peer);
	lender_close(&o);
}

/* The client of another user, which gets its owner from a pipe: paths of its READ and WRITE, or 0. */
static int user_main(const struct mc_net *net, int from)
{
	struct { char endpoint[256]; uint64_t addr, rkey; } to;
	const struct mce_conf conf = { .net = net };
	enum mce_path reads, writes;
	struct mce_engine *e;
	struct mce_peer *peer;
	char mem[100] = "";

	if (setgid(NOBODY) || setuid(NOBODY) || read(from, &to, sizeof(to)) != sizeof(to))
		return 0;
	if (mce_engine_open(&conf, &e) || mce_peer_get(e, to.endpoint, &peer) ||
	    transfer(e, peer, MCE_READ, to.addr, to.rkey, mem, sizeof(mem), &reads) ||
	    transfer(e, peer, MCE_WRITE, to.addr, to.rkey, mem, sizeof(mem), &writes))
		return 0;
	mce_peer_put(peer);
	mce_engine_close(e);
	return (int)reads << 4 | (int)writes;
}

static void user_finds(const struct mc_net *net, enum mce_path reads, enum mce_path writes)
{
	struct { char endpoint[256]; uint64_t addr, rkey; } to = { .addr = 0 };
	struct lender o;
	int end[2], status;
	pid_t pid;

	assert_int_equal(pipe2(end, O_CLOEXEC), 0);
	tls_net_present(&writer);
	/* Fork before there are threads. */
	pid = fork();
	if (pid == 0)
		_exit(user_main(net, end[0]));
	lender_open(&o, net);
	strcpy(to.endpoint, mce_engine_endpoint(o.e));
	to.addr = mce_mr_base(o.mr);
	to.rkey = mce_mr_rkey(o.mr);
	assert_int_equal(write(end[1], &to, sizeof(to)), sizeof(to));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), (int)reads << 4 | (int)writes);
	close(end[0]);
	close(end[1]);
	lender_close(&o);
}

static void another_user_maps_memory_of_root_to_read_only(void **state)
{
	if (geteuid()) {
		skip();
		return;
	}
	user_finds(tls_net(), MCE_PATH_MAPPED, MCE_PATH_TCP);
	user_finds(NULL, MCE_PATH_MAPPED, MCE_PATH_MAPPED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_user_maps_memory_of_root_to_read_only),
		cmocka_unit_test(a_client_maps_to_read_and_write),
		cmocka_unit_test(a_reader_maps_to_read_only),
		cmocka_unit_test(a_revoked_client_loses_the_mapping_until_it_has_another_credential),
	};

	tls_net_make(&writer, MC_ROLE_CLIENT, "t", "writer", UINT64_MAX);
	tls_net_serial(&writer, WRITER);
	tls_net_make(&reader, MC_ROLE_READER, "t", "reader", UINT64_MAX);
	tls_net_serial(&reader, READER);
	tls_net_make(&successor, MC_ROLE_CLIENT, "t", "writer", UINT64_MAX);
	tls_net_serial(&successor, SUCCESSOR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
