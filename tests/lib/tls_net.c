/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/tls_net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"

static const uint8_t secret[MC_KEY_LEN] = "a fixed secret, for tests alone";
static const struct mc_credential *presented;	/* atomic */

void tls_net_make(struct mc_credential *ret, uint32_t role, const char *tenant, const char *name, uint64_t expires_s)
{
	memset(ret, 0, sizeof(*ret));
	ret->id = (struct mc_identity){ .secret = 1, .role = role, .serial = 7, .expires_s = expires_s };
	strcpy(ret->id.cluster, "test");
	strcpy(ret->id.tenant, tenant);
	strcpy(ret->id.name, name);
	if (mc_identity_format(&ret->id, ret->text) < 0)
		abort();
	mc_key_credential(secret, ret->text, ret->key);
}

void tls_net_serial(struct mc_credential *c, uint64_t serial)
{
	c->id.serial = serial;
	if (mc_identity_format(&c->id, c->text) < 0)
		abort();
	mc_key_credential(secret, c->text, c->key);
}

void tls_net_present(const struct mc_credential *c)
{
	__atomic_store_n(&presented, c, __ATOMIC_RELEASE);
}

static int net_identify(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	char copy[MC_IDENTITY_MAX + 1];
	struct mc_identity id;
	int r = mc_identity_parse(text, len, &id);

	if (r == 0)
		r = mc_identity_check_time(&id, mc_wall_ms() / 1000);
	if (r == 0 && strcmp(id.cluster, "test"))
		r = mc_fail(-EACCES, "another cluster");
	if (r < 0)
		return r;
	memcpy(copy, text, len);
	copy[len] = 0;
	mc_key_credential(secret, copy, key);
	mc_identity_principal(&id, ret);
	return 0;
}

static int net_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	const struct mc_credential *c = __atomic_load_n(&presented, __ATOMIC_ACQUIRE);

	if (c)
		*ret = *c;
	else
		tls_net_make(ret, MC_ROLE_ADMIN, "*", "test", UINT64_MAX);
	return 0;
}

const struct mc_net *tls_net(void)
{
	static struct mc_tls *tls;
	struct mc_tls_conf conf = {
		.inner = mc_net_plain(), .identify = net_identify, .present = net_present, .service = "test",
	};

	if (!tls && mc_tls_new(&conf, &tls) < 0)
		abort();
	return mc_tls_net(tls);
}
