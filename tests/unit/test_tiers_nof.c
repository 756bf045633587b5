/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_nof.c - NoF disks are recognised by files of the kernel, here in folders that stand for /sys. */
#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "tiers/ssd/ssd.h"

static char dir[64];

/* Make these folders and the file with the text, below the folder that stands for /sys. */
static void make(const char *path, const char *text)
{
	char at[300], *slash = at;
	FILE *f;

	snprintf(at, sizeof(at), "%s/%s", dir, path);
	while ((slash = strchr(slash + 1, '/'))) {
		*slash = 0;
		(void)mkdir(at, 0700);
		*slash = '/';
	}
	f = fopen(at, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void device_is(const char *target)
{
	char at[300], to[300];
	struct stat st;

	assert_int_equal(stat(dir, &st), 0);
	snprintf(at, sizeof(at), "%s/dev/block/%u:%u", dir, major(st.st_dev), minor(st.st_dev));
	make("dev/block/x", "");
	(void)unlink(at);
	snprintf(to, sizeof(to), "../../%s", target);
	assert_int_equal(symlink(to, at), 0);
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test_tiers_nof.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char rm[100];

	(void)state;
	snprintf(rm, sizeof(rm), "rm -rf %s", dir);
	return system(rm);
}

static void unknown_devices_are_local(void **state)
{
	(void)state;
	assert_false(mct_ssd_is_nof(dir, dir));
	assert_false(mct_ssd_is_nof("/no/such/path", dir));
	make("devices/sda/size", "1\n");
	device_is("devices/sda");
	assert_false(mct_ssd_is_nof(dir, dir));
}

static void the_transport_of_the_controller_decides(void **state)
{
	static const struct {
		const char *name;
		bool remote;
	} transports[] = {
		{ "pcie", false }, { "tcp", true }, { "rdma", true }, { "fc", true }, { "loop", false },
		{ "tcpx", false },
	};

	(void)state;
	make("devices/nvme0/nvme0n1/device/transport", "pcie\n");
	device_is("devices/nvme0/nvme0n1");
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
		char text[20];

		snprintf(text, sizeof(text), "%s\n", transports[i].name);
		make("devices/nvme0/nvme0n1/device/transport", text);
		assert_int_equal(mct_ssd_is_nof(dir, dir), transports[i].remote);
	}
}

/* With multipath the device of the disk is its subsystem, which has the controllers. */
static void a_remote_path_of_a_subsystem_is_enough(void **state)
{
	(void)state;
	make("devices/subsys0/nvme0n1/device/subsysnqn", "nqn\n");
	make("devices/subsys0/nvme0n1/device/nvme0n1/size", "1\n");
	make("devices/subsys0/nvme0n1/device/nvme0/transport", "pcie\n");
	device_is("devices/subsys0/nvme0n1");
	assert_false(mct_ssd_is_nof(dir, dir));
	make("devices/subsys0/nvme0n1/device/nvme1/transport", "rdma\n");
	assert_true(mct_ssd_is_nof(dir, dir));
}

static void a_partition_is_on_the_disk(void **state)
{
	(void)state;
	make("devices/nvme0/nvme0n1/device/transport", "tcp\n");
	make("devices/nvme0/nvme0n1/nvme0n1p1/partition", "1\n");
	device_is("devices/nvme0/nvme0n1/nvme0n1p1");
	assert_true(mct_ssd_is_nof(dir, dir));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(unknown_devices_are_local, setup, teardown),
		cmocka_unit_test_setup_teardown(the_transport_of_the_controller_decides, setup, teardown),
		cmocka_unit_test_setup_teardown(a_remote_path_of_a_subsystem_is_enough, setup, teardown),
		cmocka_unit_test_setup_teardown(a_partition_is_on_the_disk, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
