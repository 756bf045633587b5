/* SPDX-License-Identifier: Apache-2.0
 * New names of durable files: the directory that has the name is synced, else a power failure could remove the
 * file. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "master/journal/journal_i.h"
#include "meta/server_store_i.h"

#define MIB (1ull << 20)

static char dir[] = "/tmp/mc-dirsync.XXXXXX", file[64];
static struct stat watched;
static int syncs, sync_fails;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

/* Count the syncs of the watched directory. */
int __wrap_fsync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_dev == watched.st_dev && st.st_ino == watched.st_ino) {
		syncs++;
		if (sync_fails) {
			errno = sync_fails;
			return -1;
		}
	}
	return __real_fsync(fd);
}

static int begin(void **state)
{
	(void)state;
	strcpy(strchr(dir, '.'), ".XXXXXX");
	syncs = sync_fails = 0;
	return mkdtemp(dir) && stat(dir, &watched) == 0 ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	(void)unlink(file);
	return rmdir(dir);
}

static void a_new_journal_directory_is_synced_in_its_parent(void **state)
{
	char path[64], lock[80];
	int dirfd = -1, lockfd = -1;

	(void)state;
	snprintf(path, sizeof(path), "%s/journal/", dir);
	snprintf(lock, sizeof(lock), "%slock", path);
	sync_fails = EIO;
	assert_int_equal(mcm_journal_dir_open(path, &dirfd, &lockfd), -EIO);
	assert_non_null(strstr(mc_err_detail(-EIO), dir));
	assert_int_equal(rmdir(path), 0);
	sync_fails = syncs = 0;
	assert_int_equal(mcm_journal_dir_open(path, &dirfd, &lockfd), 0);
	assert_int_equal(syncs, 1);
	close(dirfd);
	close(lockfd);
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(rmdir(path), 0);
}

static void a_new_metadata_file_is_synced_in_its_directory(void **state)
{
	struct mcd_store *s = NULL;

	(void)state;
	snprintf(file, sizeof(file), "%s/metadata", dir);
	sync_fails = EIO;
	assert_int_equal(mcd_store_open(file, MIB, &s), -EIO);
	assert_int_equal(unlink(file), 0);
	sync_fails = syncs = 0;
	assert_int_equal(mcd_store_open(file, MIB, &s), 0);
	assert_int_equal(syncs, 1);
	mcd_store_close(s);
}

static void tune_file(struct mcm_conf *conf)
{
	tx_tune(conf);
	conf->tenant_quota_connector_uri = file;
}

static void a_quota_is_set_when_the_renamed_file_is_synced(void **state)
{
	uint64_t effective = 0;
	struct fixture fx;
	FILE *f;

	(void)state;
	snprintf(file, sizeof(file), "%s/policy.yaml", dir);
	f = fopen(file, "w");
	assert_non_null(f);
	fputs("version: 1\ntenants: [{name: alice, quota: 8MB}]\n", f);
	fclose(f);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	syncs = 0;
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), 4 * MIB, &effective), 0);
	assert_int_equal(syncs, 1);
	sync_fails = EIO;
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), 2 * MIB, &effective), -EIO);
	sync_fails = 0;
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_new_journal_directory_is_synced_in_its_parent, begin, end),
		cmocka_unit_test_setup_teardown(a_new_metadata_file_is_synced_in_its_directory, begin, end),
		cmocka_unit_test_setup_teardown(a_quota_is_set_when_the_renamed_file_is_synced, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
