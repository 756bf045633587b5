/* SPDX-License-Identifier: Apache-2.0
 * mcbench_end.c - end of a run: messages and signals. */
#include <config.h>

#include "tools/bench/mcbench.h"

#include <signal.h>
#include <stdarg.h>

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = 1;
	signal(sig, SIG_DFL);
}

void mcbench_catch_signals(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
}

bool mcbench_stopped(void)
{
	return stopped;
}

int mcbench_complain(int status, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	flockfile(stderr);
	fputs("mcbench: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
	funlockfile(stderr);
	return status;
}
