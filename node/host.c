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

#include <mooncake/mcs_credential.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/guard.h"
#include "common/net/net.h"
#include "common/security/secret.h"

#define IDENTIFY_MS 2000	/* time limit for the master's answer about a token */

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
		(void)snprintf(ret, size, "%s", MC_GUARD_LOOPBACK);
}

static struct mc_guard host_guard(bool secured, bool allowed)
{
	return (struct mc_guard){
		.harm = MC_GUARD_POOL_HARM, .secure = "use --credential=FILE (docs/SECURITY.md)", .secured = secured,
		.allowed = allowed,
	};
}

int mcn_host_check(const char *host, const char *master, bool given, bool secured, bool allowed)
{
	const struct mc_guard g = host_guard(secured, allowed);
	char own[MC_ADDR_MAX];

	if (given)
		return mc_guard_listen(&g, "host", host);
	mcn_host_of(host, master, own, sizeof(own));
	return mc_guard_listen(&g, "host (not set, own address on the way to the master)", own);
}

int mcn_http_addr(const struct mcn_http *h, char ret[MC_ADDR_MAX])
{
	const struct mc_guard with_tokens = {
		.harm = "read and use the tokens of its clients", .secure = "use --http_tls_cert and --http_tls_key",
		.secured = *h->cert, .strict = true,
	};
	const struct mc_guard g = mc_credential_path() ? with_tokens : host_guard(false, h->allowed);
	char own[MC_ADDR_MAX];
	int r, ignored;

	r = mc_addr_split(h->host, own, sizeof(own), 0, &ignored);
	return r < 0 ? r : mc_addr_join(h->given ? own : mc_guard_default(&g, "host", own), h->port, ret);
}

static int host_identify(void *arg, const char *token, struct mc_principal *ret)
{
	struct mcs_holder holder;
	int r = mcs_credential_check(arg, token, &holder, IDENTIFY_MS);

	if (r < 0)
		return mc_fail(-EACCES, "%s", mcs_error_detail(r));
	*ret = (struct mc_principal){
		.source = MC_PRINCIPAL_CREDENTIAL, .roles = mc_role_parse(holder.role), .serial = holder.serial,
		.expires_s = holder.expires_s,
	};
	if (strcmp(holder.tenant, "*"))
		(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", holder.tenant);
	(void)snprintf(ret->name, sizeof(ret->name), "%s", holder.name);
	return 0;
}

struct mc_httpd_security mcn_http_security(const struct mcn_http *h, mcs_t *store)
{
	return (struct mc_httpd_security){
		.tokens = mc_credential_path() != NULL, .identify = host_identify, .arg = store,
		.cert = h->cert, .key = h->key,
	};
}
