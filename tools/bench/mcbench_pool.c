/* SPDX-License-Identifier: Apache-2.0
 * mcbench_pool.c - start, fill and end a pool of mcbench's own. */
#include <config.h>

#include "tools/bench/mcbench_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/env.h"
#include "common/err.h"
#include "common/net/stream.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"

#define PROGRAM "mooncake_master"
#define START_MS 30000
#define END_MS 5000
#define LOOK_MS 10
#define GRANULE 64u		/* the master's unit of memory */
#define PAGE 4096u		/* alignment of ranges of ALIGNED bytes or more */
#define ALIGNED 65536u
#define FILLER 65536u		/* an object of this size has no checksums in the segment */

uint64_t mcbench_pool_stride(uint64_t size)
{
	uint64_t bytes = size;

	/* Behind a larger object there is the CRC of each of its chunks. */
	if (size > MC_CRC_CHUNK)
		bytes = ((size + 3) & ~UINT64_C(3)) + 4 * mc_crc_chunks(size);
	bytes = (bytes + GRANULE - 1) & ~(uint64_t)(GRANULE - 1);
	return bytes < ALIGNED ? bytes : (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

/* ---- the program ---- */

/* Whether @dir ends in @end; *ret_len is the length without it. */
static bool dir_ends(const char *dir, const char *end, size_t *ret_len)
{
	size_t len = strlen(dir), tail = strlen(end);

	if (len < tail || strcmp(dir + len - tail, end) != 0)
		return false;
	*ret_len = len - tail;
	return true;
}

/* The master's program; without a slash: to be searched in PATH. */
static void program_find(const char *given, char ret[PATH_MAX])
{
	char self[PATH_MAX] = "", *slash;
	size_t top;
	int len;

	if (*given) {
		(void)snprintf(ret, PATH_MAX, "%s", given);
		return;
	}
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) {
		slash = strrchr(self, '/');
		if (slash)
			*slash = '\0';
		len = snprintf(ret, PATH_MAX, "%s/%s", self, PROGRAM);
		if (len < PATH_MAX && access(ret, X_OK) == 0)
			return;
		/* In the build tree, with libtool's directory of programs that use uninstalled libraries. */
		if (dir_ends(self, "/tools/.libs", &top) || dir_ends(self, "/tools", &top)) {
			len = snprintf(ret, PATH_MAX, "%.*s/master/%s", (int)top, self, PROGRAM);
			if (len < PATH_MAX && access(ret, X_OK) == 0)
				return;
		}
	}
	strcpy(ret, PROGRAM);
}

/* In the child. */
static void program_exec(struct mcbench_pool *p, pid_t parent, int report, const char *program, char **argv,
			 char **env)
{
	int err;

	/* Ctrl-C is for mcbench, which ends the master after the last request. */
	(void)setpgid(0, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		mc_process_end(1);
	if (dup2(p->log, STDOUT_FILENO) < 0 || dup2(p->log, STDERR_FILENO) < 0)
		mc_process_end(1);
	execvpe(program, argv, env);
	err = errno;
	(void)!write(report, &err, sizeof(err));
	mc_process_end(127);
}

/* 0, or the error of fork(2) or execvp(3). */
static int program_run(struct mcbench_pool *p, const char *program, char **argv)
{
	auto_free char **env = mc_env_public();
	pid_t parent = getpid();
	int fds[2], err = 0;

	if (!env)
		return ENOMEM;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	p->pid = fork();
	if (p->pid == 0)
		program_exec(p, parent, fds[1], program, argv, env);
	if (p->pid < 0) {
		err = errno;
		p->pid = 0;
	}
	close(fds[1]);
	/* The pipe closes without a byte when the program begins to run. */
	if (!err && read(fds[0], &err, sizeof(err)) <= 0)
		err = 0;
	close(fds[0]);
	return err;
}

static int master_run(struct mcbench_pool *p, const char *program, const char *policy)
{
	char name[] = PROGRAM, tcp[] = "--rpc_address=127.0.0.1", port[] = "--port=0";
	char http[] = "--metrics_host=127.0.0.1", http_port[] = "--metrics_port=0", journal[] = "--journal_dir=none";
	char lease[] = "--default_kv_lease_ttl=0", watermark[] = "--eviction_high_watermark_ratio=1";
	/* learn samples keys by their hashes: with the same seed, each run has the same hits. */
	char seed[] = "--index_seed=1", quiet[] = "--enable_metric_reporting=false";
	char rpc_socket[PATH_MAX + 32], evict[256];
	char *argv[] = { name, tcp, port, http, http_port, journal, lease, watermark, quiet, seed, rpc_socket,
			 policy ? evict : NULL, NULL };

	(void)snprintf(rpc_socket, sizeof(rpc_socket), "--rpc_socket=%s", p->addr + strlen("unix:"));
	if (policy && (size_t)snprintf(evict, sizeof(evict), "--eviction_policy=%s", policy) >= sizeof(evict))
		return ENAMETOOLONG;
	return program_run(p, program, argv);
}

/* ---- start and end of the master ---- */

/* The last line of the master's output; it has the reason when the master ends by itself. */
static void log_last_line(int fd, char *ret, size_t size)
{
	off_t end = lseek(fd, 0, SEEK_END), from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
	ssize_t n = pread(fd, ret, size - 1, from);
	char *last;

	while (n > 0 && ret[n - 1] == '\n')
		n--;
	ret[n > 0 ? n : 0] = '\0';
	last = strrchr(ret, '\n');
	if (last)
		memmove(ret, last + 1, strlen(last + 1) + 1);
}

static int complain_ended(const struct mcbench_pool *p, const char *policy)
{
	char line[1024];

	log_last_line(p->log, line, sizeof(line));
	return mcbench_complain(MCBENCH_FAILED, "the master%s%s did not start: %s",
				policy ? " with eviction policy " : "", policy ? policy : "",
				*line ? line : "it printed no reason");
}

static bool master_ended(struct mcbench_pool *p, int64_t ms)
{
	struct pollfd pfd = { .fd = p->pidfd, .events = POLLIN };

	return poll(&pfd, 1, (int)ms) == 1;
}

static int master_await(struct mcbench_pool *p, const char *policy)
{
	uint64_t deadline = mc_deadline_ms(START_MS);
	struct mc_stream s;

	while (!mcbench_stopped() && mc_deadline_left_ms(deadline)) {
		if (mc_net_connect(mc_net_default(), p->addr, deadline, &s) == 0) {
			mc_stream_close(&s);
			return MCBENCH_OK;
		}
		if (master_ended(p, LOOK_MS))
			return complain_ended(p, policy);
	}
	if (mcbench_stopped())
		return MCBENCH_OK;
	return mcbench_complain(MCBENCH_FAILED, "the master does not serve at %s after %u s", p->addr, START_MS / 1000);
}

/* A master does not authenticate its clients: only this user and root can enter the directory of its socket. */
static int dir_make(struct mcbench_pool *p)
{
	const char *tmp = getenv("TMPDIR");

	(void)snprintf(p->dir, sizeof(p->dir) - 8, "%s/mcbench-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(p->dir)) {
		int err = errno;

		mcbench_complain(0, "cannot create the directory %s: %s", p->dir, mc_strerror(err));
		p->dir[0] = '\0';
		return MCBENCH_FAILED;
	}
	(void)snprintf(p->addr, sizeof(p->addr), "unix:%s/master", p->dir);
	return MCBENCH_OK;
}

int mcbench_pool_start(struct mcbench_pool *p, const struct mcbench_conf *conf, const char *policy)
{
	char program[PATH_MAX];
	int err;

	memset(p, 0, sizeof(*p));
	p->pidfd = -1;
	p->log = memfd_create("master log", MFD_CLOEXEC);
	if (dir_make(p) != MCBENCH_OK)
		return MCBENCH_FAILED;
	program_find(conf->master_program, program);
	err = p->log < 0 ? errno : master_run(p, program, policy);
	if (!err) {
		p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
		err = p->pidfd < 0 ? errno : 0;
	}
	if (err)
		return mcbench_complain(MCBENCH_FAILED, "cannot start the master %s: %s\n"
					"         give the path of the program " PROGRAM " with --master_program=PATH",
					program, mc_strerror(err));
	return master_await(p, policy);
}

void mcbench_pool_stop(struct mcbench_pool *p)
{
	mcs_close(p->store);
	p->store = NULL;
	if (p->pid) {
		kill(p->pid, SIGTERM);
		if (p->pidfd < 0 || !master_ended(p, END_MS))
			kill(p->pid, SIGKILL);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
		p->pid = 0;
	}
	if (p->pidfd >= 0)
		close(p->pidfd);
	if (p->log >= 0)
		close(p->log);
	p->pidfd = p->log = -1;
	if (*p->dir) {
		(void)unlink(p->addr + strlen("unix:"));
		(void)rmdir(p->dir);
	}
	p->dir[0] = '\0';
}

/* ---- memory ---- */

/* A segment is a multiple of 2 MiB. Objects that are never evicted use the bytes beyond the @room that is wanted. */
static int pool_fill(struct mcbench_pool *p, uint64_t room)
{
	const struct mcs_put_opts opts = { .flags = MCS_PUT_HARD_PIN };
	static char zeros[FILLER];
	struct mcs_pool pool;
	char name[32];
	uint64_t left;
	int r;

	r = mcs_pool_stat(p->store, &pool, -1);
	if (r < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot ask for the pool: %s", mcs_error_detail(r));
	left = pool.capacity > room ? pool.capacity - room : 0;
	for (unsigned i = 0; left; i++) {
		struct iovec iov = { .iov_base = zeros, .iov_len = left < FILLER ? left : FILLER };
		struct mcs_key key = { .data = name };

		key.len = (size_t)snprintf(name, sizeof(name), "mcbench-filler/%u", i);
		r = mcs_put(p->store, key, &iov, 1, &opts, -1);
		if (r < 0)
			return mcbench_complain(MCBENCH_FAILED, "cannot fill the rest of the segment: %s",
						mcs_error_detail(r));
		left -= iov.iov_len;
	}
	return MCBENCH_OK;
}

int mcbench_open(const struct mcbench_conf *conf, const char *master, uint64_t segment_size, mcs_t **ret)
{
	struct mcs_conf sc;

	mcs_conf_init(&sc);
	sc.master = master;
	sc.credential = conf->credential;
	sc.hostname = conf->hostname;
	sc.segment_size = segment_size;
	sc.timeout_ms = (int64_t)conf->timeout;
	sc.force_tcp = conf->force_tcp;
	return mcs_open(&sc, ret);
}

int mcbench_pool_open(struct mcbench_pool *p, const struct mcbench_conf *conf, uint64_t blocks)
{
	uint64_t room = blocks * mcbench_pool_stride(conf->block_size);
	int r = mcbench_open(conf, p->addr, room, &p->store);

	if (r < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot add memory for %" PRIu64 " blocks of %" PRIu64
					" bytes: %s", blocks, conf->block_size, mcs_error_detail(r));
	return pool_fill(p, room);
}
