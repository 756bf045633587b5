/* SPDX-License-Identifier: Apache-2.0
 * mcctl_tenants.c - tenants, their use and their quotas. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

static int by_name(const void *a, const void *b)
{
	const struct mcs_tenant *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static const char *state_of(const struct mcs_tenant *t)
{
	if (!t->explicit_policy)
		return "no quota";
	return t->charged > t->effective ? "over quota" : "ok";
}

static void print_row(const struct mcs_tenant *t, int width)
{
	char a[32], b[32], c[32];

	mc_format_size(t->requested, a, sizeof(a));
	mc_format_size(t->effective, b, sizeof(b));
	printf("%-*s  %10s  %10s  %10s  ", width, t->name, t->explicit_policy ? a : "-",
	       t->explicit_policy ? b : "-", mc_format_size(t->charged, c, sizeof(c)));
	if (t->effective)
		printf("%3.0f%%", 100.0 * (double)t->charged / (double)t->effective);
	else
		printf("%4s", "-");
	printf("  %10" PRIu64 "  %s\n", t->objects, state_of(t));
}

static void print_text(const struct mcs_tenant *t, int n)
{
	int width = (int)strlen("TENANT");

	for (int i = 0; i < n; i++)
		if ((int)strlen(t[i].name) > width)
			width = (int)strlen(t[i].name);
	printf("%-*s  %10s  %10s  %10s  %4s  %10s  %s\n", width, "TENANT", "QUOTA", "EFFECTIVE",
	       "USED", "USE%", "OBJECTS", "STATE");
	for (int i = 0; i < n; i++)
		print_row(&t[i], width);
}

static json_t *tenant_json(const struct mcs_tenant *t)
{
	struct mcs_key name = { t->name, strlen(t->name) };

	return json_pack("{s:o*, s:I, s:I, s:I, s:I, s:b, s:b, s:s}",
			 "name", mcctl_key_json(name), "requested", (json_int_t)t->requested,
			 "effective", (json_int_t)t->effective, "charged", (json_int_t)t->charged,
			 "objects", (json_int_t)t->objects,
			 "explicit_policy", t->explicit_policy,
			 "admission_closed", t->admission_closed, "state", state_of(t));
}

int mcctl_tenants(struct mcctl *c)
{
	auto_free struct mcs_tenant *tenants = NULL;
	json_t *all;
	int n;

	n = mcs_tenants(c->store, NULL, &tenants, -1);
	if (n < 0)
		return mcctl_error(n, "cannot ask for the tenants");
	if (n)
		qsort(tenants, (size_t)n, sizeof(*tenants), by_name);
	if (!c->conf->json) {
		print_text(tenants, n);
		return MCCTL_OK;
	}
	all = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(all, tenant_json(&tenants[i]));
	return mcctl_json_print(all);
}

/* The master forgets a tenant without policy and objects, so after removing a quota it may no longer exist. */
static int show_tenant(struct mcctl *c, const char *name, bool may_be_gone)
{
	auto_free struct mcs_tenant *found = NULL;
	struct mcs_tenant gone = { 0 };
	const struct mcs_tenant *t;
	int n;

	n = mcs_tenants(c->store, name, &found, -1);
	if (n < 0 && !(may_be_gone && n == -MCS_ENOTENANT))
		return mcctl_error(n, "%s", name);
	snprintf(gone.name, sizeof(gone.name), "%s", name);
	t = n > 0 ? found : &gone;
	if (c->conf->json)
		return mcctl_json_print(tenant_json(t));
	print_text(t, 1);
	return MCCTL_OK;
}

static int quota_error(int r, const char *name)
{
	if (r != -MCS_EUNAVAILABLE)
		return mcctl_error(r, "cannot set the quota of %s", name);
	return mcctl_complain(MCCTL_FAILED, "cannot set the quota of %s: %s\n       the policy is not stored; the "
			      "master's log has the reason", name, mcs_error_detail(r));
}

int mcctl_quota(struct mcctl *c)
{
	const char *name = c->argv[0];
	uint64_t bytes = 1;
	int r;

	/* For the library "" means all tenants or the default tenant. */
	if (!*name)
		return mcctl_complain(MCCTL_USAGE, "the tenant's name is empty; \"default\" is the tenant "
				      "of clients that name none");
	if (c->argc > 1) {
		if (mc_parse_size(c->argv[1], &bytes) < 0 || bytes > INT64_MAX)
			return mcctl_complain(MCCTL_USAGE, "\"%s\" is not a size; write for example 200GB; "
					      "0 removes the tenant from the policy", c->argv[1]);
		r = mcs_quota_set(c->store, name, bytes, -1);
		if (r < 0)
			return quota_error(r, name);
	}
	return show_tenant(c, name, !bytes);
}
