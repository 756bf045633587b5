/* SPDX-License-Identifier: Apache-2.0
 * te_numa.c - a machine of two NUMA nodes, simulated by hwloc (HWLOC_SYNTHETIC): both have threads, and memory is
 * transferred over connections of its own node.  And a machine of one node, where no node is named.
 *
 *	te_numa two | few | one		run by itself, once for each
 *	te_numa real			the real machine, if it has two nodes: then the kernel also reports memory on
 *					both.  Run automatically there, and by te_numa_vm.sh.  Status 77: one node */
#include <dirent.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include <jansson.h>
#include <mooncake/mce_te.h>

#include "te_pair.h"

#define MIB (1024ul * 1024)
#define LEN (8 * MIB)
#define NODES 2u

static struct mce_te *ours, *theirs;
static segment_id_t there;
static unsigned char *target;
static bool real;
/* Processors of each node that this process may use. */
static cpu_set_t node_cpus[NODES];

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

/* Bytes that connections of @node carried for the peer; -1: the engine does not distinguish nodes. */
static long long carried(unsigned node)
{
	char *text, name[16];
	json_t *root, *peer, *bytes;
	long long n = -1;
	size_t i;

	snprintf(name, sizeof(name), "cpu:%u", node);
	CHECK(mce_te_links(ours, 1, &text) == 0);
	root = json_loads(text, 0, NULL);
	CHECK(root);
	json_array_foreach(json_object_get(root, "peers"), i, peer) {
		bytes = json_object_get(json_object_get(peer, "lane_bytes"), name);
		if (bytes && json_object_get(peer, "segment"))
			n = (n > 0 ? n : 0) + json_integer_value(bytes);
	}
	json_decref(root);
	free(text);
	return n;
}

static void move(int opcode, void *here, size_t len)
{
	struct transfer_request r = { opcode, here, there, (uint64_t)(uintptr_t)target, len };
	struct mce_te_batch_status st;
	batch_id_t b;

	CHECK(mce_te_batch_new(ours, 1, &b) == 0 && mce_te_submit(ours, b, &r, 1, NULL) == 0);
	CHECK(mce_te_wait(ours, b, 60000) == 0 && mce_te_batch_status(ours, b, &st) == 0);
	CHECK(st.status == STATUS_COMPLETED && mce_te_batch_free(ours, b) == 0);
}

/* Read and write, and compare the bytes. */
static void move_both(unsigned char *here, unsigned seed)
{
	te_fill(here, LEN, seed);
	move(OPCODE_WRITE, here, LEN);
	CHECK(te_filled(target, LEN, seed));
	te_fill(target, LEN, seed + 1);
	move(OPCODE_READ, here, LEN);
	CHECK(te_filled(here, LEN, seed + 1));
}

/* All bytes must use connections of @node. */
static void goes_over(unsigned char *here, unsigned node, unsigned seed)
{
	long long own = carried(node), other = carried(!node);

	move_both(here, seed);
	CHECK(carried(node) - own == (long long)(2 * LEN));
	CHECK(carried(!node) == other);
}

/* Connections are made on demand: wait until each node has its own. */
static void wait_for_lanes(unsigned char *here, unsigned node)
{
	struct timespec nap = { .tv_nsec = 10000000 };
	long long before = carried(node);

	for (unsigned i = 0; i < 3000 && carried(node) == before; i++) {
		move(OPCODE_WRITE, here, 4096);
		nanosleep(&nap, NULL);
	}
	CHECK(carried(node) > before);
}

/* ---- threads ----------------------------------------------------------------------------------- */

/* Number of I/O threads that may run on exactly the processors of @set. */
static unsigned io_threads(const cpu_set_t *set)
{
	struct dirent *entry;
	unsigned n = 0;
	DIR *dir = opendir("/proc/self/task");

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char path[300], name[32] = "";
		cpu_set_t may;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (!f)
			continue;
		if (!fgets(name, sizeof(name), f))
			name[0] = '\0';
		fclose(f);
		if (!strncmp(name, "mce-io", 6) && !sched_getaffinity(atoi(entry->d_name), sizeof(may), &may))
			n += CPU_EQUAL(&may, set);
	}
	closedir(dir);
	return n;
}

static cpu_set_t process_cpus(void)
{
	cpu_set_t set;

	CHECK(sched_getaffinity(getpid(), sizeof(set), &set) == 0);
	return set;
}

/* Wait: threads set their affinity after their start. */
static void wait_for_threads(const cpu_set_t *set, unsigned n)
{
	struct timespec nap = { .tv_nsec = 10000000 };

	for (unsigned i = 0; i < 3000 && io_threads(set) != n; i++)
		nanosleep(&nap, NULL);
	CHECK(io_threads(set) == n);
}

/* ---- two nodes --------------------------------------------------------------------------------- */

/* New memory: none of its pages is placed on a node yet. */
static unsigned char *map(void)
{
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void unmap(unsigned char *p)
{
	CHECK(munmap(p, LEN) == 0);
}

/* Node of the page according to the kernel; negative: unknown. */
static int node_of(void *p)
{
	int node = -1;

	return syscall(SYS_move_pages, 0, 1ul, &p, NULL, &node, 0) ? -1 : node;
}

/* While the kernel moves a page or merges it to a huge page, its node is unknown. */
static int node_found(void *p)
{
	struct timespec nap = { .tv_nsec = 10000000 };
	int node = node_of(p);

	for (unsigned i = 0; i < 500 && node < 0; i++) {
		nanosleep(&nap, NULL);
		node = node_of(p);
	}
	return node;
}

static bool is_on(unsigned char *p, unsigned node)
{
	for (size_t at = 0; at < LEN; at += MIB / 4) {
		int found = node_found(p + at);

		if (found != (int)node) {
			printf("page at %zu of %lu: %d instead of %u\n", at, LEN, found, node);
			return false;
		}
	}
	return true;
}

/* Memory of @node: on a real machine the kernel places it, and only the kernel knows its node. */
static unsigned char *map_on(unsigned node, char location[16])
{
	unsigned long nodes = 1ul << node;
	unsigned char *p = map();

	snprintf(location, 16, "cpu:%u", node);
	if (real) {
		CHECK(syscall(SYS_mbind, p, LEN, MPOL_BIND, &nodes, 8 * sizeof(nodes), 0u) == 0);
		te_fill(p, LEN, node);
		CHECK(is_on(p, node));
		strcpy(location, "*");
	}
	return p;
}

/* Without a location the engine asks the kernel, once the pages exist. */
static void asked_of_the_kernel(void)
{
	unsigned char *any = map();
	int node;

	CHECK(mce_te_register(ours, any, LEN, "*", 1) == 0);
	te_fill(any, LEN, 1);
	node = node_of(any);
	if (node >= 0 && node < (int)NODES && is_on(any, (unsigned)node))
		goes_over(any, (unsigned)node, 40);
	else
		move_both(any, 40);
	CHECK(mce_te_unregister(ours, any) == 0);
	unmap(any);
}

static void managed_on(int asked, unsigned node, unsigned seed)
{
	void *p;

	CHECK(mce_te_manage(ours, LEN, asked, &p) == 0);
	goes_over(p, node, seed);
	CHECK(!real || is_on(p, node));
	CHECK(mce_te_unmanage(ours, p) == 0);
}

/* Do the threads of the nodes differ by the processors on which they may run? */
static bool apart(const cpu_set_t *may)
{
	for (unsigned node = 0; node < NODES; node++)
		if (CPU_COUNT(&node_cpus[node]) == 0 || CPU_EQUAL(&node_cpus[node], may))
			return false;
	return true;
}

/* Managed memory is on the requested node, or else on the caller's. */
static void managed(const cpu_set_t *may)
{
	for (unsigned node = 0; node < NODES; node++)
		managed_on((int)node, node, 50 + node);
	for (unsigned node = 0; apart(may) && node < NODES; node++) {
		CHECK(sched_setaffinity(0, sizeof(node_cpus[node]), &node_cpus[node]) == 0);
		managed_on(-1, node, 60 + node);
		CHECK(sched_setaffinity(0, sizeof(*may), may) == 0);
	}
}

static void two_nodes(void)
{
	cpu_set_t may = process_cpus();
	unsigned char *at[NODES];

	/* two threads per node, of two engines */
	for (unsigned node = 0; apart(&may) && node < NODES; node++)
		wait_for_threads(&node_cpus[node], 4);
	for (unsigned node = 0; node < NODES; node++) {
		char location[16];

		at[node] = map_on(node, location);
		CHECK(mce_te_register(ours, at[node], LEN, location, 1) == 0);
	}
	for (unsigned node = 0; node < NODES; node++)
		wait_for_lanes(at[node], node);
	for (unsigned i = 0; i < 4; i++)
		goes_over(at[i % NODES], i % NODES, i);
	asked_of_the_kernel();
	managed(&may);
	for (unsigned node = 0; node < NODES; node++) {
		CHECK(mce_te_unregister(ours, at[node]) == 0);
		unmap(at[node]);
	}
}

/* The metadata that engines exchange lists both nodes, with the memory on them. */
static void two_real_nodes(void)
{
	json_t *root;
	char *text;

	CHECK(mce_te_topology(ours, NULL, &text) == 0);
	root = json_loads(text, 0, NULL);
	CHECK(root && json_object_get(root, "cpu:0") && json_object_get(root, "cpu:1"));
	printf("topology: %s\n", text);
	json_decref(root);
	free(text);
	two_nodes();
}

/* ---- fewer connections than nodes, and one node ------------------------------------------------- */

/* A node without a connection uses that of the other node. */
static void few_lanes(void)
{
	unsigned char *at = map();
	char location[16];

	for (unsigned node = 0; node < NODES; node++) {
		snprintf(location, sizeof(location), "cpu:%u", node);
		CHECK(mce_te_register(ours, at, LEN, location, 1) == 0);
		move_both(at, 70 + node);
		CHECK(mce_te_unregister(ours, at) == 0);
	}
	CHECK(carried(0) + carried(1) == (long long)(4 * LEN) && (carried(0) == 0 || carried(1) == 0));
	unmap(at);
}

static void one_node(void)
{
	cpu_set_t may = process_cpus();
	void *p;

	wait_for_threads(&may, 4);
	CHECK(mce_te_manage(ours, LEN, 0, &p) == 0);
	move_both(p, 80);
	CHECK(carried(0) == -1);
	CHECK(mce_te_unmanage(ours, p) == 0);
}

/* ------------------------------------------------------------------------------------------------ */

static void run(void (*test)(void))
{
	ours = open_engine();
	theirs = open_engine();
	target = map();
	CHECK(mce_te_register(theirs, target, LEN, "*", 1) == 0);
	CHECK(mce_te_open_segment(ours, mce_te_name(theirs), 0, &there) == 0);
	test();
	mce_te_close(ours);
	mce_te_close(theirs);
	unmap(target);
}

/* Fork before any thread starts, since hwloc reads the environment.  NULL @machine: the real machine. */
static void run_with(const char *self, const char *what, const char *machine, const char *lanes)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		if (machine) {
			setenv("HWLOC_SYNTHETIC", machine, 1);
			setenv("HWLOC_THISSYSTEM", "1", 1);
		}
		setenv("MC_FORCE_TCP", "1", 1);
		if (lanes)
			setenv("MC_TCP_LANES_PER_PEER", lanes, 1);
		execl(self, self, what, (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A list in the kernel's form, like "0-3,8". */
static bool read_cpus(unsigned node, cpu_set_t *ret)
{
	char path[64];
	unsigned from, to;
	FILE *f;

	CPU_ZERO(ret);
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", node);
	f = fopen(path, "re");
	while (f && fscanf(f, "%u", &from) == 1) {
		if (fscanf(f, "-%u", &to) != 1)
			to = from;
		for (; from <= to && from < CPU_SETSIZE; from++)
			CPU_SET(from, ret);
		if (fgetc(f) != ',')
			break;
	}
	if (f)
		fclose(f);
	return CPU_COUNT(ret) > 0;
}

static bool is_real(void)
{
	for (unsigned node = 0; node < NODES; node++)
		if (!read_cpus(node, &node_cpus[node]))
			return false;
	return true;
}

static void nodes_init(void)
{
	cpu_set_t may = process_cpus();

	for (unsigned node = 0; node < NODES; node++) {
		CPU_ZERO(&node_cpus[node]);
		CPU_SET(node, &node_cpus[node]);
	}
	if (real)
		CHECK(is_real());
	for (unsigned node = 0; node < NODES; node++)
		CPU_AND(&node_cpus[node], &node_cpus[node], &may);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	real = !strcmp(what, "real");
	if (real && !is_real()) {
		printf("SKIP: the machine has not two NUMA nodes with processors\n");
		return 77;
	}
	nodes_init();
	if (argc == 1) {
		run_with("/proc/self/exe", "two", "numa:2 pu:1", NULL);
		run_with("/proc/self/exe", "few", "numa:2 pu:1", "1");
		run_with("/proc/self/exe", "one", "numa:1 pu:2", NULL);
		if (is_real())
			run_with("/proc/self/exe", "real", NULL, NULL);
	} else if (!strcmp(what, "two")) {
		run(two_nodes);
	} else if (!strcmp(what, "few")) {
		run(few_lanes);
	} else if (!strcmp(what, "one")) {
		run(one_node);
	} else {
		setenv("MC_FORCE_TCP", "1", 1);
		run(two_real_nodes);
	}
	return 0;
}
