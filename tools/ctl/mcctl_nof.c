/* SPDX-License-Identifier: Apache-2.0
 * mcctl_nof.c - disks of other hosts over NVMe-oF: connect, list and disconnect them with nvme-cli, which drives the
 * kernel's initiator. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/net/net.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"

#define PORT 4420		/* assigned to NVMe-oF by IANA */
#define NQN_MAX 223
#define DEVICES_MAX 256u
#define LOOK_MS 50u
/* The kernel tries to connect for ever, and meanwhile I/O fails after 5 s instead of waiting: the owner then pauses the
 * disk. */
#define CTRL_LOSS "--ctrl-loss-tmo=-1"
#define FAST_FAIL "5"

extern char **environ;

/* ---- nvme-cli ---------------------------------------------------------------------------------- */

struct ran {
	int status;		/* as of waitpid(2) */
	char *out, *err;
};

static void ran_free(struct ran *r)
{
	free(r->out);
	free(r->err);
}

/* All bytes of the file as a string; NULL: no memory. */
static char *file_text(int fd)
{
	struct stat st;
	char *text;

	if (fstat(fd, &st) || !(text = calloc(1, (size_t)st.st_size + 1)))
		return NULL;
	if (lseek(fd, 0, SEEK_SET) || read(fd, text, (size_t)st.st_size) != st.st_size) {
		free(text);
		return NULL;
	}
	return text;
}

/* Wait for the process; after the time limit end it. */
static int child_wait(pid_t pid, int64_t timeout_ms, int *ret_status)
{
	uint64_t deadline = mc_deadline_ms(timeout_ms);
	pid_t r;

	while ((r = waitpid(pid, ret_status, WNOHANG)) == 0 && mc_now_ns() < deadline)
		mc_sleep_ms(5);
	if (r == pid)
		return 0;
	kill(pid, SIGKILL);
	(void)waitpid(pid, ret_status, 0);
	return -ETIMEDOUT;
}

static int nvme_spawn(const char *const argv[], int64_t timeout_ms, int out, int err, int *ret_status)
{
	auto_free char **env = mc_env_public();
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int r;

	if (!env)
		return -ENOMEM;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
	r = -posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, env);
	posix_spawn_file_actions_destroy(&actions);
	return r < 0 ? r : child_wait(pid, timeout_ms, ret_status);
}

/* The reason is in the first line; a usage may follow. */
static const char *first_line(char *text)
{
	text += strspn(text, " \n");
	text[strcspn(text, "\n")] = '\0';
	return *text ? text : "no message";
}

static const char *ran_advice(const struct ran *r)
{
	if (geteuid() != 0 && strstr(r->err, "ermission denied"))
		return "\n       Run mcctl as root";
	if (access("/dev/nvme-fabrics", F_OK))
		return "\n       The kernel has no NVMe over fabrics: load it (modprobe nvme-tcp, or nvme-rdma)";
	return "";
}

/* Run nvme with these arguments; ran_free(@ret) after MCCTL_OK. */
static enum mcctl_status nvme_run(const struct mcctl *c, const char *const argv[], struct ran *ret)
{
	auto_close int out = memfd_create("nvme", MFD_CLOEXEC), err = memfd_create("nvme", MFD_CLOEXEC);
	enum mcctl_status status = MCCTL_FAILED;
	struct ran ran = { 0 };
	int r = out < 0 || err < 0 ? -errno : nvme_spawn(argv, (int64_t)c->conf->timeout, out, err, &ran.status);

	if (r == -ENOENT)
		return mcctl_complain(MCCTL_FAILED, "the program nvme is not installed (package nvme-cli)");
	if (r < 0)
		return mcctl_complain(MCCTL_FAILED, "cannot run nvme %s: %s", argv[1], mc_strerror(r));
	ran.out = file_text(out);
	ran.err = file_text(err);
	if (!ran.out || !ran.err)
		(void)mcctl_complain(MCCTL_FAILED, "out of memory");
	else if (!WIFEXITED(ran.status) || WEXITSTATUS(ran.status) != 0)
		(void)mcctl_complain(MCCTL_FAILED, "nvme %s failed: %s%s", argv[1],
				     first_line(*ran.err ? ran.err : ran.out), ran_advice(&ran));
	else
		status = MCCTL_OK;
	if (status == MCCTL_OK)
		*ret = ran;
	else
		ran_free(&ran);
	return status;
}

static enum mcctl_status nvme_json(const struct mcctl *c, const char *const argv[], json_t **ret)
{
	enum mcctl_status status;
	struct ran ran;

	status = nvme_run(c, argv, &ran);
	if (status != MCCTL_OK)
		return status;
	/* Without devices some versions print nothing. */
	*ret = *ran.out ? json_loads(ran.out, 0, NULL) : json_array();
	ran_free(&ran);
	if (*ret)
		return MCCTL_OK;
	return mcctl_complain(MCCTL_FAILED, "nvme %s printed no JSON: its version is not supported", argv[1]);
}

/* ---- what is connected ------------------------------------------------------------------------- */

struct nof {
	json_t *all;		/* the answer: an array of devices */
	const char *nqn;	/* name of the subsystem that is being read */
	const json_t *path;	/* first path of it that is not local */
};

static const char *text_of(const json_t *j, const char *name)
{
	const char *text = json_string_value(json_object_get(j, name));

	return text ? text : "";
}

/* A name of the device that stays when it is connected again, in the order of preference; "": there is none. */
static const char *stable_name(const char *device, char ret[PATH_MAX])
{
	static const char *const kinds[] = { "nvme-uuid.", "nvme-eui.", "nvme-" };
	char target[PATH_MAX], path[PATH_MAX];
	struct dirent **e = NULL;
	int n = scandir("/dev/disk/by-id", &e, NULL, alphasort);
	unsigned best = 3;

	*ret = '\0';
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/dev/disk/by-id/%s", e[i]->d_name);
		for (unsigned k = 0; k < best; k++)
			if (!strncmp(e[i]->d_name, kinds[k], strlen(kinds[k])) && realpath(path, target) &&
			    !strcmp(target, device)) {
				best = k;
				strcpy(ret, path);
			}
		free(e[i]);
	}
	free(e);
	return ret;
}

static void nof_add(struct nof *n, const char *name, json_int_t bytes)
{
	char device[256], stable[PATH_MAX];

	if (*name)
		snprintf(device, sizeof(device), "%s%s", *name == '/' ? "" : "/dev/", name);
	else
		device[0] = '\0';
	json_array_append_new(n->all, json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s}", "device", device,
		"stable_name", stable_name(device, stable), "bytes", bytes, "transport", text_of(n->path, "Transport"),
		"address", text_of(n->path, "Address"), "state", text_of(n->path, "State"), "nqn", n->nqn));
}

/* Call @fn for each object below @j that has a string @name. */
static void each_with(struct nof *n, const json_t *j, const char *name, void (*fn)(struct nof *n, const json_t *j))
{
	const char *key;
	json_t *v;
	size_t i;

	if (json_is_string(json_object_get(j, name)))
		fn(n, j);
	json_array_foreach(j, i, v)
		each_with(n, v, name, fn);
	if (json_is_object(j))
		json_object_foreach((json_t *)(uintptr_t)j, key, v)
			each_with(n, v, name, fn);
}

static void take_path(struct nof *n, const json_t *j)
{
	const char *transport = text_of(j, "Transport");

	/* A path that works describes the device better. */
	if (strcmp(transport, "pcie") && (!n->path || !strcmp(text_of(j, "State"), "live")))
		n->path = j;
}

static void take_namespace(struct nof *n, const json_t *j)
{
	const char *name = text_of(j, "NameSpace");

	for (size_t i = 0; i < json_array_size(n->all); i++)
		if (strstr(text_of(json_array_get(n->all, i), "device"), name))
			return;
	if (json_array_size(n->all) < DEVICES_MAX)
		nof_add(n, name, json_integer_value(json_object_get(j, "PhysicalSize")));
}

static void take_subsystem(struct nof *n, const json_t *j)
{
	if (!strcmp(text_of(j, "SubsystemNQN"), n->nqn))
		each_with(n, j, "NameSpace", take_namespace);
}

/* The devices of @nqn (NULL: of all subsystems that are not local), as an array. */
static enum mcctl_status nof_find(const struct mcctl *c, const char *nqn, json_t **ret)
{
	static const char *const subsys[] = { "nvme", "list-subsys", "--output-format=json", NULL };
	static const char *const list[] = { "nvme", "list", "--verbose", "--output-format=json", NULL };
	json_t *paths = NULL, *spaces = NULL, *host, *sub;
	struct nof n = { .all = json_array() };
	enum mcctl_status status;
	size_t i, k, before;

	status = nvme_json(c, subsys, &paths);
	if (status == MCCTL_OK)
		status = nvme_json(c, list, &spaces);
	/* One host each; older versions print the host alone. */
	if (status == MCCTL_OK && json_is_object(paths)) {
		host = paths;
		paths = json_pack("[o]", host);
	}
	json_array_foreach(paths, i, host)
		json_array_foreach(json_object_get(host, "Subsystems"), k, sub) {
			/* Older versions print the paths as the next element. */
			const json_t *next = json_array_get(json_object_get(host, "Subsystems"), k + 1);

			n.nqn = text_of(sub, "NQN");
			n.path = NULL;
			if (!*n.nqn || (nqn && strcmp(nqn, n.nqn)))
				continue;
			each_with(&n, sub, "Transport", take_path);
			if (!json_object_get(sub, "Paths") && next && !json_object_get(next, "NQN"))
				each_with(&n, next, "Transport", take_path);
			if (!n.path)
				continue;
			before = json_array_size(n.all);
			each_with(&n, spaces, "SubsystemNQN", take_subsystem);
			if (json_array_size(n.all) == before)
				nof_add(&n, "", 0);
		}
	json_decref(paths);
	json_decref(spaces);
	if (status == MCCTL_OK)
		*ret = n.all;
	else
		json_decref(n.all);
	return status;
}

static const char *or_dash(const char *text)
{
	return *text ? text : "-";
}

/* Print and free. */
static enum mcctl_status nof_print(const struct mcctl *c, json_t *all)
{
	char size[32];
	json_t *d;
	size_t i;

	if (c->conf->json)
		return mcctl_json_print(all);
	if (json_array_size(all))
		printf("%-14s  %10s  %-9s  %-12s  %-36s  %-40s  %s\n", "DEVICE", "SIZE", "TRANSPORT", "STATE",
		       "ADDRESS", "NQN", "STABLE NAME");
	json_array_foreach(all, i, d)
		printf("%-14s  %10s  %-9s  %-12s  %-36s  %-40s  %s\n", or_dash(text_of(d, "device")),
		       mc_format_size((uint64_t)json_integer_value(json_object_get(d, "bytes")), size, sizeof(size)),
		       or_dash(text_of(d, "transport")), or_dash(text_of(d, "state")), or_dash(text_of(d, "address")),
		       text_of(d, "nqn"), or_dash(text_of(d, "stable_name")));
	json_decref(all);
	return MCCTL_OK;
}

/* ---- the commands ------------------------------------------------------------------------------ */

static int nof_list(struct mcctl *c)
{
	enum mcctl_status status;
	json_t *all;

	status = nof_find(c, NULL, &all);
	return (int)(status == MCCTL_OK ? nof_print(c, all) : status);
}

static bool nof_has_device(const json_t *all)
{
	return *text_of(json_array_get(all, 0), "device");
}

/* The kernel finds the namespaces a moment after the connection. */
static int nof_connected(struct mcctl *c, const char *nqn)
{
	uint64_t deadline = mc_deadline_ms((int64_t)c->conf->timeout);
	enum mcctl_status status;
	json_t *all = NULL;

	do {
		json_decref(all);
		all = NULL;
		status = nof_find(c, nqn, &all);
		if (status != MCCTL_OK || nof_has_device(all))
			break;
		mc_sleep_ms(LOOK_MS);
	} while (mc_now_ns() < deadline);
	if (status != MCCTL_OK)
		return (int)status;
	if (nof_has_device(all))
		return (int)nof_print(c, all);
	json_decref(all);
	return (int)mcctl_complain(MCCTL_FAILED, "%s is connected, but has no namespace that this host may use: check "
				   "the target, or disconnect it", nqn);
}

/* True: the file below /sys begins with @nqn. */
static bool controller_is(const char *path, const char *nqn)
{
	char text[NQN_MAX + 2] = "";
	auto_close int fd = mc_file_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0 || mc_file_read(fd, text, sizeof(text) - 1) <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return !strcmp(text, nqn);
}

/* Not all versions of nvme-cli have an option for it.  False: not for all controllers of the subsystem. */
static bool fast_fail_set(const char *nqn)
{
	struct dirent **e = NULL;
	int n = scandir("/sys/class/nvme", &e, NULL, alphasort);
	bool any = false, all = true;
	char path[PATH_MAX];

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/sys/class/nvme/%s/subsysnqn", e[i]->d_name);
		if (controller_is(path, nqn)) {
			auto_close int fd = -1;

			snprintf(path, sizeof(path), "/sys/class/nvme/%s/fast_io_fail_tmo", e[i]->d_name);
			fd = mc_file_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
			any = true;
			all &= fd >= 0 && mc_file_write(fd, FAST_FAIL, strlen(FAST_FAIL)) > 0;
		}
		free(e[i]);
	}
	free(e);
	return any && all;
}

static enum mcctl_status nqn_check(const char *nqn)
{
	if (!strncmp(nqn, "nqn.", 4) && strlen(nqn) <= NQN_MAX)
		return MCCTL_OK;
	return mcctl_complain(MCCTL_USAGE, "%.100s is not the name of a subsystem (nqn....)", nqn);
}

static int nof_connect(struct mcctl *c, const char *nqn, const char *address)
{
	char host[MC_ADDR_MAX], transport[64], traddr[MC_ADDR_MAX + 16], trsvcid[32], name[NQN_MAX + 16];
	const char *const argv[] = { "nvme", "connect", transport, traddr, trsvcid, name, CTRL_LOSS, NULL };
	enum mcctl_status status = nqn_check(nqn);
	struct ran ran;
	int port, r;

	if (status != MCCTL_OK)
		return (int)status;
	if (strcmp(c->conf->transport, "tcp") && strcmp(c->conf->transport, "rdma"))
		return (int)mcctl_complain(MCCTL_USAGE, "--transport=%s: use tcp or rdma", c->conf->transport);
	r = mc_addr_split(address, host, sizeof(host), PORT, &port);
	if (r < 0)
		return (int)mcctl_complain(MCCTL_USAGE, "%s", mc_err_detail(r));
	snprintf(transport, sizeof(transport), "--transport=%s", c->conf->transport);
	snprintf(traddr, sizeof(traddr), "--traddr=%s", host);
	snprintf(trsvcid, sizeof(trsvcid), "--trsvcid=%d", port);
	snprintf(name, sizeof(name), "--nqn=%s", nqn);
	status = nvme_run(c, argv, &ran);
	if (status != MCCTL_OK)
		return (int)status;
	ran_free(&ran);
	if (!fast_fail_set(nqn))
		(void)mcctl_complain(MCCTL_OK, "cannot set fast_io_fail_tmo of %s: if the connection breaks, I/O waits "
				     "until it is back", nqn);
	return nof_connected(c, nqn);
}

static int nof_disconnect(struct mcctl *c, const char *nqn)
{
	char name[NQN_MAX + 16];
	const char *const argv[] = { "nvme", "disconnect", name, NULL };
	enum mcctl_status status = nqn_check(nqn);
	json_t *before = NULL;
	struct ran ran;

	if (status == MCCTL_OK)
		status = nof_find(c, nqn, &before);
	if (status != MCCTL_OK)
		return (int)status;
	if (json_array_size(before) == 0) {
		json_decref(before);
		return (int)mcctl_complain(MCCTL_NO, "%s is not connected; mcctl nof list shows what is", nqn);
	}
	snprintf(name, sizeof(name), "--nqn=%s", nqn);
	status = nvme_run(c, argv, &ran);
	if (status == MCCTL_OK) {
		ran_free(&ran);
		if (!c->conf->json)
			printf("disconnected %s\n", nqn);
	}
	if (status == MCCTL_OK && c->conf->json)
		return (int)mcctl_json_print(before);
	json_decref(before);
	return (int)status;
}

int mcctl_nof(struct mcctl *c)
{
	const char *what = c->argc ? c->argv[0] : "list";

	if (!strcmp(what, "list") && c->argc <= 1)
		return nof_list(c);
	if (!strcmp(what, "connect") && c->argc == 3)
		return nof_connect(c, c->argv[1], c->argv[2]);
	if (!strcmp(what, "disconnect") && c->argc == 2)
		return nof_disconnect(c, c->argv[1]);
	return (int)mcctl_complain(MCCTL_USAGE, "nof: use list, connect NQN ADDRESS[:PORT], or disconnect NQN");
}
