/* SPDX-License-Identifier: Apache-2.0
 * test_proto_faults.c - the client when its server dies, stops, stalls, moves or sends invalid
 * data. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/metrics.h"
#include "common/net/socket.h"

#define MS(ns) ((ns) / MC_NS_PER_MS)

static int64_t late_replies(void)
{
	int64_t value;

	assert_int_equal(mc_metrics_lookup("mooncake_rpc_client_late_replies_total", "", &value), 0);
	return value;
}

/* ---- servers in processes of their own ---- */

struct process {
	pid_t pid;
	int alive;		/* the server ends when this is closed */
	char tcp[MC_ADDR_MAX], path[96], dir[64];
};

/* Call it only while the test has no threads: the child starts its own. */
static void spawn(struct process *p, const char *faults)
{
	int up[2], down[2];
	char c;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		close(up[0]);
		close(down[1]);
		mc_fault_set(faults);
		fixture_start(&fx, NULL);
		if (write(up[1], fx.tcp, strlen(fx.tcp) + 1) < 0 ||
		    write(up[1], fx.path, strlen(fx.path) + 1) < 0 ||
		    write(up[1], fx.dir, strlen(fx.dir) + 1) < 0)
			_exit(1);
		close(up[1]);
		while (read(down[0], &c, 1) > 0)
			;
		fixture_stop(&fx);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	p->alive = down[1];
	char *const to[] = { p->tcp, p->path, p->dir };
	for (int i = 0, at = 0; i < 3; at++) {
		if (read(up[0], &to[i][at], 1) != 1)
			fail_msg("the server did not start");
		if (!to[i][at])
			i++, at = -1;
	}
	close(up[0]);
}

static void end(struct process *p, int sig)
{
	int status;

	if (!p->pid)
		return;
	if (sig)
		kill(p->pid, sig);
	close(p->alive);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	if (sig) {
		assert_int_equal(WTERMSIG(status), sig);
		unlink(p->path + 5);
		rmdir(p->dir);
	} else {
		assert_int_equal(status, 0);
	}
	p->pid = 0;
}

/* SIGSTOP takes effect some time after kill(). */
static void freeze(const struct process *p)
{
	int status;

	kill(p->pid, SIGSTOP);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
}

struct call {
	pthread_t thread;
	struct mcp_client *c;
	const char *from;
	int64_t ms, result;
	uint64_t took_ms;
};

static __thread bool in_call;	/* this thread executes run_call() */
static atomic_long begun_calls;

/* The client's hook before each request: from here on the call belongs to the connection. */
static void count_begun(struct mcp_buf *b, void *arg)
{
	if (in_call)
		atomic_fetch_add(&begun_calls, 1);
}

static void until_begun(long n)
{
	uint64_t end = mc_deadline_ms(20000);

	while (atomic_load(&begun_calls) < n && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(atomic_load(&begun_calls), n);
}

static void *run_call(void *arg)
{
	struct call *call = arg;
	uint64_t from = mc_now_ns();

	in_call = true;
	call->result = fixture_rename(call->c, call->from, call->ms);
	call->took_ms = MS(mc_now_ns() - from);
	return NULL;
}

static void start_calls(struct call *calls, int n, struct mcp_client *c, const char *from, int64_t ms)
{
	for (int i = 0; i < n; i++) {
		calls[i] = (struct call){ .c = c, .from = from, .ms = ms };
		assert_int_equal(pthread_create(&calls[i].thread, NULL, run_call, &calls[i]), 0);
	}
}

static void join_calls(struct call *calls, int n)
{
	for (int i = 0; i < n; i++)
		pthread_join(calls[i].thread, NULL);
}

/* Wait until the server is busy with one of the calls: then another call of the same session gets
 * no reply. */
static void until_stuck(struct mcp_client *c)
{
	while (fixture_rename(c, "a", 50) != -MC_ETIMEDOUT)
		;
}

static void killed_server_fails_calls_at_once(void **state)
{
	struct process p;
	struct call calls[4];
	struct mcp_client *c;

	spawn(&p, NULL);
	c = fixture_client(p.tcp);
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	start_calls(calls, 4, c, "gate", 60000);
	until_stuck(c);
	end(&p, SIGKILL);
	join_calls(calls, 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(calls[i].result, -MC_ERPC);
		assert_true(calls[i].took_ms < 30000);
	}
	assert_false(mcp_client_up(c));
	assert_int_equal(fixture_rename(c, "a", 10000), -MC_ERPC);
	assert_non_null(strstr(mc_err_detail(-MC_ERPC), "refused"));
	mcp_client_close(c);
}

static void next_call_goes_to_another_server(void **state)
{
	struct process a, b;
	struct mcp_client *c;
	char addrs[512];
	int64_t r;

	spawn(&a, NULL);
	spawn(&b, NULL);
	snprintf(addrs, sizeof(addrs), "%s,%s", a.tcp, b.path);
	c = fixture_client(addrs);
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	assert_int_equal(fixture_rename(c, "a", 10000), 2);
	end(&a, SIGKILL);
	/* At most the call that detects the end may fail. */
	r = fixture_rename(c, "a", 10000);
	assert_true(r == 1 || r == -MC_ERPC);
	r = fixture_rename(c, "a", 10000);
	assert_true(r == 1 || r == 2);
	end(&b, SIGKILL);
	mcp_client_close(c);
}

/* A server that is replaced while the client is idle costs no failed call. */
static void replaced_server_is_noticed(void **state)
{
	char path[96];
	const char *addrs[] = { path, NULL };
	static const struct mcp_handler none[] = { { 0, NULL } };
	struct mcp_server_conf conf = { .net = test_net(), .addrs = addrs, .loops = 1, .handlers = none };
	struct mcp_server *s;
	struct mcp_client *c;

	snprintf(path, sizeof(path), "unix:@mc-proto-replaced-%d", (int)getpid());
	c = fixture_client(path);
	for (int i = 0; i < 3; i++) {
		uint64_t since;

		assert_int_equal(mcp_server_start(&conf, &s), 0);
		assert_int_equal(fixture_rename(c, "a", 10000), -MC_ENOTSUP);
		assert_true(mcp_client_up(c));
		mcp_server_stop(s);
		assert_false(mcp_client_up(c));
		for (since = mc_now_ns(); mc_now_ns() - since < 60 * MC_NS_PER_MS;)
			usleep(1000);
	}
	mcp_client_close(c);
}

/* ---- stalls ---- */

static void stopped_server_ends_calls_at_their_deadlines(void **state)
{
	struct process p;
	struct call calls[4];
	struct mcp_client *c, *fresh;
	int64_t late = late_replies();

	spawn(&p, NULL);
	c = fixture_client(p.tcp);
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	freeze(&p);
	for (int i = 0; i < 4; i++) {
		/* long enough to send the request on a busy machine */
		calls[i] = (struct call){ .c = c, .from = "a", .ms = 1500 + 100 * i };
		assert_int_equal(pthread_create(&calls[i].thread, NULL, run_call, &calls[i]), 0);
	}
	join_calls(calls, 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(calls[i].result, -MC_ETIMEDOUT);
		assert_in_range(calls[i].took_ms, 1500 + 100 * i, 1500 + 100 * i + 10000);
	}
	/* connecting times out, too: the kernel accepts, but no process answers the hello */
	fresh = fixture_client(p.path);
	for (int i = 0; i < 4; i++) {
		calls[i] = (struct call){ .c = fresh, .from = "a", .ms = 50 + 50 * i };
		assert_int_equal(pthread_create(&calls[i].thread, NULL, run_call, &calls[i]), 0);
	}
	join_calls(calls, 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(calls[i].result, -MC_ETIMEDOUT);
		assert_in_range(calls[i].took_ms, 50 + 50 * i, 50 + 50 * i + 10000);
	}
	kill(p.pid, SIGCONT);
	/* The four late replies arrive first and are dropped. */
	assert_int_equal(fixture_rename(c, "a", 10000), 6);
	assert_int_equal(late_replies(), late + 4);
	assert_int_equal(fixture_rename(fresh, "a", 10000), 1);
	mcp_client_close(c);
	mcp_client_close(fresh);
	end(&p, 0);
}

static void stopped_server_is_passed_over(void **state)
{
	struct process a, b;
	struct mcp_client_conf conf = { .net = test_net(), .connect_timeout_ms = 2000 };
	struct mcp_client *c;
	char addrs[512];

	spawn(&a, NULL);
	spawn(&b, NULL);
	freeze(&a);
	snprintf(addrs, sizeof(addrs), "%s,%s", a.tcp, b.tcp);
	conf.addrs = addrs;
	assert_int_equal(mcp_client_open(&conf, &c), 0);
	assert_int_equal(fixture_rename(c, "a", 20000), 1);
	mcp_client_close(c);
	/* Also when the call has less time than one attempt to connect may take. */
	conf.connect_timeout_ms = 60000;
	assert_int_equal(mcp_client_open(&conf, &c), 0);
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	mcp_client_close(c);
	end(&a, SIGKILL);
	end(&b, SIGKILL);
}

/* Requests fill the socket, and calls time out in the middle of a frame: the stream stays intact,
 * and after the stall every request that was partly sent is completed and served once. */
static void full_socket_keeps_frames_whole(void **state)
{
	struct process p;
	struct mcp_client *c;
	char *name = malloc(300001);
	int begun = 0;

	memset(name, 'x', 300000);
	name[300000] = '\0';
	spawn(&p, NULL);
	for (int t = 0; t < 2; t++) {
		c = fixture_client(t ? p.tcp : p.path);
		assert_int_equal(fixture_rename(c, "a", 10000), 1);
		freeze(&p);
		for (begun = 0; begun < 40; begun++)
			assert_int_equal(fixture_rename(c, name, 10), -MC_ETIMEDOUT);
		kill(p.pid, SIGCONT);
		begun = (int)fixture_rename(c, name, 20000);
		assert_in_range(begun, 3, 42);
		assert_int_equal(fixture_rename(c, "a", 10000), begun + 1);
		mcp_client_close(c);
	}
	end(&p, 0);
	free(name);
}

static void handler_that_blocks(void **state)
{
	struct process p;
	struct mcp_client *c;
	int64_t late = late_replies();
	uint64_t from;

	spawn(&p, "test.slow=delay:5000");
	c = fixture_client(p.tcp);
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	from = mc_now_ns();
	/* long enough to send the request on a busy machine */
	assert_int_equal(fixture_rename(c, "slow", 1500), -MC_ETIMEDOUT);
	assert_in_range(MS(mc_now_ns() - from), 1500, 4900);
	assert_non_null(strstr(mc_err_detail(-MC_ETIMEDOUT), "rename"));
	/* the slot is reused: the late reply must not be taken for the reply to this call */
	assert_int_equal(fixture_rename(c, "a", 20000), 3);
	assert_int_equal(late_replies(), late + 1);
	mcp_client_close(c);
	end(&p, 0);
}

static void small_outstanding(struct mcp_server_conf *conf)
{
	conf->max_outstanding = 64;
}

/* The client sends 1000 requests of 20 kB before it waits for a reply of 60 kB: the server stops
 * reading until its replies are read, so the sender has to read them. */
static void sender_reads_when_the_server_will_not(void **state)
{
	enum { N = 1000, SIZE = 60000 };
	struct mcp_ticket *t = calloc(N, sizeof(*t));
	char *prefix = calloc(1, 20000);

	fixture_start(&fx, small_outstanding);
	for (int transport = 0; transport < 2; transport++) {
		struct mcp_list rq = { .limit = SIZE, .prefix = mcp_bytes(prefix, 20000) };
		struct mcp_client *c = fixture_client(transport ? fx.tcp : fx.path);

		for (int i = 0; i < N; i++)
			assert_int_equal(mcp_call_start(c, MCP_LIST, &rq, &t[i], mc_deadline_ms(60000)), 0);
		for (int i = N - 1; i >= 0; i--) {
			struct mcp_reply mem = { 0 };
			struct mcp_list_reply reply;

			assert_int_equal(mcp_call_wait(c, t[i], &reply, &mem, mc_deadline_ms(60000)), 0);
			assert_int_equal(reply.cursor.len, SIZE);
			mcp_reply_done(&mem);
		}
		mcp_client_close(c);
	}
	fixture_stop(&fx);
	free(prefix);
	free(t);
}

/* ---- the end of a client ---- */

static void close_and_reset_end_calls(void **state)
{
	struct mcp_client_conf conf = {
		.net = test_net(), .client = { 1, 2 }, .software = "test", .piggyback = count_begun,
	};
	struct mcp_client *c, *other;
	struct call calls[4];

	fixture_start(&fx, NULL);
	conf.addrs = fx.tcp;
	atomic_store(&begun_calls, 0);
	assert_int_equal(mcp_client_open(&conf, &c), 0);
	start_calls(calls, 4, c, "gate", 60000);
	until_begun(4);
	until_stuck(c);
	mcp_client_reset(c);
	join_calls(calls, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(calls[i].result, -MC_ERPC);
	fx.gate = true;
	/* a new connection, a new session */
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	fx.gate = false;
	start_calls(calls, 4, c, "gate", 60000);
	until_begun(8);
	until_stuck(c);
	mcp_client_close(c);
	join_calls(calls, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(calls[i].result, -MC_ERPC);
	fx.gate = true;
	other = fixture_client(NULL);
	assert_int_equal(fixture_rename(other, "a", 10000), 1);
	mcp_client_close(other);
	fixture_stop(&fx);
}

/* Threads that share a local session wait for each other only until their deadlines. */
static void local_callers_wait_their_turn(void **state)
{
	struct mcp_client *c;
	struct call calls[1];

	fixture_start(&fx, NULL);
	c = fixture_client("local:test");
	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	start_calls(calls, 1, c, "gate", 60000);
	until_stuck(c);
	fx.gate = true;
	join_calls(calls, 1);
	assert_true(calls[0].result > 1);
	assert_true(fixture_rename(c, "a", 10000) > calls[0].result);
	mcp_client_close(c);
	fixture_stop(&fx);
}

/* Closing the client waits for the address that is being tried, and for no other. */
static void closing_leaves_the_other_addresses(void **state)
{
	char addr[2][MC_ADDR_MAX], both[2 * MC_ADDR_MAX];
	int listener[2], fd = -1;
	struct mcp_client *c;
	struct call calls[1];

	for (int i = 0; i < 2; i++) {
		listener[i] = mc_socket_listen("127.0.0.1:0", 4, 0, addr[i]);
		assert_true(listener[i] >= 0);
	}
	snprintf(both, sizeof(both), "%s,%s", addr[0], addr[1]);
	c = fixture_client(both);
	start_calls(calls, 1, c, "a", 20000);
	while (fd < 0) {
		fd = mc_socket_accept(listener[0]);
		usleep(1000);
	}
	mcp_client_close(c);
	join_calls(calls, 1);
	assert_int_equal(calls[0].result, -MC_ERPC);
	assert_int_equal(mc_socket_accept(listener[1]), -EAGAIN);
	close(fd);
	close(listener[0]);
	close(listener[1]);
}

/* ---- a server that sends invalid data ---- */

struct liar {
	pthread_t thread;
	struct mc_listener listener;
	struct mcp_hello_reply hello;
	int hello_status;
	struct mcp_frame answer;	/* to the request after the hello; that one's id is added */
	size_t cut;			/* close after this many bytes of the answer */
	uint8_t body[8];
};

static void *lie(void *arg)
{
	struct liar *l = arg;
	uint8_t header[MCP_FRAME_HEADER];
	struct mcp_frame f;
	struct mc_stream *raw = NULL;

	assert_int_equal(mc_listener_wait(&l->listener, mc_deadline_ms(10000)), 1);
	raw = raw_accept(&l->listener);
	assert_true(raw_recv_frame(raw, &f, NULL));
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_HELLO, .flags = MCP_FRAME_REPLY, .id = f.id,
		.status = l->hello_status }, l->hello_status ? NULL : &mcp_desc_hello_reply, &l->hello);
	if (raw_recv_frame(raw, &f, NULL)) {
		l->answer.id += f.id;
		mcp_frame_pack(&l->answer, header);
		raw_send(raw, header, l->cut < sizeof(header) ? l->cut : sizeof(header));
		if (l->cut > sizeof(header))
			raw_send(raw, l->body, l->cut - sizeof(header));
		if (l->cut >= sizeof(header))
			raw_recv_frame(raw, &f, NULL);
	}
	raw_close(raw);
	return NULL;
}

static int64_t call_liar(struct liar *l, int64_t ms, char *why)
{
	struct mcp_client *c;
	int64_t r;

	assert_int_equal(mc_net_listen(test_net(), "127.0.0.1:0", 4, &l->listener), 0);
	assert_int_equal(pthread_create(&l->thread, NULL, lie, l), 0);
	c = fixture_client(l->listener.addr);
	r = fixture_rename(c, "a", ms);
	if (why)
		snprintf(why, 200, "%s", r < 0 ? mc_err_detail((int)r) : "");
	mcp_client_close(c);
	pthread_join(l->thread, NULL);
	mc_listener_close(&l->listener);
	return r;
}

static const struct liar honest = {
	.hello = { .version = MCP_VERSION, .max_frame = 1000 },
	.answer = { .length = 8, .type = MCP_RENAME, .flags = MCP_FRAME_REPLY },
	.cut = MCP_FRAME_HEADER + 8, .body = { 42 },
};

static void nonsense_fails_the_connection(void **state)
{
	struct liar l = honest;
	char why[200];

	assert_int_equal(call_liar(&l, 10000, NULL), 42);

	l = honest;
	l.hello_status = mc_err_to_wire(-MC_EVERSION);
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_EVERSION);
	l = honest;
	l.hello.version = MCP_VERSION + 1;
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_EVERSION);
	l = honest;
	l.hello.max_frame = 5;
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_EPARAM);

	l = honest;
	l.answer.flags = 0;
	assert_int_equal(call_liar(&l, 10000, why), -MC_ERPC);
	assert_non_null(strstr(why, "malformed frame"));
	l = honest;
	l.answer.flags = 0x100;
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_ERPC);
	l = honest;
	l.answer.length = MCP_FRAME_MAX + 1;
	assert_int_equal(call_liar(&l, 10000, why), -MC_ERPC);
	assert_non_null(strstr(why, "malformed frame"));
	l = honest;
	l.answer.type = MCP_EXIST;
	assert_int_equal(call_liar(&l, 10000, why), -MC_ERPC);
	assert_non_null(strstr(why, "another type"));
	l = honest;
	l.cut = 7;
	assert_int_equal(call_liar(&l, 10000, why), -MC_ERPC);
	assert_non_null(strstr(why, "closed by the server"));
}

static void wrong_answers_fail_their_call_only(void **state)
{
	struct liar l = honest;
	int64_t late = late_replies();

	l.answer.length = 7;	/* the body is too short */
	l.cut--;
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_EPROTO);
	l = honest;
	l.answer.id = 1;	/* unknown request id */
	assert_int_equal(call_liar(&l, 2000, NULL), -MC_ETIMEDOUT);
	l = honest;
	l.answer.id = 1u << 10;	/* id of an earlier use of the slot */
	assert_int_equal(call_liar(&l, 2000, NULL), -MC_ETIMEDOUT);
	assert_int_equal(late_replies(), late + 2);
	l = honest;
	l.cut = MCP_FRAME_HEADER + 3;
	assert_int_equal(call_liar(&l, 2000, NULL), -MC_ETIMEDOUT);
	l = honest;
	l.answer.status = -999999;
	l.answer.length = 0;
	l.cut = MCP_FRAME_HEADER;
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_EINTERNAL);
	l.answer = honest.answer;
	l.answer.status = 5;
	l.answer.length = 0;
	assert_int_equal(call_liar(&l, 10000, NULL), -MC_EINTERNAL);
}

/* ---- the fault points that other tests use ---- */

static void fault_points_work(void **state)
{
	struct mcp_client *c;

	fixture_start(&fx, NULL);
	for (int t = 0; t < 2; t++) {
		c = fixture_client(t ? "local:test" : NULL);
		assert_int_equal(mc_fault_set("rpc.connect=error:EIO"), 0);
		assert_int_equal(fixture_rename(c, "a", 10000), -MC_ERPC);
		assert_int_equal(mc_fault_hits("rpc.connect"), 1);
		assert_int_equal(mc_fault_set(NULL), 0);
		assert_int_equal(fixture_rename(c, "a", 10000), 1);
		assert_int_equal(mc_fault_set("rpc.serve=error:ENOSPC"), 0);
		assert_int_equal(fixture_rename(c, "a", 10000), mc_err_from_wire(mc_err_to_wire(-ENOSPC)));
		assert_int_equal(mc_fault_set("rpc.send=error:EPIPE"), 0);
		assert_int_equal(fixture_rename(c, "a", 10000), -MC_ERPC);
		assert_int_equal(mc_fault_set("rpc.reply=delay:200"), 0);
		assert_int_equal(fixture_rename(c, "a", 10000), 1);
		assert_int_equal(mc_fault_hits("rpc.reply"), 1);
		assert_int_equal(mc_fault_set(NULL), 0);
		mcp_client_close(c);
	}
	fixture_stop(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_server_fails_calls_at_once),
		cmocka_unit_test(next_call_goes_to_another_server),
		cmocka_unit_test(replaced_server_is_noticed),
		cmocka_unit_test(stopped_server_ends_calls_at_their_deadlines),
		cmocka_unit_test(stopped_server_is_passed_over),
		cmocka_unit_test(full_socket_keeps_frames_whole),
		cmocka_unit_test(handler_that_blocks),
		cmocka_unit_test(sender_reads_when_the_server_will_not),
		cmocka_unit_test(close_and_reset_end_calls),
		cmocka_unit_test(local_callers_wait_their_turn),
		cmocka_unit_test(closing_leaves_the_other_addresses),
		cmocka_unit_test(nonsense_fails_the_connection),
		cmocka_unit_test(wrong_answers_fail_their_call_only),
		cmocka_unit_test(fault_points_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
