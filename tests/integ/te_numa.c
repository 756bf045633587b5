/* SPDX-License-Identifier: Apache-2.0
 * te_numa.c - a machine of two NUMA nodes, which hwloc is told of (HWLOC_SYNTHETIC) wherever this runs: the threads
 * are on both, and memory goes over lanes of its own node.  And one of one node, where nothing of it is to be seen.
 *
 *	te_numa two | few | one		run by itself, once for each */
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
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

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

/* Bytes that lanes of @node carried for the peer, -1: the engine does not tell nodes apart. */
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

/* Both ways, with the bytes compared. */
static void move_both(unsigned char *here, unsigned seed)
{
	te_fill(here, LEN, seed);
	move(OPCODE_WRITE, here, LEN);
	CHECK(te_filled(target, LEN, seed));
	te_fill(target, LEN, seed + 1);
	move(OPCODE_READ, here, LEN);
	CHECK(te_filled(here, LEN, seed + 1));
}

/* All of it over lanes of @node. */
static void goes_over(unsigned char *here, unsigned node, unsigned seed)
{
	long long own = carried(node), other = carried(!node);

	move_both(here, seed);
	CHECK(carried(node) - own == (long long)(2 * LEN));
	CHECK(carried(!node) == other);
}

/* Lanes are connected when they are wanted: from then on each node has its own. */
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

/* I/O threads that may run on exactly the processors of @set. */
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

static bool has_cpus(const cpu_set_t *may)
{
	return CPU_ISSET(0, may) && CPU_ISSET(1, may);
}

/* They settle by themselves. */
static void wait_for_threads(const cpu_set_t *set, unsigned n)
{
	struct timespec nap = { .tv_nsec = 10000000 };

	for (unsigned i = 0; i < 3000 && io_threads(set) != n; i++)
		nanosleep(&nap, NULL);
	CHECK(io_threads(set) == n);
}

/* ---- two nodes --------------------------------------------------------------------------------- */

static unsigned char *map(void)
{
	void *p = aligned_alloc(2 * MIB, LEN);

	CHECK(p);
	return p;
}

/* The node that the kernel says the page is on; negative: it does not say. */
static int node_of(void *p)
{
	int node = -1;

	return syscall(SYS_move_pages, 0, 1ul, &p, NULL, &node, 0) ? -1 : node;
}

/* Without a location the kernel is asked, once there are pages. */
static void asked_of_the_kernel(void)
{
	unsigned char *any = map();
	int node;

	CHECK(mce_te_register(ours, any, LEN, "*", 1) == 0);
	te_fill(any, LEN, 1);
	node = node_of(any);
	if (node >= 0 && node < (int)NODES && node_of(any + LEN - 1) == node)
		goes_over(any, (unsigned)node, 40);
	else
		move_both(any, 40);
	CHECK(mce_te_unregister(ours, any) == 0);
	free(any);
}

/* Managed memory is at the node that was asked for, or else at the caller's. */
static void managed(const cpu_set_t *may)
{
	cpu_set_t one;
	void *p;

	for (unsigned node = 0; node < NODES; node++) {
		CHECK(mce_te_manage(ours, LEN, (int)node, &p) == 0);
		goes_over(p, node, 50 + node);
		CHECK(mce_te_unmanage(ours, p) == 0);
	}
	for (unsigned cpu = 0; has_cpus(may) && cpu < NODES; cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
		CHECK(mce_te_manage(ours, LEN, -1, &p) == 0);
		CHECK(sched_setaffinity(0, sizeof(*may), may) == 0);
		goes_over(p, cpu, 60 + cpu);
		CHECK(mce_te_unmanage(ours, p) == 0);
	}
}

static void two_nodes(void)
{
	cpu_set_t may = process_cpus(), one;
	unsigned char *at[NODES];

	for (unsigned cpu = 0; has_cpus(&may) && CPU_COUNT(&may) > 1 && cpu < NODES; cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		/* two for each node, of two engines */
		wait_for_threads(&one, 4);
	}
	for (unsigned node = 0; node < NODES; node++) {
		char location[16];

		at[node] = map();
		snprintf(location, sizeof(location), "cpu:%u", node);
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
		free(at[node]);
	}
}

/* ---- fewer lanes than nodes, and one node ------------------------------------------------------ */

/* A node without a lane uses that of the other. */
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
	free(at);
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
	free(target);
}

/* Before any thread is there, since hwloc reads the environment. */
static void run_with(const char *self, const char *what, const char *machine, const char *lanes)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		setenv("HWLOC_SYNTHETIC", machine, 1);
		setenv("HWLOC_THISSYSTEM", "1", 1);
		setenv("MC_FORCE_TCP", "1", 1);
		if (lanes)
			setenv("MC_TCP_LANES_PER_PEER", lanes, 1);
		execl(self, self, what, (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		run_with("/proc/self/exe", "two", "numa:2 pu:1", NULL);
		run_with("/proc/self/exe", "few", "numa:2 pu:1", "1");
		run_with("/proc/self/exe", "one", "numa:1 pu:2", NULL);
	} else if (!strcmp(argv[1], "two")) {
		run(two_nodes);
	} else if (!strcmp(argv[1], "few")) {
		run(few_lanes);
	} else {
		run(one_node);
	}
	return 0;
}
