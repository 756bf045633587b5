/* SPDX-License-Identifier: Apache-2.0
 * te_faults.c - 1,000 peers that are killed, stopped or cancelled in the middle of a transfer, each
 * with its own name and addresses, while other connections to all our ports stay half open.  Every
 * task has a status within its deadline, bytes that were read are the peer's, and no descriptor,
 * thread, registration or mapping is left; also for peers on one host, whose memory is reached
 * without a connection. */
#include "te_pair.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define BYTES (1u << 20)
#define TASKS 8u
#define ROUNDS 1000u
/* The first rounds create resources that stay. */
#define WARM 16u
#define DEADLINE_MS 25
/* Maximum number of ports on which an engine listens. */
#define PORTS 4u
/* Allowance for a busy machine. */
#define SLACK_MS 5000

enum fault { KILLED, STOPPED, CANCELED, NONE, FAULTS };

struct peer {
	pid_t pid;
	struct te_note note;
};

static struct mce_te *open_engine(const char *name)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = name };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- peers: children of a process without threads ---- */

/* An address of these peers only: a transfer to a dead peer's port must not reach a living engine
 * of another test. */
static char peers_at[INET_ADDRSTRLEN];

static void choose_address(void)
{
	struct in_addr at = { htonl(0x7f400000u | ((uint32_t)getpid() & 0x3fffff)) };

	CHECK(inet_ntop(AF_INET, &at, peers_at, sizeof(peers_at)));
}

static void serve(int to)
{
	struct peer p = { .pid = getpid() };
	struct mce_te *te;
	unsigned char *mem = malloc(BYTES + 4096 * (getpid() % 64));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	te = open_engine(peers_at);
	CHECK(mem);
	mem += (size_t)4096 * (getpid() % 64);
	te_fill(mem, BYTES, 5);
	CHECK(mce_te_register(te, mem, BYTES, "*", 1) == 0);
	snprintf(p.note.name, sizeof(p.note.name), "%s", mce_te_name(te));
	p.note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &p, sizeof(p));
	for (;;)
		pause();
}

static void nursery(int from, int to)
{
	char c;

	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		te_hear(from, &c, 1);
		if (c == 'q')
			return;
		if (fork() == 0)
			serve(to);
	}
}

/* ---- resources that must not accumulate ---- */

struct held {
	unsigned fds, threads, regions, pages;
};

static unsigned entries(const char *dir)
{
	unsigned n = 0;
	DIR *d = opendir(dir);

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Pages that engines share with each other. */
static unsigned shared_pages(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:mooncake") != NULL;
	fclose(f);
	return n;
}

static struct held held(void)
{
	struct held h = { entries("/proc/self/fd"), entries("/proc/self/task"), 0, shared_pages() };
	char *text, *at;

	CHECK(mce_te_metrics(&text) == 0);
	at = strstr(text, "\nmooncake_transfer_regions ");
	CHECK(at && sscanf(at, "\nmooncake_transfer_regions %u", &h.regions) == 1);
	free(text);
	return h;
}

/* A connection that has lost its peer is closed after a moment. */
static void settled(const struct held *before)
{
	int64_t end = now_ms() + 20000;
	struct held h = held();

	while ((h.fds > before->fds || h.threads > before->threads || h.pages > before->pages) && now_ms() < end) {
		usleep(10000);
		h = held();
	}
	printf("before: %u descriptors, %u threads, %u regions, %u pages; after: %u, %u, %u, %u\n", before->fds,
	       before->threads, before->regions, before->pages, h.fds, h.threads, h.regions, h.pages);
	CHECK(h.fds <= before->fds && h.threads <= before->threads && h.regions == before->regions);
	CHECK(h.pages <= before->pages);
}

/* ---- faults ---- */

/* The ports on which this process listens: of the handshake service, of the connections, of
 * upstream's protocol. */
static unsigned listening(uint16_t port[], unsigned room)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024 && n < room; fd++) {
		struct sockaddr_storage at;
		socklen_t len = sizeof(at), one = sizeof(int);
		int on = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &one) || !on ||
		    getsockname(fd, (void *)&at, &len))
			continue;
		if (at.ss_family == AF_INET)
			port[n++] = ntohs(((struct sockaddr_in *)&at)->sin_port);
		else if (at.ss_family == AF_INET6)
			port[n++] = ntohs(((struct sockaddr_in6 *)&at)->sin6_port);
	}
	return n;
}

/* Connect to one of our ports, send half a message and close, or stay until the next call. */
static void half_open(uint16_t port, unsigned which, bool stays)
{
	static const char *const word[] = { "\x40\0\0", "\0\0\1", "\x4d\x43\x45" };
	static int last[PORTS] = { -1, -1, -1, -1 };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && connect(fd, (void *)&in, sizeof(in)) == 0);
	CHECK(write(fd, word[which % 3], 3) == 3);
	if (last[which] >= 0)
		close(last[which]);
	last[which] = stays ? fd : -1;
	if (!stays)
		close(fd);
}

static void half_open_all(bool stay)
{
	uint16_t port[PORTS];
	unsigned n = listening(port, PORTS);

	CHECK(n >= 3);
	for (unsigned i = 0; i < n; i++)
		half_open(port[i], i, stay);
}

static void hurt(enum fault fault, const struct peer *p, struct mce_te *te, batch_id_t b)
{
	if (fault == KILLED)
		CHECK(kill(p->pid, SIGKILL) == 0);
	else if (fault == STOPPED)
		CHECK(kill(p->pid, SIGSTOP) == 0);
	else if (fault == CANCELED)
		CHECK(mce_te_cancel(te, b) == 0);
}

static bool is_fit(enum fault fault, int status)
{
	/* The name may be an earlier peer's, whose cached addresses are no longer valid: the
	 * transfer fails unless the engine can ask the new peer. */
	return status == STATUS_COMPLETED || (fault != NONE && (status == STATUS_FAILED || status == STATUS_TIMEOUT)) ||
	       (fault == CANCELED && status == STATUS_CANCELED);
}

/* Has task @i read the bytes that the peer offered? */
static bool is_right(const unsigned char *mine, unsigned i)
{
	for (unsigned k = i * (BYTES / TASKS); k < (i + 1) * (BYTES / TASKS); k++)
		if (mine[k] != (unsigned char)(k * 31 + (k >> 8) * 7 + 5))
			return false;
	return true;
}

static void transfer(struct mce_te *te, const struct peer *p, unsigned char *mine, enum fault fault,
		     unsigned tally[])
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = DEADLINE_MS };
	struct transfer_request r[TASKS];
	struct transfer_status st;
	segment_id_t id;
	batch_id_t b;
	int64_t began, took;

	CHECK(mce_te_open_segment(te, p->note.name, 0, &id) == 0);
	for (unsigned i = 0; i < TASKS; i++)
		r[i] = (struct transfer_request){
			OPCODE_READ, mine + i * (BYTES / TASKS), id, p->note.addr + i * (BYTES / TASKS),
			BYTES / TASKS,
		};
	if (fault == NONE)
		opts.deadline_ms = 60000;
	CHECK(mce_te_batch_new(te, TASKS, &b) == 0);
	began = now_ms();
	CHECK(mce_te_submit(te, b, r, TASKS, &opts) == 0);
	hurt(fault, p, te, b);
	CHECK(mce_te_wait(te, b, 60000) == 0);
	took = now_ms() - began;
	CHECK(mce_te_task_status(te, b, 0, &st) == 0);
	if (fault != NONE && took >= DEADLINE_MS + SLACK_MS) {
		fprintf(stderr, "fault %d: status %d after %lld ms\n", fault, st.status,
			(long long)took);
		exit(1);
	}
	for (unsigned i = 0; i < TASKS; i++) {
		CHECK(mce_te_task_status(te, b, i, &st) == 0 && is_fit(fault, st.status));
		tally[st.status]++;
		CHECK(st.status != STATUS_COMPLETED || is_right(mine, i));
	}
	CHECK(mce_te_batch_free(te, b) == 0);
}

static void one(struct te_pair *n, struct mce_te *te, unsigned i, unsigned tally[])
{
	unsigned char *mine = calloc(1, BYTES);
	struct peer p;

	te_tell(n->to, "s", 1);
	te_hear(n->from, &p, sizeof(p));
	CHECK(mine && mce_te_register(te, mine, BYTES, "*", 1) == 0);
	half_open_all(i % 2);
	transfer(te, &p, mine, (enum fault)(i % FAULTS), tally);
	CHECK(mce_te_unregister(te, mine) == 0);
	(void)kill(p.pid, SIGKILL);
	free(mine);
}

/* Peers that are killed after their memory was read by the best path. */
static void on_one_host(struct te_pair *n, unsigned rounds)
{
	unsigned tally[16] = { 0 };
	struct held before = { 0 };
	struct mce_te *te;

	unsetenv("MC_FORCE_TCP");
	te = open_engine("127.0.0.1");
	for (unsigned i = 0; i < rounds; i++) {
		one(n, te, NONE, tally);
		if (i == WARM)
			before = held();
	}
	half_open_all(false);
	/* Some threads start when they are first needed; their end was checked above. */
	before.threads = UINT_MAX;
	settled(&before);
	CHECK(tally[STATUS_COMPLETED] == rounds * TASKS);
	mce_te_close(te);
}

int main(void)
{
	unsigned rounds = getenv("SANITIZER") && *getenv("SANITIZER") ? ROUNDS / 10 : ROUNDS;
	unsigned tally[16] = { 0 };
	struct held before = { 0 };
	struct te_pair n;
	struct mce_te *te;

	/* Without mapping and process_vm, transfers are still running when the fault hits the peer. */
	setenv("MC_FORCE_TCP", "1", 1);
	choose_address();
	te_pair_start(&n, nursery);
	te = open_engine("127.0.0.1");
	for (unsigned i = 0; i < rounds; i++) {
		one(&n, te, i, tally);
		if (i == WARM)
			before = held();
	}
	half_open_all(false);
	settled(&before);
	printf("%u peers: %u tasks completed, %u failed, %u timed out, %u canceled\n", rounds, tally[STATUS_COMPLETED],
	       tally[STATUS_FAILED], tally[STATUS_TIMEOUT], tally[STATUS_CANCELED]);
	CHECK(tally[STATUS_COMPLETED] && tally[STATUS_FAILED] && tally[STATUS_TIMEOUT] && tally[STATUS_CANCELED]);
	mce_te_close(te);
	on_one_host(&n, 4 * WARM);
	te_pair_end(&n);
	return 0;
}
