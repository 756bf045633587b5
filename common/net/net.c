/* SPDX-License-Identifier: Apache-2.0
 * net.c - address strings (net.h), sockets and passing of descriptors (socket.h). */
#include <config.h>

#include "common/net/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define UNIX_PREFIX "unix:"
/* Limit of name lookups that still run after their caller's deadline. */
#define RESOLVERS_MAX 64
#define CONNECT_PAUSE_MS 2	/* between two attempts at a unix listener whose backlog is full */

static bool is_unix(const char *addr)
{
	return !strncmp(addr, UNIX_PREFIX, strlen(UNIX_PREFIX));
}

static int unix_sockaddr(const char *addr, struct sockaddr_un *sa, socklen_t *ret_len)
{
	const char *path = addr + strlen(UNIX_PREFIX);
	size_t len = strlen(path);

	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	if (len == 0 || (path[0] == '@' && len == 1))
		return mc_fail(-EINVAL, "invalid address, no path: %s", addr);
	if (len >= sizeof(sa->sun_path))
		return mc_fail(-ENAMETOOLONG, "path of a unix socket longer than %zu bytes: %s",
			       sizeof(sa->sun_path) - 1, addr);
	memcpy(sa->sun_path, path, len);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (path[0] == '@')
		sa->sun_path[0] = '\0';
	else
		*ret_len += 1;
	return 0;
}

static int parse_port(const char *s, int *ret_port)
{
	unsigned port = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		port = port * 10 + (unsigned)(*s - '0');
		if (port > 65535)
			return -EINVAL;
	}
	*ret_port = (int)port;
	return 0;
}

int mc_addr_join(const char *host, int port, char ret[MC_ADDR_MAX])
{
	bool bare_v6 = strchr(host, ':') && host[0] != '[';

	if (strlen(host) > MC_ADDR_MAX - 16)
		return mc_fail(-EINVAL, "address too long: %s", host);
	snprintf(ret, MC_ADDR_MAX, bare_v6 ? "[%s]:%d" : "%s:%d", host, port);
	return 0;
}

int mc_addr_split(const char *addr, char *host, size_t host_len, int default_port, int *ret_port)
{
	const char *begin = addr, *end, *port = NULL;
	int number = default_port;

	if (addr[0] == '[') {
		begin = addr + 1;
		end = strchr(begin, ']');
		if (!end || (end[1] && end[1] != ':'))
			return mc_fail(-EINVAL, "invalid address: %s", addr);
		if (end[1] == ':')
			port = end + 2;
	} else {
		end = strchr(addr, ':');
		/* Two colons and no brackets: an IPv6 address without a port. */
		if (end && !strchr(end + 1, ':'))
			port = end + 1;
		else
			end = addr + strlen(addr);
	}
	if ((port && parse_port(port, &number)) || number < 0 || number > 65535)
		return mc_fail(-EINVAL, "%s: %s", port ? "invalid port" : "port missing", addr);
	if ((size_t)(end - begin) >= host_len)
		return mc_fail(-ENAMETOOLONG, "host name too long: %s", addr);
	memmove(host, begin, (size_t)(end - begin));
	host[end - begin] = '\0';
	*ret_port = number;
	return 0;
}

static int resolve_error(int gai, const char *addr)
{
	if (gai == EAI_MEMORY)
		return mc_fail(-ENOMEM, "no memory to look up %s", addr);
	if (gai == EAI_SYSTEM)
		return mc_fail(-errno, "cannot look up %s: %s", addr, mc_strerror(errno));
	return mc_fail(gai == EAI_AGAIN ? -EAGAIN : -EHOSTUNREACH, "cannot look up %s: %s", addr,
		       gai_strerror(gai));
}

/* A name lookup on its own thread, because getaddrinfo() has no deadline.  A caller that times out
 * abandons it, and the thread frees it then. */
struct lookup {
	struct mc_mutex lock;
	struct mc_cond cond;
	bool done, abandoned;
	int gai, err;
	int flags;
	struct addrinfo *found;
	char host[MC_ADDR_MAX], port[8];
};

static atomic_int abandoned_lookups;

static int host_lookup(const char *host, const char *port, int flags, struct addrinfo **ret)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV
	};

	return getaddrinfo(*host ? host : NULL, port, &hints, ret);
}

static void lookup_free(struct lookup *lk)
{
	if (lk->found)
		freeaddrinfo(lk->found);
	mc_cond_destroy(&lk->cond);
	mc_mutex_destroy(&lk->lock);
	free(lk);
}

static void *lookup_main(void *arg)
{
	struct addrinfo *found = NULL;
	struct lookup *lk = arg;
	bool abandoned;
	int gai;

	gai = host_lookup(lk->host, lk->port, lk->flags, &found);
	mc_mutex_lock(&lk->lock);
	lk->err = errno;
	lk->gai = gai;
	lk->found = gai ? NULL : found;
	lk->done = true;
	abandoned = lk->abandoned;
	mc_cond_signal(&lk->cond);
	mc_mutex_unlock(&lk->lock);
	if (abandoned) {
		lookup_free(lk);
		atomic_fetch_sub(&abandoned_lookups, 1);
	}
	return NULL;
}

static struct lookup *lookup_new(const char *host, const char *port, int flags)
{
	struct lookup *lk;

	lk = calloc(1, sizeof(*lk));
	if (!lk)
		return NULL;
	mc_mutex_init(&lk->lock);
	(void)mc_cond_init(&lk->cond);
	snprintf(lk->host, sizeof(lk->host), "%s", host);
	snprintf(lk->port, sizeof(lk->port), "%s", port);
	lk->flags = flags;
	return lk;
}

/* Wait for the result.  True: it is there, and the caller owns @lk.  False: @lk is abandoned. */
static bool lookup_wait(struct lookup *lk, uint64_t deadline)
{
	bool done;

	mc_mutex_lock(&lk->lock);
	while (!lk->done)
		if (mc_cond_wait_until(&lk->cond, &lk->lock, deadline) == -ETIMEDOUT)
			break;
	done = lk->done;
	lk->abandoned = !done;
	if (!done)
		atomic_fetch_add(&abandoned_lookups, 1);
	mc_mutex_unlock(&lk->lock);
	return done;
}

/* List of socket addresses of a TCP address string; freeaddrinfo() it. */
static int tcp_lookup(const char *addr, int flags, uint64_t deadline, struct addrinfo **ret)
{
	char host[MC_ADDR_MAX], port[8];
	struct lookup *lk;
	struct mc_thread thread;
	int number, gai, r;

	r = mc_addr_split(addr, host, sizeof(host), -1, &number);
	if (r < 0)
		return r;
	snprintf(port, sizeof(port), "%d", number);
	gai = host_lookup(host, port, flags | AI_NUMERICHOST, ret);
	if (gai == 0)
		return 0;
	if (gai != EAI_NONAME)
		return resolve_error(gai, addr);

	if (atomic_load(&abandoned_lookups) >= RESOLVERS_MAX)
		return mc_fail(-EAGAIN, "cannot look up %s: the name servers do not answer", addr);
	lk = lookup_new(host, port, flags);
	if (!lk)
		return mc_fail(-ENOMEM, "no memory to look up %s", addr);
	r = mc_thread_start(&thread, "mc-resolve", lookup_main, lk);
	if (r < 0) {
		lookup_free(lk);
		return r;
	}
	if (!lookup_wait(lk, deadline)) {
		mc_thread_detach(thread);
		return mc_fail(-ETIMEDOUT, "timed out looking up %s", addr);
	}
	mc_thread_join(thread);
	errno = lk->err;
	r = lk->gai ? resolve_error(lk->gai, addr) : 0;
	if (!r)
		*ret = TAKE_PTR(lk->found);
	lookup_free(lk);
	return r;
}

/* The address as IPv6; one of IPv4 is mapped, as a socket for both has it. */
static bool sockaddr_v6(const struct sockaddr *sa, struct in6_addr *ret)
{
	*ret = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
	if (sa->sa_family == AF_INET)
		memcpy(&ret->s6_addr[12], &((const struct sockaddr_in *)sa)->sin_addr, 4);
	else if (sa->sa_family == AF_INET6)
		*ret = ((const struct sockaddr_in6 *)sa)->sin6_addr;
	return sa->sa_family == AF_INET || sa->sa_family == AF_INET6;
}

int mc_addr_is_of(const char *addr, const char *ip, uint64_t deadline)
{
	char host[MC_ADDR_MAX], plain[MC_ADDR_MAX];
	struct addrinfo *want = NULL, *found = NULL;
	struct in6_addr a, b;
	int port, r, is = 0;

	r = mc_addr_split(addr, host, sizeof(host), -1, &port);
	if (r == 0)
		r = mc_addr_split(ip, plain, sizeof(plain), 0, &port);
	if (r < 0)
		return r;
	if (host_lookup(plain, "0", AI_NUMERICHOST, &want))
		return 0;
	if (!deadline)
		r = host_lookup(host, "0", AI_NUMERICHOST, &found) ? -EAGAIN : 0;
	else
		r = tcp_lookup(addr, 0, deadline, &found);
	if (r == -EAGAIN && !deadline)
		(void)mc_fail(r, "%s has to be looked up", host);
	for (struct addrinfo *at = r == 0 ? found : NULL; at && !is; at = at->ai_next)
		is = sockaddr_v6(want->ai_addr, &a) && sockaddr_v6(at->ai_addr, &b) && !memcmp(&a, &b, sizeof(a));
	if (r == 0)
		freeaddrinfo(found);
	freeaddrinfo(want);
	return r < 0 ? r : is;
}

static int new_socket(int family, const char *addr)
{
	int fd, one = 1;

	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return mc_fail(-errno, "cannot make a socket for %s: %s", addr, mc_strerror(errno));
	if (family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* "1.2.3.4:80", "[::1]:80", "unix:/path"; false for other families. */
static bool format_sockaddr(const struct sockaddr *sa, socklen_t len, char buf[MC_ADDR_MAX])
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)sa;
	char host[NI_MAXHOST], port[NI_MAXSERV];
	size_t path_len;

	if (sa->sa_family == AF_UNIX) {
		if (len <= offsetof(struct sockaddr_un, sun_path)) {
			strcpy(buf, "unix");
			return true;
		}
		path_len = len - offsetof(struct sockaddr_un, sun_path);
		if (un->sun_path[0])
			path_len = strnlen(un->sun_path, path_len);
		snprintf(buf, MC_ADDR_MAX, UNIX_PREFIX "%s%.*s", un->sun_path[0] ? "" : "@",
			 (int)path_len - !un->sun_path[0], un->sun_path + !un->sun_path[0]);
		return true;
	}
	if (getnameinfo(sa, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return false;
	snprintf(buf, MC_ADDR_MAX, strchr(host, ':') ? "[%.128s]:%s" : "%.128s:%s", host, port);
	return true;
}

static int bind_and_listen(int fd, const struct sockaddr *sa, socklen_t len, int backlog)
{
	if (bind(fd, sa, len) < 0 || listen(fd, backlog) < 0)
		return -errno;
	return 0;
}

static void tell_bound(int fd, char *ret_bound)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (!ret_bound)
		return;
	ret_bound[0] = '\0';
	if (!getsockname(fd, (struct sockaddr *)&ss, &len))
		format_sockaddr((struct sockaddr *)&ss, len, ret_bound);
}

/* Is the file a socket whose process has ended?  It refuses connections and would block the address
 * forever.  A file that is not a socket belongs to another program and is kept. */
static bool unix_is_stale(const struct sockaddr_un *sa, socklen_t len)
{
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct stat st;

	if (!sa->sun_path[0] || lstat(sa->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	return fd >= 0 && connect(fd, (const struct sockaddr *)sa, len) < 0 &&
	       errno == ECONNREFUSED;
}

static int listen_unix(const char *addr, int backlog, char *ret_bound)
{
	auto_close int fd = -1;
	struct sockaddr_un sa;
	socklen_t len;
	int r;

	r = unix_sockaddr(addr, &sa, &len);
	if (r < 0)
		return r;
	fd = new_socket(AF_UNIX, addr);
	if (fd < 0)
		return fd;
	r = bind_and_listen(fd, (struct sockaddr *)&sa, len, backlog);
	if (r == -EADDRINUSE && unix_is_stale(&sa, len) && !unlink(sa.sun_path))
		r = bind_and_listen(fd, (struct sockaddr *)&sa, len, backlog);
	if (r < 0)
		return mc_fail(r, "%s: %s", mc_strerror(r), addr);
	tell_bound(fd, ret_bound);
	return TAKE_FD(fd);
}

static int listen_tcp_on(const struct addrinfo *ai, const char *addr, int backlog, int reuseport)
{
	auto_close int fd = -1;
	int one = 1, r;

	fd = new_socket(ai->ai_family, addr);
	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		return mc_fail(-errno, "cannot share port: %s: %s", addr, mc_strerror(errno));
	r = bind_and_listen(fd, ai->ai_addr, ai->ai_addrlen, backlog);
	if (r < 0)
		return mc_fail(r, "%s: %s", mc_strerror(r), addr);
	return TAKE_FD(fd);
}

int mc_socket_listen(const char *addr, int backlog, int reuseport, char ret_bound[MC_ADDR_MAX])
{
	struct addrinfo *list, *ai;
	int fd = -EADDRNOTAVAIL;

	if (is_unix(addr))
		return listen_unix(addr, backlog, ret_bound);
	fd = tcp_lookup(addr, AI_PASSIVE, mc_deadline_ms(10000), &list);
	if (fd < 0)
		return fd;
	for (ai = list; ai; ai = ai->ai_next) {
		fd = listen_tcp_on(ai, addr, backlog, reuseport);
		if (fd >= 0)
			break;
	}
	freeaddrinfo(list);
	if (fd >= 0)
		tell_bound(fd, ret_bound);
	return fd;
}

/* Wait for @events; 0, or -ETIMEDOUT. */
static int wait_ready(int fd, short events, uint64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	for (;;) {
		n = poll(&p, 1, mc_deadline_left_ms(deadline));
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && mc_deadline_left_ms(deadline) == 0)
			return -ETIMEDOUT;
	}
}

/* Has the socket connected to itself?  That is possible for a free port of the ephemeral range. */
static bool met_itself(int fd)
{
	struct sockaddr_storage a = { 0 }, b = { 0 };
	socklen_t a_len = sizeof(a), b_len = sizeof(b);

	return !getsockname(fd, (struct sockaddr *)&a, &a_len) && a.ss_family != AF_UNIX &&
	       !getpeername(fd, (struct sockaddr *)&b, &b_len) && a_len == b_len &&
	       !memcmp(&a, &b, a_len);
}

static int connect_one(const struct sockaddr *sa, socklen_t len, const char *addr, uint64_t deadline)
{
	auto_close int fd = -1;
	socklen_t err_len = sizeof(int);
	int err = 0, r;

	fd = new_socket(sa->sa_family, addr);
	if (fd < 0)
		return fd;
	while (connect(fd, sa, len) < 0) {
		err = errno;
		/* poll() cannot wait for a unix listener whose backlog is full. */
		if (err == EINTR || (err == EAGAIN && sa->sa_family == AF_UNIX)) {
			if (mc_deadline_left_ms(deadline) == 0)
				return -ETIMEDOUT;
			mc_sleep_ms(CONNECT_PAUSE_MS);
			continue;
		}
		if (err == EISCONN)
			break;
		if (err != EINPROGRESS && err != EALREADY)
			return -err;
		r = wait_ready(fd, POLLOUT, deadline);
		if (r < 0)
			return r;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_len) < 0)
			return -errno;
		if (err)
			return -err;
		break;
	}
	return met_itself(fd) ? -ECONNREFUSED : TAKE_FD(fd);
}

static int connect_failed(int err, const char *addr)
{
	return mc_fail(err, "cannot connect to %s: %s", addr, mc_strerror(err));
}

static int connect_unix(const char *addr, uint64_t deadline)
{
	struct sockaddr_un sa;
	socklen_t len;
	int fd;

	fd = unix_sockaddr(addr, &sa, &len);
	if (fd < 0)
		return fd;
	fd = connect_one((struct sockaddr *)&sa, len, addr, deadline);
	return fd < 0 ? connect_failed(fd, addr) : fd;
}

/* Deadline of one address: a dead address must not use up the time of the others. */
static uint64_t share_of(uint64_t deadline, const struct addrinfo *ai)
{
	uint64_t now = mc_now_ns();
	unsigned n = 0;

	if (deadline == MC_NEVER || deadline <= now)
		return deadline;
	for (; ai; ai = ai->ai_next)
		n++;
	return now + (deadline - now) / n;
}

int mc_socket_connect(const char *addr, uint64_t deadline)
{
	struct addrinfo *list, *ai;
	int fd;

	if (is_unix(addr))
		return connect_unix(addr, deadline);
	fd = tcp_lookup(addr, 0, deadline, &list);
	if (fd < 0)
		return fd;
	for (ai = list; ai; ai = ai->ai_next) {
		fd = connect_one(ai->ai_addr, ai->ai_addrlen, addr, share_of(deadline, ai));
		if (fd >= 0)
			break;
	}
	freeaddrinfo(list);
	return fd < 0 ? connect_failed(fd, addr) : fd;
}

int mc_socket_accept(int listen_fd)
{
	int fd, one = 1;

	/* A connection that ended in the queue is not a failure of the listener. */
	do {
		fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO));
	if (fd < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN :
			mc_fail(-errno, "cannot accept a connection: %s", mc_strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void peer_user(int fd, char buf[MC_ADDR_MAX])
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		strcpy(buf, "unix");
	else
		snprintf(buf, MC_ADDR_MAX, "unix:%u", cred.uid);
}

int mc_socket_end(int fd, bool peer, struct in6_addr *ret)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_storage space;
	} u;
	socklen_t len = sizeof(u);

	if ((peer ? getpeername(fd, &u.sa, &len) : getsockname(fd, &u.sa, &len)) < 0)
		return -1;
	if (u.sa.sa_family == AF_INET6) {
		*ret = u.v6.sin6_addr;
		return 1;
	}
	if (u.sa.sa_family != AF_INET)
		return u.sa.sa_family == AF_UNIX ? 0 : -1;
	memset(ret, 0, 10);
	memset(ret->s6_addr + 10, 0xff, 2);
	memcpy(ret->s6_addr + 12, &u.v4.sin_addr, 4);
	return 1;
}

bool mc_socket_same_host(int fd)
{
	struct in6_addr peer, own;
	int r = mc_socket_end(fd, true, &peer);

	return r == 0 || (r > 0 && mc_socket_end(fd, false, &own) > 0 && !memcmp(&peer, &own, sizeof(own)));
}

ssize_t mc_socket_send(int fd, const void *data, size_t len)
{
	ssize_t n;

	do
		n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t mc_socket_recv(int fd, void *buf, size_t len)
{
	ssize_t n;

	do
		n = recv(fd, buf, len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

const char *mc_socket_peer(int fd, char buf[MC_ADDR_MAX])
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0)
		strcpy(buf, "unknown");
	else if (ss.ss_family == AF_UNIX)
		peer_user(fd, buf);
	else if (!format_sockaddr((struct sockaddr *)&ss, len, buf))
		strcpy(buf, "unknown");
	return buf;
}

ssize_t mc_send_fd(int sock, int fd, const void *data, size_t len, uint64_t deadline)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = { 0 } };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf, .msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	ssize_t n;
	int r;

	if (len == 0)
		return mc_fail(-EINVAL, "cannot send a descriptor without data");
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	for (;;) {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0)
			return n;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return mc_fail(-errno, "cannot send a descriptor: %s", mc_strerror(errno));
		r = wait_ready(sock, POLLOUT, deadline);
		if (r < 0)
			return mc_fail(r, "cannot send a descriptor: %s", mc_strerror(r));
	}
}

int mc_take_fd(struct msghdr *msg)
{
	int first = -1, fd;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			memcpy(&fd, (char *)c + at, sizeof(int));
			if (first < 0)
				first = fd;
			else
				close(fd);
		}
	}
	return first;
}
