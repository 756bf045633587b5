/* SPDX-License-Identifier: Apache-2.0
 * uids.c - identities of local users. */
#include <config.h>

#include "common/security/uids.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"

#define ENTRY_MAX 512u		/* longer than any user's and tenant's name together */
#define PASSWD_MAX 16384u	/* bytes of a user's line in the database */
#define OTHERS UINT32_MAX	/* uid of the entry "*"; no user has this number */

struct mc_uids {
	uint32_t own;		/* the user of this process */
	unsigned n;
	struct mc_principal *at;
};

static const struct mc_principal *uids_entry(const struct mc_uids *u, uint32_t uid)
{
	for (unsigned i = 0; i < u->n; i++)
		if (u->at[i].uid == uid)
			return &u->at[i];
	return NULL;
}

static int user_parse(const char *option, const char *entry, const char *user, uint32_t *ret)
{
	char buf[PASSWD_MAX], *end;
	struct passwd pw, *found = NULL;
	unsigned long number;

	if (!strcmp(user, "*")) {
		*ret = OTHERS;
		return 0;
	}
	number = strtoul(user, &end, 10);
	if (*user >= '0' && *user <= '9' && !*end) {
		if (number >= UINT32_MAX)
			return mc_fail(-EINVAL, "%s: \"%s\": no user has the number %s", option, entry, user);
		*ret = (uint32_t)number;
		return 0;
	}
	if (!*user || getpwnam_r(user, &pw, buf, sizeof(buf), &found) || !found)
		return mc_fail(-EINVAL, "%s: \"%s\": there is no user \"%s\"; give a number, a name, or *", option,
			       entry, user);
	*ret = pw.pw_uid;
	return 0;
}

/* @text is the part of the entry after the user; it is changed. */
static int rights_parse(const char *option, const char *entry, char *text, uint32_t roles, struct mc_principal *ret)
{
	char *tenant = text, *role = text ? strchr(text, ':') : NULL;

	if (role)
		*role++ = '\0';
	if (tenant && strlen(tenant) > MC_PRINCIPAL_TENANT_MAX)
		return mc_fail(-EINVAL, "%s: \"%s\": the tenant's name has more than %u bytes", option, entry,
			       MC_PRINCIPAL_TENANT_MAX);
	if (tenant)
		strcpy(ret->tenant, tenant);
	ret->roles = MC_ROLE_CLIENT;
	if (role)
		ret->roles = mc_role_parse(role) & roles;
	if (!ret->roles)
		return mc_fail(-EINVAL, "%s: \"%s\": \"%s\" is not a role that a user can have here", option, entry,
			       role);
	if (*ret->tenant && !(ret->roles & (MC_ROLE_READER | MC_ROLE_CLIENT)))
		return mc_fail(-EINVAL, "%s: \"%s\": the role %s concerns all tenants; leave the tenant empty", option,
			       entry, role);
	return 0;
}

static int entry_parse(const char *option, const char *entry, uint32_t roles, struct mc_uids *u)
{
	struct mc_principal *p = &u->at[u->n];
	char text[ENTRY_MAX], *rights;
	int r;

	if (strlen(entry) >= sizeof(text))
		return mc_fail(-EINVAL, "%s: an entry has more than %u bytes: \"%.40s...\"", option, ENTRY_MAX - 1,
			       entry);
	strcpy(text, entry);
	rights = strchr(text, ':');
	if (rights)
		*rights++ = '\0';
	*p = (struct mc_principal){ .source = MC_PRINCIPAL_USER };
	r = user_parse(option, entry, text, &p->uid);
	if (r == 0 && uids_entry(u, p->uid))
		r = mc_fail(-EINVAL, "%s: \"%s\": an earlier entry names the same user", option, entry);
	if (r == 0)
		r = rights_parse(option, entry, rights, roles, p);
	u->n += r == 0;
	return r;
}

static int list_parse(const char *option, char *list, uint32_t roles, struct mc_uids *u)
{
	int r = 0;

	while (r == 0 && list) {
		char *entry = strsep(&list, ",");

		r = u->n < MC_UIDS_MAX ? entry_parse(option, entry, roles, u) :
			mc_fail(-EINVAL, "%s has more than %u entries", option, MC_UIDS_MAX);
	}
	return r;
}

/* Memory for the entries of @list. */
static int list_room(const char *list, struct mc_uids *u)
{
	size_t n = 1;

	for (; *list; list++)
		n += *list == ',';
	u->at = calloc(n < MC_UIDS_MAX ? n : MC_UIDS_MAX, sizeof(*u->at));
	return u->at ? 0 : -ENOMEM;
}

int mc_uids_parse(const char *option, const char *text, uint32_t roles, struct mc_uids **ret)
{
	struct mc_uids *u = calloc(1, sizeof(*u));
	char *list = text && *text ? strdup(text) : NULL;
	int r = u && (list || !text || !*text) ? 0 : -ENOMEM;

	if (r == 0 && list)
		r = list_room(list, u);
	if (r == 0 && list)
		r = list_parse(option, list, roles, u);
	free(list);
	if (r < 0) {
		mc_uids_free(u);
		return r;
	}
	u->own = (uint32_t)geteuid();
	*ret = u;
	return 0;
}

void mc_uids_free(struct mc_uids *u)
{
	if (!u)
		return;
	free(u->at);
	free(u);
}

int mc_uids_find(const struct mc_uids *u, uint32_t uid, struct mc_principal *ret)
{
	const struct mc_principal *p = uids_entry(u, uid);

	if (!p && (uid == 0 || uid == u->own)) {
		*ret = mc_principal_of_peer(uid);
		return 0;
	}
	if (!p)
		p = uids_entry(u, OTHERS);
	if (!p)
		return mc_fail(-EACCES, "user %u may not connect to the service of user %u", uid, u->own);
	*ret = *p;
	ret->uid = uid;
	return 0;
}
