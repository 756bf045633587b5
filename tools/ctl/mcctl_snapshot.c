/* SPDX-License-Identifier: Apache-2.0
 * mcctl_snapshot.c - snapshots of the master's index. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <string.h>

static int snapshot_create(struct mcctl *c)
{
	const char *id = NULL;
	json_t *j;
	enum mcctl_status status = mcctl_http_json(c, "/api/v1/snapshot", NULL, "no snapshot was written", &j);

	if (status == MCCTL_OK && c->conf->json)
		return (int)mcctl_json_print(j);
	json_unpack(j, "{s?s}", "id", &id);
	if (status == MCCTL_OK && id)
		printf("snapshot %s written\n", id);
	else if (status == MCCTL_OK)
		puts("checkpoint written");
	json_decref(j);
	return (int)status;
}

static void print_one(const json_t *one)
{
	const char *id = json_string_value(json_object_get(one, "id"));
	json_int_t objects = json_integer_value(json_object_get(one, "objects"));
	json_int_t bytes = json_integer_value(json_object_get(one, "bytes"));

	if (json_is_true(json_object_get(one, "damaged")))
		printf("%s  damaged\n", id ? id : "?");
	else
		printf("%s  %12lld objects  %14lld bytes%s\n", id ? id : "?", (long long)objects, (long long)bytes,
		       json_is_true(json_object_get(one, "last")) ? "  orderly end" : "");
}

static int snapshot_list(struct mcctl *c)
{
	enum mcctl_status status;
	json_t *j, *all, *one;
	size_t i;

	status = mcctl_http_json(c, "/api/v1/snapshots", "snapshots", "no list of snapshots", &j);
	all = json_object_get(j, "snapshots");
	if (status == MCCTL_OK && c->conf->json)
		status = mcctl_json_print(json_incref(all));
	else
		json_array_foreach(all, i, one)
			print_one(one);
	json_decref(j);
	return (int)status;
}

/* An order about the snapshot @id; @said has a place for it. */
static int snapshot_order(struct mcctl *c, const char *action, const char *id, const char *failed, const char *said)
{
	const char *answered = "";
	char path[256];
	enum mcctl_status status;
	json_t *j;

	if (strspn(id, "0123456789_") != strlen(id) || strlen(id) > 100)
		return (int)mcctl_complain(MCCTL_FAILED, "%s: %.100s is no id of a snapshot", failed, id);
	snprintf(path, sizeof(path), "/api/v1/snapshots/%s%s%s", action, *id ? "?id=" : "", id);
	status = mcctl_http_json(c, path, NULL, failed, &j);
	if (status == MCCTL_OK && c->conf->json)
		return (int)mcctl_json_print(j);
	json_unpack(j, "{s?s}", "id", &answered);
	if (status == MCCTL_OK)
		printf("snapshot %s %s\n", answered, said);
	json_decref(j);
	return (int)status;
}

int mcctl_snapshot(struct mcctl *c)
{
	const char *what = c->argc ? c->argv[0] : "create", *id = c->argc > 1 ? c->argv[1] : "";

	if (!strcmp(what, "create") && !*id)
		return snapshot_create(c);
	if (!strcmp(what, "list") && !*id)
		return snapshot_list(c);
	if (!strcmp(what, "verify"))
		return snapshot_order(c, "verify", id, "not verified", "is good");
	if (!strcmp(what, "restore") && *id)
		return snapshot_order(c, "restore", id, "nothing was chosen", "will be restored by the next start of a "
				      "master with an empty journal and --enable_snapshot_restore");
	return (int)mcctl_complain(MCCTL_USAGE, "snapshot: use create, list, verify [ID] or restore ID");
}
