/* SPDX-License-Identifier: Apache-2.0
 * map_wire.c - messages between same-host engines, with descriptors and credentials. */
#include <config.h>

#include "engine/shm/map_wire.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/net/socket.h"

void mce_map_address(const uint8_t nonce[16], char ret[MC_ADDR_MAX])
{
	int n = snprintf(ret, MC_ADDR_MAX, "mooncake-engine-");

	for (unsigned i = 0; i < 16; i++)
		n += snprintf(ret + n, MC_ADDR_MAX - (size_t)n, "%02x", nonce[i]);
}

int mce_map_send(int sock, const struct mce_map_msg *m, int fd)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m, .iov_len = sizeof(*m) };
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = { 0 } };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -ENOBUFS : -errno;
	return 0;
}

int mce_map_recv(int sock, struct mce_map_msg *ret, int *ret_fd)
{
	char buf[256];
	struct iovec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
	union {
		char buf[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
	};
	ssize_t n;
	int fd, r;

	if (ret_fd) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
	}
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	/* An empty packet looks like the end, but may have descriptors. */
	fd = mc_take_fd(&msg);
	r = n == 0 ? -ECONNRESET : mce_map_msg_unpack(buf, (size_t)n, ret);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	if (ret_fd)
		*ret_fd = fd;
	return 0;
}

bool mce_map_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;

	return seals >= 0 && seals & F_SEAL_SHRINK && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

int mce_map_check_cred(int sock, bool *ret_stranger)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	if (cred.uid != geteuid() && cred.uid != 0 && geteuid() != 0)
		return mc_fail(-EACCES, "the engine at the other end runs as another user");
	*ret_stranger = cred.uid != geteuid() && cred.uid != 0;
	return 0;
}
