/* SPDX-License-Identifier: Apache-2.0
 * process.c - the end of the process, or of a simulated one. */
#include <config.h>

#include "common/sys/process.h"

#include <errno.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/world.h"

void mc_process_end(int status)
{
	struct mc_world *w = mc_world();

	if (w)
		w->ops->end(w, status);
	_exit(status);
}

int mc_process_exec(const char *path, char *const argv[], char *const env[])
{
	execve(path, argv, env ? env : environ);
	return mc_fail(-errno, "cannot run %s: %s", path, mc_strerror(errno));
}
