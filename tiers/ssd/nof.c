/* SPDX-License-Identifier: Apache-2.0
 * nof.c - is a disk reached over a network?  As the kernel says of NVMe controllers.
 *
 * The controller of /sys/block/nvme0n1 is nvme0n1/device, or with multipath all controllers nvme0n1/device/nvme*.  A
 * partition is a folder in that of its disk. */
#include <config.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/file.h"
#include "tiers/ssd/ssd_i.h"

/* Not "pcie", and not "loop", whose target is this host. */
static bool controller_is_remote(const char *controller)
{
	static const char *const remote[] = { "tcp", "rdma", "fc" };
	char path[PATH_MAX], text[16] = "";
	auto_close int fd = -1;

	if ((size_t)snprintf(path, sizeof(path), "%s/transport", controller) >= sizeof(path))
		return false;
	fd = mc_file_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0 || mc_file_read(fd, text, sizeof(text) - 1) <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
		if (!strcmp(text, remote[i]))
			return true;
	return false;
}

static int name_is_controller(const struct dirent *e)
{
	return !strncmp(e->d_name, "nvme", 4);
}

bool mct_ssd_is_nof(const char *path, const char *sys)
{
	char dev[PATH_MAX], one[PATH_MAX];
	struct dirent **e = NULL;
	bool remote = false;
	struct stat st;
	dev_t at;
	int n;

	if (stat(path, &st))
		return false;
	at = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	snprintf(one, sizeof(one), "%s/dev/block/%u:%u/partition", sys, major(at), minor(at));
	snprintf(dev, sizeof(dev), "%s/dev/block/%u:%u%s/device", sys, major(at), minor(at),
		 access(one, F_OK) ? "" : "/..");
	remote = controller_is_remote(dev);
	n = remote ? 0 : scandir(dev, &e, name_is_controller, NULL);
	for (int i = 0; i < n; i++) {
		if ((size_t)snprintf(one, sizeof(one), "%s/%s", dev, e[i]->d_name) < sizeof(one))
			remote |= controller_is_remote(one);
		free(e[i]);
	}
	free(e);
	return remote;
}
