/* SPDX-License-Identifier: Apache-2.0
 * fdstore.c - the two messages of sd_notify(3) that a descriptor store needs. */
#include <config.h>
#include "mcfs/life/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "mcfs/life/life.h"

#define FIRST_FD 3
#define FDS_MAX 64

bool mcfs_fdstore_there(void)
{
	const char *path = getenv("NOTIFY_SOCKET");

	return path && (path[0] == '/' || path[0] == '@') && path[1];
}

int mcfs_fdstore_take(const char *name)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	const char *names = getenv("LISTEN_FDNAMES");
	int n = count ? atoi(count) : 0, fd = mcfs_supervise_kept(name);

	if (fd >= 0)
		return fd;
	if (!pid || !names || atol(pid) != (long)getpid() || n < 1 || n > FDS_MAX)
		return -ENOENT;
	for (int i = 0; i < n; i++) {
		size_t len = strcspn(names, ":");

		if (len == strlen(name) && memcmp(names, name, len) == 0 &&
		    fcntl(FIRST_FD + i, F_GETFD) >= 0) {
			(void)fcntl(FIRST_FD + i, F_SETFD, FD_CLOEXEC);
			return FIRST_FD + i;
		}
		names += len + (names[len] == ':');
	}
	return -ENOENT;
}

static int send_text(const char *text, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
	struct msghdr msg = { .msg_name = &to, .msg_iov = &iov, .msg_iovlen = 1 };
	const char *path = getenv("NOTIFY_SOCKET");
	auto_close int sock = -1;
	struct cmsghdr *c;
	size_t len;

	if (!mcfs_fdstore_there())
		return -ENOENT;
	len = strlen(path);
	if (len >= sizeof(to.sun_path))
		return mc_fail(-ENAMETOOLONG, "NOTIFY_SOCKET is too long");
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = '\0';
	msg.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return mc_fail(-errno, "socket: %s", mc_strerror(errno));
	if (fd >= 0) {
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	if (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0)
		return mc_fail(-errno, "NOTIFY_SOCKET %s: %s", path, mc_strerror(errno));
	return 0;
}

int mcfs_fdstore_drop(const char *name)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return send_text(text, -1);
}

int mcfs_fdstore_keep(const char *name, int fd)
{
	char text[128];
	int r = mcfs_fdstore_drop(name);

	/* FDPOLL=0: otherwise systemd drops a descriptor with a hang-up, which a dead daemon's
	 * /dev/fuse seems to have. */
	(void)snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	return r < 0 ? r : send_text(text, fd);
}

void mcfs_fdstore_tell(const char *text)
{
	int r = send_text(text, -1);

	if (r < 0 && r != -ENOENT)
		mc_warn("mcfs", "cannot report to the service manager: %s", mc_err_detail(r));
}
