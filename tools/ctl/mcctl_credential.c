/* SPDX-License-Identifier: Apache-2.0
 * mcctl_credential.c - make, list and revoke credentials; the token of one for HTTP. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs_credential.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"

static int credential_error(int err, const char *failed)
{
	if (err == -MCS_ENOTSUP)
		return (int)mcctl_complain(MCCTL_NO, "%s: the master was started without --security=on", failed);
	if (err == -MCS_EMODE)
		return (int)mcctl_complain(MCCTL_NO, "%s: the master keeps no journal and would forget it; rotate the "
					   "secret (mooncake_master --rotate_security)", failed);
	return (int)mcctl_error(err, "%s", failed);
}

static int credential_create(struct mcctl *c)
{
	const char *path = c->argc > 1 ? c->argv[1] : NULL;
	uint64_t serial;
	int r;

	if (!path || c->argc > 2)
		return mcctl_complain(MCCTL_USAGE, "usage: mcctl credential create FILE --role=ROLE --name=NAME");
	if (!*c->conf->role || !*c->conf->name)
		return mcctl_complain(MCCTL_USAGE, "a credential needs --role=admin|node|client|reader|metrics and "
				      "--name=NAME, which names its holder");
	r = mcs_credential_create(c->store, c->conf->role, c->conf->tenant, c->conf->name,
				  (uint64_t)c->conf->ttl / 1000, path, &serial, -1);
	if (r < 0)
		return credential_error(r, "cannot make a credential");
	if (c->conf->json)
		return (int)mcctl_json_print(json_pack("{s:s, s:s}", "file", path, "serial",
						       mcctl_serial_text(serial, (char [17]){ "" })));
	printf("%s: role %s, tenant %s, name %s, serial %016" PRIx64 "\n", path, c->conf->role, c->conf->tenant,
	       c->conf->name, serial);
	return MCCTL_OK;
}

const char *mcctl_serial_text(uint64_t serial, char ret[17])
{
	snprintf(ret, 17, "%016" PRIx64, serial);
	return ret;
}

static const char *credential_state(const struct mcs_credential *e)
{
	if (e->revoked)
		return "revoked";
	return e->expires_s && e->expires_s <= mc_wall_ms() / 1000 ? "expired" : "valid";
}

static json_t *credential_json(const struct mcs_credential *e)
{
	char serial[17];

	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "serial", mcctl_serial_text(e->serial, serial),
			 "role", e->role, "tenant", e->tenant, "name", e->name, "created", (json_int_t)e->created_s,
			 "expires", (json_int_t)e->expires_s, "state", credential_state(e));
}

static int credential_list(struct mcctl *c)
{
	auto_free struct mcs_credential *all = NULL;
	char created[32], expires[32];
	int n = mcs_credentials(c->store, &all, -1);
	json_t *list;

	if (n < 0)
		return credential_error(n, "cannot list the credentials");
	if (c->conf->json) {
		list = json_array();
		for (int i = 0; i < n; i++)
			json_array_append_new(list, credential_json(&all[i]));
		return (int)mcctl_json_print(json_pack("{s:o}", "credentials", list));
	}
	printf("%-16s  %-7s  %-7s  %-19s  %-19s  %-16s  %s\n", "SERIAL", "STATE", "ROLE", "CREATED", "EXPIRES",
	       "TENANT", "NAME");
	for (int i = 0; i < n; i++)
		printf("%016" PRIx64 "  %-7s  %-7s  %-19s  %-19s  %-16s  %s\n", all[i].serial,
		       credential_state(&all[i]),
		       *all[i].role ? all[i].role : "-",
		       mcctl_time_text(all[i].created_s * 1000, created, sizeof(created)),
		       all[i].expires_s ? mcctl_time_text(all[i].expires_s * 1000, expires, sizeof(expires)) : "-",
		       *all[i].tenant ? all[i].tenant : "-", *all[i].name ? all[i].name : "-");
	return MCCTL_OK;
}

static int credential_revoke(struct mcctl *c)
{
	uint64_t serial;
	char *end;
	int r;

	if (c->argc != 2)
		return mcctl_complain(MCCTL_USAGE, "usage: mcctl credential revoke SERIAL");
	errno = 0;
	serial = strtoull(c->argv[1], &end, 16);
	if (*end || !serial || errno || strspn(c->argv[1], "0123456789abcdefABCDEF") != strlen(c->argv[1]))
		return mcctl_complain(MCCTL_USAGE, "%s is no serial number; mcctl credential list shows them",
				      c->argv[1]);
	r = mcs_credential_revoke(c->store, serial, -1);
	if (r < 0)
		return credential_error(r, "cannot revoke the credential");
	if (!c->conf->json)
		printf("%016" PRIx64 " is revoked; its connections are being closed\n", serial);
	return MCCTL_OK;
}

static int credential_token(struct mcctl *c)
{
	char token[MCS_CREDENTIAL_TOKEN_MAX];
	int r = mcs_credential_token(c->argc > 1 ? c->argv[1] : c->conf->credential, token, sizeof(token));

	if (r < 0)
		return mcctl_error(r, "cannot make the token");
	printf("%s\n", token);
	return MCCTL_OK;
}

int mcctl_credential(struct mcctl *c)
{
	static const struct {
		const char *name;
		int (*run)(struct mcctl *c);
		bool connects;
	} verbs[] = {
		{ "create", credential_create, true }, { "list", credential_list, true },
		{ "revoke", credential_revoke, true }, { "token", credential_token, false },
	};
	const char *verb = c->argc ? c->argv[0] : "list";

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		int r;

		if (strcmp(verb, verbs[i].name))
			continue;
		r = verbs[i].connects ? mcctl_open(c->conf, (int64_t)c->conf->timeout, &c->store) : 0;
		return r < 0 ? (int)mcctl_error(r, "cannot use the store at %s", c->conf->master) : verbs[i].run(c);
	}
	return mcctl_complain(MCCTL_USAGE, "credential %s: use create, list, revoke or token", verb);
}
