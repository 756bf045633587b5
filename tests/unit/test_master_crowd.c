/* SPDX-License-Identifier: Apache-2.0
 * More connections than the master has descriptors for: those that are there are served as before, and
 * when the crowd has gone everybody gets in again.
 *
 *	MC_CONNECTIONS=N	connections, 2000 unless said otherwise */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/rpc_client.h"

#define PER_CHILD 15000u
#define CHILDREN_MAX 16u
/* Far more than it takes, for a machine that has a lot else to do. */
#define SLOW_MS 2000

static char path[64];
static struct mc_options *options;
static struct mcm *m;

static void start(void)
{
	const char *addrs[] = { path, NULL };
	struct mcm_listen where = { .addrs = addrs };
	struct mcm_conf conf;

	snprintf(path, sizeof(path), "unix:@mc-crowd-%d", (int)getpid());
	assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
	conf.rpc_thread_num = 2;
	conf.enable_metric_reporting = false;
	assert_int_equal(mcm_start(&conf, &where, &m), 0);
}

static struct mcp_client *client(uint64_t id, enum mcp_lane lane)
{
	struct mcp_client_conf conf = {
		.addrs = path, .client = { 77, id }, .lane = lane, .software = "crowd",
	};
	struct mcp_register rq = { .client = { 77, id }, .name = fx_bytes("me:1") };
	struct mcp_register_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_client *c;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	assert_int_equal(mcp_call(c, MCP_REGISTER, &rq, &reply, &mem, mc_deadline_ms(20000)), 0);
	mcp_reply_done(&mem);
	return c;
}

/* ---- the crowd ---- */

/* A connection that says hello and nothing more. */
static int join(uint64_t id)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct mcp_hello hello = {
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.client = { 78, id }, .lane = MCP_LANE_CONTROL, .software = fx_bytes("crowd"),
	};
	struct mcp_frame f = { .type = MCP_HELLO, .id = 1 };
	struct mcp_buf b = { 0 };
	const char *name = path + strlen("unix:@");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ssize_t n = -1;

	if (fd < 0)
		return -errno;
	memcpy(to.sun_path + 1, name, strlen(name));
	if (connect(fd, (struct sockaddr *)&to,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0 &&
	    mcp_frame_append(&b, f, &mcp_desc_hello, &hello) == 0)
		n = send(fd, b.data, b.len, MSG_NOSIGNAL);
	mcp_buf_free(&b);
	if (n > 0)
		return 0;
	close(fd);
	return -EAGAIN;
}

/* Come in as many as can within a few seconds, say how many, and stay until killed. */
static pid_t crowd(unsigned n, uint64_t first, int tell)
{
	struct rlimit lim = { PER_CHILD + 100, PER_CHILD + 100 };
	unsigned in = 0, tries;
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setrlimit(RLIMIT_NOFILE, &lim);
	for (tries = 0; in < n && tries < n + 3000; tries++) {
		if (join(first + in) == 0)
			in++;
		else
			usleep(1000);
	}
	if (write(tell, &in, sizeof(in)) != sizeof(in))
		_exit(1);
	for (;;)
		pause();
}

/* ---- those who were there before ---- */

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

static uint64_t cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void test_crowd(void **state)
{
	const char *text = getenv("MC_CONNECTIONS");
	unsigned n = text ? (unsigned)atoi(text) : 2000, told = 0, in = 0, some, i;
	unsigned children = (n + PER_CHILD - 1) / PER_CHILD;
	/* Room for half of a small crowd: the others wait outside. */
	struct rlimit old, lim;
	struct mcp_client *c, *h, *later;
	pid_t child[CHILDREN_MAX];
	uint64_t cpu, began;
	int tell[2];

	(void)state;
	assert_in_range(n, 1, CHILDREN_MAX * PER_CHILD);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	lim = old;
	lim.rlim_cur = !text && old.rlim_max > 1200 ? 1200 : old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	start();
	c = client(1, MCP_LANE_CONTROL);
	h = client(2, MCP_LANE_HEARTBEAT);
	assert_int_equal(pipe2(tell, O_NONBLOCK | O_CLOEXEC), 0);
	for (i = 0; i < children; i++)
		child[i] = crowd(n / children, (uint64_t)i * PER_CHILD, tell[1]);
	for (began = mc_now_ms(); told < children && mc_now_ms() < began + 60000;) {
		ask(c);
		beat(h, 2);
		if (read(tell[0], &some, sizeof(some)) == sizeof(some)) {
			in += some;
			told++;
		}
	}
	assert_int_equal(told, children);
	cpu = cpu_ms();
	began = mc_now_ms();
	while (mc_now_ms() < began + 300)
		usleep(10000);
	printf("%u came, %u clients known, slowest answer %llu ms, idle %.1f %% of a core\n", in,
	       mcm_client_count(m), (unsigned long long)slowest_ms,
	       100.0 * (double)(cpu_ms() - cpu) / (double)(mc_now_ms() - began));
	for (i = 0; i < 200; i++) {
		ask(c);
		beat(h, 2);
	}
	assert_in_range(slowest_ms, 0, SLOW_MS);
	for (i = 0; i < children; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	/* They are let go of, and there is room for others. */
	later = client(3, MCP_LANE_CONTROL);
	ask(later);
	for (began = mc_now_ms(); mcm_client_count(m) > 3 && mc_now_ms() < began + 30000;)
		usleep(1000);
	assert_int_equal(mcm_client_count(m), 3);
	mcp_client_close(later);
	mcp_client_close(h);
	mcp_client_close(c);
	mcm_stop(m);
	mc_options_free(options);
	close(tell[0]);
	close(tell[1]);
	(void)setrlimit(RLIMIT_NOFILE, &old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
