/* SPDX-License-Identifier: Apache-2.0
 * te_finish.c - the work after the end of a batch, with a delay in its thread so that more events
 * happen meanwhile: every notification arrives, after all requests submitted before it was sent
 * have ended; a batch with tasks that are retried has not ended.  Also with a delay: submitting
 * large copies on this host, during which the batch ends. */
#include "te_pair.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define BYTES (32u << 20)
#define SLOW_MS 300
#define ROUNDS 20u

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

/* Commands of one byte: q end, r register again. */
static void serve(int from, int to)
{
	struct te_note note = { .len = BYTES };
	struct mce_te *te = open_engine();
	unsigned char *mem = malloc(BYTES);
	char c;

	/* also when this process is stopped */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(mem && mce_te_register(te, mem, BYTES, "*", 1) == 0);
	te_fill(mem, BYTES, 7);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	for (te_hear(from, &c, 1); c != 'q'; te_hear(from, &c, 1)) {
		CHECK(mce_te_unregister(te, mem) == 0 && mce_te_register(te, mem, BYTES, "*", 1) == 0);
		te_tell(to, &c, 1);
	}
	mce_te_close(te);
	free(mem);
}

/* Wait up to 20 s for the next notification of this engine, which must be @msg. */
static void wait_notif(struct mce_te *te, const char *msg)
{
	int64_t end = now_ms() + 20000;
	notify_msg_t *got;
	int n = 0;

	do {
		got = getNotifsFromEngine(te, &n);
		CHECK(got);
		if (n == 0)
			freeNotifsMsgBuf(got, 0);
	} while (n == 0 && now_ms() < end);
	CHECK(n == 1 && !strcmp(got[0].msg, msg));
	freeNotifsMsgBuf(got, n);
}

static void submit(struct mce_te *te, batch_id_t b, struct transfer_request r, const char *msg)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .notify_name = msg ? "me" : NULL, .notify_msg = msg };

	CHECK(mce_te_submit(te, b, &r, 1, &opts) == 0);
}

static batch_id_t batch_new(struct mce_te *te)
{
	batch_id_t b;

	CHECK(mce_te_batch_new(te, 2, &b) == 0);
	return b;
}

static int notifs(struct mce_te *te)
{
	notify_msg_t *got;
	int n;

	got = getNotifsFromEngine(te, &n);
	CHECK(got);
	freeNotifsMsgBuf(got, n);
	return n;
}

/* A task that ends during its submission is followed at once by one that cannot end before the peer
 * continues: no notification before that.  Returns false if the second submission was late. */
static bool more_follows(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	struct transfer_request nothing = { .opcode = OPCODE_WRITE, .target_id = LOCAL_SEGMENT };
	unsigned char *here = calloc(1, BYTES);
	batch_id_t b = batch_new(te);
	int64_t began, end;
	bool at_once;

	CHECK(here);
	te_pair_stop(p);
	began = now_ms();
	submit(te, b, nothing, "first");
	submit(te, b, (struct transfer_request){ OPCODE_READ, here, id, there, BYTES }, NULL);
	at_once = now_ms() - began < SLOW_MS;
	for (end = now_ms() + 4 * SLOW_MS; at_once && now_ms() < end; usleep(1000))
		CHECK(notifs(te) == 0);
	CHECK(kill(p->pid, SIGCONT) == 0);
	wait_notif(te, "first");
	CHECK(!at_once || te_filled(here, 4096, 7));
	CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_free(te, b) == 0);
	free(here);
	return at_once;
}

/* A second notification follows: it is not lost, whether or not the first one is being sent. */
static void another_follows(struct mce_te *te)
{
	struct transfer_request nothing = { .opcode = OPCODE_WRITE, .target_id = LOCAL_SEGMENT };
	batch_id_t b = batch_new(te);
	notify_msg_t *got;
	int n;

	submit(te, b, nothing, "first");
	/* usually the first one is now being sent, and delayed; the second one is not lost in any case */
	usleep((SLOW_MS + SLOW_MS / 2) * 1000);
	submit(te, b, nothing, "second");
	CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_free(te, b) == 0);
	got = getNotifsFromEngine(te, &n);
	/* if the first notification had not been sent yet, the second one has replaced it */
	CHECK(got && n > 0 && n <= 2 && !strcmp(got[n - 1].msg, "second"));
	freeNotifsMsgBuf(got, n);
}

/* Memory is unregistered while a task receives into it: when the call returns, nothing is written
 * to it any more.  First, without waiting for the task, with a stopped peer; then waiting for the
 * task, while the peer answers. */
static void own_tasks(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	unsigned char *here = calloc(1, BYTES), small[64];
	struct transfer_request r = { OPCODE_READ, here + 1, id, there, BYTES - 1 };
	struct transfer_status st;
	batch_id_t b = batch_new(te), other = batch_new(te);

	CHECK(here && mce_te_register(te, here, BYTES, "*", 1) == 0);
	/* connected */
	submit(te, other, (struct transfer_request){ OPCODE_READ, small, id, there, sizeof(small) }, NULL);
	CHECK(mce_te_wait(te, other, 60000) == 0);
	te_pair_stop(p);
	submit(te, b, r, NULL);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_WAITING);
	CHECK(mce_te_unregister(te, here) == 0);
	/* without the cancellation it would not end */
	CHECK(mce_te_wait(te, b, 20000) == 0);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_CANCELED);
	memset(here, 'M', BYTES);
	CHECK(kill(p->pid, SIGCONT) == 0);
	submit(te, other, (struct transfer_request){ OPCODE_READ, small, id, there, sizeof(small) }, NULL);
	CHECK(mce_te_wait(te, other, 60000) == 0 && te_filled(small, sizeof(small), 7));
	for (size_t i = 0; i < BYTES; i++)
		CHECK(here[i] == 'M');
	CHECK(mce_te_batch_free(te, b) == 0 && mce_te_batch_free(te, other) == 0);
	for (unsigned i = 0; i < 10; i++) {
		b = batch_new(te);
		CHECK(mce_te_register(te, here, BYTES, "*", 1) == 0);
		r.length = BYTES / 8;
		submit(te, b, r, NULL);
		CHECK(mce_te_unregister(te, here) == 0);
		CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_COMPLETED);
		CHECK(mce_te_batch_free(te, b) == 0);
	}
	free(here);
}

/* The peer's memory gets another key, and the peer is stopped after it has reported that: the retry
 * does not end. */
static void second_try(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	unsigned char *here = calloc(1, BYTES);
	batch_id_t b = batch_new(te);
	struct mce_te_batch_status st;
	char c = 'r';
	int64_t end;
	int r = 4;

	te_tell(p->to, &c, 1);
	te_hear(p->from, &c, 1);
	CHECK(here);
	submit(te, b, (struct transfer_request){ OPCODE_READ, here, id, there, BYTES }, NULL);
	usleep(SLOW_MS / 2 * 1000);
	te_pair_stop(p);
	/* It may have ended if the peer was stopped too late; in any case no thread waits for it. */
	for (end = now_ms() + 3 * SLOW_MS; r == 4 && now_ms() < end; usleep(1000)) {
		CHECK(mce_te_batch_status(te, b, &st) == 0);
		r = freeBatchID(te, b);
		CHECK(r == 4 || r == 0);
	}
	CHECK(kill(p->pid, SIGCONT) == 0);
	if (r == 4) {
		CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_status(te, b, &st) == 0);
		CHECK(mce_te_batch_free(te, b) == 0);
	}
	printf("second try: status %d, %s\n", st.status,
	       r == 4 ? "after the peer continued" : "before the peer was stopped");
	free(here);
}

/* The tasks of a post complete after their deadline, when the timer is about to cancel them.  The
 * timer must not cancel the tasks of the next post, which has no deadline.  Returns false if the
 * timer cancelled the first ones. */
static bool posted_again(struct mce_te *te, const struct te_pair *p, segment_id_t id, uint64_t there)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = SLOW_MS / 3 };
	unsigned char here[4096];
	struct transfer_request r = { OPCODE_READ, here, id, there, sizeof(here) };
	struct transfer_status st;
	batch_id_t b = batch_new(te);
	bool completed;

	CHECK(mce_te_prepare(te, b, &r, 1) == 0);
	te_pair_stop(p);
	CHECK(mce_te_post(te, b, &opts) == 0);
	(void)mce_te_wait(te, b, SLOW_MS / 2);
	CHECK(kill(p->pid, SIGCONT) == 0 && mce_te_wait(te, b, 60000) == 0);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0);
	completed = st.status == STATUS_COMPLETED;
	CHECK(completed || st.status == STATUS_TIMEOUT);
	memset(here, 'M', sizeof(here));
	te_pair_stop(p);
	CHECK(mce_te_post(te, b, NULL) == 0);
	/* as long as the timer may need */
	(void)mce_te_wait(te, b, 2 * SLOW_MS);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_WAITING);
	CHECK(kill(p->pid, SIGCONT) == 0 && mce_te_wait(te, b, 60000) == 0);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_COMPLETED);
	CHECK(te_filled(here, sizeof(here), 7) && mce_te_batch_free(te, b) == 0);
	return completed;
}

struct cancelling {
	struct mce_te *te;
	batch_id_t b;
	int seen;
};

/* Cancel after the first task has ended, while the others are being submitted. */
static void *cancel_main(void *arg)
{
	const struct cancelling *c = arg;
	struct transfer_status st;

	while (mce_te_task_status(c->te, c->b, 0, &st) < 0 || st.status != STATUS_COMPLETED)
		usleep(1000);
	CHECK(mce_te_cancel(c->te, c->b) == 0);
	return NULL;
}

/* Submit more than is copied between two checks of the batch, by mce_te_submit() or mce_te_post()
 * with a delay after each portion, until the deadline or until cancelled.  Returns false if the
 * copy ended earlier. */
static bool copied_until(struct mce_te *te, unsigned char *mem, bool post, bool cancel)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = SLOW_MS / 3 };
	static unsigned char here[BYTES];
	struct cancelling c = { .te = te };
	struct transfer_request r[6];
	struct transfer_status first, last;
	pthread_t thread;

	for (unsigned i = 0; i < 6; i++)
		r[i] = (struct transfer_request){ OPCODE_READ, here, LOCAL_SEGMENT, (uintptr_t)mem, BYTES };
	CHECK(mce_te_batch_new(te, 6, &c.b) == 0);
	CHECK(!post || mce_te_prepare(te, c.b, r, 6) == 0);
	/* a prepared list is not cancelled here: its tasks exist before the post */
	if (cancel)
		CHECK(pthread_create(&thread, NULL, cancel_main, &c) == 0);
	if (post)
		CHECK(mce_te_post(te, c.b, &opts) == 0);
	else
		CHECK(mce_te_submit(te, c.b, r, 6, cancel ? NULL : &opts) == 0);
	if (cancel)
		CHECK(pthread_join(thread, NULL) == 0);
	CHECK(mce_te_wait(te, c.b, 60000) == 0);
	CHECK(mce_te_task_status(te, c.b, 0, &first) == 0 && mce_te_task_status(te, c.b, 5, &last) == 0);
	CHECK(mce_te_batch_free(te, c.b) == 0);
	if (cancel && last.status == STATUS_COMPLETED)
		return false;
	CHECK(last.status == (cancel ? STATUS_CANCELED : STATUS_TIMEOUT));
	return first.status == STATUS_COMPLETED;
}

static void copied(struct mce_te *te)
{
	unsigned char *mem = malloc(BYTES);
	unsigned n = 0;

	CHECK(mem && mce_te_register(te, mem, BYTES, "*", 1) == 0);
	while (!copied_until(te, mem, false, false))
		CHECK(++n < ROUNDS);
	while (!copied_until(te, mem, true, false))
		CHECK(++n < ROUNDS);
	while (!copied_until(te, mem, false, true))
		CHECK(++n < ROUNDS);
	CHECK(mce_te_unregister(te, mem) == 0);
	free(mem);
}

/* Run this program again as @mode with @faults; it must succeed.  Return its output. */
static void run(const char *mode, const char *faults, char said[4096])
{
	int fds[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	CHECK(pipe(fds) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		setenv("MC_FAULTS", faults, 1);
		execl("/proc/self/exe", "te_finish", mode, (char *)NULL);
		_exit(1);
	}
	close(fds[1]);
	while (n < 4095 && (got = read(fds[0], said + n, 4095 - n)) > 0)
		n += (size_t)got;
	close(fds[0]);
	said[n] = 0;
	fputs(said, stderr);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* When no thread can send a notification, the log reports it. */
static void nobody(void)
{
	char said[4096];

	run("nobody", "te.finish.enqueue=error:EAGAIN", said);
	CHECK(strstr(said, "a notification is lost, cannot start a worker thread"));
}

static int nobody_main(void)
{
	struct transfer_request nothing = { .opcode = OPCODE_WRITE, .target_id = LOCAL_SEGMENT };
	struct mce_te *te = open_engine();
	batch_id_t b = batch_new(te);
	struct mce_te_batch_status st;

	submit(te, b, nothing, "first");
	CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_status(te, b, &st) == 0);
	CHECK(st.status == STATUS_COMPLETED && notifs(te) == 0);
	CHECK(mce_te_batch_free(te, b) == 0);
	mce_te_close(te);
	return 0;
}

/* A task fails because no thread can retry it.  Its memory is then used for other data: after more
 * is submitted to the batch, no bytes of the peer arrive there.  The batch ends with the new task;
 * meanwhile the first one stays failed. */
static int failed_main(void)
{
	unsigned char *here = malloc(BYTES), more[64];
	struct te_pair p;
	struct te_note note;
	struct transfer_status st;
	struct mce_te *te;
	segment_id_t id;
	batch_id_t b;
	char c = 'r';

	CHECK(here);
	te_pair_start(&p, serve);
	te = open_engine();
	te_hear(p.from, &note, sizeof(note));
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	te_tell(p.to, &c, 1);
	te_hear(p.from, &c, 1);
	b = batch_new(te);
	submit(te, b, (struct transfer_request){ OPCODE_READ, here, id, note.addr, BYTES }, NULL);
	CHECK(mce_te_wait(te, b, 60000) == 0);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_FAILED);
	memset(here, 'M', BYTES);
	te_pair_stop(&p);
	submit(te, b, (struct transfer_request){ OPCODE_READ, more, id, note.addr, sizeof(more) }, NULL);
	CHECK(mce_te_task_status(te, b, 1, &st) == 0 && st.status == STATUS_WAITING);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_FAILED);
	CHECK(kill(p.pid, SIGCONT) == 0 && mce_te_wait(te, b, 60000) == 0);
	CHECK(mce_te_task_status(te, b, 0, &st) == 0 && st.status == STATUS_FAILED);
	CHECK(mce_te_task_status(te, b, 1, &st) == 0 && st.status == STATUS_COMPLETED);
	CHECK(te_filled(more, sizeof(more), 7));
	for (size_t i = 0; i < BYTES; i++)
		CHECK(here[i] == 'M');
	CHECK(mce_te_batch_free(te, b) == 0);
	te_pair_end(&p);
	mce_te_close(te);
	free(here);
	return 0;
}

static void failed(void)
{
	char said[4096];

	run("failed", "te.finish.enqueue=error:EAGAIN@1", said);
}

int main(int argc, char **argv)
{
	unsigned n = 0;
	struct te_pair p;
	struct te_note note;
	struct mce_te *te;
	segment_id_t id;
	char faults[256];

	/* Fault points are read at the start of a process. */
	if (!getenv("MC_FAULTS")) {
		snprintf(faults, sizeof(faults),
			 "te.finish.again=delay:%d,te.finish.tell=delay:%d,te.finish.notify=delay:%d,"
			 "te.submit.portion=delay:%d,te.finish.stop=delay:%d,te.memory.leave=error:ETIME@1",
			 SLOW_MS, SLOW_MS, SLOW_MS, SLOW_MS, SLOW_MS);
		setenv("MC_FAULTS", faults, 1);
		execl("/proc/self/exe", "te_finish", (char *)NULL);
		CHECK(!"execl");
	}
	/* A thread that waits where it must not wait is ended then. */
	alarm(300);
	if (argc > 1)
		return !strcmp(argv[1], "nobody") ? nobody_main() : failed_main();
	nobody();
	setenv("MC_TCP_PROGRESS_TIMEOUT_SEC", "600", 1);
	setenv("MC_FORCE_TCP", "1", 1);
	failed();
	te_pair_start(&p, serve);
	te = open_engine();
	te_hear(p.from, &note, sizeof(note));
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	own_tasks(te, &p, id, note.addr);
	while (!more_follows(te, &p, id, note.addr))
		CHECK(++n < ROUNDS);
	another_follows(te);
	while (!posted_again(te, &p, id, note.addr))
		CHECK(++n < ROUNDS);
	second_try(te, &p, id, note.addr);
	te_pair_end(&p);
	unsetenv("MC_FORCE_TCP");
	mce_te_close(te);
	te = open_engine();
	copied(te);
	mce_te_close(te);
	return 0;
}
