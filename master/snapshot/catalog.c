/* SPDX-License-Identifier: Apache-2.0
 * catalog.c - the snapshots in the store: manifests, checks, retention. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "master/mcm_i.h"
#include "master/snapshot/snapshot_i.h"

#define LOG "snapshot"
#define ID_LEN 19
#define MANIFEST "manifest.json"
#define PROOF "proof"

void mcm_snapshot_name(const struct mcm_snapshots *s, const char *id, const char *name, char ret[MCT_KEYED_NAME_MAX])
{
	snprintf(ret, MCT_KEYED_NAME_MAX, "%s%s/%s", s->root, id, name);
}

bool mcm_snapshot_id_valid(const char *id)
{
	return strlen(id) == ID_LEN && strspn(id, "0123456789_") == ID_LEN && id[8] == '_' && id[15] == '_';
}

/* ---- manifests ----------------------------------------------------------------------------------- */

static bool piece_is_valid(const json_t *p)
{
	json_int_t size = json_integer_value(json_object_get(p, "size"));
	const char *hash = json_string_value(json_object_get(p, "hash"));

	return size > 0 && size <= MCM_PIECE && hash && strlen(hash) == 16;
}

static bool file_is_valid(const json_t *f)
{
	return json_is_boolean(json_object_get(f, "checkpoint")) &&
		json_integer_value(json_object_get(f, "sequence")) > 0 &&
		json_integer_value(json_object_get(f, "size")) > 0;
}

/* Sizes of files and of pieces have the same sum, so no reader of either runs out of bytes. */
static bool manifest_is_valid(const json_t *m, const char *id)
{
	const json_t *files = json_object_get(m, "files"), *pieces = json_object_get(m, "pieces");
	const char *own = json_string_value(json_object_get(m, "id"));
	const char *server = json_string_value(json_object_get(m, "server"));
	json_int_t bytes = 0, sum = 0, size;
	size_t i;

	if (json_integer_value(json_object_get(m, "format")) != 1 || !own || strcmp(own, id) != 0 || !server ||
	    strlen(server) != 16 || !json_is_boolean(json_object_get(m, "last")) || !json_array_size(files) ||
	    json_array_size(files) > MCM_SNAPSHOT_FILES || json_array_size(pieces) > MCM_SNAPSHOT_FILES)
		return false;
	for (i = 0; i < json_array_size(pieces); i++) {
		if (!piece_is_valid(json_array_get(pieces, i)))
			return false;
		sum += json_integer_value(json_object_get(json_array_get(pieces, i), "size"));
	}
	for (i = 0; i < json_array_size(files); i++) {
		const json_t *f = json_array_get(files, i);

		/* One checkpoint, then journals. */
		if (!file_is_valid(f) || json_is_true(json_object_get(f, "checkpoint")) != (i == 0))
			return false;
		size = json_integer_value(json_object_get(f, "size"));
		if (size > sum - bytes)
			return false;
		bytes += size;
	}
	return bytes == sum;
}

/* The text that the proof is for. */
static char *manifest_text(const json_t *m)
{
	json_t *copy = json_copy((json_t *)(uintptr_t)m);
	char *text;

	json_object_del(copy, PROOF);
	text = copy ? json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(copy);
	return text;
}

int mcm_manifest_put(struct mcm_snapshots *s, const char *id, json_t *m)
{
	auto_free char *proved = m ? manifest_text(m) : NULL, *text = NULL;
	char name[MCT_KEYED_NAME_MAX], proof[MCM_VAULT_PROOF];
	int r = proved ? mcm_vault_prove(&s->vault, proved, proof) : -ENOMEM;

	if (r == 0 && *proof && json_object_set_new(m, PROOF, json_string(proof)) < 0)
		r = -ENOMEM;
	text = r == 0 ? json_dumps(m, JSON_INDENT(1)) : NULL;
	if (!text)
		return r < 0 && r != -ENOMEM ? r : mc_fail(-ENOMEM, "no memory for a manifest");
	mcm_snapshot_name(s, id, MANIFEST, name);
	return mct_keyed_put(s->blobs, name, text, strlen(text));
}

/* Was the manifest written by a master of this pool? */
static int manifest_verify(const struct mcm_snapshots *s, const json_t *m, const char *id)
{
	const char *proof = json_string_value(json_object_get(m, PROOF));
	auto_free char *text = manifest_text(m);
	int r = text ? mcm_vault_verify(&s->vault, text, proof ? proof : "") : -ENOMEM;

	return r < 0 ? mc_fail(r, "snapshot %s cannot be used: %s", id, strdupa(mc_err_detail(r))) : 0;
}

/* The manifest in the store, without a look at its proof. */
static int manifest_load(struct mcm_snapshots *s, const char *id, json_t **ret)
{
	char name[MCT_KEYED_NAME_MAX];
	auto_free char *text = NULL;
	void *data = NULL;
	size_t len = 0;
	json_t *m;
	int r;

	if (!mcm_snapshot_id_valid(id))
		return mc_fail(-EINVAL, "%.40s is no id of a snapshot", id);
	mcm_snapshot_name(s, id, MANIFEST, name);
	r = mct_keyed_get(s->blobs, name, &data, &len);
	if (r < 0)
		return r;
	text = data;
	m = json_loadb(text, len, 0, NULL);
	if (!manifest_is_valid(m, id)) {
		json_decref(m);
		return mc_fail(-MC_ECHECKSUM, "the manifest of snapshot %s is damaged", id);
	}
	*ret = m;
	return 0;
}

int mcm_manifest_read(struct mcm_snapshots *s, const char *id, json_t **ret)
{
	json_t *m = NULL;
	int r = manifest_load(s, id, &m);

	if (r == 0)
		r = manifest_verify(s, m, id);
	if (r < 0) {
		json_decref(m);
		return r;
	}
	*ret = m;
	return 0;
}

int mcm_piece_read(struct mcm_snapshots *s, const char *id, const json_t *manifest, unsigned i, void **ret,
		   size_t *ret_len)
{
	const json_t *p = json_array_get(json_object_get(manifest, "pieces"), i);
	char name[MCT_KEYED_NAME_MAX], number[16], hash[17];
	void *data = NULL;
	size_t len = 0;
	int r;

	snprintf(number, sizeof(number), "%04u", i);
	mcm_snapshot_name(s, id, number, name);
	r = mct_keyed_get(s->blobs, name, &data, &len);
	if (r < 0)
		return r;
	snprintf(hash, sizeof(hash), "%016" PRIx64, mc_hash(data, len, 0));
	if ((json_int_t)len != json_integer_value(json_object_get(p, "size")) ||
	    strcmp(hash, json_string_value(json_object_get(p, "hash"))) != 0) {
		free(data);
		return mc_fail(-MC_ECHECKSUM, "piece %u of snapshot %s is damaged", i, id);
	}
	*ret = data;
	*ret_len = len;
	return 0;
}

/* ---- the list ------------------------------------------------------------------------------------ */

struct ids {
	const struct mcm_snapshots *s;
	char (*id)[MCM_SNAPSHOT_ID];
	unsigned n;
	bool manifests;		/* only those with a manifest; else each once, whatever it has */
};

static int take_id(void *arg, const char *name)
{
	char id[MCM_SNAPSHOT_ID], (*more)[MCM_SNAPSHOT_ID];
	struct ids *l = arg;

	name += strlen(l->s->root);
	if (strlen(name) <= ID_LEN || name[ID_LEN] != '/')
		return 0;
	snprintf(id, sizeof(id), "%.*s", ID_LEN, name);
	if (!mcm_snapshot_id_valid(id) || (l->manifests && strcmp(name + ID_LEN + 1, MANIFEST) != 0))
		return 0;
	for (unsigned i = 0; i < l->n; i++)
		if (!strcmp(l->id[i], id))
			return 0;
	more = realloc(l->id, (l->n + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	l->id = more;
	strcpy(l->id[l->n++], id);
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	return -strcmp(a, b);
}

static int ids_of(struct mcm_snapshots *s, bool manifests, struct ids *ret)
{
	int r;

	*ret = (struct ids){ .s = s, .manifests = manifests };
	r = mct_keyed_list(s->blobs, s->root, take_id, ret);
	if (r < 0) {
		free(ret->id);
		return r == -ENOMEM ? mc_fail(r, "no memory for a list of snapshots") : r;
	}
	if (ret->n)
		qsort(ret->id, ret->n, sizeof(*ret->id), newest_first);
	return 0;
}

int mcm_snapshot_ids(struct mcm_snapshots *s, char (**ret)[MCM_SNAPSHOT_ID], unsigned *ret_n)
{
	struct ids l;
	int r = ids_of(s, true, &l);

	if (r == 0) {
		*ret = l.id;
		*ret_n = l.n;
	}
	return r;
}

static int no_store(const struct mcm *m)
{
	return m->snapshots ? 0 : mc_fail(-MC_EMODE, "the master has no store of snapshots; start it with "
					  "--enable_snapshot and --snapshot_object_store_type=local or s3");
}

int mcm_snapshot_list(struct mcm *m, json_t **ret)
{
	char (*id)[MCM_SNAPSHOT_ID] = NULL;
	json_t *all = json_array();
	unsigned n = 0;
	int r = no_store(m);

	if (r == 0)
		r = mcm_snapshot_ids(m->snapshots, &id, &n);
	for (unsigned i = 0; i < n && r == 0; i++) {
		json_t *one = NULL;

		if (mcm_manifest_read(m->snapshots, id[i], &one) < 0) {
			(void)json_array_append_new(all, json_pack("{s:s, s:b}", "id", id[i], "damaged", 1));
			continue;
		}
		json_object_del(one, "pieces");
		json_object_del(one, PROOF);
		json_object_del(one, "files");
		(void)json_array_append_new(all, one);
	}
	free(id);
	if (r < 0)
		json_decref(all);
	else
		*ret = all;
	return r;
}

/* ---- verify and choose --------------------------------------------------------------------------- */

static int catalog_verify(struct mcm_snapshots *s, const char *id)
{
	json_t *manifest = NULL;
	int r = mcm_manifest_read(s, id, &manifest);
	size_t n = json_array_size(json_object_get(manifest, "pieces"));

	for (unsigned i = 0; i < n && r == 0; i++) {
		void *data = NULL;
		size_t len;

		r = mcm_piece_read(s, id, manifest, i, &data, &len);
		free(data);
	}
	json_decref(manifest);
	return r;
}

int mcm_snapshot_verify(struct mcm *m, const char *id, char ret_id[MCM_SNAPSHOT_ID])
{
	char (*all)[MCM_SNAPSHOT_ID] = NULL;
	unsigned n = 0;
	int r = no_store(m);

	if (r == 0 && !*id) {
		r = mcm_snapshot_ids(m->snapshots, &all, &n);
		if (r == 0 && !n)
			r = mc_fail(-ENOENT, "there is no snapshot in %s", mct_keyed_where(m->snapshots->blobs));
	}
	if (r == 0) {
		snprintf(ret_id, MCM_SNAPSHOT_ID, "%s", n ? all[0] : id);
		r = catalog_verify(m->snapshots, n ? all[0] : id);
	}
	free(all);
	return r;
}

int mcm_snapshot_chosen(struct mcm_snapshots *s, char ret[MCM_SNAPSHOT_ID])
{
	char name[MCT_KEYED_NAME_MAX];
	auto_free char *text = NULL;
	void *data = NULL;
	size_t len = 0;
	int r;

	*ret = '\0';
	snprintf(name, sizeof(name), "%srestore.txt", s->root);
	r = mct_keyed_get(s->blobs, name, &data, &len);
	text = data;
	if (r == 0 && mcm_snapshot_id_valid(text))
		strcpy(ret, text);
	return r == -ENOENT ? 0 : r;
}

int mcm_snapshot_choose(struct mcm *m, const char *id)
{
	char name[MCT_KEYED_NAME_MAX];
	int r = no_store(m);

	if (r == 0 && *id)
		r = catalog_verify(m->snapshots, id);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "%srestore.txt", m->snapshots->root);
	return *id ? mct_keyed_put(m->snapshots->blobs, name, id, strlen(id)) :
		mct_keyed_delete(m->snapshots->blobs, name);
}

/* ---- the last master ----------------------------------------------------------------------------- */

static int claim_one(struct mcm_snapshots *s, const char *id)
{
	json_t *manifest = NULL;
	int r = manifest_load(s, id, &manifest);

	/* A damaged one is not restored. */
	if (r < 0 || !json_is_true(json_object_get(manifest, "last"))) {
		json_decref(manifest);
		return r == -MC_ECHECKSUM || r == -ENOENT ? 0 : r;
	}
	/* Nor is one of the other form, or with a secret that was dropped. */
	r = manifest_verify(s, manifest, id);
	if (r < 0) {
		json_decref(manifest);
		return r == -MC_ECHECKSUM || r == -EKEYREJECTED || r == -EINVAL ? 0 : r;
	}
	json_object_set_new(manifest, "last", json_false());
	r = mcm_manifest_put(s, id, manifest);
	json_decref(manifest);
	return r;
}

int mcm_snapshots_claim(struct mcm_snapshots *s)
{
	char (*id)[MCM_SNAPSHOT_ID] = NULL;
	unsigned n = 0;
	int r = mcm_snapshot_ids(s, &id, &n);

	for (unsigned i = 0; i < n && r == 0; i++)
		r = claim_one(s, id[i]);
	free(id);
	return r;
}

/* ---- retention ----------------------------------------------------------------------------------- */

struct names {
	char **name;
	unsigned n;
};

static int take_name(void *arg, const char *name)
{
	struct names *l = arg;
	char **more = realloc(l->name, (l->n + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	l->name = more;
	l->name[l->n] = strdup(name);
	return l->name[l->n] ? (l->n++, 0) : -ENOMEM;
}

/* A name that this program has given. */
static bool is_ours(const char *name, size_t prefix)
{
	const char *last = name + prefix;

	return !strcmp(last, MANIFEST) || (strlen(last) == 4 && strspn(last, "0123456789") == 4);
}

static int snapshot_delete(struct mcm_snapshots *s, const char *id)
{
	char prefix[MCT_KEYED_NAME_MAX], manifest[MCT_KEYED_NAME_MAX];
	struct names l = { NULL, 0 };
	int r;

	mcm_snapshot_name(s, id, "", prefix);
	mcm_snapshot_name(s, id, MANIFEST, manifest);
	r = mct_keyed_list(s->blobs, prefix, take_name, &l);
	/* Without its manifest it does not exist any more. */
	if (r == 0)
		r = mct_keyed_delete(s->blobs, manifest);
	for (unsigned i = 0; i < l.n; i++) {
		if (r == 0 && is_ours(l.name[i], strlen(prefix)) && strcmp(l.name[i], manifest) != 0)
			r = mct_keyed_delete(s->blobs, l.name[i]);
		free(l.name[i]);
	}
	free(l.name);
	return r;
}

void mcm_snapshots_trim(struct mcm_snapshots *s)
{
	char (*whole)[MCM_SNAPSHOT_ID] = NULL;
	char first[MCM_SNAPSHOT_ID] = "";
	struct ids l = { .n = 0 };
	unsigned n = 0;
	int r = mcm_snapshot_ids(s, &whole, &n);

	if (r == 0)
		r = mcm_snapshot_chosen(s, first);
	if (r == 0 && n > s->keep)
		n = (unsigned)s->keep;
	if (r == 0)
		r = ids_of(s, false, &l);
	for (unsigned i = 0; i < l.n && r == 0; i++) {
		bool kept = !n || strcmp(l.id[i], whole[0]) > 0 || !strcmp(l.id[i], first);

		for (unsigned k = 0; k < n; k++)
			kept |= !strcmp(l.id[i], whole[k]);
		if (!kept)
			r = snapshot_delete(s, l.id[i]);
	}
	free(whole);
	free(l.id);
	if (r < 0)
		mc_warn(LOG, "cannot delete old snapshots: %s", mc_err_detail(r));
}
