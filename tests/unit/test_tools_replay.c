/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tools/bench/mcbench.h"

#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "tests/unit/test_tools_fake.h"

static char dir[] = "/tmp/test_tools_replay.XXXXXX", trace[64], out[64];

static void write_trace(const char *text)
{
	FILE *f = fopen(trace, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static struct mcbench_conf conf_new(void)
{
	return (struct mcbench_conf){
		.threads = 1, .batch = 3, .seed = 1, .block_size = 1000, .json = true,
	};
}

/* Run @command with its standard output in a file; *ret is the JSON in it. */
static int run(struct mcbench_conf *conf, int (*command)(struct mcbench *b), json_t **ret)
{
	const char *arg = trace;
	struct mcbench b = { .conf = conf, .argc = 1, .argv = &arg };
	int saved, fd, status;

	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	fd = open(out, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_true(saved >= 0 && fd >= 0);
	dup2(fd, STDOUT_FILENO);
	status = command(&b);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(fd);
	close(saved);
	*ret = json_load_file(out, 0, NULL);
	return status;
}

static json_int_t number(json_t *j, const char *name)
{
	json_t *v = json_object_get(j, name);

	if (!json_is_integer(v))
		v = json_object_get(json_object_get(j, "hits"), name);
	if (!json_is_integer(v))
		fail_msg("no number %s", name);
	return json_integer_value(v);
}

static json_int_t of(json_t *j, const char *op, const char *name)
{
	return number(json_object_get(j, op), name);
}

static const char five[] =
	"{\"timestamp\": 0, \"hash_ids\": [1, 2, 3, 4]}\n"
	"{\"timestamp\": 1, \"hash_ids\": [1, 2, 5, 6, 7]}\n"
	"{\"timestamp\": 2, \"hash_ids\": []}\n"
	"{\"timestamp\": 3, \"hash_ids\": [1, 2, 3, 4]}\n"
	"{\"timestamp\": 4, \"hash_ids\": [8, 2, 3]}\n";

static void hits_are_counted(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j;

	fake_reset(1000);
	write_trace(five);
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_int_equal(number(j, "requests"), 5);
	assert_int_equal(number(j, "blocks"), 16);
	assert_int_equal(number(j, "present"), 2 + 4 + 2);
	/* the last request's hits follow a miss */
	assert_int_equal(number(j, "prefix"), 2 + 4);
	assert_int_equal(of(j, "get", "objects"), 6);
	assert_int_equal(of(j, "get", "bytes"), 6000);
	assert_int_equal(of(j, "put", "objects"), 8);
	assert_int_equal(number(j, "errors"), 0);
	assert_int_equal(number(j, "wrong_bytes"), 0);
	json_decref(j);
	/* the run removes its objects */
	assert_int_equal(fake_objects(), 0);
}

static void a_second_run_finds_the_kept_objects(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j;

	fake_reset(1000);
	conf.keep = true;
	write_trace(five);
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	json_decref(j);
	assert_int_equal(fake_objects(), 8);
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_int_equal(number(j, "present"), 16);
	assert_int_equal(of(j, "put", "objects"), 0);
	json_decref(j);
	/* another seed makes other keys */
	conf.seed = 2;
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_int_equal(number(j, "prefix"), 6);
	json_decref(j);
}

static void small_pool_evicts_and_stays_right(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j;
	FILE *f;

	fake_reset(20);
	conf.threads = 4;
	f = fopen(trace, "w");
	assert_non_null(f);
	for (unsigned i = 0; i < 400; i++)
		fprintf(f, "{\"timestamp\": %u, \"hash_ids\": [1, %u, %u, %u]}\n", i,
			10 + i % 7, 100 + i % 30, 1000 + i);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_int_equal(number(j, "requests"), 400);
	assert_true(number(j, "prefix") > 0);
	assert_true(number(j, "prefix") < 1200);
	assert_int_equal(number(j, "wrong_bytes"), 0);
	json_decref(j);
}

/* Wrong bytes of every kind are detected. */
static void wrong_bytes_are_found(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j;

	write_trace(five);
	for (int way = 0; way < 3; way++) {
		fake_reset(1000);
		fake.wrong_every = way == 0 ? 5 : 0;
		fake.swap_every = way == 1 ? 5 : 0;
		fake.untouched_every = way == 2 ? 5 : 0;
		assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_WRONG);
		assert_int_equal(number(j, "wrong_blocks"), 1);
		assert_true(number(j, "wrong_bytes") >= 1);
		json_decref(j);
	}
}

static void object_of_another_size_is_wrong(void **state)
{
	static const char key[] = "mcbench/1000-1/1";
	char small[10] = { 0 };
	struct iovec iov = { small, sizeof(small) };
	struct mcs_put_item item = { .key = { key, sizeof(key) - 1 }, .iov = &iov, .iovcnt = 1 };
	struct mcbench_conf conf = conf_new();
	json_t *j;

	fake_reset(1000);
	assert_int_equal(mcs_put_batch(NULL, &item, 1, NULL, -1), 1);
	write_trace("{\"timestamp\": 0, \"hash_ids\": [1]}\n");
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_WRONG);
	assert_int_equal(number(j, "wrong_blocks"), 1);
	json_decref(j);
}

static void lost_objects_are_stored_again(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j;

	fake_reset(1000);
	fake.gone_every = 2;
	write_trace(five);
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_int_equal(number(j, "gone"), 3);
	assert_int_equal(number(j, "errors"), 0);
	/* an engine cannot use blocks behind a missing one */
	assert_int_equal(number(j, "prefix"), 2);
	/* the store still has them */
	assert_int_equal(number(j, "raced"), 3);
	json_decref(j);
}

static void failures_are_told(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j, *errors;

	fake_reset(1000);
	fake.put_error = -MCS_ENOSPACE;
	write_trace(five);
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_ERRORS);
	assert_int_equal(number(j, "errors"), 16);
	errors = json_object_get(json_object_get(j, "put"), "errors");
	assert_int_equal(json_integer_value(json_object_get(errors, mcs_strerror(-MCS_ENOSPACE))),
			 16);
	json_decref(j);

	fake_reset(1000);
	fake.exist_error = -MCS_ERPC;
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_ERRORS);
	assert_int_equal(of(j, "lookup", "failed"), 16);
	json_decref(j);
}

static void timestamps_are_followed(void **state)
{
	struct mcbench_conf conf = conf_new();
	uint64_t begun = mc_now_ns();
	json_t *j;

	fake_reset(1000);
	conf.speed = 10;
	write_trace("{\"timestamp\": 0, \"hash_ids\": [1]}\n"
		    "{\"timestamp\": 1000, \"hash_ids\": [1]}\n");
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_true(mc_now_ns() - begun >= 100 * MC_NS_PER_MS);
	assert_int_equal(number(j, "requests"), 2);
	json_decref(j);
}

static void duration_ends_a_run(void **state)
{
	struct mcbench_conf conf = conf_new();
	json_t *j;

	fake_reset(1000);
	conf.speed = 1;
	/* Long enough for the first request on a busy machine. */
	conf.duration = 1500;
	write_trace("{\"timestamp\": 0, \"hash_ids\": [1]}\n"
		    "{\"timestamp\": 3600000, \"hash_ids\": [1]}\n");
	assert_int_equal(run(&conf, mcbench_replay, &j), MCBENCH_OK);
	assert_int_equal(number(j, "requests"), 1);
	json_decref(j);
}

static void bench_measures_each_operation(void **state)
{
	struct mcbench_conf conf = conf_new();
	static char sizes[] = "1000,4KiB";
	json_t *j;

	fake_reset(60000);
	conf.threads = 2;
	conf.duration = 20;
	conf.working_set = 1 << 20;
	conf.sizes = sizes;
	assert_int_equal(run(&conf, mcbench_micro, &j), MCBENCH_OK);
	assert_int_equal(json_array_size(j), 6);
	for (size_t i = 0; i < 6; i++) {
		json_t *row = json_array_get(j, i);

		assert_true(number(row, "calls") > 0);
		assert_true(number(row, "objects") > 0);
		assert_int_equal(number(row, "failed"), 0);
		assert_true(json_real_value(json_object_get(row, "x_socket")) > 0);
		assert_int_equal(number(row, "size"), i < 3 ? 1000 : 4096);
	}
	json_decref(j);
	assert_int_equal(fake_objects(), 0);

	fake_reset(60000);
	fake.wrong_every = 3;
	assert_int_equal(run(&conf, mcbench_micro, &j), MCBENCH_WRONG);
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hits_are_counted),
		cmocka_unit_test(a_second_run_finds_the_kept_objects),
		cmocka_unit_test(small_pool_evicts_and_stays_right),
		cmocka_unit_test(wrong_bytes_are_found),
		cmocka_unit_test(object_of_another_size_is_wrong),
		cmocka_unit_test(lost_objects_are_stored_again),
		cmocka_unit_test(failures_are_told),
		cmocka_unit_test(timestamps_are_followed),
		cmocka_unit_test(duration_ends_a_run),
		cmocka_unit_test(bench_measures_each_operation),
	};
	int r;

	if (!mkdtemp(dir))
		return 1;
	snprintf(trace, sizeof(trace), "%s/trace", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	fake_reset(0);
	unlink(trace);
	unlink(out);
	rmdir(dir);
	return r;
}
