/* SPDX-License-Identifier: Apache-2.0
 * topo.c - the priority matrix in memory, and its conversion from and to upstream's JSON. */
#include <config.h>

#include "engine/topo/topo_i.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

/* ---- the object -------------------------------------------------------------------------------- */

void mce_topo_free(struct mce_topo *t)
{
	if (!t)
		return;
	free(t->nic);
	free(t->location);
	free(t);
}

unsigned mce_topo_nics(const struct mce_topo *t)
{
	return t->nnics;
}

bool mce_topo_prefers(const struct mce_topo *t, const char *location, const char *device)
{
	for (unsigned i = 0; i < t->nlocations; i++) {
		const struct mce_topo_location *p = &t->location[i];

		for (unsigned k = 0; k < p->preferred && !strcmp(p->name, location); k++)
			if (!strcmp(t->nic[p->nic[k]].name, device))
				return true;
	}
	return false;
}

const struct mce_topo_nic *mce_topo_nic(const struct mce_topo *t, unsigned i)
{
	return &t->nic[i];
}

int mce_topo_nic_add(struct mce_topo *t, const char *name)
{
	struct mce_topo_nic *more;

	for (unsigned i = 0; i < t->nnics; i++)
		if (!strcmp(t->nic[i].name, name))
			return (int)i;
	if (t->nnics == MCE_TOPO_NICS_MAX)
		return mc_fail(-MC_ELIMIT, "too many network devices, at most %u", MCE_TOPO_NICS_MAX);
	if (strlen(name) >= sizeof(more->name))
		return mc_fail(-EINVAL, "a network device name is too long");
	more = realloc(t->nic, (t->nnics + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	t->nic = more;
	memset(&more[t->nnics], 0, sizeof(*more));
	more[t->nnics].numa = -1;
	strcpy(more[t->nnics].name, name);
	return (int)t->nnics++;
}

int mce_topo_location_add(struct mce_topo *t, const char *name, struct mce_topo_location **ret)
{
	struct mce_topo_location *more;

	if (t->nlocations == MCE_TOPO_LOCATIONS_MAX)
		return mc_fail(-MC_ELIMIT, "too many locations, at most %u", MCE_TOPO_LOCATIONS_MAX);
	if (strlen(name) >= sizeof(more->name))
		return mc_fail(-EINVAL, "a location name is too long");
	more = realloc(t->location, (t->nlocations + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	t->location = more;
	*ret = &more[t->nlocations++];
	memset(*ret, 0, sizeof(**ret));
	strcpy((*ret)->name, name);
	return 0;
}

bool mce_topo_listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	while (list && *list) {
		size_t n;

		list += strspn(list, ", ");
		n = strcspn(list, ", ");
		if (n == len && n && !memcmp(list, name, n))
			return true;
		list += n;
	}
	return false;
}

/* ---- JSON in ----------------------------------------------------------------------------------- */

static int parse_list(struct mce_topo *t, struct mce_topo_location *p, const json_t *list, bool preferred)
{
	size_t i;
	json_t *v;
	int nic;

	if (!json_is_array(list))
		return mc_fail(-EINVAL, "topology: %s does not have two lists of devices", p->name);
	json_array_foreach(list, i, v) {
		if (!json_is_string(v) || !*json_string_value(v))
			return mc_fail(-EINVAL, "topology: %s has a device that is not a name", p->name);
		if (p->preferred + p->others == MCE_TOPO_NICS_MAX)
			return mc_fail(-MC_ELIMIT, "topology: %s has too many devices", p->name);
		nic = mce_topo_nic_add(t, json_string_value(v));
		if (nic < 0)
			return nic;
		p->nic[p->preferred + p->others] = (unsigned char)nic;
		if (preferred)
			p->preferred++;
		else
			p->others++;
	}
	return 0;
}

static int parse_matrix(struct mce_topo *t, json_t *root)
{
	struct mce_topo_location *p;
	const char *name;
	json_t *v;
	int r;

	if (!json_is_object(root))
		return mc_fail(-EINVAL, "topology: not an object whose members are locations");
	json_object_foreach(root, name, v) {
		if (!*name || !json_is_array(v) || json_array_size(v) < 1 || json_array_size(v) > 2)
			return mc_fail(-EINVAL, "topology: %s does not have two lists of devices", name);
		r = mce_topo_location_add(t, name, &p);
		if (r == 0)
			r = parse_list(t, p, json_array_get(v, 0), true);
		if (r == 0 && json_array_size(v) == 2)
			r = parse_list(t, p, json_array_get(v, 1), false);
		if (r < 0)
			return r;
	}
	return 0;
}

static int parse_done(json_t *root, const char *what, const json_error_t *err, struct mce_topo **ret)
{
	struct mce_topo *t;
	int r;

	if (!root && err->line < 0)
		return mc_fail(-EINVAL, "%s: %s", what, err->text);
	if (!root)
		return mc_fail(-EINVAL, "%s: %s in line %d", what, err->text, err->line);
	t = calloc(1, sizeof(*t));
	r = t ? parse_matrix(t, root) : -ENOMEM;
	json_decref(root);
	if (r < 0)
		mce_topo_free(t);
	else
		*ret = t;
	return r;
}

int mce_topo_parse(const char *text, size_t len, struct mce_topo **ret)
{
	json_error_t err;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);

	return parse_done(root, "topology", &err, ret);
}

int mce_topo_load(const char *path, struct mce_topo **ret)
{
	json_error_t err;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &err);

	return parse_done(root, path, &err, ret);
}

/* ---- JSON out ---------------------------------------------------------------------------------- */

static json_t *nics_json(const struct mce_topo *t, const unsigned char *nic, unsigned n, const char *filter)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		if (!filter || !*filter || mce_topo_listed(filter, t->nic[nic[i]].name))
			(void)json_array_append_new(list, json_string(t->nic[nic[i]].name));
	return list;
}

int mce_topo_json(const struct mce_topo *t, const char *filter, char **ret)
{
	json_t *root = json_object();
	char *text;

	if (!root)
		return -ENOMEM;
	for (unsigned i = 0; i < t->nlocations; i++) {
		const struct mce_topo_location *p = &t->location[i];
		json_t *both = json_array();

		(void)json_array_append_new(both, nics_json(t, p->nic, p->preferred, filter));
		(void)json_array_append_new(both, nics_json(t, p->nic + p->preferred, p->others, filter));
		(void)json_object_set_new(root, p->name, both);
	}
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}
