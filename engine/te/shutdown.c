/* SPDX-License-Identifier: Apache-2.0
 * shutdown.c - graceful shutdown: engines that enable it remove their entries from the metadata server
 * when SIGINT, SIGTERM or exit() ends the process.
 *
 * A signal handler may call few functions, so it wakes a thread, which removes the entries and then sends the
 * signal again with its former action.  A forked child has no such thread, and the entries are not its own. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/thread.h"

static struct mc_mutex live_lock = MC_MUTEX_INIT;
static struct mc_list live = { &live, &live };
static bool hooked;
/* Process that installed the hooks.  Not mc_fork_depth: a child can receive a signal before that is increased. */
static pid_t hooked_by;
static int wake[2] = { -1, -1 };
static struct sigaction before[2];
static const int signals[2] = { SIGINT, SIGTERM };
MC_FORK_KEEP(live_lock, MC_FORK_LEAF)

static void shutdown_withdraw_all(void)
{
	struct mc_list *pos;

	MC_LOCKED(&live_lock);
	if (hooked_by != getpid())
		return;
	mc_list_for_each(pos, &live)
		mce_te_withdraw(mc_container_of(pos, struct mce_te, live_node));
}

/* Restore the program's own handler or the default action, and send the signal again. */
static void signal_resend(int sig)
{
	for (unsigned i = 0; i < 2; i++)
		if (signals[i] == sig)
			(void)sigaction(sig, &before[i], NULL);
	(void)kill(getpid(), sig);
}

static void on_signal(int sig)
{
	unsigned char byte = (unsigned char)sig;
	int was = errno;

	if (hooked_by == getpid())
		(void)!write(wake[1], &byte, 1);
	else
		signal_resend(sig);
	errno = was;
}

static void *signal_main(void *arg)
{
	unsigned char sig;
	ssize_t n;

	mc_thread_detach(mc_thread_self());
	while ((n = read(wake[0], &sig, 1)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		if (n < 0)
			continue;
		shutdown_withdraw_all();
		signal_resend(sig);
	}
	return NULL;
}

/* A signal that the program ignores stays ignored. */
static int hook_signals(void)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	for (unsigned i = 0; i < 2; i++) {
		if (sigaction(signals[i], NULL, &before[i]))
			return -errno;
		if (before[i].sa_handler != SIG_IGN && sigaction(signals[i], &act, NULL))
			return -errno;
	}
	return 0;
}

/* Remove the hooks that a forked child inherited. */
static void unhook_locked(void)
{
	struct sigaction now;

	for (unsigned i = 0; i < 2; i++) {
		if (!sigaction(signals[i], NULL, &now) && now.sa_handler == on_signal)
			(void)sigaction(signals[i], &before[i], NULL);
		close(wake[i]);
		wake[i] = -1;
	}
	mc_list_init(&live);
	hooked = false;
}

static int hook_locked(void)
{
	static bool at_exit;
	struct mc_thread thread;
	int r;

	if (hooked && hooked_by != getpid())
		unhook_locked();
	if (hooked)
		return 0;
	hooked_by = getpid();
	if (wake[0] < 0 && pipe2(wake, O_CLOEXEC))
		return mc_fail(-errno, "cannot create a pipe: %m");
	r = mc_thread_start(&thread, "mce-shutdown", signal_main, NULL);
	if (r == 0)
		r = hook_signals();
	if (r == 0 && !at_exit && atexit(shutdown_withdraw_all))
		r = -ENOMEM;
	at_exit = at_exit || r == 0;
	hooked = r == 0;
	return r;
}

int mce_te_graceful_shutdown(struct mce_te *te)
{
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&live_lock);
	r = hook_locked();
	if (r == 0 && mc_list_empty(&te->live_node))
		mc_list_push_back(&live, &te->live_node);
	return r;
}

void mce_te_shutdown_forget(struct mce_te *te)
{
	MC_LOCKED(&live_lock);
	mc_list_remove(&te->live_node);
}
