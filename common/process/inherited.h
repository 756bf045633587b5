/* SPDX-License-Identifier: Apache-2.0
 * inherited.h - descriptors that a daemon inherited from the process that started it.
 *
 * A daemon that keeps them holds the locks of flock(1), and the pipes whose end another program waits for. */
#ifndef MC_INHERITED_H
#define MC_INHERITED_H

/* Note the open descriptors above 2.  Early in main(), before the program opens anything; once. */
void mc_inherited_note(void);
/* Close the noted descriptors, except those of systemd (LISTEN_FDS) and those that an argument names as /dev/fd/N or
 * /proc/self/fd/N, also behind "OPTION=".  For a process with one thread, before it detaches from the one that
 * started it. */
void mc_inherited_close(int argc, char *const *argv);

#endif
