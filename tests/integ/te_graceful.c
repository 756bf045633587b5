/* SPDX-License-Identifier: Apache-2.0
 * te_graceful.c - an engine that is not destroyed: SERVER NAME term|exit; at SIGUSR1 the process ends as told. */
#include "te_pair.h"

#include <signal.h>

static volatile sig_atomic_t told;

static void on_usr1(int sig)
{
	told = sig;
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
	sigemptyset(&none);
	while (!told)
		sigsuspend(&none);
	if (!strcmp(argv[3], "exit"))
		exit(3);
	raise(SIGTERM);
	for (;;)
		pause();
}
