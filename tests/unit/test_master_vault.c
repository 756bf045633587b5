/* SPDX-License-Identifier: Apache-2.0
 * test_master_vault.c - the encrypted form of the state's files: it hides bytes, finds damage, refuses others. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/sys/file.h"
#include "master/journal/copy.h"
#include "master/journal/journal_i.h"
#include "master/journal/vault.h"
#include "master/mcm_i.h"
#include "master/security/security.h"
#include "master/snapshot/snapshot_i.h"
#include "proto/codec.h"

#define LEN (200u << 10)		/* four pieces */
#define HEADS 128u
#define PIECE (64u << 10)
#define FRAMED (PIECE + 32u)

static char dir[64], other_dir[64], path[128];
static struct mcm_security *ours, *others;
static struct mcm_conf conf;
static struct mc_options *options;
static uint8_t plain[LEN];

static char *security_dir_make(char *ret)
{
	strcpy(ret, "/tmp/mc-vault-XXXXXX");
	assert_non_null(mkdtemp(ret));
	conf.security_dir = ret;
	assert_int_equal(mcm_security_init(&conf), 0);
	return ret;
}

static int setup(void **state)
{
	static char on[] = "on";

	assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
	conf.security = on;
	security_dir_make(other_dir);
	assert_int_equal(mcm_security_open(&conf, NULL, &others), 0);
	security_dir_make(dir);
	assert_int_equal(mcm_security_open(&conf, NULL, &ours), 0);
	snprintf(path, sizeof(path), "%s/file", dir);
	/* Different at each place. */
	for (size_t i = 0; i < LEN; i += 8)
		memcpy(plain + i, &(uint64_t){ (i + 1) * 0x9e3779b97f4a7c15ull }, 8);
	return 0;
}

static int remove_dir(const char *of)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", of);
	return system(command);
}

static int teardown(void **state)
{
	mcm_security_close(ours);
	mcm_security_close(others);
	mc_options_free(options);
	return remove_dir(dir) | remove_dir(other_dir);
}

static int file_new(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

/* A file with the plain bytes; its size. */
static size_t file_make(struct mcm_security *s)
{
	struct mcm_vault_file f;
	struct mcm_vault v;
	struct stat st;

	mcm_vault_init(&v, s);
	assert_int_equal(mcm_vault_begin(&v, file_new(), &f), 0);
	assert_int_equal(mcm_vault_write(&f, plain, LEN / 2), 0);
	assert_int_equal(mcm_vault_write(&f, plain + LEN / 2, LEN / 2), 0);
	assert_int_equal(mcm_vault_is_aged(&f), 0);
	assert_int_equal(fstat(f.fd, &st), 0);
	mcm_vault_close(&f);
	return (size_t)st.st_size;
}

static uint8_t *file_read(size_t size)
{
	uint8_t *p = malloc(size);
	int fd = open(path, O_RDONLY);

	assert_non_null(p);
	assert_int_equal(read(fd, p, size), size);
	close(fd);
	return p;
}

static int file_map(struct mcm_security *s, void **ret, size_t *ret_len)
{
	struct mcm_vault v;
	struct stat st;
	int fd = open(path, O_RDONLY), r;

	mcm_vault_init(&v, s);
	assert_int_equal(fstat(fd, &st), 0);
	r = mcm_vault_map(&v, fd, (size_t)st.st_size, ret, ret_len);
	close(fd);
	return r;
}

static void a_file_gives_its_bytes_and_shows_none(void **state)
{
	size_t size = file_make(ours), len;
	uint8_t *raw = file_read(size);
	void *p;

	for (size_t at = 0; at < LEN; at += 4096)
		assert_null(memmem(raw, size, plain + at, 16));
	assert_int_equal(file_map(ours, &p, &len), 0);
	assert_int_equal(len, LEN);
	assert_memory_equal(p, plain, LEN);
	munmap(p, len);
	/* Another file of the same bytes has nothing in common with it but the magic numbers. */
	assert_int_equal(file_make(ours), size);
	p = file_read(size);
	assert_null(memmem(p, size, raw + HEADS + 16, 16));
	free(p);
	free(raw);
}

static void the_other_form_and_another_secret_are_refused(void **state)
{
	struct mcm_header_record h = { .sequence = 1, .cluster = mcp_bytes("c", 1) };
	struct mcm_packer k = { .bytes = plain, .cap = 256 };
	size_t len = 0;
	void *p = NULL;

	file_make(ours);
	assert_int_equal(file_map(others, &p, &len), -EACCES);
	assert_int_equal(file_map(NULL, &p, &len), -EINVAL);
	mcm_pack_header(&k, &h);
	file_make(NULL);
	assert_int_equal(file_map(ours, &p, &len), -EINVAL);
	assert_int_equal(file_map(NULL, &p, &len), 0);
	assert_int_equal(len, LEN);
	munmap(p, len);
}

/* Decode @raw.  All bytes of the result are the plain ones, or zeros: the number of bytes that are missing. */
static size_t missing(const uint8_t *raw, size_t size)
{
	uint8_t *out = malloc(size);
	size_t len, n = 0, at = 0, got = 0;
	struct mcm_vault v;

	mcm_vault_init(&v, ours);
	assert_non_null(out);
	assert_int_equal(mcm_vault_decode(&v, raw, size, out, &len), 0);
	while (n < len) {
		static const uint8_t zeros[8];
		size_t from = at;

		/* A piece begins at one of these places; zeros are between them. */
		if (at < LEN && !memcmp(out + n, plain + at, 8)) {
			at += 8;
			n += 8;
			got += 8;
			continue;
		}
		if (!memcmp(out + n, zeros, 8)) {
			n += 8;
			continue;
		}
		for (at += 8; at < LEN && memcmp(out + n, plain + at, 8) != 0;)
			at += 8;
		assert_true(at < LEN && at > from);
	}
	free(out);
	return LEN - got;
}

static void each_damage_is_found(void **state)
{
	size_t size = file_make(ours), len;
	uint8_t *raw = file_read(size), out[512];
	struct mcm_vault v;

	assert_int_equal(missing(raw, size), 0);
	/* one bit of each 509th byte of a piece */
	for (size_t i = HEADS; i < HEADS + FRAMED; i += 509) {
		raw[i] ^= 0x10;
		assert_int_equal(missing(raw, size), PIECE);
		raw[i] ^= 0x10;
	}
	/* a piece at the place of another one */
	memcpy(raw + HEADS + FRAMED, raw + HEADS, FRAMED / 2);
	assert_int_equal(missing(raw, size), LEN / 2 - PIECE);
	free(raw);
	raw = file_read(size);
	/* one copy of the head, both */
	raw[20] ^= 1;
	assert_int_equal(missing(raw, size), 0);
	raw[64 + 20] ^= 1;
	mcm_vault_init(&v, ours);
	assert_int_equal(mcm_vault_decode(&v, raw, sizeof(out), out, &len), -MC_EPROTO);
	raw[20] ^= 1;
	raw[64 + 20] ^= 1;
	/* A file that ends early. */
	for (size_t cut = HEADS; cut < size; cut += 4104)
		assert_true(missing(raw, cut) > 0);
	free(raw);
}

static void a_repeated_piece_is_none(void **state)
{
	size_t size = file_make(ours), len;
	uint8_t *raw = file_read(size), *more = calloc(1, size + FRAMED), *out = malloc(size + FRAMED);
	struct mcm_vault v;

	mcm_vault_init(&v, ours);
	memcpy(more, raw, size);
	memcpy(more + size, raw + HEADS, FRAMED);
	assert_int_equal(mcm_vault_decode(&v, more, size + FRAMED, out, &len), 0);
	assert_memory_equal(out, plain, LEN);
	for (size_t i = LEN; i < len; i++)
		assert_int_equal(out[i], 0);
	free(out);
	free(more);
	free(raw);
}

static void an_end_mark_can_be_appended(void **state)
{
	uint8_t mark[24] = "the end";
	struct mcm_vault v;
	size_t len;
	void *p;
	int fd;

	file_make(ours);
	mcm_vault_init(&v, ours);
	for (unsigned i = 0; i < 2; i++) {
		fd = open(path, O_RDWR | O_APPEND);
		assert_int_equal(mcm_vault_append_end(&v, fd, mark, sizeof(mark)), 0);
		close(fd);
	}
	assert_int_equal(file_map(ours, &p, &len), 0);
	assert_int_equal(len, LEN + 2 * sizeof(mark));
	assert_memory_equal((char *)p + LEN, mark, sizeof(mark));
	munmap(p, len);
}

static void a_manifest_is_proved(void **state)
{
	char proof[MCM_VAULT_PROOF], none[MCM_VAULT_PROOF];
	struct mcm_vault v, other, off;

	mcm_vault_init(&v, ours);
	mcm_vault_init(&other, others);
	mcm_vault_init(&off, NULL);
	assert_int_equal(mcm_vault_prove(&v, "text", proof), 0);
	assert_int_equal(mcm_vault_verify(&v, "text", proof), 0);
	assert_int_equal(mcm_vault_verify(&v, "text ", proof), -MC_ECHECKSUM);
	assert_int_equal(mcm_vault_verify(&other, "text", proof), -MC_ECHECKSUM);
	assert_int_equal(mcm_vault_verify(&off, "text", proof), -EINVAL);
	assert_int_equal(mcm_vault_prove(&off, "text", none), 0);
	assert_string_equal(none, "");
	assert_int_equal(mcm_vault_verify(&v, "text", none), -EINVAL);
	assert_int_equal(mcm_vault_verify(&v, "text", "9 00"), -EACCES);
}

/* ---- a master and its standby ------------------------------------------------------------------ */

static void feed_to(struct mcm *m, struct mcm_copy *copy)
{
	struct mcm_feed_part part;
	struct mcm_feed *feed;
	char buf[200];
	int r;

	assert_int_equal(mcm_feed_open(m, &feed), 0);
	while ((r = mcm_feed_read(feed, buf, sizeof(buf), &part)) > 0)
		assert_int_equal(mcm_copy_add(copy, &part, buf), 0);
	assert_int_equal(r, 0);
	mcm_feed_close(feed);
}

static void value_found(void *arg, const struct mcm_durable_record *r)
{
	*(bool *)arg |= r->value.len == 5 && !memcmp(r->value.data, "value", 5);
}

static bool has_value(struct mcm *m)
{
	bool found = false;

	mcm_durables_each(m, MCM_DURABLE_TASK, value_found, &found);
	return found;
}

static void a_standby_leads_with_its_copy(void **state)
{
	char journal[160], standby[160];
	struct mcm_copy_conf to = { .dir = standby, .cluster = conf.cluster_id, .security = ours };
	struct mcm_conf own = conf;
	struct mcm_copy *copy;
	struct mcm *m;

	snprintf(journal, sizeof(journal), "%s/journal", dir);
	snprintf(standby, sizeof(standby), "%s/standby", dir);
	own.journal_dir = journal;
	assert_int_equal(mcm_core_new_secured(&own, ours, &m), 0);
	assert_int_equal(mcm_durable_set(m, MCM_DURABLE_TASK, mcp_bytes("name", 4), mcp_bytes("value", 5)), 0);
	mcm_journal_wait(m);
	assert_int_equal(mcm_copy_open(&to, &copy), 0);
	assert_int_equal(mcm_copy_begin(copy), 0);
	feed_to(m, copy);
	assert_true(mcm_copy_complete(copy));
	mcm_copy_close(copy);
	mcm_core_free(m);
	/* One without the secret uses neither. */
	to.security = others;
	assert_int_equal(mcm_copy_open(&to, &copy), -EACCES);
	to.security = NULL;
	assert_int_equal(mcm_copy_open(&to, &copy), -EINVAL);
	assert_int_equal(mcm_core_new(&own, &m), -EINVAL);
	assert_int_equal(mcm_core_new_secured(&own, others, &m), -EACCES);
	own.journal_dir = standby;
	assert_int_equal(mcm_core_new_secured(&own, ours, &m), 0);
	assert_true(has_value(m));
	mcm_core_free(m);
}

/* The journals in the directory; @damage: damage both heads of the last one. */
static size_t journals(const char *journal, bool damage)
{
	struct mcm_journal_files files;
	char name[MCM_JOURNAL_NAME];
	int dirfd = open(journal, O_RDONLY | O_DIRECTORY), fd;
	size_t n;

	assert_int_equal(mcm_journal_files(dirfd, &files), 0);
	n = files.journals;
	mcm_journal_name(name, false, files.journal[n - 1]);
	fd = openat(dirfd, name, O_WRONLY);
	for (unsigned i = 0; i < 2 && damage; i++)
		assert_int_equal(pwrite(fd, "xxxxxxxx", 8, 64 * i + 20), 8);
	mcm_journal_files_done(&files);
	close(fd);
	close(dirfd);
	return n;
}

/* As in the plain form: its machine may have restarted since, and the state is discarded. */
static void the_last_journal_needs_a_head(void **state)
{
	struct mcm_conf own = conf;
	char journal[160];
	struct mcm *m;

	snprintf(journal, sizeof(journal), "%s/headless", dir);
	own.journal_dir = journal;
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(mcm_core_new_secured(&own, ours, &m), 0);
		mcm_core_free(m);
		assert_int_equal(journals(journal, i == 2), i == 3 ? 1 : i);
	}
}

/* ---- snapshots --------------------------------------------------------------------------------- */

static char newest[MCM_SNAPSHOT_ID];
static int newest_error;
static const struct mct_keyed_ops *keyed;

static int keyed_get(struct mct_keyed *k, const char *name, void **ret, size_t *ret_len)
{
	return newest_error && strstr(name, newest) ? mc_fail(newest_error, "as the test wants it") :
		keyed->get(k, name, ret, ret_len);
}

/* The result of a fetch into an empty directory; *ret: a state is there. */
static int fetch(struct mcm *m, int error, bool *ret)
{
	static unsigned n;
	struct mcm_journal_files files;
	int dirfd, r;

	newest_error = error;
	snprintf(path, sizeof(path), "%s/fetched%u", dir, n++);
	assert_int_equal(mkdir(path, 0700), 0);
	dirfd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(dirfd >= 0);
	r = mcm_snapshot_fetch(m, dirfd);
	assert_int_equal(mcm_journal_files(dirfd, &files), 0);
	*ret = files.checkpoints;
	mcm_journal_files_done(&files);
	close(dirfd);
	snprintf(path, sizeof(path), "%s/file", dir);
	return r;
}

/* An older snapshot does not replace one that the store refuses. */
static void older_is_not_used(struct mcm_security *security)
{
	char journal[160], store[160], type[] = "local", older[MCM_SNAPSHOT_ID];
	struct mct_keyed_ops ops;
	struct mcm_conf own = conf;
	struct mcm *m;
	bool any;

	snprintf(journal, sizeof(journal), "%s/journal%d", dir, security != NULL);
	snprintf(store, sizeof(store), "%s/store%d", dir, security != NULL);
	own.journal_dir = journal;
	own.snapshot_object_store_type = type;
	own.snapshot_backup_dir = store;
	own.enable_snapshot = own.enable_snapshot_restore = true;
	assert_int_equal(mcm_core_new_secured(&own, security, &m), 0);
	assert_int_equal(mcm_snapshot_create(m, older), 0);
	do
		assert_int_equal(mcm_snapshot_create(m, newest), 0);
	while (!strcmp(newest, older));
	keyed = m->snapshots->blobs->ops;
	ops = *keyed;
	ops.get = keyed_get;
	m->snapshots->blobs->ops = &ops;
	/* keys that the store does not accept any more */
	assert_int_equal(fetch(m, -EACCES, &any), -EACCES);
	assert_false(any);
	assert_int_equal(mcm_snapshots_claim(m->snapshots), -EACCES);
	assert_int_equal(fetch(m, -EINVAL, &any), -EINVAL);
	assert_false(any);
	assert_int_equal(mcm_snapshots_claim(m->snapshots), -EINVAL);
	/* a secret that was dropped */
	assert_int_equal(fetch(m, -EKEYREJECTED, &any), 0);
	assert_true(any);
	assert_int_equal(fetch(m, 0, &any), 0);
	assert_true(any);
	assert_int_equal(mcm_snapshots_claim(m->snapshots), 0);
	m->snapshots->blobs->ops = keyed;
	mcm_core_free(m);
}

static void a_store_that_refuses_is_an_error(void **state)
{
	older_is_not_used(NULL);
	older_is_not_used(ours);
}

/* Last: it rotates the secret. */
static void files_of_the_secret_before_are_read(void **state)
{
	char proof[MCM_VAULT_PROOF];
	struct mcm_vault_file f;
	struct mcm_vault v;
	size_t len;
	void *p;

	file_make(ours);
	mcm_vault_init(&v, ours);
	assert_int_equal(mcm_vault_prove(&v, "text", proof), 0);
	assert_int_equal(mcm_vault_begin(&v, open("/dev/null", O_WRONLY), &f), 0);
	for (unsigned i = 0; i < 2; i++) {
		mcm_security_close(ours);
		assert_int_equal(mcm_security_rotate(&conf), 0);
		assert_int_equal(mcm_security_open(&conf, NULL, &ours), 0);
		assert_int_equal(file_map(ours, &p, &len), i ? -EKEYREJECTED : 0);
		if (!i)
			munmap(p, len);
		v.security = ours;
		assert_int_equal(mcm_vault_verify(&v, "text", proof), i ? -EKEYREJECTED : 0);
		assert_true(mcm_vault_is_aged(&f));
	}
	mcm_vault_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_gives_its_bytes_and_shows_none),
		cmocka_unit_test(the_other_form_and_another_secret_are_refused),
		cmocka_unit_test(each_damage_is_found),
		cmocka_unit_test(a_repeated_piece_is_none),
		cmocka_unit_test(an_end_mark_can_be_appended),
		cmocka_unit_test(a_manifest_is_proved),
		cmocka_unit_test(a_standby_leads_with_its_copy),
		cmocka_unit_test(the_last_journal_needs_a_head),
		cmocka_unit_test(a_store_that_refuses_is_an_error),
		cmocka_unit_test(files_of_the_secret_before_are_read),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
