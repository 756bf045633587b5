/* SPDX-License-Identifier: Apache-2.0
 * test_common_uids.c - identities of local users by an option. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/security/uids.h"

#define SOME (MC_ROLE_READER | MC_ROLE_CLIENT | MC_ROLE_NODE | MC_ROLE_ADMIN)
#define UNLISTED 4000000000u	/* a user that no test names */

static struct mc_uids *parsed(const char *text)
{
	struct mc_uids *u = NULL;

	assert_int_equal(mc_uids_parse("--users", text, SOME, &u), 0);
	return u;
}

static void assert_is(const struct mc_uids *u, uint32_t uid, uint32_t roles, const char *tenant)
{
	struct mc_principal p;

	assert_int_equal(mc_uids_find(u, uid, &p), 0);
	assert_int_equal(p.source, MC_PRINCIPAL_USER);
	assert_int_equal(p.uid, uid);
	assert_int_equal(p.roles, roles);
	assert_string_equal(p.tenant, tenant);
}

static void assert_none(const struct mc_uids *u, uint32_t uid)
{
	struct mc_principal p = { .serial = 5 };

	assert_int_equal(mc_uids_find(u, uid, &p), -EACCES);
	assert_int_equal(p.serial, 5);
}

static void without_entries_only_root_and_the_own_user_pass(void **state)
{
	static const char *const texts[] = { NULL, "" };

	for (unsigned i = 0; i < 2; i++) {
		struct mc_uids *u = parsed(texts[i]);

		assert_is(u, 0, MC_ROLES_ALL, "");
		assert_is(u, geteuid(), MC_ROLES_ALL, "");
		assert_none(u, UNLISTED);
		mc_uids_free(u);
	}
}

static void an_entry_gives_tenant_and_role(void **state)
{
	struct mc_uids *u = parsed("4001,4002:alice,4003:alice:reader,4004::reader,4005::admin,4006:,4007::node");

	assert_is(u, 4001, MC_ROLE_CLIENT, "");
	assert_is(u, 4002, MC_ROLE_CLIENT, "alice");
	assert_is(u, 4003, MC_ROLE_READER, "alice");
	assert_is(u, 4004, MC_ROLE_READER, "");
	assert_is(u, 4005, MC_ROLE_ADMIN, "");
	assert_is(u, 4006, MC_ROLE_CLIENT, "");
	assert_is(u, 4007, MC_ROLE_NODE, "");
	assert_is(u, 0, MC_ROLES_ALL, "");
	assert_none(u, UNLISTED);
	mc_uids_free(u);
}

static void the_star_is_every_other_user(void **state)
{
	struct mc_uids *u = parsed("*:guests:reader,4001:alice");

	assert_is(u, 4001, MC_ROLE_CLIENT, "alice");
	assert_is(u, UNLISTED, MC_ROLE_READER, "guests");
	/* Those that the star does not mean. */
	assert_is(u, 0, MC_ROLES_ALL, "");
	assert_is(u, geteuid(), MC_ROLES_ALL, "");
	mc_uids_free(u);
}

static void root_can_be_named(void **state)
{
	struct mc_uids *by_name = parsed("root:alice:reader"), *by_number = parsed("0:alice:reader");

	assert_is(by_name, 0, MC_ROLE_READER, "alice");
	assert_is(by_number, 0, MC_ROLE_READER, "alice");
	mc_uids_free(by_name);
	mc_uids_free(by_number);
}

static void a_wrong_entry_is_named(void **state)
{
	static const char *const wrong[] = {
		"4001,", ",4001", "4001x", "-1", "4294967295", "99999999999999999999", "mc no such user:alice",
		":alice", "4001:alice:king", "4001:alice:", "4001:alice:master", "4001:alice:metrics",
		"4001:alice:admin", "4001:alice:node", "4001:alice:reader:x", " 4001",
	};
	struct mc_uids *u = NULL;
	char text[64];

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		(void)snprintf(text, sizeof(text), "4000:red,%s", wrong[i]);
		if (mc_uids_parse("--users", text, SOME, &u) != -EINVAL)
			fail_msg("accepted: %s", wrong[i]);
		assert_non_null(strstr(mc_err_detail(-EINVAL), "--users: \""));
	}
	assert_int_equal(mc_uids_parse("--users", "0:a,root:b", SOME, &u), -EINVAL);
	assert_non_null(strstr(mc_err_detail(-EINVAL), "\"root:b\""));
	assert_int_equal(mc_uids_parse("--users", "4001::admin", MC_ROLE_READER | MC_ROLE_CLIENT, &u), -EINVAL);
	assert_null(u);
}

static void a_tenant_and_a_list_can_be_too_long(void **state)
{
	char *many = malloc(16 * (MC_UIDS_MAX + 1)), entry[600];
	struct mc_uids *u = NULL;
	size_t at = 0;

	for (unsigned i = 0; i <= MC_UIDS_MAX; i++) {
		if (i == MC_UIDS_MAX) {
			u = parsed(many);
			assert_is(u, 10000 + MC_UIDS_MAX - 1, MC_ROLE_CLIENT, "");
			mc_uids_free(u);
			u = NULL;
		}
		at += (size_t)sprintf(many + at, "%s%u", i ? "," : "", 10000 + i);
	}
	assert_int_equal(mc_uids_parse("--users", many, SOME, &u), -EINVAL);
	free(many);
	for (unsigned len = MC_PRINCIPAL_TENANT_MAX; len <= MC_PRINCIPAL_TENANT_MAX + 1; len++) {
		at = (size_t)sprintf(entry, "1:");
		memset(entry + at, 't', len);
		entry[at + len] = '\0';
		assert_int_equal(mc_uids_parse("--users", entry, SOME, &u),
				 len > MC_PRINCIPAL_TENANT_MAX ? -EINVAL : 0);
	}
	assert_int_equal(strlen(entry + 2), MC_PRINCIPAL_TENANT_MAX + 1);
	mc_uids_free(u);
	memset(entry, '1', sizeof(entry) - 1);
	entry[sizeof(entry) - 1] = '\0';
	u = NULL;
	assert_int_equal(mc_uids_parse("--users", entry, SOME, &u), -EINVAL);
	mc_uids_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_entries_only_root_and_the_own_user_pass),
		cmocka_unit_test(an_entry_gives_tenant_and_role),
		cmocka_unit_test(the_star_is_every_other_user),
		cmocka_unit_test(root_can_be_named),
		cmocka_unit_test(a_wrong_entry_is_named),
		cmocka_unit_test(a_tenant_and_a_list_can_be_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
