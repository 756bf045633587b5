/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_snapshot.c - a store of snapshots with any manifest.  Input: u8 bit 0: the checksums in the manifest are
 * made right, bit 1: the snapshot was chosen to be restored; the manifest's text up to a NUL; the bytes of the pieces,
 * which are repeated up to the length of each piece, at most 4096.  The store is in memory.
 *
 * A manifest that is accepted has the same number of bytes in files and pieces.  It is listed as good, a master can
 * claim it and accepts it again, and if all pieces are right it is fetched: into files of these sizes, with which a
 * master starts or which it refuses. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/hash.h"
#include "master/journal/journal_i.h"
#include "master/snapshot/snapshot_i.h"
#include "tests/fuzz/memory_dir.h"
#include "tests/fuzz/small_master.h"

#define ROOT "mooncake_master_snapshot/mooncake_cluster/"
#define ID "20261128_210000_000"
#define MANIFEST ROOT ID "/manifest.json"
#define PIECE_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the store ---- */

static struct {
	bool chosen;
	char *manifest;		/* malloc'ed; NULL: deleted */
	size_t len;
	const uint8_t *bytes;	/* of the pieces */
	size_t bytes_len;
} store;

int __wrap_mct_keyed_get(struct mct_keyed *b, const char *name, void **ret, size_t *ret_len);
int __wrap_mct_keyed_put(struct mct_keyed *b, const char *name, const void *data, size_t len);
int __wrap_mct_keyed_delete(struct mct_keyed *b, const char *name);
int __wrap_mct_keyed_list(struct mct_keyed *b, const char *prefix, int (*fn)(void *arg, const char *name), void *arg);
const char *__wrap_mct_keyed_where(const struct mct_keyed *b);

static json_t *pieces_of(const json_t *manifest)
{
	return json_object_get(manifest, "pieces");
}

static size_t piece_size(const json_t *manifest, size_t i)
{
	json_int_t size = json_integer_value(json_object_get(json_array_get(pieces_of(manifest), i), "size"));

	return size < 0 ? 0 : size < (json_int_t)PIECE_MAX ? (size_t)size : PIECE_MAX;
}

static uint8_t *piece_bytes(size_t size)
{
	uint8_t *p = malloc(size + 1);

	check(p);
	for (size_t i = 0; i < size; i++)
		p[i] = store.bytes_len ? store.bytes[i % store.bytes_len] : 0;
	p[size] = 0;
	return p;
}

static int store_piece(size_t i, void **ret, size_t *ret_len)
{
	json_t *m = json_loadb(store.manifest, store.len, 0, NULL);
	bool is = i < json_array_size(pieces_of(m));

	if (is) {
		*ret_len = piece_size(m, i);
		*ret = piece_bytes(*ret_len);
	}
	json_decref(m);
	return is ? 0 : -ENOENT;
}

int __wrap_mct_keyed_get(struct mct_keyed *b, const char *name, void **ret, size_t *ret_len)
{
	unsigned i;

	(void)b;
	if (!strcmp(name, MANIFEST) && store.manifest) {
		*ret = malloc(store.len + 1);
		check(*ret);
		memcpy(*ret, store.manifest, store.len);
		((char *)*ret)[store.len] = '\0';
		*ret_len = store.len;
		return 0;
	}
	if (!strcmp(name, ROOT "restore.txt") && store.chosen) {
		*ret = strdup(ID);
		*ret_len = strlen(ID);
		return *ret ? 0 : -ENOMEM;
	}
	if (sscanf(name, ROOT ID "/%4u", &i) == 1 && store.manifest)
		return store_piece(i, ret, ret_len);
	return -ENOENT;
}

int __wrap_mct_keyed_put(struct mct_keyed *b, const char *name, const void *data, size_t len)
{
	(void)b;
	check(!strcmp(name, MANIFEST));
	free(store.manifest);
	store.manifest = strndup(data, len);
	store.len = len;
	return store.manifest ? 0 : -ENOMEM;
}

int __wrap_mct_keyed_delete(struct mct_keyed *b, const char *name)
{
	(void)b;
	if (!strcmp(name, ROOT "restore.txt"))
		store.chosen = false;
	else if (!strcmp(name, MANIFEST))
		store.manifest = (free(store.manifest), NULL);
	else
		check(!strncmp(name, ROOT ID "/0", strlen(ROOT ID "/0")));
	return 0;
}

int __wrap_mct_keyed_list(struct mct_keyed *b, const char *prefix, int (*fn)(void *arg, const char *name), void *arg)
{
	static const char *const names[] = {
		ROOT ID "/0000", ROOT ID "/0001", MANIFEST, ROOT ID "/other", ROOT "other", ROOT "restore.txt",
	};
	int r = 0;

	(void)b;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && r == 0; i++)
		if (!strncmp(names[i], prefix, strlen(prefix)) && (names[i] != names[2] || store.manifest))
			r = fn(arg, names[i]);
	return r;
}

const char *__wrap_mct_keyed_where(const struct mct_keyed *b)
{
	(void)b;
	return "memory";
}

/* Make the checksums right. */
static void sign(void)
{
	json_t *m = json_loadb(store.manifest, store.len, 0, NULL);
	char *text;

	for (size_t i = 0; i < json_array_size(pieces_of(m)); i++) {
		uint8_t *p = piece_bytes(piece_size(m, i));
		char hash[17];

		snprintf(hash, sizeof(hash), "%016" PRIx64, mc_hash(p, piece_size(m, i), 0));
		free(p);
		(void)json_object_set_new(json_array_get(pieces_of(m), i), "hash", json_string(hash));
	}
	text = m ? json_dumps(m, 0) : NULL;
	json_decref(m);
	if (!text)
		return;
	free(store.manifest);
	store.manifest = text;
	store.len = strlen(text);
}

static void fill(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data + 1, 0, size - 1);

	store.chosen = data[0] & 2;
	store.len = end ? (size_t)(end - data - 1) : size - 1;
	store.manifest = strndup((const char *)data + 1, store.len);
	check(store.manifest);
	store.bytes = data + 1 + store.len + !!end;
	store.bytes_len = end ? size - 2 - store.len : 0;
	if (data[0] & 1)
		sign();
}

/* ---- checks ---- */

static void check_sums(const json_t *m)
{
	const json_t *files = json_object_get(m, "files"), *v;
	unsigned long long bytes = 0, sum = 0, one;
	size_t i;

	json_array_foreach(files, i, v) {
		one = (unsigned long long)json_integer_value(json_object_get(v, "size"));
		check(one && one <= 1ull << 40);
		bytes += one;
	}
	json_array_foreach(pieces_of(m), i, v)
		sum += (unsigned long long)json_integer_value(json_object_get(v, "size"));
	check(bytes == sum && json_array_size(files));
}

static void check_listed(struct mcm *m, bool good)
{
	json_t *all;

	check(mcm_snapshot_list(m, &all) == 0 && json_array_size(all) == 1 &&
	      !json_object_get(json_array_get(all, 0), "damaged") == good);
	json_decref(all);
}

static off_t size_of(int dirfd, const json_t *file)
{
	char name[MCM_JOURNAL_NAME];
	struct stat st;

	mcm_journal_name(name, json_is_true(json_object_get(file, "checkpoint")),
			 (uint64_t)json_integer_value(json_object_get(file, "sequence")));
	return fstatat(dirfd, name, &st, 0) == 0 ? st.st_size : -1;
}

static void check_fetched(struct mcm *m, const json_t *manifest, bool whole)
{
	int dirfd = open(memory_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const json_t *files = json_object_get(manifest, "files"), *file;
	struct mcm *started;
	size_t i;
	off_t has;

	check(dirfd >= 0 && mcm_snapshot_fetch(m, dirfd) == 0);
	check((size_of(dirfd, json_array_get(files, 0)) >= 0) == whole);
	/* The last file has an end record more, and a number may occur twice: then the file is that of the last one. */
	json_array_foreach(files, i, file) {
		has = size_of(dirfd, file);
		check((has >= 0) == whole);
	}
	if (whole && json_array_size(files) > 1)
		check(size_of(dirfd, json_array_get(files, 0)) ==
		      (off_t)json_integer_value(json_object_get(json_array_get(files, 0), "size")));
	close(dirfd);
	if (mcm_core_new(small_master_conf(), &started) == 0) {
		(void)small_master_check(started);
		mcm_core_free(started);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mcm_snapshots s = { .root = ROOT, .keep = 1 };
	static struct mcm_journal journal;
	static struct mcm m = { .snapshots = &s, .journal = &journal };
	json_t *manifest = NULL, *again = NULL;
	char id[MCM_SNAPSHOT_ID];
	bool good, whole;

	if (!size)
		return 0;
	mcm_vault_init(&journal.vault, NULL);
	mcm_vault_init(&s.vault, NULL);
	m.conf = *small_master_conf();
	m.conf.enable_snapshot_restore = true;
	fill(data, size);
	good = mcm_manifest_read(&s, ID, &manifest) == 0;
	check_listed(&m, good);
	whole = mcm_snapshot_verify(&m, "", id) == 0;
	check(good || !whole);
	if (good) {
		check_sums(manifest);
		check_fetched(&m, manifest, whole);
		check(mcm_snapshots_claim(&s) == 0 && mcm_manifest_read(&s, ID, &again) == 0 &&
		      json_is_false(json_object_get(again, "last")));
		json_decref(again);
		check((mcm_snapshot_verify(&m, ID, id) == 0) == whole);
	}
	json_decref(manifest);
	mcm_snapshots_trim(&s);
	check(store.manifest);
	free(store.manifest);
	memory_dir_clear();
	return 0;
}
