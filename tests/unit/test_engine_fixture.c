/* SPDX-License-Identifier: Apache-2.0
 * test_engine_fixture.c - implementation of test_engine_fixture.h. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/net/socket.h"
#include "tests/lib/xor_net.h"

/* ---- pattern ---- */

static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * 0x9e3779b97f4a7c15ull + i;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void pattern_fill(void *to, uint64_t n, uint64_t seed, uint64_t pos)
{
	unsigned char *p = to;
	uint64_t w;

	while (n) {
		uint64_t skip = pos % 8, take = 8 - skip < n ? 8 - skip : n;

		w = word(seed, pos / 8);
		memcpy(p, (char *)&w + skip, take);
		p += take;
		pos += take;
		n -= take;
	}
}

void pattern_check(const void *p, uint64_t n, uint64_t seed, uint64_t pos)
{
	char want[4096];

	for (uint64_t at = 0; at < n; at += sizeof(want)) {
		uint64_t take = n - at < sizeof(want) ? n - at : sizeof(want);

		pattern_fill(want, take, seed, pos + at);
		if (memcmp((const char *)p + at, want, take))
			fail_msg("bytes differ between %" PRIu64 " and %" PRIu64, at, at + take);
	}
}

/* ---- in this process ---- */

static void *memory(uint64_t len, int *ret_fd)
{
	void *mem;
	int fd = memfd_create("test", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)len))
		abort();
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		abort();
	*ret_fd = fd;
	return mem;
}

void side_open(struct side *s, const struct mce_conf *conf, uint64_t len, unsigned access,
	       uint64_t seed)
{
	struct mce_conf c = conf ? *conf : (struct mce_conf){ .port = 0 };
	struct mce_mr_attr attr = { .len = len, .access = access };

	memset(s, 0, sizeof(*s));
	s->fd = -1;
	c.net = c.net ? c.net : test_net();
	assert_int_equal(mce_engine_open(&c, &s->e), 0);
	if (len == 0)
		return;
	s->len = len;
	s->mem = memory(len, &s->fd);
	pattern_fill(s->mem, len, seed, 0);
	attr.base = s->mem;
	attr.fd = s->fd;
	assert_int_equal(mce_mr_register(s->e, &attr, &s->mr), 0);
}

void side_close(struct side *s)
{
	mce_engine_close(s->e);
	if (s->mem)
		munmap(s->mem, s->len);
	if (s->fd >= 0)
		close(s->fd);
}

int side_dial(const struct side *s)
{
	int fd = mc_socket_connect(mce_engine_endpoint(s->e), SECONDS(5));

	assert_true(fd >= 0);
	return fd;
}

/* ---- in another process ---- */

/* Where the owner can be reached: its engine, or the forwarder before it. */
static char reachable[MC_ADDR_MAX];

static void owner_register(struct mce_engine *e, char *mem, uint64_t len, unsigned access, int fd,
			   struct mce_mr **ret)
{
	struct mce_mr_attr attr = { .base = mem, .len = len, .access = access, .fd = fd };

	if (mce_mr_register(e, &attr, ret))
		exit(1);
	printf("%s %" PRIu64 " %" PRIu64 "\n", reachable, (uint64_t)(uintptr_t)mem, mce_mr_rkey(*ret));
	fflush(stdout);
}

struct relay {
	int listener;
	char inner[MC_ADDR_MAX];
};

/* Carry bytes both ways between two connections. */
static void *relay_pump(void *arg)
{
	struct pollfd pfd[2];
	int *ends = arg;
	char buf[65536];
	ssize_t n, k, off;

	for (unsigned i = 0; i < 2; i++)
		pfd[i] = (struct pollfd){ .fd = ends[i], .events = POLLIN };
	while (poll(pfd, 2, -1) >= 0)
		for (unsigned i = 0; i < 2; i++) {
			if (!pfd[i].revents)
				continue;
			n = recv(ends[i], buf, sizeof(buf), 0);
			if (n == 0 || (n < 0 && errno != EAGAIN))
				goto out;
			for (off = 0; off < n; off += k > 0 ? k : 0) {
				k = send(ends[!i], buf + off, (size_t)(n - off), MSG_NOSIGNAL);
				if (k < 0 && errno != EAGAIN)
					goto out;
			}
		}
out:
	close(ends[0]);
	close(ends[1]);
	free(ends);
	return NULL;
}

static void *relay_main(void *arg)
{
	struct relay *r = arg;
	struct pollfd pfd = { .fd = r->listener, .events = POLLIN };
	pthread_t t;

	while (poll(&pfd, 1, -1) > 0) {
		int *ends = malloc(2 * sizeof(int));

		ends[0] = mc_socket_accept(r->listener);
		ends[1] = mc_socket_connect(r->inner, mc_deadline_ms(5000));
		if (ends[0] < 0 || ends[1] < 0 || pthread_create(&t, NULL, relay_pump, ends))
			exit(1);
		pthread_detach(t);
	}
	return NULL;
}

static void own_network(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("no network namespace: %s\n", strerror(errno));
		exit(77);
	}
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr))
		exit(1);
	close(fd);
}

static void execute(char *argv[])
{
	char self[PATH_MAX];
	ssize_t n;

	/* Read the link: executing the link itself would run valgrind when the test runs under it. */
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = '\0';
		execv(self, argv);
	}
	_exit(126);
}

/* Unix sockets stay open, so that no peer notices the exec by their end. */
static void become_other(const char *mem, uint64_t len)
{
	char at[24], bytes[24];
	char *argv[] = { (char *)"other", (char *)"other", at, bytes, NULL };

	for (int fd = 3; fd < 1024; fd++) {
		socklen_t n = sizeof(int);
		int domain;

		if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) && domain == AF_UNIX)
			(void)fcntl(fd, F_SETFD, 0);
	}
	snprintf(at, sizeof(at), "%" PRIu64, (uint64_t)(uintptr_t)mem);
	snprintf(bytes, sizeof(bytes), "%" PRIu64, len);
	execute(argv);
}

static void other_main(char **argv)
{
	char *want = (char *)(uintptr_t)strtoull(argv[2], NULL, 10), *mem, line[128];
	uint64_t len = strtoull(argv[3], NULL, 10), changed = 0;

	mem = mmap(want, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	/* A library of the new program lies there: execute it again, since libraries lie elsewhere
	 * each time. */
	if (mem != want)
		execute(argv);
	memset(mem, OWNER_OTHER, len);
	printf("0\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (uint64_t i = 0; i < len; i++)
			changed += mem[i] != OWNER_OTHER;
		printf("%" PRIu64 "\n", changed);
		fflush(stdout);
	}
	exit(0);
}

static void owner_serve(struct mce_engine *e, char *mem, uint64_t len, unsigned access, int fd)
{
	struct mce_mr *mr;
	char line[128];
	uint64_t off, n;

	owner_register(e, mem, len, access, fd, &mr);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "crc %" SCNu64 " %" SCNu64, &off, &n) == 2) {
			printf("%u\n", mc_crc32c(mem + off, n));
		} else if (!strncmp(line, "unregister", 10)) {
			mce_mr_unregister(mr);
			printf("0\n");
		} else if (!strncmp(line, "register", 8)) {
			owner_register(e, mem, len, access, fd, &mr);
		} else if (!strncmp(line, "exec", 4)) {
			become_other(mem, len);
		}
		fflush(stdout);
	}
}

void owner_main(int argc, char **argv)
{
	struct mce_conf conf = { .net = test_net(), .port = 0 };
	static struct relay relay;
	struct mce_engine *e;
	pthread_t t;
	uint64_t len;
	char *mem;
	int fd;

	if (argc == 4 && !strcmp(argv[1], "other"))
		other_main(argv);
	if (argc != 8 || strcmp(argv[1], "owner"))
		return;
	/* Nothing else would end it when the test dies. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The forwarder's socket stays in the network it was made in. */
	if (atoi(argv[6]))
		relay.listener = mc_socket_listen("127.0.0.1:0", 8, 0, reachable);
	if (atoi(argv[6]) > 1)
		own_network();
	len = strtoull(argv[2], NULL, 10);
	conf.port = atoi(argv[4]);
	conf.progress_timeout_ms = 2000;
	mem = memory(len, &fd);
	pattern_fill(mem, len, strtoull(argv[7], NULL, 10), 0);
	if (mce_engine_open(&conf, &e))
		exit(1);
	strcpy(atoi(argv[6]) ? relay.inner : reachable, mce_engine_endpoint(e));
	if (atoi(argv[6]) && pthread_create(&t, NULL, relay_main, &relay))
		exit(1);
	owner_serve(e, mem, len, (unsigned)atoi(argv[3]), atoi(argv[5]) ? -1 : fd);
	mce_engine_close(e);
	munmap(mem, len);
	close(fd);
	exit(0);
}

static void owner_exec(const struct owner_conf *c)
{
	char len[24], access[12], port[12], no_fd[4], relay[4], seed[24];
	char *argv[] = { (char *)"owner", (char *)"owner", len, access, port, no_fd, relay, seed, NULL };

	snprintf(len, sizeof(len), "%" PRIu64, c->len);
	snprintf(access, sizeof(access), "%u", c->access);
	snprintf(port, sizeof(port), "%d", c->port);
	snprintf(no_fd, sizeof(no_fd), "%d", c->no_fd);
	snprintf(relay, sizeof(relay), "%d", c->relay + c->netns);
	snprintf(seed, sizeof(seed), "%" PRIu64, c->seed);
	if (c->faults)
		setenv("MC_FAULTS", c->faults, 1);
	execute(argv);
}

static void read_line(int fd, char *line, size_t size)
{
	size_t n = 0;

	while (n + 1 < size && read(fd, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
}

static bool read_address(struct owner *o, char line[512])
{
	read_line(o->from, line, 512);
	return sscanf(line, "%255s %" SCNu64 " %" SCNu64, o->endpoint, &o->addr, &o->rkey) == 3;
}

int owner_start(struct owner *o, const struct owner_conf *conf)
{
	int in[2], out[2], status;
	char line[512];

	o->len = conf->len;
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		abort();
	o->pid = fork();
	if (o->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		owner_exec(conf);
	}
	close(in[0]);
	close(out[1]);
	o->to = in[1];
	o->from = out[0];
	if (read_address(o, line))
		return 0;
	close(o->to);
	close(o->from);
	waitpid(o->pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 77)
		fail_msg("the owner did not start: %s", line);
	printf("SKIP: %s\n", line);
	return 77;
}

uint64_t owner_tell(struct owner *o, const char *command)
{
	char line[512];

	dprintf(o->to, "%s\n", command);
	if (!strcmp(command, "register")) {
		assert_true(read_address(o, line));
		return 0;
	}
	read_line(o->from, line, sizeof(line));
	return strtoull(line, NULL, 10);
}

static void owner_reap(struct owner *o)
{
	int status;

	close(o->to);
	close(o->from);
	waitpid(o->pid, &status, 0);
}

void owner_stop(struct owner *o)
{
	int status;

	close(o->to);
	waitpid(o->pid, &status, 0);
	close(o->from);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

void owner_kill(struct owner *o)
{
	kill(o->pid, SIGKILL);
	owner_reap(o);
}

/* ---- transfers ---- */

int transfer(struct mce_engine *e, struct mce_peer *peer, enum mce_op op, uint64_t addr,
	     uint64_t rkey, void *mem, uint64_t len, enum mce_path *ret_path)
{
	struct iovec iov = { .iov_base = mem, .iov_len = len };
	struct mce_req req = {
		.op = op, .peer = peer, .addr = addr, .rkey = rkey, .iov = &iov, .iovcnt = 1,
	};
	int r = mce_transfer(e, &req, SECONDS(30));

	if (ret_path)
		*ret_path = req.path;
	return r;
}

/* Yama may forbid access between processes that are not parent and child. */
enum mce_path path_without_fd(void)
{
	FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (f && fscanf(f, "%d", &scope) != 1)
		scope = 0;
	if (f)
		fclose(f);
	return scope == 0 || (scope < 3 && geteuid() == 0) ? MCE_PATH_PROCESS_VM : MCE_PATH_TCP;
}
