/* SPDX-License-Identifier: Apache-2.0
 * test_master_audit.c - the audit log: its lines, its file, its limits. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/metrics.h"
#include "common/sys/clock.h"
#include "master/security/audit.h"
#include "proto/msg.h"

static char dir[64], path[128];

static struct mcm_audit *open_with(const char *security, const char *log_dir, const char *audit_log, int expected)
{
	struct mcm_conf conf = {
		.security = (char *)security, .log_dir = (char *)log_dir, .audit_log = (char *)audit_log,
	};
	struct mcm_audit *a = NULL;

	assert_int_equal(mcm_audit_open(&conf, &a), expected);
	return a;
}

static struct mcm_audit_event event_of(const char *peer, int result)
{
	return (struct mcm_audit_event){
		.event = result < 0 ? "refused" : "call", .peer = mcp_bytes(peer, (uint32_t)strlen(peer)),
		.channel = "rpc", .call = "quota", .keys = -1, .result = result,
	};
}

static json_t *lines_of(const char *file)
{
	json_t *all = json_array(), *one;
	FILE *in = fopen(file, "r");
	char line[16384];

	assert_non_null(in);
	while (fgets(line, sizeof(line), in)) {
		one = json_loads(line, 0, NULL);
		if (!one)
			fail_msg("no JSON: %s", line);
		json_array_append_new(all, one);
	}
	fclose(in);
	return all;
}

static const char *text(const json_t *lines, size_t i, const char *field)
{
	return json_string_value(json_object_get(json_array_get(lines, i), field));
}

static json_int_t number(const json_t *lines, size_t i, const char *field)
{
	return json_integer_value(json_object_get(json_array_get(lines, i), field));
}

static int64_t lost(void)
{
	int64_t v = 0;

	(void)mc_metrics_lookup("mooncake_master_audit_lost_total", "", &v);
	return v;
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test_master_audit.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/audit.log", dir);
	return 0;
}

static int teardown(void **state)
{
	char other[160];

	(void)state;
	snprintf(other, sizeof(other), "%s.1", path);
	unlink(other);
	unlink(path);
	return rmdir(dir);
}

static void test_places(void **state)
{
	struct stat st;

	(void)state;
	assert_null(open_with("off", dir, "", 0));
	assert_null(open_with("on", dir, "off", 0));
	assert_int_equal(access(path, F_OK), -1);
	mcm_audit_close(open_with("on", dir, "", 0));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	mcm_audit_close(open_with("on", "", "", 0));
	assert_null(open_with("on", "", "/nonexistent/directory/audit", -ENOENT));
	/* Without a log. */
	mcm_audit_write(NULL, &(const struct mcm_audit_event){ .event = "call" });
	mcm_audit_reopen(NULL);
	mcm_audit_close(NULL);
}

/* Names and peers cannot end a line or begin a field, and bytes that are no text stay JSON. */
static void test_hostile_text(void **state)
{
	static const char evil[] = "a\n\"}\\,\"event\":\"\x01\xff\x7f";
	struct mcm_audit *a = open_with("off", "", path, 0);
	struct mc_principal who = { .source = MC_PRINCIPAL_CREDENTIAL, .roles = MC_ROLE_ADMIN, .serial = 0xabc };
	struct mcm_audit_event e = event_of(evil, 0);
	char longest[1000];
	json_t *lines;

	(void)state;
	strcpy(who.name, evil);
	strcpy(who.tenant, "caf\xc3\xa9");
	e.who = &who;
	mcm_audit_write(a, &e);
	memset(longest, 1, sizeof(longest));
	e.subject = mcp_bytes(longest, sizeof(longest));
	e.peer = e.subject;
	e.keys = 7;
	mcm_audit_write(a, &e);
	mcm_audit_close(a);
	lines = lines_of(path);
	assert_int_equal(json_array_size(lines), 2);
	assert_string_equal(text(lines, 0, "event"), "call");
	assert_string_equal(text(lines, 0, "role"), "admin");
	assert_string_equal(text(lines, 0, "serial"), "0000000000000abc");
	assert_string_equal(text(lines, 0, "tenant"), "caf\xc3\xa9");
	assert_string_equal(text(lines, 0, "name"), "a\n\"}\\,\"event\":\"\x01\xef\xbf\xbd\x7f");
	assert_string_equal(text(lines, 0, "result"), "ok");
	assert_int_equal(number(lines, 1, "keys"), 7);
	assert_int_equal(strlen(text(lines, 1, "subject")), 192 + 3);
	json_decref(lines);
}

/* Of 10^5 failures of one identity ten have a line in a second, then one with their number; others are not affected. */
static void test_many_refusals(void **state)
{
	struct mcm_audit *a = open_with("off", "", path, 0);
	struct mcm_audit_event e = event_of("10.0.0.1", -EACCES), other = event_of("10.0.0.2:5", -EACCES);
	json_t *lines;

	(void)state;
	mc_clock_fake(5000 * MC_NS_PER_SEC);
	for (unsigned i = 0; i < 100000; i++)
		mcm_audit_write(a, &e);
	mcm_audit_write(a, &other);
	mc_clock_advance(MC_NS_PER_SEC);
	mcm_audit_write(a, &e);
	mc_clock_real();
	mcm_audit_close(a);
	lines = lines_of(path);
	assert_int_equal(json_array_size(lines), 12);
	assert_string_equal(text(lines, 10, "peer"), "10.0.0.2:5");
	assert_int_equal(number(lines, 10, "suppressed"), 0);
	assert_int_equal(number(lines, 11, "suppressed"), 100000 - 10);
	json_decref(lines);
}

/* Ports and addresses of one credential are one identity; many addresses together have a limit, too. */
static void test_identities(void **state)
{
	struct mcm_audit *a = open_with("off", "", path, 0);
	struct mc_principal who = { .source = MC_PRINCIPAL_CREDENTIAL, .roles = MC_ROLE_READER, .serial = 5 };
	struct mcm_audit_event e;
	json_t *lines;
	char peer[32];

	(void)state;
	mc_clock_fake(5000 * MC_NS_PER_SEC);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(peer, sizeof(peer), "10.0.0.1:%u", i);
		e = event_of(peer, -EACCES);
		mcm_audit_write(a, &e);
		snprintf(peer, sizeof(peer), "10.0.0.%u", i + 10);
		e = event_of(peer, -EACCES);
		e.who = &who;
		mcm_audit_write(a, &e);
	}
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(peer, sizeof(peer), "10.1.%u.%u", i / 250, i % 250);
		e = event_of(peer, -EACCES);
		mcm_audit_write(a, &e);
	}
	mc_clock_real();
	mcm_audit_close(a);
	lines = lines_of(path);
	assert_int_equal(json_array_size(lines), 1000);
	assert_string_equal(text(lines, 20, "peer"), "10.1.0.0");
	json_decref(lines);
}

static void test_full_disk(void **state)
{
	struct mcm_audit *a = open_with("off", "", "/dev/full", 0);
	struct mcm_audit_event e = event_of("10.0.0.1", 0);
	int64_t before = lost();

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		mcm_audit_write(a, &e);
	mcm_audit_close(a);
	assert_int_equal(lost() - before, 3);
}

/* A FIFO that is not read is a disk that hangs: no caller waits, and the lost lines are told later. */
static void test_full_queue(void **state)
{
	struct mcm_audit_event e = event_of("10.0.0.1", 0);
	int64_t before = lost(), n = 0;
	json_int_t told = 0;
	struct mcm_audit *a;
	char buf[4096];
	json_t *line;
	FILE *in;
	int fd;

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(fd >= 0);
	a = open_with("off", "", path, 0);
	for (unsigned i = 0; i < 20000; i++)
		mcm_audit_write(a, &e);
	assert_true(lost() > before);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	in = fdopen(fd, "r");
	while (n + told < 20000 && fgets(buf, sizeof(buf), in)) {
		line = json_loads(buf, 0, NULL);
		assert_non_null(line);
		if (!strcmp(json_string_value(json_object_get(line, "event")), "lost"))
			told += json_integer_value(json_object_get(line, "lines"));
		else
			n++;
		json_decref(line);
	}
	mcm_audit_close(a);
	assert_int_equal(n + told, 20000);
	assert_int_equal(told, lost() - before);
	fclose(in);
}

/* The same disk at the end of the master: it ends, and the thread frees the log when the disk answers again. */
static void test_hanging_end(void **state)
{
	struct mcm_audit_event e = event_of("10.0.0.1", 0);
	uint64_t begin = mc_now_ms();
	struct mcm_audit *a;
	char buf[65536];
	int fd;

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(fd >= 0);
	a = open_with("off", "", path, 0);
	for (unsigned i = 0; i < 5000; i++)
		mcm_audit_write(a, &e);
	mcm_audit_close(a);
	assert_in_range(mc_now_ms() - begin, 1900, 20000);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	close(fd);
}

static void await_file(const char *file)
{
	for (unsigned i = 0; i < 5000 && access(file, F_OK) < 0; i++)
		mc_sleep_ms(1);
	assert_int_equal(access(file, F_OK), 0);
}

static void test_rotation(void **state)
{
	struct mcm_audit *a = open_with("off", "", path, 0);
	struct mcm_audit_event e = event_of("10.0.0.1", 0);
	char old[160];
	json_t *lines;

	(void)state;
	snprintf(old, sizeof(old), "%s.1", path);
	assert_int_equal(rename(path, old), 0);
	/* As at SIGHUP. */
	mcm_audit_reopen(a);
	await_file(path);
	mcm_audit_write(a, &e);
	mcm_audit_close(a);
	lines = lines_of(path);
	assert_int_equal(json_array_size(lines), 1);
	json_decref(lines);
	/* Without SIGHUP the next line notices it; an older file goes on. */
	a = open_with("off", "", path, 0);
	assert_int_equal(rename(path, old), 0);
	mcm_audit_write(a, &e);
	mcm_audit_write(a, &e);
	mcm_audit_close(a);
	lines = lines_of(path);
	assert_int_equal(json_array_size(lines), 2);
	json_decref(lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile_text, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_identities, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hanging_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
