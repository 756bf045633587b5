/* SPDX-License-Identifier: Apache-2.0
 * memlimit.c - amount of memory that is available.  The kernel cannot drop tmpfs pages, so a segment that does
 * not fit would end in the OOM killer long after it was opened; therefore the size is checked at open. */
#include <config.h>

#include "tiers/dram/memlimit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"

#define CGROUP2 "/sys/fs/cgroup"
#define CGROUP1 "/sys/fs/cgroup/memory"

/* Read a small text file into @buf; "" if that fails. */
static void memlimit_read(const char *path, char *buf, size_t size)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	ssize_t n;

	while (fd >= 0 && have < size - 1) {
		n = read(fd, buf + have, size - 1 - have);
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	buf[have] = 0;
}

uint64_t mct_stat_value(const char *text, const char *key)
{
	size_t n = strlen(key);
	const char *line;

	for (line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
		if (!strncmp(line, key, n) && (line[n] == ' ' || line[n] == ':'))
			return strtoull(line + n + 1, NULL, 10);
	}
	return 0;
}

/* Read a file that holds one number; UINT64_MAX for "max" or without the file. */
static uint64_t memlimit_number(const char *dir, const char *file)
{
	char path[4352], buf[64];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	memlimit_read(path, buf, sizeof(buf));
	if (buf[0] < '0' || buf[0] > '9')
		return UINT64_MAX;
	return strtoull(buf, NULL, 10);
}

static uint64_t cgroup_left_in(const char *dir, const char *limit_file, const char *used_file,
			       const char *file_keys[2])
{
	uint64_t limit = memlimit_number(dir, limit_file), used, cache;
	char path[4352];
	auto_free char *stat = NULL;

	/* cgroup v1 writes "no limit" as a number near 2^63. */
	if (limit >= 1ull << 60)
		return UINT64_MAX;
	used = memlimit_number(dir, used_file);
	stat = malloc(16384);
	if (!stat || used == UINT64_MAX)
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	memlimit_read(path, stat, 16384);
	/* The kernel drops clean file pages before it kills a process. */
	cache = mct_stat_value(stat, file_keys[0]) + mct_stat_value(stat, file_keys[1]);
	used -= cache < used ? cache : used;
	return used < limit ? limit - used : 0;
}

/* The smallest amount left in cgroup @path and its ancestors below @root. */
static uint64_t cgroup_left_above(const char *root, const char *path, const char *limit_file,
				  const char *used_file, const char *file_keys[2])
{
	char dir[4096];
	uint64_t least = UINT64_MAX, left;
	char *slash;

	if (snprintf(dir, sizeof(dir), "%s%s", root, path) >= (int)sizeof(dir))
		return UINT64_MAX;
	for (;;) {
		left = cgroup_left_in(dir, limit_file, used_file, file_keys);
		if (left < least)
			least = left;
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < strlen(root))
			return least;
		*slash = 0;
	}
}

static uint64_t cgroup_left(void)
{
	static const char *v2_keys[2] = { "inactive_file", "active_file" };
	static const char *v1_keys[2] = { "total_inactive_file", "total_active_file" };
	char text[8192], *line, *save = NULL, *path;
	uint64_t least = UINT64_MAX, left;

	memlimit_read("/proc/self/cgroup", text, sizeof(text));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		path = strchr(line, '/');
		if (!path)
			continue;
		if (!strncmp(line, "0::", 3))
			left = cgroup_left_above(CGROUP2, path, "memory.max", "memory.current", v2_keys);
		else if (strstr(line, ":memory:"))
			left = cgroup_left_above(CGROUP1, path, "memory.limit_in_bytes",
					"memory.usage_in_bytes", v1_keys);
		else
			continue;
		if (left < least)
			least = left;
	}
	return least;
}

uint64_t mct_mem_available(const char **ret_by)
{
	char text[8192];
	uint64_t machine, group;

	memlimit_read("/proc/meminfo", text, sizeof(text));
	machine = mct_stat_value(text, "MemAvailable") << 10;
	if (machine == 0)
		machine = UINT64_MAX;
	group = cgroup_left();
	*ret_by = group < machine ? "memory cgroup limit" : "MemAvailable";
	return group < machine ? group : machine;
}

uint64_t mct_hugetlb_free(void)
{
	static const char dir[] = "/sys/kernel/mm/hugepages/hugepages-2048kB";
	uint64_t have = memlimit_number(dir, "free_hugepages"), resv = memlimit_number(dir, "resv_hugepages");

	if (have == UINT64_MAX || resv == UINT64_MAX || resv > have)
		return 0;
	return (have - resv) << 21;
}

/* The lines are "Node 1 MemFree: 1234 kB". */
static uint64_t node_kib(const char *text, int node, const char *key)
{
	char line[64];

	snprintf(line, sizeof(line), "Node %d %s", node, key);
	return mct_stat_value(text, line);
}

uint64_t mct_node_available(int node)
{
	char path[64], text[4096];

	if (access("/sys/devices/system/node", F_OK))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
	memlimit_read(path, text, sizeof(text));
	return (node_kib(text, node, "MemFree") + node_kib(text, node, "Inactive(file)") +
		node_kib(text, node, "Active(file)")) << 10;
}
