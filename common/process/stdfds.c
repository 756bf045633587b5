/* SPDX-License-Identifier: Apache-2.0
 * stdfds.c - opening of closed standard descriptors. */
#include <config.h>

#include "common/process/stdfds.h"

#include <fcntl.h>
#include <unistd.h>

void mc_stdfds_open(void)
{
	/* The modes are reversed, so that reading from 0 and writing to 1 and 2 still fail with
	 * EBADF: a program that writes its result to a closed descriptor must get an error.  open()
	 * returns the lowest free number, which is @fd. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}
