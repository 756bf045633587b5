/* SPDX-License-Identifier: Apache-2.0
 * security_probe.c - a peer with a chosen proof of identity, for security_corpus.sh.
 *
 *	security_probe SECRET ADDRESS PROOF client|leader [,NAME,NAME,]
 *		sends each message of the protocol (only the named ones), with all fields set, and prints for each its
 *		name and "denied", "unserved" or "taken"; "sent": it has no reply.  A leader claims to be the one of a
 *		standby.  "refused: ..." alone: there was no connection
 *	security_probe SECRET ADDRESS PROOF,... connect
 *		prints for each proof its name and "connected", when the handshake succeeded, or "refused"
 *	security_probe SECRET ADDRESS PROOF,... greet
 *		the same for data ports: "connected", when the node has answered the greeting of a lane
 *	security_probe SECRET FILE PROOF save
 *		writes the credential to FILE
 *	security_probe SECRET - PROOF,... token
 *		prints for each proof its name and its token for HTTP
 *
 * SECRET is the pool's secret file.  PROOF: plain (no TLS); unknown, wrong-key, expired, other-pool, future-secret; the
 * name of a role, for all tenants; client@TENANT; file:PATH, a credential.  Tickets for node1: ticket, with the role
 * client; ticket-ROLE; ticket-expired, ticket-future-secret; ticket-before, of the older secret; ticket-stolen, made
 * with the key of node2; ticket-tenant, whose tenant was changed;
 * ticket-at@TENANT, of a holder of that tenant, as for a node of this name there;
 * ticket-of:PATH, of the holder of that credential; ticket-elsewhere, for node2. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "engine/tcp/tcp_wire.h"
#include "master/ha/standby.h"
#include "proto/codec_i.h"
#include "proto/rpc_client.h"
#include "tests/unit/test_proto_fill.h"

static struct mc_credential shown;

static int probe_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	(void)arg;
	(void)addr;
	(void)deadline;
	*ret = shown;
	return 0;
}

static void die(const char *why)
{
	fprintf(stderr, "security_probe: %s\n", why);
	exit(2);
}

static void finish(struct mc_credential *c)
{
	if (mc_identity_format(&c->id, c->text) < 0)
		die(mc_err_detail(-EINVAL));
}

/* A ticket as a master makes it, for @node, with the key of @key_of. */
static void make_ticket(const struct mc_secrets *secrets, const char *node, const char *key_of, struct mc_credential *c)
{
	uint32_t number = mc_secrets_newest(secrets);

	c->id.ticket = true;
	strcpy(c->id.node, node);
	finish(c);
	if (c->id.secret < number)
		number = c->id.secret;
	if (mc_secrets_node_key(secrets, number, key_of, c->key) < 0)
		die("cannot derive a node's key");
	mc_key_ticket(c->key, c->text, c->key);
}

static void make_kind_of_ticket(const struct mc_secrets *secrets, const char *kind, struct mc_credential *c)
{
	struct mc_credential *holder;

	c->id.role = mc_role_parse(kind);
	if (!c->id.role)
		c->id.role = MC_ROLE_CLIENT;
	if (!strcmp(kind, "expired"))
		c->id.expires_s = mc_wall_ms() / 1000 - 1;
	if (!strcmp(kind, "future-secret"))
		c->id.secret += 7;
	if (!strcmp(kind, "before"))
		c->id.secret--;
	if (!strncmp(kind, "of:", 3)) {
		holder = mc_credential_new();
		if (!holder || mc_credential_load(kind + 3, holder) < 0)
			die(mc_err_detail(-EACCES));
		c->id.serial = holder->id.serial;
		mc_credential_free(holder);
	}
	if (!strcmp(kind, "tenant"))
		strcpy(c->id.tenant, "a");
	if (!strncmp(kind, "at@", 3) && strlen(kind + 3) < sizeof(c->id.tenant))
		strcpy(c->id.tenant, kind + 3);
	make_ticket(secrets, strcmp(kind, "elsewhere") ? "node1" : "node2",
		    strcmp(kind, "elsewhere") && strcmp(kind, "stolen") ? "node1" : "node2", c);
	if (!strcmp(kind, "tenant")) {
		/* The key belongs to the text before this change. */
		strcpy(c->id.tenant, "b");
		finish(c);
	}
}

/* A credential whose text was changed after its key was derived, or that never was one. */
static void spoil(const char *proof, struct mc_credential *c)
{
	if (!strcmp(proof, "wrong-key")) {
		c->key[0] ^= 1;
	} else if (!strcmp(proof, "other-pool")) {
		strcpy(c->id.cluster, "other");
		finish(c);
	} else if (!strcmp(proof, "future-secret")) {
		c->id.secret += 7;
		finish(c);
	} else if (!strcmp(proof, "unknown")) {
		strcpy(c->text, "admin");
	}
}

/* Make the credential that @proof names; its key is right unless the proof says otherwise. */
static void make(const char *path, const char *proof)
{
	static const char *const spoiled[] = { "wrong-key", "other-pool", "future-secret", "unknown", "expired" };
	uint64_t now_s = mc_wall_ms() / 1000;
	struct mc_secrets *secrets;
	struct mc_credential *c = &shown;

	memset(c, 0, sizeof(*c));
	if (!strncmp(proof, "file:", 5)) {
		if (mc_credential_load(proof + 5, c) < 0)
			die(mc_err_detail(-EACCES));
		return;
	}
	if (mc_secrets_load(path, &secrets) < 0)
		die("cannot load the secret");
	c->id = (struct mc_identity){
		.secret = mc_secrets_newest(secrets), .role = mc_role_parse(proof), .serial = mc_random_u64() | 1,
		.expires_s = now_s + 600, .tenant = "*", .name = "probe",
	};
	strcpy(c->id.cluster, mc_secrets_cluster(secrets));
	if (!strncmp(proof, "client@", 7) && strlen(proof + 7) < sizeof(c->id.tenant)) {
		c->id.role = MC_ROLE_CLIENT;
		strcpy(c->id.tenant, proof + 7);
	}
	for (unsigned i = 0; i < sizeof(spoiled) / sizeof(*spoiled); i++)
		if (!strcmp(proof, spoiled[i]))
			c->id.role = MC_ROLE_ADMIN;
	if (!strcmp(proof, "expired"))
		c->id.expires_s = now_s - 1;
	if (!strncmp(proof, "ticket", 6)) {
		make_kind_of_ticket(secrets, proof[6] ? proof + 7 : "", c);
	} else {
		if (!c->id.role)
			die("unknown proof");
		finish(c);
		if (mc_secrets_key(secrets, &c->id, c->text, c->key) < 0)
			die("cannot derive a key");
		spoil(proof, c);
	}
	mc_secrets_free(secrets);
}

static bool wanted(const char *name, const char *list)
{
	char word[64];

	snprintf(word, sizeof(word), ",%s,", name);
	return !list || strstr(list, word);
}

static void send_one(struct mcp_client *c, uint16_t type, const char *name, const struct mcp_desc *d, bool answered)
{
	struct fill fill = { .plain = true };
	void *msg = calloc(1, d->size);
	struct mcp_reply mem = { 0 };
	char reply[4096];
	int r;

	fill_struct(&fill, d, msg);
	if (!answered) {
		printf("%s %s\n", name, mcp_send(c, type, msg) < 0 ? "lost" : "sent");
		free(msg);
		fill_free(&fill);
		return;
	}
	r = mcp_call(c, type, msg, answered ? reply : NULL, &mem, mc_deadline_ms(5000));
	mcp_reply_done(&mem);
	printf("%s %s\n", name, r == -EACCES ? "denied" : r == -MC_ENOTSUP ? "unserved" :
	       r == -MC_ERPC ? "lost" : "taken");
	free(msg);
	fill_free(&fill);
}

/* Has a node answered the greeting of a lane, and not with an error? */
static bool greeted(struct mc_stream *s, uint64_t deadline)
{
	uint8_t bytes[MCE_GREETING_SIZE];
	struct mce_greeting g = {
		.version = MCE_WIRE_VERSION, .version_min = MCE_WIRE_VERSION_MIN, .token = mc_random_u64(), .epoch = 1,
	};
	struct iovec iov = { bytes, sizeof(bytes) };
	size_t have = 0;
	ssize_t n;

	mce_greeting_pack(bytes, &g);
	if (mc_stream_send(s, &iov, 1) != (ssize_t)sizeof(bytes))
		return false;
	while (have < sizeof(bytes)) {
		iov = (struct iovec){ bytes + have, sizeof(bytes) - have };
		n = mc_stream_recv(s, &iov, 1);
		if (n > 0) {
			have += (size_t)n;
			continue;
		}
		if (n != -EAGAIN)
			return false;
		if (mc_now_ns() >= deadline)
			die("a node neither answers a greeting nor ends the connection");
		(void)mc_stream_wait(s, POLLIN, deadline);
	}
	return mce_greeting_unpack(bytes, have, &g) > 0 && g.status == 0;
}

static void connect_once(const struct mc_net *net, const char *addr, const char *proof, bool greet)
{
	uint64_t deadline = mc_deadline_ms(5000);
	struct mc_stream s;
	bool ok = mc_net_connect(net, addr, deadline, &s) == 0;

	if (ok) {
		if (greet)
			ok = greeted(&s, deadline);
		mc_stream_close(&s);
	}
	printf("%s %s\n", proof, ok ? "connected" : "refused");
}

/* connect, greet, token: for each of the proofs */
static void each_proof(const struct mc_net *tls, const char *secret, const char *addr, char *proofs, const char *how)
{
	char token[MC_BEARER_MAX], *proof;

	while ((proof = strsep(&proofs, ","))) {
		if (strcmp(proof, "plain"))
			make(secret, proof);
		if (!strcmp(how, "token")) {
			mc_bearer_make(&shown, token);
			printf("%s %s\n", proof, token);
		} else {
			connect_once(strcmp(proof, "plain") ? tls : mc_net_plain(), addr, proof, !strcmp(how, "greet"));
		}
	}
}

int main(int argc, char **argv)
{
	const struct mc_tls_conf tls_conf = { .inner = mc_net_plain(), .present = probe_present };
	const char *addr = argc > 2 ? argv[2] : "", *proof = argc > 3 ? argv[3] : "", *how = argc > 4 ? argv[4] : "";
	const char *list = argc > 5 ? argv[5] : NULL;
	struct mcp_client_conf conf = {
		.addrs = addr, .channel = MCP_CHANNEL_CONTROL, .software = "security_probe",
		.client = { mc_random_u64() | 1, mc_random_u64() }, .connect_timeout_ms = 5000,
	};
	struct mcp_stats_reply stats;
	struct mcp_client *c;
	struct mc_tls *tls;
	int r;

	if (argc < 5)
		die("usage: security_probe SECRET ADDRESS PROOF leader|client|connect|greet|token|save [,NAME,NAME,]");
	if (!strcmp(how, "save")) {
		make(argv[1], proof);
		if (mc_credential_save(&shown, addr) < 0)
			die("cannot save the credential");
		return 0;
	}
	if (mc_tls_new(&tls_conf, &tls) < 0)
		die("no TLS");
	if (strcmp(how, "leader") && strcmp(how, "client")) {
		each_proof(mc_tls_net(tls), argv[1], addr, argv[3], how);
		mc_tls_free(tls);
		return 0;
	}
	if (strcmp(proof, "plain"))
		make(argv[1], proof);
	conf.net = strcmp(proof, "plain") ? mc_tls_net(tls) : mc_net_plain();
	if (!strcmp(how, "leader"))
		conf.client.hi = MCM_STANDBY_LEADER_ID;
	if (mcp_client_open(&conf, &c) < 0)
		die("cannot open a client");
	r = mcp_call(c, MCP_STATS, &(struct mcp_stats){ 0 }, &stats, NULL, mc_deadline_ms(5000));
	if (!mcp_client_up(c)) {
		printf("refused: %s\n", mc_err_detail(r));
		mcp_client_close(c);
		mc_tls_free(tls);
		return 0;
	}
#define MCP_MESSAGE(NAME, name, num, roles) \
	if (num != MCP_HELLO && wanted(#NAME, list)) \
		send_one(c, num, #NAME, &mcp_desc_##name, mcp_desc_of(num, true) != NULL);
#include "proto/msg_each.h"
	mcp_client_close(c);
	mc_tls_free(tls);
	return 0;
}
