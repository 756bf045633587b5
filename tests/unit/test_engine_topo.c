/* SPDX-License-Identifier: Apache-2.0
 * test_engine_topo.c - the matrix of a machine that a fake /sys and a fake libcuda describe, of files, and of
 * invalid texts. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef FAKE_LIBCUDA	/* the lint compiles without this test's flags */
#define FAKE_LIBCUDA "libcuda.so.1"
#endif

#include "engine/mce.h"
#include "engine/topo/topo.h"

static char root[64];

static void run(const char *fmt, const char *a, const char *b)
{
	char command[1024];

	assert_true(snprintf(command, sizeof(command), "cd %s && ", root) < 100);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(command + strlen(command), sizeof(command) - strlen(command), fmt, a, b);
#pragma GCC diagnostic pop
	assert_int_equal(system(command), 0);
}

/* A PCI device at @way below /sys/devices. */
static void add_pci(const char *way, const char *node)
{
	run("mkdir -p sys/bus/pci/devices sys/devices/%1$s && echo %2$s >sys/devices/%1$s/numa_node && "
	    "ln -s ../../../devices/%1$s sys/bus/pci/devices/$(basename %1$s)", way, node);
}

static void add_nic(const char *name, const char *way)
{
	run("d=sys/devices/%2$s/infiniband/%1$s && mkdir -p $d/ports/1/gids sys/class/infiniband && "
	    "echo '4: ACTIVE' >$d/ports/1/state && echo '200 Gb/sec (4X HDR)' >$d/ports/1/rate && "
	    "echo fe80:0000:0000:0000:0000:0000:0000:0001 >$d/ports/1/gids/0 && ln -s ../.. $d/device && "
	    "ln -s ../../devices/%2$s/infiniband/%1$s sys/class/infiniband/%1$s", name, way);
}

/* Two nodes: mlx5_0 behind the switch of GPU 0, mlx5_1 on the same node elsewhere, mlx5_2 on node 1. */
static int set_up(void **state)
{
	strcpy(root, "/tmp/test_topo.XXXXXX");
	assert_non_null(mkdtemp(root));
	add_pci("pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:00.0", "0");
	add_pci("pci0000:00/0000:00:01.0/0000:02:01.0/0000:3b:00.0", "0");
	add_pci("pci0000:00/0000:00:05.0/0000:07:00.0", "0");
	add_pci("pci0000:80/0000:80:01.0/0000:81:00.0", "1");
	add_pci("pci0000:90/0000:90:01.0/0000:91:00.0", "7");
	add_nic("mlx5_0", "pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:00.0");
	add_nic("mlx5_1", "pci0000:00/0000:00:05.0/0000:07:00.0");
	add_nic("mlx5_2", "pci0000:80/0000:80:01.0/0000:81:00.0");
	run("mkdir -p sys/class/infiniband/mlx5_9/ports/1 && echo '%s: %s' >"
	    "sys/class/infiniband/mlx5_9/ports/1/state", "1", "DOWN");
	run("ln -s %s libcuda.so.1%s", FAKE_LIBCUDA, "");
	return 0;
}

static int tear_down(void **state)
{
	run("cd / && rm -rf %s%s", root, "");
	return 0;
}

static char *matrix(const char *filter)
{
	struct mce_topo *t;
	char *json;

	assert_int_equal(mce_topo_discover(root, filter, &t), 0);
	assert_int_equal(mce_topo_json(t, NULL, &json), 0);
	mce_topo_free(t);
	return json;
}

static void has(const char *json, const char *part)
{
	if (!strstr(json, part))
		fail_msg("%s is not in %s", part, json);
}

/* The nodes are those of the test machine; the first has the number 0 on any machine. */
static void nics(void **state)
{
	const struct mce_topo_nic *nic;
	struct mce_topo *t;
	char *json;

	unsetenv("FAKE_CUDA_BUS");
	setenv("FAKE_CUDA_DEVICES", "0", 1);
	json = matrix(NULL);
	has(json, "\"cpu:0\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_2\"]]");
	assert_null(strstr(json, "cuda"));
	assert_null(strstr(json, "mlx5_9"));
	free(json);
	assert_int_equal(mce_topo_discover(root, NULL, &t), 0);
	assert_int_equal(mce_topo_nics(t), 3);
	nic = mce_topo_nic(t, 2);
	assert_string_equal(nic->name, "mlx5_2");
	assert_int_equal(nic->numa, 1);
	assert_int_equal(nic->port, 1);
	assert_int_equal((int)nic->speed_gbps, 200);
	assert_int_equal(strncmp(nic->gid, "fe80:", 5), 0);
	mce_topo_free(t);
}

static void gpus(void **state)
{
	char *json;

	setenv("FAKE_CUDA_BUS", "0000:3B:00.0,0000:81:00.0,0000:91:00.0,-", 1);
	json = matrix(NULL);
	/* the nearest device of its node; the only device of its node; all at the same distance; unknown */
	has(json, "\"cuda:0\":[[\"mlx5_0\"],[\"mlx5_1\",\"mlx5_2\"]]");
	has(json, "\"cuda:1\":[[\"mlx5_2\"],[\"mlx5_0\",\"mlx5_1\"]]");
	has(json, "\"cuda:2\":[[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\"],[]]");
	has(json, "\"cuda:3\":[[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\"],[]]");
	free(json);
	unsetenv("FAKE_CUDA_BUS");
}

static void filters(void **state)
{
	char *json;

	json = matrix("mlx5_1, mlx5_2");
	has(json, "\"cpu:0\":[[\"mlx5_1\"],[\"mlx5_2\"]]");
	free(json);
	setenv("MC_TE_FILTERS", "mlx5_0,mlx5_2", 1);
	setenv("MC_TE_FILTERS_EXCLUDE", "mlx5_0", 1);
	json = matrix(NULL);
	has(json, "\"cpu:0\":[[],[\"mlx5_2\"]]");
	free(json);
	unsetenv("MC_TE_FILTERS");
	unsetenv("MC_TE_FILTERS_EXCLUDE");
}

static void bare_machine(void **state)
{
	struct mce_topo *t;
	char *json;

	assert_int_equal(mce_topo_discover("/nonexistent", NULL, &t), 0);
	assert_int_equal(mce_topo_nics(t), 0);
	assert_int_equal(mce_topo_json(t, NULL, &json), 0);
	has(json, "\"cpu:0\":[[],[]]");
	free(json);
	mce_topo_free(t);
}

static void files(void **state)
{
	static const char good[] = "{\"cpu:0\": [[\"a\"], [\"b\", \"c\"]], \"cuda:0\": [[\"c\"]]}";
	char path[128], *json;
	struct mce_topo *t;
	FILE *f;

	assert_int_equal(mce_topo_parse(good, sizeof(good) - 1, &t), 0);
	assert_int_equal(mce_topo_nics(t), 3);
	assert_string_equal(mce_topo_nic(t, 1)->name, "b");
	assert_int_equal(mce_topo_json(t, NULL, &json), 0);
	assert_string_equal(json, "{\"cpu:0\":[[\"a\"],[\"b\",\"c\"]],\"cuda:0\":[[\"c\"],[]]}");
	free(json);
	assert_int_equal(mce_topo_json(t, "c", &json), 0);
	assert_string_equal(json, "{\"cpu:0\":[[],[\"c\"]],\"cuda:0\":[[\"c\"],[]]}");
	free(json);
	mce_topo_free(t);
	snprintf(path, sizeof(path), "%s/matrix.json", root);
	assert_true(mce_topo_load(path, &t) < 0);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(good, 1, sizeof(good) - 1, f), sizeof(good) - 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(mce_topo_load(path, &t), 0);
	mce_topo_free(t);
}

static void invalid_texts_are_refused(void **state)
{
	static const char *const bad[] = {
		"", "{", "[]", "7", "{\"cpu:0\": 5}", "{\"cpu:0\": []}", "{\"cpu:0\": [1, 2]}",
		"{\"cpu:0\": [[\"a\"], [\"b\"], [\"c\"]]}", "{\"cpu:0\": [[\"\"]]}", "{\"cpu:0\": [[5]]}",
		"{\"\": [[]]}", "{\"cpu:0\": [[], 3]}", "{\"cpu:0\": [[]], \"cpu:0\": [[]]}",
		"{\"0123456789012345678901234567890123456789012345678901234567890123\": [[]]}",
		"{\"x\": [[\"0123456789012345678901234567890123456789012345678901234567890123\"]]}",
	};
	struct mce_topo *t = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(mce_topo_parse(bad[i], strlen(bad[i]), &t) < 0);
	assert_null(t);
}

/* ---- processors near an interface -------------------------------------------------------------- */

static void near(const char *name, const char *want)
{
	char cpus[64];

	mce_topo_cpus_near(root, name, cpus, sizeof(cpus));
	assert_string_equal(cpus, want);
}

static void processors(void **state)
{
	run("mkdir -p sys/devices/system/node/node0 sys/devices/system/node/node1 sys/class/net/eth7/device "
	    "sys/class/net/veth/device && echo %s >sys/class/net/eth7/device/numa_node && "
	    "echo %s >sys/class/net/veth/device/numa_node", "1", "-1");
	run("echo 0-3 >sys/devices/system/node/node0/cpulist && echo %s >sys/devices/system/node/node1/cpulist && "
	    "echo %s >sys/devices/system/node/online", "4-5,7", "0-1");
	near("eth7", "4-5,7");
	near("veth", "");
	near("none", "");
	near("../net/eth7", "");
	run("echo %s >sys/devices/system/node/online%s", "0", "");
	near("eth7", "");
}

/* Processors that the I/O threads of this process may run on: the same for all, or -1. */
static int io_threads_on(void)
{
	char path[300], comm[32];
	int cpu = -2;
	struct dirent *d;
	DIR *dir = opendir("/proc/self/task");

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		cpu_set_t set;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = fopen(path, "r");
		if (!f || !fgets(comm, sizeof(comm), f) || strncmp(comm, "mce-io", 6))
			comm[0] = 0;
		if (f)
			fclose(f);
		if (!comm[0] || sched_getaffinity(atoi(d->d_name), sizeof(set), &set))
			continue;
		for (int i = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET(i, &set))
				cpu = cpu == -2 || cpu == i ? i : -1;
	}
	closedir(dir);
	return cpu;
}

/* The threads set their names and CPUs themselves, so wait for that. */
static void wait_threads_on(int want)
{
	for (int i = 0; i < 10000 && io_threads_on() != want; i++)
		usleep(1000);
	assert_int_equal(io_threads_on(), want);
}

static void io_threads(void **state)
{
	struct mce_conf conf = { .io_threads = 3 };
	struct mce_engine *e;
	cpu_set_t may;
	char list[64];
	int last = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	if (CPU_COUNT(&may) < 2)
		skip();
	for (int i = 0; i < CPU_SETSIZE; i++)
		last = CPU_ISSET(i, &may) ? i : last;
	snprintf(list, sizeof(list), "%d-%d,1023", last, last);
	conf.io_cpus = list;
	assert_int_equal(mce_engine_open(&conf, &e), 0);
	wait_threads_on(last);
	mce_engine_close(e);
	/* CPUs that the process may not use: any CPU */
	conf.io_cpus = "1022";
	assert_int_equal(mce_engine_open(&conf, &e), 0);
	wait_threads_on(-1);
	mce_engine_close(e);
	for (unsigned i = 0; i < 7; i++) {
		static const char *const bad[] = { "x", "1-", "2-1", "1,,2", "-1", "0-2000", "1;2" };

		conf.io_cpus = bad[i];
		assert_int_equal(mce_engine_open(&conf, &e), -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nics), cmocka_unit_test(gpus), cmocka_unit_test(filters),
		cmocka_unit_test(bare_machine), cmocka_unit_test(files), cmocka_unit_test(invalid_texts_are_refused),
		cmocka_unit_test(processors), cmocka_unit_test(io_threads),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
