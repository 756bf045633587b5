/* SPDX-License-Identifier: Apache-2.0
 * main.c - the mcfs program: options, start, reload and shutdown of the daemon. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/httpd.h"
#include "common/net/net.h"
#include "common/net/protocol.h"
#include "common/process/inherited.h"
#include "common/process/stdfds.h"
#include "common/security/secret.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "common/sys/thread.h"
#include "mcfs/control/control.h"
#include "mcfs/control/local_service.h"
#include "mcfs/control/feed.h"
#include "mcfs/handle.h"
#include "mcfs/life/fdstore.h"
#include "mcfs/life/guard.h"
#include "mcfs/life/handoff.h"
#include "mcfs/life/life.h"
#include "mcfs/mcfs.h"
#include "mcfs/read/ahead.h"
#include "mcfs/reply.h"
#include "node/host.h"

#define READY_MS 20000
/* interval of attempts to end an aborted mount and to mount again */
#define RETRY_MS 1000
/* limit of the end of a daemon that has never reached its master */
#define LOOKING_END_MS 500

static const struct mc_opt_row rows[] = {
#define OPT(...) MC_OPT_ROW(struct mcfs_conf, __VA_ARGS__)
#include "mcfs/options.def"
#undef OPT
	{ 0 },
};

static const struct mc_opt_alias aliases[] = {
	{ "f", "foreground" },
	{ "d", "debug" },
	{ NULL, NULL },
};

static const struct mc_program program = {
	.name = "mcfs",
	.synopsis = "[OPTION]... [MASTER[,MASTER...]] MOUNTPOINT",
	.summary = "mount the object pool as a file system",
	.rows = rows,
	.aliases = aliases,
};

/* The running program; its parts in the order in which they are started. */
struct running {
	struct mcfs fs;
	struct mcfs_standalone *standalone;
	struct mc_httpd *httpd;
	bool versions, files, errors, replies;
	int ended;		/* atomic: the session is over */
	int argc;		/* to parse the options again */
	char **argv;
	/* working directory at the start, for relative file names; a daemon leaves it */
	char *dir;
};

static int print_error(int err)
{
	mc_log_fatal("mcfs", "mcfs", "%s%s", mcs_error_detail(err),
		     err == -MC_ERPC ? "; is mooncake_master running there? --standalone needs none" : "");
	return err;
}

/* ---- configuration ---- */

static int parse_mode(const char *name, const char *text, mode_t *ret)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (!*text || *end || mode > 0777)
		return mc_fail(-EINVAL, "%s: %s is not an octal mode", name, text);
	*ret = (mode_t)mode;
	return 0;
}

static uint64_t quarter_of_memory(void)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);

	return pages * page / 4;
}

/* Index of @text among the @n @words. */
static int word_of(const char *name, const char *text, const char *const *words, int n)
{
	char all[64] = "";
	size_t len = 0;

	for (int i = 0; i < n; i++) {
		if (strcmp(text, words[i]) == 0)
			return i;
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i ? ", " : "", words[i]);
	}
	return mc_fail(-EINVAL, "%s: unknown value %s, use one of %s", name, text, all);
}

static int check_views(struct mcfs *fs)
{
	static const char *const maps[] = { "tree", "flat" }, *const sizes[] = { "pool", "local" };
	static const char *const lists[] = {
		[MCFS_LIST_ALL] = "all", [MCFS_LIST_LOCAL] = "local", [MCFS_LIST_OFF] = "off",
	};
	static const char *const removals[] = {
		[MCFS_RM_FORCE] = "force", [MCFS_RM_UNREAD] = "unread", [MCFS_RM_DENY] = "deny",
	};
	int map = word_of("keymap", fs->conf.keymap, maps, 2), list, size, removal;

	if (map < 0)
		return map;
	list = word_of("list", fs->conf.list, lists, 3);
	if (list < 0)
		return list;
	size = word_of("df", fs->conf.df, sizes, 2);
	if (size < 0)
		return size;
	removal = word_of("rm", fs->conf.rm, removals, 3);
	if (removal < 0)
		return removal;
	fs->rm = removal;
	fs->flat = map;
	fs->listed = list;
	fs->df_local = size;
	return 0;
}

static int check_conf(struct mcfs *fs)
{
	struct mcfs_conf *c = &fs->conf;
	int r;

	r = parse_mode("file_mode", c->file_mode, &fs->file_mode);
	if (r == 0)
		r = parse_mode("dir_mode", c->dir_mode, &fs->dir_mode);
	if (r == 0)
		r = check_views(fs);
	if (r < 0)
		return r;
	if (c->supervise && c->standalone)
		return mc_fail(-EINVAL, "supervise excludes standalone: the pool's index ends with its daemon");
	fs->segment_fd = fs->handoff_fd = -1;
	fs->uid = c->uid < 0 ? geteuid() : (uid_t)c->uid;
	fs->gid = c->gid < 0 ? getegid() : (gid_t)c->gid;
	if (!c->staging_max)
		c->staging_max = quarter_of_memory();
	if (c->staging_max < MCFS_SLOT)
		return mc_fail(-EINVAL, "staging_max: less than 1 MiB");
	fs->name_max = fs->new_name_max = 255;
	fs->start_wall_ms = mc_wall_ns() / MC_NS_PER_MS;
	return 0;
}

/* Positional arguments: [MASTER] MOUNTPOINT. */
static int check_arguments(struct mcfs *fs)
{
	const struct mc_options *o = fs->options;
	int n = mc_options_argc(o);

	if (n < 1)
		return mc_fail(-EINVAL, "no mount point is given; see --help");
	if (n > 2)
		return mc_fail(-EINVAL, "too many arguments; see --help");
	if (n == 2 && fs->conf.standalone)
		return mc_fail(-EINVAL, "MASTER cannot be combined with standalone, which runs its own master");
	fs->master = strdup(fs->conf.standalone ? "standalone" :
			    n == 2 ? mc_options_argv(o, 0) : fs->conf.master_server_address);
	if (!fs->master)
		return -ENOMEM;
	if (fs->taken_over)
		return 0;
	return mcfs_mountpoint_prepare(mc_options_argv(o, n - 1), &fs->mountpoint);
}

static int check_host(const struct mcfs *fs)
{
	return mcn_host_check(fs->conf.host, fs->conf.standalone ? "local:" : fs->master,
			      mc_options_origin(fs->options, "host") != MC_ORIGIN_DEFAULT, *fs->conf.credential,
			      fs->conf.allow_insecure);
}

static int prepare_again(struct mcfs *fs)
{
	auto_free char *dir = fs->mountpoint;

	fs->mountpoint = NULL;
	return mcfs_mountpoint_prepare(dir, &fs->mountpoint);
}

static int open_log(const struct mcfs_conf *c)
{
	/* Log files are reopened from another working directory. If the directory is missing,
	 * mc_log_open() reports it. */
	auto_free char *dir = c->log_dir[0] ? realpath(c->log_dir, NULL) : NULL;
	struct mc_log_conf log = {
		.program = "mcfs",
		.dir = c->logtostderr || c->debug ? NULL : dir ? dir : c->log_dir,
		.max_file_size = (uint64_t)c->max_log_size << 20,
		.max_files = (unsigned)c->max_log_files,
		.to_stderr = mc_log_to_stderr(c->alsologtostderr, c->stderrthreshold),
		.levels = mc_log_levels(c->minloglevel, c->v, c->log),
		.syslog = c->syslog && !c->logtostderr && !c->debug,
	};

	/* A daemon without a log destination logs only errors: its standard error is the parent's,
	 * which shows why the start failed. */
	if (!c->foreground && !c->debug && !c->log_dir[0] && !c->logtostderr && !c->syslog &&
	    c->v <= 0 && !c->log[0])
		log.levels = "err";
	if (c->debug && !c->log[0])
		log.levels = "info,mcfs=trace";
	return mc_log_open(&log);
}

static int check_protocol(const struct mcfs_conf *c)
{
	int r = mc_protocol_parse_store(c->protocol);

	mc_env_report_inert();
	return r < 0 ? r : 0;
}

/* Warnings about the configuration appear once: in the log, or on the caller's terminal, before the log of a daemon
 * without a destination is limited to errors. */
static int begin_log(const struct mcfs_conf *c)
{
	bool has_log = c->log_dir[0] || c->syslog;
	int r = has_log ? 0 : check_protocol(c);

	if (r == 0)
		r = open_log(c);
	return r < 0 ? r : check_protocol(c);
}

/* ---- starting and stopping ---- */

static void on_failed(struct mcfs_version_env *env, const void *key, size_t len, int err,
		      const char *when, pid_t pid)
{
	struct mcfs *fs = (struct mcfs *)((char *)env - offsetof(struct mcfs, versions));

	mcfs_errors_add(&fs->errors, key, len, err, when, pid);
	mc_warn("mcfs", "a file was not stored, see .mcfs/errors: %s when=%s pid=%d",
		mcs_error_detail(err), when, (int)pid);
}

static void on_session_end(void *arg)
{
	struct running *run = arg;

	__atomic_store_n(&run->ended, 1, __ATOMIC_RELEASE);
	(void)kill(getpid(), SIGUSR1);
}

static int open_store(struct running *run, const char *master)
{
	struct mcfs *fs = &run->fs;
	char host[MC_ADDR_MAX];
	struct mcs_conf conf;
	int r;

	mcs_conf_init(&conf);
	mcn_host_of(fs->conf.host, master, host, sizeof(host));
	conf.master = master;
	conf.credential = mc_credential_path();
	conf.encrypt = fs->conf.encrypt;
	conf.tenant = fs->conf.tenant_id;
	conf.hostname = host;
	conf.protocol = fs->conf.protocol;
	conf.rdma_devices = fs->conf.device_names;
	conf.segment_size = fs->conf.global_segment_size;
	conf.segment_kind = fs->conf.segment_kind;
	conf.far_size = fs->conf.far_segment_size;
	conf.far_path = fs->conf.far_segment_path;
	conf.far_node = (int)fs->conf.far_segment_numa_node;
	conf.root_fs_dir = fs->conf.root_fs_dir;
	conf.root_fs_cluster = fs->conf.cluster_id;
	conf.root_fs_size = fs->conf.global_file_segment_size;
	conf.s3_path = *fs->conf.s3_segment ? fs->conf.s3_segment : NULL;
	conf.s3_size = fs->conf.s3_segment_size;
	conf.s3_import = fs->conf.s3_segment_import;
	if (fs->conf.timeout)
		conf.timeout_ms = (int64_t)fs->conf.timeout;
	conf.daemon = "off";	/* this process is the daemon */
	conf.ssd_path = fs->conf.ssd_offload_path;
	conf.ssd_size = fs->conf.ssd_offload_size;
	conf.ssd_format = fs->conf.ssd_format ? 1 : -1;
	conf.ssd_nof = fs->conf.ssd_offload_nof;
	r = fs->conf.enable_offload ? mcs_conf_offload(&conf) : 0;
	if (r < 0)
		return r;
	if (!fs->conf.enable_offload)
		conf.ssd_path = NULL;
	conf.setup_timeout_ms = (int64_t)fs->conf.setup_timeout;
	conf.spin_us = (unsigned)fs->conf.spin_us;
	/* An existing mount must survive an unreachable master. */
	conf.lazy = fs->conf.lazy || fs->taken_over || fs->segment_fd >= 0;
	if (fs->segment_fd >= 0)
		conf.segment_fd = fs->segment_fd;
	conf.segment_identity = fs->segment_identity;
	/* The master may be missing for a long time. A master in this process is there, and has files to remove. */
	if (!fs->conf.standalone)
		mc_signals_end_at_once("mcfs");
	r = mcs_open(&conf, &fs->store);
	mc_signals_block();
	return r;
}

/* The parts of a mount that are new after an aborted mount; the other parts belong to the node. */
static int files_start(struct running *run)
{
	struct mcfs *fs = &run->fs;
	int r = mcfs_inodes_init(&fs->inodes);

	if (r < 0)
		return r;
	mcfs_tree_init(&fs->tree);
	mcfs_open_pins_init(&fs->open_pins);
	mcfs_locks_init(&fs->locks, (unsigned)fs->conf.max_threads / 2);
	run->files = true;
	r = mcfs_takeover_restore(fs);
	if (r < 0)
		return r;
	r = mcfs_reply_init(fs);
	run->replies = r == 0;
	return r;
}

static void files_stop(struct running *run)
{
	struct mcfs *fs = &run->fs;

	if (run->replies)
		mcfs_reply_done(fs);
	if (run->files) {
		mcfs_open_pins_done(&fs->open_pins);
		mcfs_locks_done(&fs->locks);
		mcfs_tree_done(&fs->tree);
		mcfs_inodes_done(&fs->inodes);
	}
	run->replies = run->files = false;
}

static int run_start_parts(struct running *run)
{
	struct mcfs *fs = &run->fs;
	const char *master = fs->master, *public = master;
	int r;

	mc_mutex_init(&fs->handles_lock);
	mc_list_init(&fs->handles);
	mc_list_init(&fs->kept);
	r = mcfs_takeover_handoff(fs);
	if (r < 0)
		return r;
	r = mcfs_pool_new(fs->conf.staging_max, 2 * (unsigned)fs->conf.max_threads + 16 +
			  MCFS_AHEAD_SLOTS, &fs->pool);
	if (r == 0 && fs->conf.standalone)
		r = mcfs_standalone_start(&run->standalone, &master, &public);
	if (r == 0 && strncmp(public, "unix:", 5) == 0)
		fs->socket_addr = public;
	if (r == 0)
		r = open_store(run, master);
	if (r < 0)
		return r;
	r = mcfs_version_env_init(&fs->versions, fs->store, fs->pool);
	if (r < 0)
		return r;
	run->versions = true;
	fs->versions.failed = on_failed;
	fs->versions.uid = fs->uid;
	fs->versions.max_size = MCFS_SIZE_MAX;
	r = mcfs_errors_init(&fs->errors);
	if (r < 0)
		return r;
	run->errors = true;
	r = files_start(run);
	if (r < 0)
		return r;
	r = mcfs_service_start(fs, public);
	if (r < 0)
		return r;
	if (fs->conf.enable_http_server)
		r = mcfs_http_start(fs, &run->httpd);
	return r;
}

static int mount_start(struct running *run)
{
	int r = mcfs_session_start(&run->fs, on_session_end, run);

	if (r == 0)
		r = mcfs_session_wait_ready(&run->fs, READY_MS);
	if (r == 0)
		r = mcfs_takeover_keep(&run->fs);
	if (r == 0)
		r = mcfs_guard_begin(run->fs.connection);
	return r;
}

static int run_start(struct running *run)
{
	int r = run_start_parts(run);

	if (r == 0)
		r = mount_start(run);
	/* A lazily unmounted mount with open files appears in no mount table. */
	return r == -ENOENT && run->fs.taken_over ? 0 : r;
}

/* Answer the operations that would wait without a limit. */
static void waits_hang_up(struct running *run)
{
	mcfs_feeds_hang_up();
	if (run->files)
		mcfs_locks_hang_up(&run->fs.locks);
}

/* Stop and free all parts that run_start() has started, also after a partial start. */
static int run_stop(struct running *run)
{
	struct mcfs *fs = &run->fs;
	bool unmounted = __atomic_load_n(&run->ended, __ATOMIC_ACQUIRE) &&
		!mcfs_session_is_mounted(fs);
	int r;

	waits_hang_up(run);
	r = fs->session ? mcfs_session_stop(fs, fs->conf.umount_timeout) : 0;
	if (r < 0) {
		/* Threads are still running and use the mount's memory: only the end of the process frees it. */
		mc_err("mcfs", "giving up on operations that did not end: %s", mc_err_detail(r));
		mc_log_close();
		/* The guard notices our death and removes the files of a standalone pool. Status 0
		 * after an unmount: the supervisor must not start another daemon. */
		mc_process_end(unmounted ? 0 : 1);
	}
	mcfs_guard_end();
	/* After umount(8) no file is open unless the unmount was forced. After a signal, files may
	 * be open and half written. */
	if (run->versions)
		mcfs_handles_end(fs, !unmounted);
	mcfs_feeds_end();
	mcfs_session_free(fs);
	mc_httpd_stop(run->httpd);
	files_stop(run);
	if (run->errors)
		mcfs_errors_done(&fs->errors);
	mcfs_service_stop(fs);
	mcs_close(fs->store);
	if (run->versions)
		mcfs_version_env_done(&fs->versions);
	mcfs_standalone_stop(run->standalone);
	mcfs_pool_free(fs->pool);
	mc_mutex_destroy(&fs->handles_lock);
	return 0;
}

static void store_ms(uint64_t *to, uint64_t from)
{
	__atomic_store_n(to, from, __ATOMIC_RELAXED);
}

/* SIGHUP: reopen log files that were moved away, and apply the configuration file's log options,
 * timeouts and immutable. After an error all options keep their values. */
static void run_reload(struct running *run)
{
	struct mcfs_conf *c = &run->fs.conf, now;
	auto_free char *here = realpath(".", NULL);
	struct mc_options *options;
	int r;

	if (!run->dir || chdir(run->dir) < 0)
		mc_warn("mcfs", "cannot change to the directory in which the daemon was started: %s",
			mc_strerror(errno));
	r = mc_options_parse(&program, run->argc, run->argv, &now, &options);
	if (r < 0)
		(void)open_log(c);
	if (r == 0) {
		r = open_log(&now);
		if (r == 0) {
			store_ms(&c->timeout, now.timeout);
			store_ms(&c->entry_timeout, now.entry_timeout);
			store_ms(&c->attr_timeout, now.attr_timeout);
			store_ms(&c->list_cache, now.list_cache);
			store_ms(&c->umount_timeout, now.umount_timeout);
			__atomic_store_n(&c->immutable, now.immutable, __ATOMIC_RELAXED);
		}
		mc_options_free(options);
	}
	if (here && chdir(here) < 0)
		mc_warn("mcfs", "chdir %s: %s", here, mc_strerror(errno));
	if (r < 0)
		mc_err("mcfs", "cannot reload the configuration, keeping the old one: %s",
		       mc_err_detail(r));
	else
		mc_info("mcfs", "configuration reloaded");
}

/* True: the daemon has to end. */
static bool run_signal(struct running *run, int sig)
{
	if (sig == SIGHUP)
		run_reload(run);
	if (sig != SIGINT && sig != SIGTERM)
		return false;
	mc_info("mcfs", "ending on signal %d", sig);
	return true;
}

/* ---- after an abort by the guard ---- */

/* End the aborted session; the dead mount stays. Running operations end at their deadlines. False: a signal
 * ended the wait. */
static bool aborted_end(struct running *run)
{
	struct mcfs *fs = &run->fs;

	waits_hang_up(run);
	while (mcfs_session_join(fs, RETRY_MS) < 0)
		if (run_signal(run, mc_signals_wait_ms(0)))
			return false;
	return true;
}

/* The kernel knows nothing of an aborted mount's inodes and files any more. */
static void aborted_clear(struct running *run)
{
	struct mcfs *fs = &run->fs;

	mcfs_handles_drop(fs);
	mcfs_feeds_end();
	mcfs_session_free(fs);
	files_stop(run);
	fs->connection = 0;
	__atomic_store_n(&run->ended, 0, __ATOMIC_RELEASE);
}

static int mount_again(struct running *run)
{
	struct mcfs *fs = &run->fs;
	int r = mcfs_takeover_handoff(fs);

	if (r == 0)
		r = files_start(run);
	if (r == 0)
		r = mount_start(run);
	if (r == 0)
		return 0;
	mc_err("mcfs", "cannot mount again, will retry dir=%s: %s", fs->mountpoint, mcs_error_detail(r));
	mcfs_guard_pause();
	waits_hang_up(run);
	while (mcfs_session_stop(fs, READY_MS) < 0)
		mc_warn("mcfs", "waiting for operations that do not end dir=%s", fs->mountpoint);
	aborted_clear(run);
	return r;
}

/* Replace an aborted mount. Memory, objects, registration and local programs are not affected. False: the
 * daemon has to end, because the mount was unmounted meanwhile, or on a signal. */
static bool run_again(struct running *run)
{
	struct mcfs *fs = &run->fs;
	bool mounted;

	mc_warn("mcfs", "the daemon had stalled and its mount was aborted, mounting again dir=%s", fs->mountpoint);
	mcfs_guard_pause();
	if (!aborted_end(run))
		return false;
	mounted = mcfs_session_is_mounted(fs);
	aborted_clear(run);
	mcfs_service_forget_backing(fs);
	fs->taken_over = false;
	if (!mounted) {
		mc_info("mcfs", "unmounted while the daemon stood still");
		return false;
	}
	/* As late as possible: until the next mount, programs find the directory below. */
	mcfs_mountpoint_detach(fs->mountpoint);
	while (mount_again(run) < 0)
		if (run_signal(run, mc_signals_wait_ms(RETRY_MS)))
			return false;
	return true;
}

static void run_wait(struct running *run)
{
	for (;;) {
		int sig = mc_signals_wait();

		if (run_signal(run, sig))
			return;
		if (!__atomic_load_n(&run->ended, __ATOMIC_ACQUIRE))
			continue;
		if (!mcfs_guard_aborted()) {
			mc_info("mcfs", "unmounted");
			return;
		}
		if (!run_again(run))
			return;
	}
}

/* ---- the daemon ---- */

/* The parent waits for the child's status of the start and exits with it: 0, the mount is there; otherwise the
 * reason has been printed. Returns, in the child, the descriptor to report the status on. */
static int become_daemon(int argc, char **argv)
{
	int fds[2], status = 1, fd;
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return mc_fail(-errno, "pipe: %s", mc_strerror(errno));
	pid = fork();
	if (pid < 0)
		return mc_fail(-errno, "fork: %s", mc_strerror(errno));
	if (pid > 0) {
		close(fds[1]);
		do
			n = read(fds[0], &status, sizeof(status));
		while (n < 0 && errno == EINTR);
		if (n != sizeof(status))
			fprintf(stderr, "mcfs: the daemon died at its start\n");
		mc_process_end(n == sizeof(status) ? status : 1);
	}
	close(fds[0]);
	mc_inherited_close(argc, argv);
	(void)setsid();
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd > 0) {
		(void)dup2(fd, STDIN_FILENO);
		close(fd);
	}
	return fds[1];
}

static void tell_parent(int fd, int status)
{
	int null;

	if (fd < 0)
		return;
	if (status == 0) {
		if (chdir("/") < 0)
			mc_warn("mcfs", "chdir /: %s", mc_strerror(errno));
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (null >= 0) {
			(void)dup2(null, STDOUT_FILENO);
			(void)dup2(null, STDERR_FILENO);
			if (null > STDERR_FILENO)
				close(null);
		}
	}
	if (write(fd, &status, sizeof(status)) != sizeof(status))
		mc_warn("mcfs", "cannot report the start: the parent process has ended");
	close(fd);
}

static void raise_limits(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &lim);
	}
}

static int run_mount(struct running *run, int parent)
{
	int r;

	mc_signals_block();
	raise_limits();
	r = run->fs.conf.drop_privileges ? mcfs_privileges_drop() : 0;
	if (r == 0)
		r = run_start(run);
	if (r < 0) {
		(void)print_error(r);
		/* The objects and open files belong to the next daemon, if there is one. */
		if (run->fs.taken_over || run->fs.segment_fd >= 0)
			mc_process_end(1);
		(void)run_stop(run);
		tell_parent(parent, 1);
		return 1;
	}
	tell_parent(parent, 0);
	mcfs_fdstore_tell("READY=1");
	if (run->fs.taken_over)
		mcfs_handles_continue(&run->fs);
	run_wait(run);
	mcfs_fdstore_tell("STOPPING=1");
	/* Without a master, running operations and attempts to connect have nothing to lose. */
	if (mcs_health(run->fs.store) == 1) {
		if (mcfs_session_is_mounted(&run->fs))
			mcfs_mountpoint_detach(run->fs.mountpoint);
		mc_signals_end_within(LOOKING_END_MS);
	}
	(void)run_stop(run);
	mcfs_handoff_close();
	return 0;
}

int main(int argc, char **argv)
{
	static struct running run;
	struct mcfs *fs = &run.fs;
	int parent = -1, r;
	bool in_front, has_fdstore;

	mc_stdfds_open();
	mc_inherited_note();
	run.argc = argc;
	run.argv = argv;
	run.dir = realpath(".", NULL);
	r = mc_options_parse(&program, argc, argv, &fs->conf, &fs->options);
	if (r)
		return r > 0 ? 0 : (print_error(r), MC_OPTIONS_STATUS);
	mc_credential_use(fs->conf.credential);
	(void)setenv("MC_RDMA_WITH_SECURITY", fs->conf.rdma_with_security, 1);
	mc_env_scrub();
	r = check_conf(fs);
	if (r == 0)
		r = begin_log(&fs->conf);
	if (r == 0)
		mc_options_report(fs->options);
	in_front = fs->conf.foreground || fs->conf.debug;
	/* systemd's descriptor store, which it offers to a service in the foreground. */
	has_fdstore = in_front && mcfs_fdstore_there();
	if (r == 0 && has_fdstore)
		r = mcfs_takeover_begin(fs);
	if (r == 0)
		r = check_arguments(fs);
	if (r == 0)
		r = check_host(fs);
	if (r == 0 && !in_front) {
		parent = become_daemon(argc, argv);
		r = parent < 0 ? parent : 0;
	}
	if (r == 0 && fs->conf.supervise && !has_fdstore) {
		r = mcfs_supervise(&parent);
		if (r == 0)
			r = mcfs_takeover_begin(fs);
		/* The last daemon's mount may be dead. */
		if (r == 0 && !fs->taken_over)
			r = prepare_again(fs);
	}
	if (r == 0 && (fs->conf.stall_timeout || fs->conf.standalone))
		r = mcfs_guard_fork(fs->mountpoint, fs->conf.stall_timeout, in_front, argc, argv);
	r = r < 0 ? (print_error(r), 1) : run_mount(&run, parent);
	free(fs->master);
	free(fs->mountpoint);
	free(run.dir);
	mc_options_free(fs->options);
	mc_log_close();
	return r;
}
