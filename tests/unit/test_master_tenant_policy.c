/* SPDX-License-Identifier: Apache-2.0
 * The file of quotas: reading, reloading, refusing and writing it. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ull << 20)

static char policy_file[64];

/* ---- helpers ---- */

static void write_policy(const char *text)
{
	static time_t stamp = 1000;
	struct timespec t[2] = { { .tv_sec = stamp }, { .tv_sec = stamp } };
	FILE *f = fopen(policy_file, "w");

	stamp++;
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	/* A new time stamp each time, because several changes may happen within one tick of the
	 * clock. */
	assert_int_equal(utimensat(AT_FDCWD, policy_file, t, 0), 0);
}

static const char two[] =
	"version: 1\ntenants:\n  - name: alice\n    quota: \"8MB\"\n  - {name: bob, quota: 4MB}\n";

static void tune_file(struct mcm_conf *conf)
{
	tx_tune(conf);
	conf->tenant_quota_connector_uri = policy_file;
}

/* ---- the file ---- */

static void the_file_is_read_and_read_again(void **state)
{
	struct fixture fx;

	write_policy(two);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	assert_int_equal(tx_figures(&fx, "alice").requested, 8 * MIB);
	assert_int_equal(tx_figures(&fx, "bob").requested, 4 * MIB);
	assert_int_equal(tx_put(&fx, "bob", "k", 1, 0), 0);
	write_policy("version: 1\ntenants: [{name: alice, quota: 1MB}, {name: carol, quota: 2MB}]\n");
	fx_advance(&fx, 2000);
	mcm_tenants_tick(fx.m);
	assert_int_equal(tx_figures(&fx, "alice").requested, MIB);
	assert_int_equal(tx_put(&fx, "carol", "k", 1, 0), 0);
	/* A tenant that is no longer in the file: its objects stay readable. */
	assert_int_equal(tx_put(&fx, "bob", "k2", 1, 0), -MC_ENOTENANT);
	assert_true(tx_figures(&fx, "bob").admission_closed);
	assert_int_equal(tx_stat(&fx, "bob", "k", NULL), 0);
	/* An invalid file changes nothing. */
	write_policy("version: 1\ntenants: [{name: alice, quota: lots}]\n");
	fx_advance(&fx, 2000);
	mcm_tenants_tick(fx.m);
	assert_int_equal(tx_figures(&fx, "alice").requested, MIB);
	assert_true(tx_figures(&fx, "carol").explicit_policy);
	fx_down(&fx);
}

static void bad_files_are_refused_at_the_start(void **state)
{
	static const char *const bad[] = {
		"", "tenants: []", "version: 2\ntenants: []", "version: 1", "version: 1\ntenants: 5",
		"version: 1\ntenants: [alice]", "version: 1\ntenants: [{name: alice}]",
		"version: 1\ntenants: [{quota: 1MB}]", "version: 1\ntenants: [{name: _a, quota: 1MB}]",
		"version: 1\ntenants: [{name: a, quota: 0}]", "version: 1\ntenants: [{name: a, quota: -1}]",
		"version: 1\ntenants: [{name: a, quota: 16EB}]",
		"version: 1\ntenants: [{name: a, quota: 1MB}, {name: a, quota: 2MB}]", "a: [", "\t",
		"version: 1\ntenants: [{name: \"a\\0b\", quota: 1MB}]",
	};
	struct mc_options *options;
	struct mcm_conf conf;
	struct mcm *m;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_policy(bad[i]);
		assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
		tune_file(&conf);
		assert_true(mcm_core_new(&conf, &m) < 0);
		mc_options_free(options);
	}
	unlink(policy_file);
	assert_int_equal(mcm_conf_defaults(&conf, &options), 0);
	tune_file(&conf);
	assert_int_equal(mcm_core_new(&conf, &m), -ENOENT);
	mc_options_free(options);
}

/* Write a policy of @n tenants, the last of which has the name of tenant @again. */
static void many_tenants(unsigned n, unsigned again)
{
	const size_t cap = 40ul * n + 64;
	char *text = malloc(cap);
	size_t len;

	assert_non_null(text);
	len = (size_t)snprintf(text, cap, "version: 1\ntenants:\n");
	for (unsigned i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, cap - len, " - {name: t%u, quota: 1MB}\n",
					i == n - 1 ? again : i);
	write_policy(text);
	free(text);
}

/* The maximum number of tenants: each name is found, and a name that is listed twice is refused. */
static void very_many_tenants(void **state)
{
	const unsigned n = MCM_TENANTS_MAX - 1;
	struct mcm_tenant_policy p = { 0 };
	struct fixture fx;
	uint32_t number;
	char name[16];
	FILE *from;

	many_tenants(n, n - 1);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		assert_int_equal(mcm_tenant_find(fx.m, fx_bytes(name), &number), 0);
		assert_int_equal(number, i + 1);
	}
	assert_int_equal(mcm_tenant_find(fx.m, fx_bytes("t"), &number), -MC_ENOTENANT);
	assert_int_equal(tx_put(&fx, "t16000", "k", 1, 0), 0);
	fx_down(&fx);
	many_tenants(n, 7);
	from = fopen(policy_file, "r");
	assert_non_null(from);
	assert_int_equal(mcm_tenant_policy_read(from, &p), -MC_EPARAM);
	assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "t7 is listed twice"));
	free(p.at);
	fclose(from);
}

static int all_events(struct fixture *fx, uint64_t since)
{
	struct mcm_event_entry entry[32];
	uint64_t next, lost;
	char text[4096];

	return mcm_events_read_all(fx->m, since, 0, entry, 32, text, sizeof(text), &next, &lost);
}

/* Advance the clock while the owner of the memory sends heartbeats, and a reader asks for events. */
static void advance(struct fixture *fx, unsigned s)
{
	for (; s; s -= 2) {
		fx_advance(fx, 2000);
		fx_beat(fx, fx->s->client);
		(void)all_events(fx, UINT64_MAX);
	}
}

/* The number of a tenant's events after number @since. */
static int events(struct fixture *fx, const char *tenant, uint64_t since)
{
	struct mcp_event event[8];
	uint64_t next, lost;
	uint32_t number;
	char text[1024];

	assert_int_equal(mcm_tenant_find(fx->m, fx_bytes(tenant), &number), 0);
	return mcm_events_read(fx->m, since, 0, number, fx_bytes(""), event, 8, text, sizeof(text), &next, &lost);
}

/* Numbers of unused tenants are reused, but not that of a tenant that has an object. */
static void numbers_come_back(void **state)
{
	const unsigned n = MCM_TENANTS_MAX - 1;
	unsigned values, retired = 0;
	uint32_t number, again;
	struct fixture fx;
	uint64_t effective, since;
	char name[16];

	(void)state;
	many_tenants(n, n - 1);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	assert_int_equal(all_events(&fx, UINT64_MAX), 0);
	since = mcm_events_next(fx.m) - 1;
	assert_int_equal(tx_put(&fx, "t5", "k", 1000, 0), 0);
	for (unsigned i = 10; i < 20; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		assert_int_equal(tx_put(&fx, name, "secret", 1, 0), 0);
		assert_int_equal(tx_remove_match(&fx, name, "", 0), 1);
	}
	assert_int_equal(events(&fx, "t10", since), 2);
	assert_int_equal(all_events(&fx, since), 21);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("new"), MIB, &effective), -MC_ELIMIT);
	many_tenants(1, 0);
	/* The monitor reads the file again, but a request may still be about to use one of them. */
	advance(&fx, 10);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("new"), MIB, &effective), -MC_ELIMIT);
	advance(&fx, 590);
	assert_int_equal(mcm_tenant_find(fx.m, fx_bytes("t1"), &number), 0);
	(void)tx_scope(&fx, "t1");
	advance(&fx, 20);
	values = fx.m->durables.count;
	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "new%u", i);
		assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes(name), MIB, &effective), 0);
		assert_int_equal(mcm_tenant_find(fx.m, fx_bytes(name), &again), 0);
		assert_int_not_equal(again, number);
		assert_int_equal(tx_put(&fx, name, "k", 1, 0), 0);
	}
	assert_int_equal(fx.m->durables.count, values);
	/* Events of the former tenant with that number are not shown to the new one. */
	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "new%u", i);
		assert_int_equal(events(&fx, name, since), 1);
	}
	assert_int_equal(events(&fx, "t5", since), 1);
	assert_int_equal(tx_stat(&fx, "t5", "k", NULL), 0);
	assert_int_equal(mcm_tenant_find(fx.m, fx_bytes("t1"), &again), 0);
	assert_int_equal(mcm_tenant_find(fx.m, fx_bytes("t2"), &again), -MC_ENOTENANT);
	for (struct mcm_tenant *t = fx.m->tenants.retired; t; t = t->retired)
		retired++;
	assert_int_equal(retired, 10);
	fx_check(&fx);
	fx_down(&fx);
}

static void quotas_are_written_to_the_file(void **state)
{
	struct fixture fx;
	uint64_t effective;

	write_policy(two);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	tx_quota(&fx, "it's: #odd \"name\"", 3 * MIB);
	tx_quota(&fx, "bob", 5 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "k", 1, 0), 0);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), 0, &effective),
			 -MC_ETENANT_BUSY);
	assert_int_equal(tx_remove_match(&fx, "alice", "", 0), 1);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), 0, &effective), 0);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), 0, &effective),
			 -MC_ENOTENANT);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("x"), 1ull << 63, &effective),
			 -MC_EPARAM);
	fx_down(&fx);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	assert_int_equal(tx_figures(&fx, "it's: #odd \"name\"").requested, 3 * MIB);
	assert_int_equal(tx_figures(&fx, "bob").requested, 5 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "k", 1, 0), -MC_ENOTENANT);
	fx_down(&fx);
}

/* Characters that YAML treats as the end of a line, or does not allow. */
static void any_name_is_read_back_from_the_file(void **state)
{
	static const char *const name[] = {
		"a\xc2\x81", "a\xc2\x85" "b", "a\xe2\x80\xa8" "b", " a\xe2\x80\xa9", "\xef\xbb\xbf" "a",
		"a\xef\xbf\xbe", "a\xef\xbf\xbf", "a\\n", "\\", "\"", "'", "#", "- a", "a  b ", "\xc2\xa0",
		"\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80", "~", "null", "1",
	};
	unsigned n = sizeof(name) / sizeof(name[0]);
	struct fixture fx;

	write_policy(two);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	for (unsigned i = 0; i < n; i++)
		tx_quota(&fx, name[i], (i + 1) * MIB);
	fx_down(&fx);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(tx_figures(&fx, name[i]).requested, (i + 1) * MIB);
	fx_down(&fx);
}

static void a_quota_that_cannot_be_written_is_not_in_force(void **state)
{
	uint64_t effective = 7;
	struct fixture fx;
	char path[256];

	write_policy(two);
	snprintf(path, sizeof(path), "%s.new", policy_file);
	assert_int_equal(mkdir(path, 0700), 0);
	fx_up(&fx, 1, 64 * MIB, tune_file);
	assert_true(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), MIB, &effective) < 0);
	assert_true(mcm_tenant_set_quota(fx.m, fx_bytes("bob"), 0, &effective) < 0);
	assert_true(mcm_tenant_set_quota(fx.m, fx_bytes("carol"), MIB, &effective) < 0);
	assert_int_equal(effective, 7);
	assert_int_equal(tx_figures(&fx, "alice").requested, 8 * MIB);
	assert_int_equal(tx_put(&fx, "bob", "k", 1, 0), 0);
	assert_int_equal(tx_put(&fx, "carol", "k", 1, 0), -MC_ENOTENANT);
	assert_int_equal(rmdir(path), 0);
	tx_quota(&fx, "carol", MIB);
	assert_int_equal(tx_put(&fx, "carol", "k", 1, 0), 0);
	fx_down(&fx);
}

static int up(void **state)
{
	(void)state;
	return tx_dir_up(policy_file, sizeof(policy_file), "policy.yaml");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_file_is_read_and_read_again),
		cmocka_unit_test(bad_files_are_refused_at_the_start),
		cmocka_unit_test(very_many_tenants),
		cmocka_unit_test(numbers_come_back),
		cmocka_unit_test(quotas_are_written_to_the_file),
		cmocka_unit_test(any_name_is_read_back_from_the_file),
		cmocka_unit_test(a_quota_that_cannot_be_written_is_not_in_force),
	};

	return cmocka_run_group_tests(tests, up, tx_dir_down);
}
