/* SPDX-License-Identifier: Apache-2.0
 * te_graceful.c - an engine that is not destroyed: SERVER NAME term|exit; at SIGUSR1 the process
 * ends in that way.  Before that it forks children; when they end, the entries must stay. */
#include "te_pair.h"

#include <signal.h>
#include <sys/wait.h>

#include <mooncake/mce_te.h>

static volatile sig_atomic_t told;

static void on_usr1(int sig)
{
	told = sig;
}

#ifdef __SANITIZE_ADDRESS__
/* LeakSanitizer cannot scan the stacks of threads that the child does not have. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}
#endif

/* In a child the inherited engine does not work, and the child must not remove its entries. */
static void use_parents(transfer_engine_t e)
{
	static char mem[4096];
	notify_msg_t note = { (char *)"me", (char *)"child" };
	nic_load_stat_t load[1];
	uint64_t at, len;
	size_t room = 1;
	int n;
	segment_id_t self = openSegment(e, "127.0.0.1:1");

	CHECK(registerLocalMemory(e, mem, sizeof(mem), "*", 1) != 0);
	CHECK(self < 0 && allocateBatchID(e, 1) == INVALID_BATCH);
	CHECK(syncSegmentCache(e) != 0 && discoverTopology(e) != 0 && enableGracefulShutdown(e) != 0);
	CHECK(!getNotifsFromEngine(e, &n) && genNotifyInEngine(e, 0, note) != 0);
	CHECK(showLinks(e, mem, sizeof(mem), 1) != 0 && getNicLoadStats(e, load, &room) != 0);
	CHECK(mce_te_first_buffer(e, LOCAL_SEGMENT, &at, &len) < 0 && mce_te_probe(e, mce_te_name(e)) < 0);
	CHECK(mce_te_notify_name(e, mce_te_name(e), "me", "child") < 0);
	destroyTransferEngine(e);
}

static void have_children(transfer_engine_t e)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		alarm(20);
		use_parents(e);
		exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
#ifndef __SANITIZE_THREAD__
	/* ThreadSanitizer delays signals, also across a fork. */
	pid = fork();
	if (pid == 0) {
		alarm(20);
		for (;;)
			sleep(1);
	}
	CHECK(pid > 0 && kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
#endif
}

int main(int argc, char **argv)
{
	static char mem[4096];
	transfer_engine_t e;
	sigset_t none, usr1;

	CHECK(argc == 4 && signal(SIGUSR1, on_usr1) != SIG_ERR);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &usr1, NULL) == 0);
	e = createTransferEngine(argv[1], argv[2], "", 0, 1);
	CHECK(e && registerLocalMemory(e, mem, sizeof(mem), "*", 1) == 0);
	CHECK(enableGracefulShutdown(e) == 0 && enableGracefulShutdown(e) == 0);
	CHECK(enableGracefulShutdown(NULL) == -1);
	have_children(e);
	sigemptyset(&none);
	while (!told)
		sigsuspend(&none);
	if (!strcmp(argv[3], "exit"))
		exit(3);
	raise(SIGTERM);
	for (;;)
		pause();
}
