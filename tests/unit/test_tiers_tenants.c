/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_tenants.c - encrypted files of several tenants in one directory. */
#include <config.h>

#include "test_tiers_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

/* The keys that the master gives to nodes of one tenant: all bytes of them are this one. */
struct keys {
	uint8_t fill;
};

static int keys_of(void *arg, uint32_t secret, struct mct_keys *ret)
{
	const struct keys *k = arg;

	*ret = (struct mct_keys){ .known = secret == 1, .newest = 1 };
	memset(ret->key, k->fill, MC_KEY_LEN);
	memset(ret->newest_key, k->fill, MC_KEY_LEN);
	return 0;
}

static int unlock(struct mct_medium *m, struct keys *k)
{
	return m->ops->unlock(m, keys_of, k);
}

static struct mct_medium *open_as(uint64_t tenant, enum mct_share share)
{
	const struct mct_conf conf = {
		.size = 2 * MIB, .kind = "threads", .path = tiers_dir, .buffers = 8 * MIB, .seal = true, .share = share,
		.tenant = tenant, .expect = { 0, 0, 0, 4, 5 },
	};
	struct mct_medium *m;

	assert_int_equal(mct_medium_open("ssd", &conf, &m), 0);
	return m;
}

/* The file is used, with the master's key of the tenant; ret: its id. */
static void use(struct mct_medium *m, struct keys *of, uint64_t ret[2])
{
	uint64_t words[MCT_IDENTITY];

	assert_int_equal(m->ops->identity(m, words), 0);
	words[0] = words[0] ? words[0] : of->fill;
	words[1] = words[1] ? words[1] : of->fill;
	words[3] = 4;
	words[4] = 5;
	words[5] = words[6] = 6;
	assert_int_equal(m->ops->set_identity(m, words), 0);
	assert_int_equal(unlock(m, of), 0);
	assert_int_equal(store(m, 0, 4096, of->fill), 0);
	memcpy(ret, words, 2 * sizeof(*words));
}

static bool has(struct mct_medium *m, const uint64_t id[2])
{
	uint64_t words[MCT_IDENTITY];

	assert_int_equal(m->ops->identity(m, words), 0);
	return !memcmp(words, id, 2 * sizeof(*words));
}

static void clean(void)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "rm %s/*", tiers_dir);
	assert_int_equal(system(cmd), 0);
}

/* After a restart of all nodes each one gets its tenant's file, in any order. */
static void each_tenant_gets_its_file_again(void **state)
{
	struct keys a = { 7 }, b = { 8 };
	struct mct_medium *m, *n;
	uint64_t ida[2], idb[2];

	for (int share = MCT_SHARE_NONE; share <= MCT_SHARE_OWN; share++) {
		m = open_as(70, share);
		use(m, &a, ida);
		n = open_as(80, share);
		use(n, &b, idb);
		mct_medium_close(m);
		mct_medium_close(n);
		for (int order = 0; order < 2; order++) {
			m = open_as(order ? 80 : 70, share);
			n = open_as(order ? 70 : 80, share);
			assert_true(has(order ? n : m, ida));
			assert_true(has(order ? m : n, idb));
			assert_int_equal(unlock(order ? n : m, &a), 0);
			assert_int_equal(unlock(order ? m : n, &b), 0);
			assert_int_equal(load(order ? n : m, 0, 4096, 7), 0);
			assert_int_equal(load(order ? m : n, 0, 4096, 8), 0);
			mct_medium_close(m);
			mct_medium_close(n);
		}
		clean();
	}
}

/* Files of versions that wrote no tenant: an owner notices that its keys do not fit, and leaves the file. */
static void a_foreign_file_is_left(void **state)
{
	struct keys a = { 7 }, b = { 8 };
	uint64_t ida[2], words[MCT_IDENTITY] = { 1 };
	struct mct_medium *m, *n;

	for (int share = MCT_SHARE_NONE; share <= MCT_SHARE_OWN; share++) {
		m = open_as(0, share);
		use(m, &a, ida);
		mct_medium_close(m);
		m = open_as(80, share);
		assert_true(has(m, ida));
		assert_int_equal(unlock(m, &b), -EKEYREJECTED);
		assert_int_equal(m->ops->leave(m, true), 0);
		/* It writes there no more. */
		assert_int_equal(m->ops->hold(m), -ESTALE);
		assert_int_equal(m->ops->set_identity(m, words), -ESTALE);
		/* Its next file is another one, and the tenant of the first one finds it. */
		n = open_as(80, share);
		assert_false(has(n, ida));
		mct_medium_close(m);
		m = open_as(70, share);
		assert_true(has(m, ida));
		assert_int_equal(unlock(m, &a), 0);
		assert_int_equal(load(m, 0, 4096, 7), 0);
		assert_int_equal(m->ops->leave(m, true), -MC_ENOTSUP);
		mct_medium_close(m);
		mct_medium_close(n);
		/* From now on the header has the tenant. */
		m = open_as(90, share);
		assert_false(has(m, ida));
		mct_medium_close(m);
		clean();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_tenant_gets_its_file_again),
		cmocka_unit_test(a_foreign_file_is_left),
	};

	return cmocka_run_group_tests(tests, tiers_dir_make, tiers_dir_remove);
}
