/* SPDX-License-Identifier: Apache-2.0
 * peer.c - the user at the other end of a TCP connection: TCP tells none, but the kernel knows the user of each socket
 * of the host, and both ends of a connection within a host are among these.  One socket is asked for by its addresses
 * (sock_diag(7)).  A kernel without that is recognised because it does not find our own end either; the table of all
 * sockets is read then, which takes long where there are many. */
#include <config.h>

#include "node/upstream/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"

#define NAME_SIZE 48
#define ESTABLISHED 1u

/* "0100007F:C3A4": the words of the address in the host's byte order, and the port. */
static void peer_name(const struct sockaddr_storage *a, char ret[NAME_SIZE])
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in *four = (const struct sockaddr_in *)a;
	uint32_t w[4];

	if (a->ss_family == AF_INET) {
		(void)snprintf(ret, NAME_SIZE, "%08X:%04X", four->sin_addr.s_addr, ntohs(four->sin_port));
		return;
	}
	memcpy(w, &six->sin6_addr, sizeof(w));
	(void)snprintf(ret, NAME_SIZE, "%08X%08X%08X%08X:%04X", w[0], w[1], w[2], w[3], ntohs(six->sin6_port));
}

int mcn_up_peer_find(FILE *table, const char *own, const char *remote, uid_t *ret)
{
	char line[512], from[NAME_SIZE], to[NAME_SIZE];
	unsigned state, uid;

	while (fgets(line, sizeof(line), table))
		if (sscanf(line, " %*u: %47s %47s %x %*s %*s %*s %u", from, to, &state, &uid) == 4 &&
		    state == ESTABLISHED && !strcmp(from, own) && !strcmp(to, remote)) {
			*ret = uid;
			return 0;
		}
	return -ENOENT;
}

/* ---- one socket ---- */

static void diag_name(const struct sockaddr_storage *a, __be32 ret_addr[4], __be16 *ret_port)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in *four = (const struct sockaddr_in *)a;

	if (a->ss_family == AF_INET) {
		ret_addr[0] = four->sin_addr.s_addr;
		*ret_port = four->sin_port;
	} else {
		memcpy(ret_addr, &six->sin6_addr, sizeof(six->sin6_addr));
		*ret_port = six->sin6_port;
	}
}

/* The answer to one question, or -errno. */
static int diag_exchange(const void *ask, size_t len, void *ret, size_t size)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), r;
	ssize_t n = -1;

	if (fd < 0)
		return -errno;
	/* The kernel has answered before sendto() returns. */
	if (sendto(fd, ask, len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) == (ssize_t)len)
		n = recv(fd, ret, size, MSG_DONTWAIT);
	r = n < 0 ? -errno : (int)n;
	close(fd);
	return r;
}

/* The user of the connected socket with these addresses.  -ENOENT: there is none; other errors. */
static int diag_find(const struct sockaddr_storage *own, const struct sockaddr_storage *remote, uid_t *ret)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 ask;
	} q = { .head = { .nlmsg_len = sizeof(q), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
		.ask = { .sdiag_family = (__u8)own->ss_family, .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = 1u << ESTABLISHED,
			 .id = { .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } } };
	struct {
		struct nlmsghdr head;
		union {
			struct inet_diag_msg found;
			struct nlmsgerr failed;
		};
		char attributes[1024];
	} a;
	int n;

	diag_name(own, q.ask.id.idiag_src, &q.ask.id.idiag_sport);
	diag_name(remote, q.ask.id.idiag_dst, &q.ask.id.idiag_dport);
	if (own->ss_family == AF_INET6)
		q.ask.id.idiag_if = ((const struct sockaddr_in6 *)own)->sin6_scope_id;
	n = diag_exchange(&q, sizeof(q), &a, sizeof(a));
	if (n < 0)
		return n;
	if ((size_t)n >= NLMSG_LENGTH(sizeof(a.failed)) && a.head.nlmsg_type == NLMSG_ERROR)
		return a.failed.error < 0 ? a.failed.error : -EPROTO;
	if ((size_t)n < NLMSG_LENGTH(sizeof(a.found)) || a.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return -EPROTO;
	/* The lookup also finds listeners, and sockets that are closed already, which have no user any more. */
	if (a.found.idiag_state != ESTABLISHED || a.found.id.idiag_sport != q.ask.id.idiag_sport ||
	    a.found.id.idiag_dport != q.ask.id.idiag_dport)
		return -ENOENT;
	*ret = a.found.idiag_uid;
	return 0;
}

static int table_find(const struct sockaddr_storage *own, const struct sockaddr_storage *remote, uid_t *ret)
{
	char own_name[NAME_SIZE], remote_name[NAME_SIZE];
	const char *path = own->ss_family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6";
	FILE *table = fopen(path, "re");
	int r;

	if (!table)
		return -errno;
	peer_name(own, own_name);
	peer_name(remote, remote_name);
	r = mcn_up_peer_find(table, own_name, remote_name, ret);
	fclose(table);
	return r;
}

int mcn_up_peer_uid(const struct mc_stream *s, uid_t *ret)
{
	static bool works;
	struct sockaddr_storage own = { 0 }, remote = { 0 };
	socklen_t own_len = sizeof(own), remote_len = sizeof(remote);
	uid_t mine;
	int r;

	if (getsockname(s->fd, (struct sockaddr *)&own, &own_len) < 0 ||
	    getpeername(s->fd, (struct sockaddr *)&remote, &remote_len) < 0 ||
	    (own.ss_family != AF_INET && own.ss_family != AF_INET6))
		return mc_fail(-EACCES, "the other end of a connection is unknown");
	/* The peer's socket has the addresses the other way round. */
	r = diag_find(&remote, &own, ret);
	if (r == 0 || (r < 0 && diag_find(&own, &remote, &mine) == 0))
		__atomic_store_n(&works, true, __ATOMIC_RELAXED);
	if (r < 0 && !__atomic_load_n(&works, __ATOMIC_RELAXED))
		r = table_find(&remote, &own, ret);
	return r < 0 ? mc_fail(-EACCES, "a connection that no process of this host has made") : 0;
}
