/* SPDX-License-Identifier: Apache-2.0
 * test_engine_mapserver.c - owners and mappers of memory against peers that violate the protocol or run as
 * another user: raw sockets, and engines of two users. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/net.h"
#include "engine/shm/map_wire.h"
#include "engine/shm/mapped.h"
#include "engine/tcp/tcp_wire.h"

#define LEN (4ull << 20)
#define SEED 9

static struct mce_conf conf = { .progress_timeout_ms = 60000 };

static struct mce_greeting greet_as(int fd, uint64_t token)
{
	struct mce_greeting g = { .version = 1, .version_min = 1, .token = token, .epoch = 1 };
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint8_t b[MCE_GREETING_SIZE];
	size_t n = 0;
	ssize_t k;

	mce_greeting_pack(b, &g);
	assert_int_equal(send(fd, b, sizeof(b), MSG_NOSIGNAL), sizeof(b));
	while (n < sizeof(b)) {
		assert_int_equal(poll(&pfd, 1, 10000), 1);
		k = recv(fd, b + n, sizeof(b) - n, 0);
		assert_true(k > 0);
		n += (size_t)k;
	}
	assert_int_equal(mce_greeting_unpack(b, sizeof(b), &g), sizeof(b));
	return g;
}

/* ---- the map server ---- */

static int map_dial(const struct mce_id *id)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char name[MC_ADDR_MAX];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	mce_map_address(id->nonce, name);
	memcpy(sa.sun_path + 1, name, strlen(name));
	assert_int_equal(connect(fd, (struct sockaddr *)&sa,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))), 0);
	return fd;
}

static int map_answer(int fd, struct mce_map_msg *m, int *ret_fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	*ret_fd = -1;
	assert_int_equal(poll(&pfd, 1, 10000), 1);
	return mce_map_recv(fd, m, ret_fd);
}

/* The guard, mapped with the epoch page that came with the message. */
static const uint32_t *guard_of(const struct mce_map_msg *welcome, int fd)
{
	const char *at;

	assert_true(welcome->fd_offset >= MCE_EPOCH_BYTES && welcome->fd_offset % 4 == 0);
	at = mmap(NULL, welcome->fd_offset + 4, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(at != MAP_FAILED);
	return (const uint32_t *)(const void *)(at + welcome->fd_offset);
}

/* The guard shows when an engine begins and ends. */
static void the_guard_shows_the_end_of_the_engine(void **state)
{
	struct mce_map_msg m = { .version = 1, .type = MCE_MAP_HELLO, .rkey = 4711 }, in;
	const uint32_t *word;
	struct mce_greeting g;
	struct side s;
	int tcp, fd, got;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	tcp = side_dial(&s);
	g = greet_as(tcp, 4711);
	fd = map_dial(&g.id);
	assert_int_equal(mce_map_send(fd, &m, -1), 0);
	assert_int_equal(map_answer(fd, &in, &got), 0);
	word = guard_of(&in, got);
	assert_true(*word & FUTEX_TID_MASK);
	assert_false(*word & FUTEX_OWNER_DIED);
	close(got);
	close(fd);
	close(tcp);
	side_close(&s);
	assert_true(*word & FUTEX_OWNER_DIED || !(*word & FUTEX_TID_MASK));
	munmap((char *)(uintptr_t)word - in.fd_offset, in.fd_offset + 4);
}

static void the_map_server_refuses_invalid_messages(void **state)
{
	struct mce_map_msg m = { .version = 1, .type = MCE_MAP_FETCH }, in;
	struct mce_greeting g;
	struct side s;
	int tcp, fd, got;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	tcp = side_dial(&s);
	g = greet_as(tcp, 4711);
	/* No answer before a greeting, to a greeting with another token, or to an invalid message. */
	fd = map_dial(&g.id);
	m.rkey = mce_mr_rkey(s.mr);
	assert_int_equal(mce_map_send(fd, &m, -1), 0);
	assert_int_equal(map_answer(fd, &in, &got), -ECONNRESET);
	close(fd);
	fd = map_dial(&g.id);
	m.type = MCE_MAP_HELLO;
	m.rkey = 4712;
	assert_int_equal(mce_map_send(fd, &m, -1), 0);
	assert_int_equal(map_answer(fd, &in, &got), -ECONNRESET);
	close(fd);
	fd = map_dial(&g.id);
	assert_int_equal(send(fd, "hello", 5, 0), 5);
	assert_int_equal(map_answer(fd, &in, &got), -ECONNRESET);
	close(fd);
	/* A valid greeting: an unusable descriptor is not kept, and a mapper without a hazard page does not get
	 * the address. */
	fd = map_dial(&g.id);
	m.rkey = 4711;
	assert_int_equal(mce_map_send(fd, &m, 1), 0);
	assert_int_equal(map_answer(fd, &in, &got), 0);
	assert_int_equal(in.type, MCE_MAP_WELCOME);
	assert_memory_equal(in.nonce, g.id.nonce, 16);
	assert_true(in.base == 0);
	assert_true(got >= 0);
	assert_int_equal(write(got, "x", 1), -1);
	close(got);
	m.type = MCE_MAP_FETCH;
	m.rkey = mce_mr_rkey(s.mr) + 1;
	assert_int_equal(mce_map_send(fd, &m, -1), 0);
	assert_int_equal(map_answer(fd, &in, &got), 0);
	assert_int_equal(mc_err_from_wire(in.status), -ESTALE);
	assert_int_equal(got, -1);
	m.rkey = mce_mr_rkey(s.mr);
	assert_int_equal(mce_map_send(fd, &m, -1), 0);
	assert_int_equal(map_answer(fd, &in, &got), 0);
	assert_int_equal(in.status, 0);
	assert_int_equal(in.len, LEN);
	assert_true(got >= 0);
	close(got);
	mce_mr_unregister(s.mr);
	assert_int_equal(map_answer(fd, &in, &got), 0);
	assert_int_equal(in.type, MCE_MAP_FORGET);
	assert_true(in.rkey == m.rkey);
	close(fd);
	close(tcp);
	side_close(&s);
}

/* A mapper that asks and never reads loses the connection, and no thread waits for it. */
static void a_mapper_that_does_not_read_is_disconnected(void **state)
{
	struct mce_map_msg m = { .version = 1, .type = MCE_MAP_HELLO, .rkey = 5 };
	struct mce_greeting g;
	struct side s;
	int tcp, fd, r = 0;
	unsigned i;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	tcp = side_dial(&s);
	g = greet_as(tcp, 5);
	fd = map_dial(&g.id);
	assert_int_equal(mce_map_send(fd, &m, -1), 0);
	m.type = MCE_MAP_FETCH;
	m.rkey = mce_mr_rkey(s.mr);
	for (i = 0; i < 100000 && r != -EPIPE && r != -ECONNRESET; i++)
		r = mce_map_send(fd, &m, -1);
	assert_true(r == -EPIPE || r == -ECONNRESET);
	mce_mr_unregister(s.mr);
	close(fd);
	close(tcp);
	side_close(&s);
}

/* A mapper with a hazard page; the test writes it and makes no copies. */
struct copier {
	int tcp, fd;
	struct mce_hazards *page;
	uint64_t *hazards;	/* its slots */
	const uint64_t *epochs;
	uint64_t base;		/* from the owner; 0: the page was not accepted */
};

static void copier_open(struct copier *c, const struct side *s, uint64_t token)
{
	struct mce_map_msg m = { .version = 1, .type = MCE_MAP_HELLO, .rkey = token }, in;
	struct mce_greeting g;
	int got;

	c->tcp = side_dial(s);
	g = greet_as(c->tcp, token);
	c->fd = map_dial(&g.id);
	c->page = mce_hazards_new();
	assert_non_null(c->page);
	c->hazards = c->page->slots;
	assert_int_equal(mce_map_send(c->fd, &m, c->page->fd), 0);
	assert_int_equal(map_answer(c->fd, &in, &got), 0);
	c->epochs = mmap(NULL, MCE_EPOCH_BYTES, PROT_READ, MAP_SHARED, got, 0);
	assert_true(c->epochs != MAP_FAILED);
	c->base = in.base;
	close(got);
}

static unsigned copier_slot(const struct copier *c, uint64_t rkey)
{
	struct mce_map_msg m = { .version = 1, .type = MCE_MAP_FETCH, .rkey = rkey }, in;
	int got;

	assert_int_equal(mce_map_send(c->fd, &m, -1), 0);
	assert_int_equal(map_answer(c->fd, &in, &got), 0);
	assert_true(in.rkey == rkey && in.len);
	return in.slot;
}

static void copier_close(struct copier *c)
{
	close(c->fd);
	close(c->tcp);
	mce_hazards_unref(c->page);
	munmap((void *)(uintptr_t)c->epochs, MCE_EPOCH_BYTES);
}

/* Regions end, and the mapper does not read the notifications: the owner closes its direction of the connection. */
static void be_deaf(const struct copier *c, struct side *s)
{
	struct pollfd pfd = { .fd = c->fd, .events = POLLRDHUP };
	static char mem[64];
	struct mce_mr_attr attr = { .base = mem, .len = sizeof(mem), .fd = -1, .access = MCE_ACCESS_READ };
	struct mce_mr *mr;

	for (unsigned i = 0; i < 100000 && poll(&pfd, 1, 0) == 0; i++) {
		assert_int_equal(mce_mr_register(s->e, &attr, &mr), 0);
		mce_mr_unregister(mr);
	}
	assert_true(pfd.revents & POLLRDHUP);
}

struct late_copy {
	const struct copier *c;
	unsigned slot;
	bool returned, early;	/* atomic; out */
};

/* Ends the copy some time after the region has ended. */
static void *late_copy_main(void *arg)
{
	struct late_copy *l = arg;
	uint64_t until = SECONDS(20);

	while (__atomic_load_n(&l->c->epochs[l->slot], __ATOMIC_SEQ_CST) && mc_now_ns() < until)
		usleep(1000);
	for (until = mc_deadline_ms(300); mc_now_ns() < until && !l->early; usleep(1000))
		l->early = __atomic_load_n(&l->returned, __ATOMIC_SEQ_CST);
	__atomic_store_n(&l->c->hazards[7], 0, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A mapper whose connection was closed may still be copying. @late: it begins only then, because it has not
 * noticed; @heard: it has closed the connection, too. */
static void copies_when_deaf(bool late, bool heard)
{
	struct late_copy l = { .returned = false };
	struct copier c;
	struct side s;
	pthread_t t;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	copier_open(&c, &s, 6);
	l.c = &c;
	l.slot = copier_slot(&c, mce_mr_rkey(s.mr));
	assert_true(c.base);
	c.hazards[7] = late ? 0 : mce_mr_rkey(s.mr);
	be_deaf(&c, &s);
	c.hazards[7] = mce_mr_rkey(s.mr);
	if (heard)
		shutdown(c.fd, SHUT_RDWR);
	assert_int_equal(pthread_create(&t, NULL, late_copy_main, &l), 0);
	mce_mr_unregister(s.mr);
	__atomic_store_n(&l.returned, true, __ATOMIC_SEQ_CST);
	pthread_join(t, NULL);
	assert_false(l.early);
	copier_close(&c);
	side_close(&s);
}

static void unregister_waits_for_copies_of_a_disconnected_mapper(void **state)
{
	copies_when_deaf(false, false);
	copies_when_deaf(false, true);
	copies_when_deaf(true, false);
}

/* Unregister does not wait for a mapper that died within a copy. */
static void unregister_does_not_wait_for_a_dead_mapper(void **state)
{
	struct copier c;
	struct side s;
	uint64_t began;
	pid_t pid;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	pid = fork();
	if (pid == 0) {
		copier_open(&c, &s, 7);
		c.hazards[0] = mce_mr_rkey(s.mr);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	began = mc_now_ns();
	mce_mr_unregister(s.mr);
	assert_true(mc_now_ns() - began < MCE_HAZARD_WAIT_MS / 2 * MC_NS_PER_MS);
	side_close(&s);
}

static unsigned hazard_pages(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "mooncake-hazards") != NULL;
	fclose(f);
	return n;
}

/* The hazard pages of mappers are unmapped with the engine, also of those that were copying. */
static void hazard_pages_are_unmapped_with_the_engine(void **state)
{
	unsigned before = hazard_pages();
	struct copier c, deaf;
	struct side s;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	copier_open(&deaf, &s, 9);
	deaf.hazards[0] = 1;
	be_deaf(&deaf, &s);
	copier_open(&c, &s, 10);
	assert_int_equal(hazard_pages(), before + 4);
	side_close(&s);
	copier_close(&c);
	copier_close(&deaf);
	assert_int_equal(hazard_pages(), before);
}

/* A mapper that has noticed the end and copies no more is freed, even when another process has its socket. */
static void a_disconnected_mapper_that_has_noticed_is_freed(void **state)
{
	unsigned before = hazard_pages();
	uint64_t end = SECONDS(20);
	struct copier deaf;
	struct side s;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	copier_open(&deaf, &s, 12);
	be_deaf(&deaf, &s);
	assert_int_equal(hazard_pages(), before + 2);
	shutdown(deaf.fd, SHUT_RDWR);
	while (hazard_pages() != before + 1 && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(hazard_pages(), before + 1);
	copier_close(&deaf);
	side_close(&s);
}

static bool is_sealed(unsigned flags)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	bool ret;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	ret = mce_map_is_sealed(fd);
	close(fd);
	return ret;
}

/* No seal prevents holes in a file of huge pages, which may be impossible to fill again. */
static void a_file_of_huge_pages_does_not_count_as_sealed(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0) {
		skip();
		return;
	}
	close(fd);
	assert_true(is_sealed(0));
	assert_false(is_sealed(MFD_HUGETLB));
}

/* ---- a mapper of another user ---- */

enum { CAME = 1, CUT = 2, OPENED = 4 };
#define NOBODY 65534

/* Request root's region as another user; the result tells which steps succeeded: CAME, OPENED,
 * CUT. */
static int stranger_gets(const struct side *s, uint64_t rkey)
{
	struct mce_map_msg m = { .version = 1, .type = MCE_MAP_FETCH, .rkey = rkey }, in;
	struct copier c;
	char path[64];
	int fd, again, ret = 0;

	if (setgid(NOBODY) || setuid(NOBODY))
		return -1;
	copier_open(&c, s, 11);
	/* It may not copy, so its page is not accepted. */
	if (c.base)
		return -1;
	if (mce_map_send(c.fd, &m, -1) || map_answer(c.fd, &in, &fd))
		return -1;
	if (fd < 0)
		return mc_err_from_wire(in.status) == -MC_ENOTSUP ? 0 : -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	ret |= again >= 0 ? OPENED : 0;
	ret |= ftruncate(fd, 0) == 0 || (again >= 0 && ftruncate(again, 0) == 0) ? CUT : 0;
	return ret | CAME;
}

static void stranger_finds(int want, mode_t mode, int seals)
{
	struct mce_mr_attr attr = { .len = 4096, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	struct mce_mr *mr;
	struct side s;
	int status;
	pid_t pid;

	side_open(&s, &conf, 0, 0, 0);
	attr.fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(attr.fd >= 0);
	assert_int_equal(fchmod(attr.fd, mode), 0);
	assert_int_equal(ftruncate(attr.fd, 4096), 0);
	assert_int_equal(fcntl(attr.fd, F_ADD_SEALS, seals), 0);
	attr.base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, attr.fd, 0);
	assert_true(attr.base != MAP_FAILED);
	assert_int_equal(mce_mr_register(s.e, &attr, &mr), 0);
	pid = fork();
	if (pid == 0)
		_exit(stranger_gets(&s, mce_mr_rkey(mr)));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), want);
	side_close(&s);
	munmap(attr.base, 4096);
	close(attr.fd);
}

static void another_user_cannot_truncate_the_region(void **state)
{
	if (geteuid()) {
		skip();
		return;
	}
	stranger_finds(0, 0777, 0);
	stranger_finds(CAME | OPENED, 0777, F_SEAL_SHRINK);
	stranger_finds(CAME, 0600, 0);
}

/* ---- engines of root and of another user ---- */

/* The user's engine, which reads its peer from a pipe: 0, or the number of the failed step. */
static int user_main(int from)
{
	struct { char endpoint[256]; uint64_t addr, rkey; } to;
	enum mce_path reads, writes;
	struct mce_engine *e;
	struct mce_peer *peer;
	char mem[100];

	if (setgid(NOBODY) || setuid(NOBODY) || read(from, &to, sizeof(to)) != sizeof(to))
		return 1;
	if (mce_engine_open(&conf, &e) || mce_peer_get(e, to.endpoint, &peer))
		return 2;
	if (transfer(e, peer, MCE_READ, to.addr, to.rkey, mem, sizeof(mem), &reads))
		return 3;
	if (transfer(e, peer, MCE_WRITE, to.addr + 100, to.rkey, mem, sizeof(mem), &writes))
		return 4;
	mce_peer_put(peer);
	mce_engine_close(e);
	return reads == MCE_PATH_MAPPED && writes == MCE_PATH_TCP ? 0 : 5;
}

/* A user maps root's unsealed region read-only, and its WRITEs use another path. */
static void a_user_maps_memory_of_root_read_only(void **state)
{
	struct { char endpoint[256]; uint64_t addr, rkey; } to = { .addr = 0 };
	struct side s;
	int end[2], status;
	pid_t pid;

	if (geteuid()) {
		skip();
		return;
	}
	assert_int_equal(pipe2(end, O_CLOEXEC), 0);
	/* Fork before there are threads. */
	pid = fork();
	if (pid == 0)
		_exit(user_main(end[0]));
	side_open(&s, &conf, 0, 0, 0);
	s.fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(fchmod(s.fd, 0600), 0);
	assert_int_equal(ftruncate(s.fd, LEN), 0);
	s.len = LEN;
	s.mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
	pattern_fill(s.mem, LEN, SEED, 0);
	assert_int_equal(mce_mr_register(s.e, &(struct mce_mr_attr){ .base = s.mem, .len = LEN, .fd = s.fd,
					 .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE }, &s.mr), 0);
	strcpy(to.endpoint, mce_engine_endpoint(s.e));
	to.addr = (uintptr_t)s.mem;
	to.rkey = mce_mr_rkey(s.mr);
	assert_int_equal(write(end[1], &to, sizeof(to)), sizeof(to));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	pattern_check(s.mem + 100, 100, SEED, 0);
	close(end[0]);
	close(end[1]);
	side_close(&s);
}

/* The owner, of the user: a region that can be truncated, one that cannot, and one without a file. */
#define KINDS 3
static char plain[4096];

static int owner_of_user(int out, int wait)
{
	struct { char endpoint[256]; uint64_t addr[KINDS], rkey[KINDS]; } me = { .addr = { 0 } };
	struct mce_mr_attr attr = { .len = 4096, .access = MCE_ACCESS_READ };
	struct mce_engine *e;
	struct mce_mr *mr;
	char byte;

	if (setgid(NOBODY) || setuid(NOBODY) || mce_engine_open(&conf, &e))
		return 1;
	for (unsigned i = 0; i < KINDS; i++) {
		attr.fd = i == 2 ? -1 : memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (i < 2 && (ftruncate(attr.fd, 4096) || (i == 1 && fcntl(attr.fd, F_ADD_SEALS, F_SEAL_SHRINK))))
			return 2;
		attr.base = i == 2 ? plain : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, attr.fd, 0);
		memset(attr.base, (int)i + 1, 4096);
		if (mce_mr_register(e, &attr, &mr))
			return 3;
		me.addr[i] = (uintptr_t)attr.base;
		me.rkey[i] = mce_mr_rkey(mr);
	}
	strcpy(me.endpoint, mce_engine_endpoint(e));
	if (write(out, &me, sizeof(me)) != sizeof(me) || read(wait, &byte, 1) != 0)
		return 4;
	mce_engine_close(e);
	return 0;
}

/* Root maps only files that the user cannot truncate, and has the kernel copy from no process of the user. */
static void root_maps_only_sealed_memory_of_a_user(void **state)
{
	static const enum mce_path want[KINDS] = { MCE_PATH_TCP, MCE_PATH_MAPPED, MCE_PATH_TCP };
	struct { char endpoint[256]; uint64_t addr[KINDS], rkey[KINDS]; } he;
	int to[2], from[2], status;
	struct mce_peer *peer;
	enum mce_path path;
	struct side s;
	char byte;
	pid_t pid;

	if (geteuid()) {
		skip();
		return;
	}
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(to[1]);
		_exit(owner_of_user(from[1], to[0]));
	}
	close(from[1]);
	assert_int_equal(read(from[0], &he, sizeof(he)), sizeof(he));
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, he.endpoint, &peer), 0);
	for (unsigned i = 0; i < KINDS; i++) {
		assert_int_equal(transfer(s.e, peer, MCE_READ, he.addr[i], he.rkey[i], &byte, 1, &path), 0);
		assert_int_equal(byte, i + 1);
		assert_int_equal(path, want[i]);
	}
	close(to[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(to[0]);
	close(from[0]);
	mce_peer_put(peer);
	side_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_guard_shows_the_end_of_the_engine),
		cmocka_unit_test(the_map_server_refuses_invalid_messages),
		cmocka_unit_test(a_mapper_that_does_not_read_is_disconnected),
		cmocka_unit_test(unregister_waits_for_copies_of_a_disconnected_mapper),
		cmocka_unit_test(unregister_does_not_wait_for_a_dead_mapper),
		cmocka_unit_test(hazard_pages_are_unmapped_with_the_engine),
		cmocka_unit_test(a_disconnected_mapper_that_has_noticed_is_freed),
		cmocka_unit_test(a_file_of_huge_pages_does_not_count_as_sealed),
		cmocka_unit_test(another_user_cannot_truncate_the_region),
		cmocka_unit_test(a_user_maps_memory_of_root_read_only),
		cmocka_unit_test(root_maps_only_sealed_memory_of_a_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
