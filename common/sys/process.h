/* SPDX-License-Identifier: Apache-2.0
 * process.h - the end of the process. */
#ifndef MC_SYS_PROCESS_H
#define MC_SYS_PROCESS_H

/* End the process at once: no handlers of exit() and no buffered output, as _exit().  Other threads end, too. */
void mc_process_end(int status) __attribute__((noreturn));

/* Run program @path in place of this one, with the environment @env (NULL: this one's).  Returns only if that fails:
 * -errno with a detail. */
int mc_process_exec(const char *path, char *const argv[], char *const env[]);

#endif
