/* SPDX-License-Identifier: Apache-2.0
 * principal.c - the refusal of a peer without the role. */
#include <config.h>

#include "common/principal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/err.h"

static const char *const role_names[] = { "reader", "client", "node", "admin", "master", "metrics" };

const char *mc_role_name(uint32_t roles)
{
	for (unsigned i = 0; i < sizeof(role_names) / sizeof(role_names[0]); i++)
		if (roles & 1u << i)
			return role_names[i];
	return "none";
}

uint32_t mc_role_parse(const char *name)
{
	for (unsigned i = 0; i < sizeof(role_names) / sizeof(role_names[0]); i++)
		if (!strcmp(name, role_names[i]))
			return 1u << i;
	return 0;
}

int mc_principal_refuse(const struct mc_principal *p, uint32_t roles)
{
	char text[96];
	size_t at = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < sizeof(role_names) / sizeof(role_names[0]); i++)
		if (roles & 1u << i)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at ? ", " : "", role_names[i]);
	return mc_fail(-EACCES, "the peer's role does not allow this, which needs one of: %s", text);
}
