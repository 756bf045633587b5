/* SPDX-License-Identifier: Apache-2.0
 * stdfds.c - see the header. */
#include <config.h>

#include "common/stdfds.h"

#include <fcntl.h>
#include <unistd.h>

void mc_stdfds_open(void)
{
	/* Reading from the one and writing to the others fails with EBADF as before: who writes a result to
	 * a closed descriptor is to notice.  Each takes the lowest number that is free, which is its own. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}
