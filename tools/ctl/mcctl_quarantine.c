/* SPDX-License-Identifier: Apache-2.0
 * mcctl_quarantine.c - memory that writers of aborted puts keep out of the pool. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <string.h>

static const char *text_of(const json_t *j, const char *name)
{
	const char *text = json_string_value(json_object_get(j, name));

	return text && *text ? text : "-";
}

static void print_one(const json_t *q)
{
	char size[32];

	printf("%-32s  %-21s  %-15s  %-9s  %10s  %6lld s  %s%s\n", text_of(q, "client"), text_of(q, "name"),
	       text_of(q, "host"), json_is_true(json_object_get(q, "connected")) ? "connected" : "gone",
	       mc_format_size((uint64_t)json_integer_value(json_object_get(q, "bytes")), size, sizeof(size)),
	       (long long)json_integer_value(json_object_get(q, "age_ms")) / 1000, text_of(q, "segment"),
	       json_is_true(json_object_get(q, "served")) ? "" : " (not in service)");
}

static void print_all(const json_t *j, const json_t *all)
{
	char bytes[32], limit[32];
	const json_t *q;
	size_t i;

	if (json_array_size(all))
		printf("%-32s  %-21s  %-15s  %-9s  %10s  %8s  %s\n", "CLIENT", "NAME", "HOST", "STATE", "SIZE", "AGE",
		       "SEGMENT");
	json_array_foreach(all, i, q)
		print_one(q);
	printf("%s in quarantine; puts of a client with more than %s are refused\n",
	       mc_format_size((uint64_t)json_integer_value(json_object_get(j, "bytes")), bytes, sizeof(bytes)),
	       mc_format_size((uint64_t)json_integer_value(json_object_get(j, "limit")), limit, sizeof(limit)));
}

static int quarantine_list(struct mcctl *c)
{
	enum mcctl_status status;
	json_t *j;

	status = mcctl_http_json(c, "/api/v1/quarantine", "writers", "no list of the quarantine", &j);
	if (status == MCCTL_OK && c->conf->json)
		return (int)mcctl_json_print(j);
	if (status == MCCTL_OK)
		print_all(j, json_object_get(j, "writers"));
	json_decref(j);
	return (int)status;
}

static int quarantine_release(struct mcctl *c, const char *client)
{
	json_int_t ranges = 0, bytes = 0;
	enum mcctl_status status;
	char path[128], size[32];
	json_t *j;

	if (strlen(client) != 32 || strspn(client, "0123456789abcdef") != 32)
		return (int)mcctl_complain(MCCTL_FAILED, "%.100s is no id of a client; mcctl quarantine shows them",
					   client);
	if (!c->conf->dead)
		return (int)mcctl_complain(MCCTL_USAGE, "nothing was released: a process that lives would overwrite "
					   "objects of others.\n       When you are certain that it has ended, say so "
					   "with --dead");
	snprintf(path, sizeof(path), "/api/v1/quarantine/release?client=%s", client);
	status = mcctl_http_json(c, path, NULL, "nothing was released", &j);
	if (status == MCCTL_OK && c->conf->json)
		return (int)mcctl_json_print(j);
	json_unpack(j, "{s?I, s?I}", "ranges", &ranges, "bytes", &bytes);
	if (status == MCCTL_OK)
		printf("released %lld ranges, %s\n", (long long)ranges,
		       mc_format_size((uint64_t)bytes, size, sizeof(size)));
	json_decref(j);
	return (int)status;
}

int mcctl_quarantine(struct mcctl *c)
{
	const char *what = c->argc ? c->argv[0] : "list";

	if (!strcmp(what, "list") && c->argc <= 1)
		return quarantine_list(c);
	if (!strcmp(what, "release") && c->argc == 2)
		return quarantine_release(c, c->argv[1]);
	return (int)mcctl_complain(MCCTL_USAGE, "quarantine: use list, or release CLIENT");
}
