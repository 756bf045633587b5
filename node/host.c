/* SPDX-License-Identifier: Apache-2.0
 * host.c - the address at which other nodes reach this one. */
#include <config.h>

#include "node/host.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/net/net.h"

#define LOOPBACK "127.0.0.1"

/* The source address that the kernel would use for packets to @host; sends nothing. */
static int route_source(const char *host, int port, char *ret, size_t size)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM }, *ai;
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	char service[16];
	auto_close int fd = -1;
	int r;

	(void)snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(host, service, &hints, &ai))
		return -EHOSTUNREACH;
	fd = socket(ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	r = fd < 0 || connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 ? -errno : 0;
	freeaddrinfo(ai);
	if (r < 0)
		return r;
	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		return -errno;
	return getnameinfo((struct sockaddr *)&own, len, ret, (socklen_t)size, NULL, 0,
			   NI_NUMERICHOST) ? -EHOSTUNREACH : 0;
}

void mcn_host_of(const char *host, const char *master, char *ret, size_t size)
{
	char first[MC_ADDR_MAX], name[MC_ADDR_MAX];
	int port;

	if (host[0] && strcmp(host, "0.0.0.0") != 0 && strcmp(host, "::") != 0) {
		(void)snprintf(ret, size, "%s", host);
		return;
	}
	(void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(master, ","), master);
	if (strncmp(first, "local:", 6) == 0 || strncmp(first, "unix:", 5) == 0 ||
	    mc_addr_split(first, name, sizeof(name), 50051, &port) < 0 ||
	    route_source(name, port, ret, size) < 0)
		(void)snprintf(ret, size, "%s", LOOPBACK);
}
