/* SPDX-License-Identifier: Apache-2.0
 * More connections than the master has descriptors for, and more than max_connections: clients that
 * were connected before are served as usual, and new clients are accepted again when the crowd has
 * disconnected. The crowd connects over TCP, from several loopback addresses.
 *
 *	MC_CONNECTIONS=N	number of connections, with descriptors for all of them if possible; then
 *				the limit is an eighth of N. Default: 2000, with descriptors for about
 *				half of them, then 700 with a limit of 300 */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/net/net.h"
#include "proto/rpc_client.h"

#define PER_CHILD 15000u
#define PER_ADDRESS 15000u	/* connections from one loopback address */
#define CHILDREN_MAX 16u
/* Far more than a reply takes, for a busy machine. */
#define SLOW_MS 10000
/* Until all hellos are answered, if each gets a reply; and if many connections are not accepted and
 * get none. */
#define ANSWERS_MS 60000
#define OUTSIDE_MS 3000

static char path[64], tcp[MC_ADDR_MAX];
static struct mc_options *options;
static struct mcm *m;
static unsigned peer_limit;	/* 0: none */

static void start(unsigned limit)
{
	const char *addrs[] = { path, "127.0.0.1:0", NULL };
	struct mcm_listen where = { .addrs = addrs };
	struct mcm_conf conf;

	snprintf(path, sizeof(path), "unix:@mc-crowd-%d", (int)getpid());
	assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
	conf.rpc_thread_num = 2;
	conf.enable_metric_reporting = false;
	conf.max_connections = limit;
	conf.max_peer_connections = peer_limit ? peer_limit : limit;
	assert_int_equal(mcm_start(&conf, &where, &m), 0);
	snprintf(tcp, sizeof(tcp), "%s", mcm_addr(m, 1));
}

static void stop(void)
{
	mcm_stop(m);
	mc_options_free(options);
}

/* A client that registers before @deadline. While all descriptors are in use, the connection may
 * have to be retried: it takes two descriptors of this process, which is client and server. */
static struct mcp_client *client_by(uint64_t id, uint64_t deadline)
{
	struct mcp_client_conf conf = {
		.addrs = path, .client = { 77, id }, .channel = MCP_CHANNEL_CONTROL, .software = "crowd",
	};
	struct mcp_register rq = { .client = { 77, id }, .name = fx_bytes("me:1") };
	struct mcp_register_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_client *c;
	int r;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	while ((r = mcp_call(c, MCP_REGISTER, &rq, &reply, &mem, deadline)) == -MC_ERPC && mc_now_ns() < deadline)
		usleep(1000);
	assert_int_equal(r, 0);
	mcp_reply_done(&mem);
	return c;
}

static struct mcp_client *client(uint64_t id)
{
	return client_by(id, mc_deadline_ms(20000));
}

/* ---- the crowd ---- */

/* Connect from one of several loopback addresses, because each has a limited number of ports. */
static int come(uint64_t id)
{
	struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0)
		return -errno;
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(id / PER_ADDRESS));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(strrchr(tcp, ':') + 1));
	/* The port is chosen in connect(), when the destination is known. */
	(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0 &&
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	close(fd);
	return -EAGAIN;
}

/* A connection that registers and does nothing more. */
static int join(uint64_t id)
{
	struct mcp_hello hello = {
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.client = { 78, id }, .lane = MCP_CHANNEL_CONTROL, .software = fx_bytes("crowd"),
	};
	struct mcp_register rq = { .client = { 78, id }, .name = fx_bytes("crowd:1") };
	struct mcp_frame f = { .type = MCP_HELLO, .id = 1 }, g = { .type = MCP_REGISTER, .id = 2 };
	struct mcp_buf b = { 0 };
	int fd = come(id);
	ssize_t n = -1;

	if (fd < 0)
		return fd;
	if (mcp_frame_append(&b, f, &mcp_desc_hello, &hello) == 0 &&
	    mcp_frame_append(&b, g, &mcp_desc_register, &rq) == 0)
		n = send(fd, b.data, b.len, MSG_NOSIGNAL);
	mcp_buf_free(&b);
	if (n > 0)
		return fd;
	close(fd);
	return -EAGAIN;
}

/* Counts of connections, for the whole crowd or for one process. */
struct census {
	unsigned in, welcome, refused;
};

/* Count the replies to the hellos that arrive within @ms. */
static void listen_to(const int *fd, struct census *c, unsigned ms)
{
	uint64_t end = mc_now_ms() + ms, now;
	uint8_t head[MCP_FRAME_HEADER];
	struct mcp_frame f;
	unsigned i;
	ssize_t n;

	for (i = 0; i < c->in; i++) {
		struct timeval left = { .tv_usec = 1000 };

		now = mc_now_ms();
		if (now < end)
			left.tv_sec = (time_t)((end - now + 999) / 1000);
		(void)setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &left, sizeof(left));
		n = recv(fd[i], head, sizeof(head), MSG_WAITALL);
		if (n != sizeof(head) || mcp_frame_unpack(head, MCP_FRAME_MAX, &f) < 0)
			continue;
		c->welcome += f.status == 0;
		c->refused += mc_err_from_wire(f.status) == -MC_ELIMIT;
	}
}

/* A process that opens up to @n connections, waits @answers_ms for replies, writes its counts to
 * @tell, and keeps the connections until it is killed. */
static pid_t crowd(unsigned n, uint64_t first, unsigned answers_ms, int tell)
{
	struct rlimit lim = { PER_CHILD + 100, PER_CHILD + 100 };
	static int fd[PER_CHILD];
	struct census c = { 0 };
	unsigned tries;
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setrlimit(RLIMIT_NOFILE, &lim);
	for (tries = 0; c.in < n && tries < n + 3000; tries++) {
		fd[c.in] = join(first + c.in);
		if (fd[c.in] >= 0)
			c.in++;
		else
			usleep(1000);
	}
	listen_to(fd, &c, answers_ms);
	if (write(tell, &c, sizeof(c)) != sizeof(c))
		_exit(1);
	for (;;)
		pause();
}

static pid_t child[CHILDREN_MAX];
static unsigned children;

static void crowd_goes(void)
{
	for (; children; children--) {
		kill(child[children - 1], SIGKILL);
		waitpid(child[children - 1], NULL, 0);
	}
}

/* ---- clients that were connected before the crowd ---- */

static uint64_t slowest_ms;

static void ask(struct mcp_client *c)
{
	struct mcp_key key = { .key = fx_bytes("some-key") };
	struct mcp_exist rq = { .keys = mcp_seq(&key, 1) };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	uint64_t began = mc_now_ms(), took;

	assert_int_equal(mcp_call(c, MCP_EXIST, &rq, &reply, &mem, mc_deadline_ms(20000)), 0);
	mcp_reply_done(&mem);
	took = mc_now_ms() - began;
	slowest_ms = took > slowest_ms ? took : slowest_ms;
}

static void beat(struct mcp_client *c, uint64_t id)
{
	struct mcp_heartbeat rq = { .client = { 77, id } };
	struct mcp_heartbeat_reply reply;
	struct mcp_reply mem = { 0 };
	uint64_t began = mc_now_ms(), took;

	assert_int_equal(mcp_call(c, MCP_HEARTBEAT, &rq, &reply, &mem, mc_deadline_ms(20000)), 0);
	mcp_reply_done(&mem);
	took = mc_now_ms() - began;
	slowest_ms = took > slowest_ms ? took : slowest_ms;
}

/* A heartbeat connection of a client that is registered. */
static struct mcp_client *heart(uint64_t id)
{
	struct mcp_client_conf conf = {
		.addrs = path, .client = { 77, id }, .channel = MCP_CHANNEL_HEARTBEAT, .software = "crowd",
	};
	struct mcp_client *c;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	beat(c, id);
	return c;
}

static uint64_t cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Resident memory of this process, which includes the master. */
static uint64_t rss(void)
{
	unsigned long long size, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu %llu", &size, &pages), 2);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Open @n connections while the clients @c and @h continue their requests; returns the counts. */
static struct census crowd_comes(unsigned n, unsigned answers_ms, struct mcp_client *c, struct mcp_client *h)
{
	struct census all = { 0 }, some;
	unsigned told = 0, i;
	uint64_t began;
	int tell[2];

	slowest_ms = 0;
	children = (n + PER_CHILD - 1) / PER_CHILD;
	assert_in_range(children, 1, CHILDREN_MAX);
	assert_int_equal(pipe2(tell, O_NONBLOCK | O_CLOEXEC), 0);
	for (i = 0; i < children; i++)
		child[i] = crowd(n / children, (uint64_t)i * PER_CHILD, answers_ms, tell[1]);
	for (began = mc_now_ms(); told < children && mc_now_ms() < began + 100000;) {
		ask(c);
		beat(h, 1);
		if (read(tell[0], &some, sizeof(some)) == sizeof(some)) {
			all.in += some.in;
			all.welcome += some.welcome;
			all.refused += some.refused;
			told++;
		}
	}
	assert_int_equal(told, children);
	close(tell[0]);
	close(tell[1]);
	return all;
}

static void still_served(struct mcp_client *c, struct mcp_client *h)
{
	unsigned i;

	for (i = 0; i < 200; i++) {
		ask(c);
		beat(h, 1);
	}
	assert_in_range(slowest_ms, 0, SLOW_MS);
}

/* The crowd disconnects, and a new client is accepted. */
static void room_again(void)
{
	struct mcp_client *later;
	uint64_t began;

	crowd_goes();
	later = client_by(3, mc_deadline_ms(60000));
	ask(later);
	/* Connections that were waiting to be accepted are accepted first, and removed when the
	 * master notices that they are closed. */
	for (began = mc_now_ms(); mcm_client_count(m) != 2 && mc_now_ms() < began + 60000;)
		usleep(1000);
	assert_int_equal(mcm_client_count(m), 2);
	mcp_client_close(later);
}

static void test_crowd(void **state)
{
	const char *text = getenv("MC_CONNECTIONS");
	unsigned n = text ? (unsigned)atoi(text) : 2000;
	struct rlimit old, lim;
	struct mcp_client *c, *h;
	struct census all;
	uint64_t cpu, began, before;

	(void)state;
	assert_in_range(n, 1, CHILDREN_MAX * PER_CHILD);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	lim = old;
	/* Descriptors for about half of a small crowd: the other connections are not accepted. */
	if (!text && old.rlim_max > 1200)
		lim.rlim_cur = 1200;
	else
		lim.rlim_cur = lim.rlim_max = n + 1000 > old.rlim_max ? n + 1000 : old.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &lim) < 0) {
		/* In some environments not even root can raise the limit. */
		assert_true(old.rlim_max > 2000);
		lim.rlim_cur = lim.rlim_max = old.rlim_max;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
		n = (unsigned)old.rlim_max - 1000;
		printf("there are descriptors for %u connections only\n", n);
	}
	start(n + 1000);
	c = client(1);
	h = heart(1);
	before = rss();
	all = crowd_comes(n, text ? ANSWERS_MS : OUTSIDE_MS, c, h);
	printf("%.0f B of memory for each of %u\n",
	       (double)(rss() - before) / (all.welcome ? all.welcome : 1), all.welcome);
	cpu = cpu_ms();
	began = mc_now_ms();
	while (mc_now_ms() < began + 300)
		usleep(10000);
	printf("%u came, %u are in, %u clients known, slowest answer %llu ms, idle %.1f %% of a core\n",
	       all.in, all.welcome, mcm_client_count(m), (unsigned long long)slowest_ms,
	       100.0 * (double)(cpu_ms() - cpu) / (double)(mc_now_ms() - began));
	assert_int_equal(all.refused, 0);
	if (text)
		assert_int_equal(all.welcome, n / children * children);
	still_served(c, h);
	room_again();
	mcp_client_close(h);
	mcp_client_close(c);
	stop();
	(void)setrlimit(RLIMIT_NOFILE, &old);
}

/* More connections than max_connections: the excess gets an error, and other clients are not
 * affected. */
static void test_limit(void **state)
{
	struct mcp_client_conf conf = {
		.addrs = path, .client = { 77, 9 }, .channel = MCP_CHANNEL_CONTROL, .software = "crowd",
	};
	const char *text = getenv("MC_CONNECTIONS");
	unsigned n = text ? (unsigned)atoi(text) : 700, limit = text ? n / 8 : 300;
	struct mcp_exist_reply reply;
	struct mcp_exist rq = { 0 };
	struct mcp_reply mem = { 0 };
	struct mcp_client *c, *h, *late;
	struct rlimit old, lim;
	struct census all;
	int r;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	lim.rlim_cur = lim.rlim_max = limit + 2000 > old.rlim_max ? limit + 2000 : old.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
		skip();
	start(limit);
	c = client(1);
	h = heart(1);
	all = crowd_comes(n, ANSWERS_MS, c, h);
	n = n / children * children;
	printf("%u came, %u welcome, %u refused, %u clients known, slowest answer %llu ms\n", all.in,
	       all.welcome, all.refused, mcm_client_count(m), (unsigned long long)slowest_ms);
	assert_int_equal(all.welcome, limit - 2);
	/* The heartbeat channel accepts no other requests, so that no heartbeat waits for them. */
	assert_int_equal(mcp_call(h, MCP_EXIST, &rq, &reply, &mem, mc_deadline_ms(20000)), -MC_ENOTSUP);
	assert_int_equal(all.in, n);
	/* At most 1000 refusals wait at the same time; further connections are closed without
	 * one. */
	if (text)
		assert_true(all.refused >= 1000 || all.refused == n - all.welcome);
	else
		assert_int_equal(all.refused, n - all.welcome);
	assert_int_equal(mcp_client_open(&conf, &late), 0);
	r = mcp_call(late, MCP_EXIST, &rq, &reply, &mem, mc_deadline_ms(5000));
	assert_true(r == -MC_ELIMIT || (text && r == -MC_ERPC));
	assert_true(r != -MC_ELIMIT || strstr(mc_err_detail(r), "max_connections"));
	mcp_client_close(late);
	still_served(c, h);
	room_again();
	mcp_client_close(h);
	mcp_client_close(c);
	stop();
	(void)setrlimit(RLIMIT_NOFILE, &old);
}

/* A connection that sends only a hello, from loopback address number @from. */
static int silent(unsigned from)
{
	struct mcp_hello hello = {
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.client = { 79, from }, .lane = MCP_CHANNEL_CONTROL, .software = fx_bytes("silent"),
	};
	struct mcp_frame f = { .type = MCP_HELLO, .id = 1 };
	struct mcp_buf b = { 0 };
	int fd = come((uint64_t)from * PER_ADDRESS);

	assert_true(fd >= 0);
	assert_int_equal(mcp_frame_append(&b, f, &mcp_desc_hello, &hello), 0);
	assert_int_equal(send(fd, b.data, b.len, MSG_NOSIGNAL), (ssize_t)b.len);
	mcp_buf_free(&b);
	return fd;
}

static unsigned still_open(const int *fd, unsigned n)
{
	unsigned open = 0, i;
	char buf[256];
	ssize_t r;

	for (i = 0; i < n; i++) {
		while ((r = recv(fd[i], buf, sizeof(buf), MSG_DONTWAIT)) > 0)
			;
		open += r < 0 && errno == EAGAIN;
	}
	return open;
}

/* A reader that has not registered, and holds an object open. */
static int holder(void)
{
	struct mcp_key key = { .key = fx_bytes("some-key") };
	struct mcp_get rq = { .flags = MCP_GET_HOLD, .keys = mcp_seq(&key, 1) };
	struct mcp_frame f = { .type = MCP_GET, .id = 2 };
	struct mcp_buf b = { 0 };
	int fd = silent(5);

	assert_int_equal(mcp_frame_append(&b, f, &mcp_desc_get, &rq), 0);
	assert_int_equal(send(fd, b.data, b.len, MSG_NOSIGNAL), (ssize_t)b.len);
	mcp_buf_free(&b);
	return fd;
}

#define SILENT 63u

/* Connections that said hello and nothing more do not shut out clients: the oldest ones are closed.  The clients that
 * are registered, their heartbeats, and readers stay. */
static void test_silent(void **state)
{
	struct mcp_client *c, *h, *later[8];
	struct fixture fx = { 0 };
	int fd[SILENT], hold;
	unsigned i;

	(void)state;
	start(SILENT + 3);
	fx.m = m;
	fx.s = fx_session(&fx, 50);
	assert_int_equal(fx_mount(&fx, 50, 1, 101, 1 << 20, NULL), 0);
	assert_int_equal(fx_put(&fx, "some-key", 100, 0), 0);
	c = client(1);
	h = heart(1);
	hold = holder();
	for (i = 0; i < SILENT; i++)
		fd[i] = silent(i % 4);
	/* They are not closed for a client that comes in the same second, which it may have to repeat. */
	for (i = 0; i < 8; i++) {
		uint64_t end = mc_deadline_ms(20000);
		struct mcp_client_conf conf = {
			.addrs = path, .client = { 77, 10 + i }, .channel = MCP_CHANNEL_CONTROL, .software = "late",
		};
		struct mcp_register rq = { .client = { 77, 10 + i }, .name = fx_bytes("late:1") };
		struct mcp_register_reply reply;
		struct mcp_reply mem = { 0 };
		int r;

		assert_int_equal(mcp_client_open(&conf, &later[i]), 0);
		while ((r = mcp_call(later[i], MCP_REGISTER, &rq, &reply, &mem, end)) < 0 && mc_now_ns() < end)
			usleep(10000);
		assert_int_equal(r, 0);
		mcp_reply_done(&mem);
	}
	ask(c);
	beat(h, 1);
	assert_int_equal(still_open(fd, SILENT), SILENT - 8);
	assert_int_equal(still_open(&hold, 1), 1);
	close(hold);
	for (i = 0; i < 8; i++) {
		ask(later[i]);
		mcp_client_close(later[i]);
	}
	for (i = 0; i < SILENT; i++)
		close(fd[i]);
	mcp_client_close(h);
	mcp_client_close(c);
	fx_session_end(&fx, fx.s);
	stop();
}

/* One address has a part of the connections only, so other addresses find a place although all of them are
 * registered. */
static void test_peer_limit(void **state)
{
	struct mcp_client *c;
	int fd[40];
	unsigned i;

	(void)state;
	peer_limit = 16;
	start(64);
	peer_limit = 0;
	for (i = 0; i < 40; i++) {
		fd[i] = join(0);
		assert_true(fd[i] >= 0);
	}
	c = client(1);
	ask(c);
	for (i = 0; mcm_client_count(m) < 2 && i < 2000; i++)
		usleep(1000);
	for (i = 0; still_open(fd, 40) != 16 && i < 5000; i++)
		usleep(1000);
	assert_int_equal(still_open(fd, 40), 16);
	for (i = 0; i < 40; i++)
		close(fd[i]);
	mcp_client_close(c);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_peer_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
