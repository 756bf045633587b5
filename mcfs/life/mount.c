/* SPDX-License-Identifier: Apache-2.0
 * mount.c - the FUSE session: options for the kernel, service threads, shutdown. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/thread.h"
#include "mcfs/life/handoff.h"
#include "mcfs/keymap.h"
#include "mcfs/life/life.h"
#include "mcfs/mcfs.h"
#include "mcfs/ops/ops.h"

#define IDLE_THREADS 32
#define MAX_BACKGROUND 64
/* FUSE protocol version that introduced names longer than 1024 bytes. */
#define LONG_NAMES_MINOR 42
#define SHORT_NAME_MAX 1024

/* One mount per process. Guarded by lock unless noted otherwise. */
static struct {
	struct mc_mutex lock;
	struct mc_cond changed;
	bool ready, ended;
	void (*tell)(void *arg);
	void *arg;
	struct mc_thread thread;
	bool started;
	char last_message[256];		/* libfuse's last message, for errors of the mount */
} session = { .lock = MC_MUTEX_INIT };

/* Interrupts the thread that waits for libfuse's threads: only a signal can end that wait. */
#define WAKE_SIGNAL SIGUSR2

static void on_wake(int sig)
{
}

static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[256];
	size_t n;

	/* The format strings are libfuse's. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	(void)vsnprintf(text, sizeof(text), fmt, ap);
#pragma GCC diagnostic pop
	n = strlen(text);
	if (n && text[n - 1] == '\n')
		text[n - 1] = '\0';
	mc_mutex_lock(&session.lock);
	memcpy(session.last_message, text, sizeof(text));
	mc_mutex_unlock(&session.lock);
	if (level <= FUSE_LOG_ERR)
		mc_warn("mcfs", "libfuse: %s", text);
	else
		mc_debug("mcfs", "libfuse: %s", text);
}

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	static const uint64_t wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS |
		FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_IOCTL_DIR |
		FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_HANDLE_KILLPRIV;
	/* Splicing and write-back are slower than copying here; an inode's data never change. */
	static const uint64_t unwanted = FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
		FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA;
	struct mcfs *fs = userdata;

	mcfs_compat_want(conn, wanted, unwanted);
	conn->max_write = conn->max_read = MCFS_SLOT;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
	fs->fuse_minor = conn->proto_minor;
	fs->name_max = conn->proto_minor >= LONG_NAMES_MINOR ? MCFS_NAME_MAX : SHORT_NAME_MAX;
	fs->new_name_max = fs->flat ? fs->name_max : SHORT_NAME_MAX;
	mc_info("mcfs", "mounted dir=%s protocol=%u.%u", fs->mountpoint, conn->proto_major,
		conn->proto_minor);
	mc_mutex_lock(&session.lock);
	session.ready = true;
	mc_cond_broadcast(&session.changed);
	mc_mutex_unlock(&session.lock);
}

static const struct fuse_lowlevel_ops operations = {
	.init = on_init,
	.lookup = mcfs_do_lookup,
	.forget = mcfs_do_forget,
	.forget_multi = mcfs_do_forget_multi,
	.getattr = mcfs_do_getattr,
	.setattr = mcfs_do_setattr,
	.readlink = mcfs_do_readlink,
	.mknod = mcfs_do_mknod,
	.mkdir = mcfs_do_mkdir,
	.unlink = mcfs_do_unlink,
	.rmdir = mcfs_do_rmdir,
	.symlink = mcfs_do_symlink,
	.rename = mcfs_do_rename,
	.link = mcfs_do_link,
	.open = mcfs_do_open,
	.create = mcfs_do_create,
	.read = mcfs_do_read,
	.write = mcfs_do_write,
	.flush = mcfs_do_flush,
	.release = mcfs_do_release,
	.fsync = mcfs_do_fsync,
	.fallocate = mcfs_do_fallocate,
	.opendir = mcfs_do_opendir,
	.readdir = mcfs_do_readdir,
	.readdirplus = mcfs_do_readdirplus,
	.releasedir = mcfs_do_releasedir,
	.fsyncdir = mcfs_do_fsyncdir,
	.statfs = mcfs_do_statfs,
	.getxattr = mcfs_do_getxattr,
	.listxattr = mcfs_do_listxattr,
	.setxattr = mcfs_do_setxattr,
	.removexattr = mcfs_do_removexattr,
	.ioctl = mcfs_do_ioctl,
	.flock = mcfs_do_flock,
	.setlk = mcfs_do_setlk,
	.getlk = mcfs_do_getlk,
};

static void *session_serve(void *arg)
{
	struct mcfs *fs = arg;
	struct fuse_loop_config *cfg = fuse_loop_cfg_create();
	struct sigaction wake = { .sa_handler = on_wake };
	sigset_t set;
	int r;

	sigaction(WAKE_SIGNAL, &wake, NULL);
	sigemptyset(&set);
	sigaddset(&set, WAKE_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	/* A cloned descriptor closes with the daemon, and the kernel then fails the requests that
	 * were read from it. That is the best result if the kernel cannot resend them anyway. */
	fuse_loop_cfg_set_clone_fd(cfg, !fs->conf.supervise || !mcfs_compat_resends());
	fuse_loop_cfg_set_max_threads(cfg, (unsigned)fs->conf.max_threads);
	fuse_loop_cfg_set_idle_threads(cfg, IDLE_THREADS);
	r = fuse_session_loop_mt(fs->session, cfg);
	fuse_loop_cfg_destroy(cfg);
	if (r < 0)
		mc_warn("mcfs", "the session ended with an error: %s", mc_strerror(r));
	mc_mutex_lock(&session.lock);
	session.ended = true;
	mc_cond_broadcast(&session.changed);
	mc_mutex_unlock(&session.lock);
	session.tell(session.arg);
	return NULL;
}

/* Mount options for libfuse and the kernel, as one argument of -o; free() it. */
static char *mount_options(const struct mcfs *fs)
{
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	if (!to)
		return NULL;
	fprintf(to, "subtype=mcfs,default_permissions,max_read=%zu,fsname=", MCFS_SLOT);
	for (const char *p = fs->master; *p; p++) {
		if (*p == ',' || *p == '\\')
			fputc('\\', to);
		fputc(*p, to);
	}
	if (fs->conf.allow_other)
		fputs(",allow_other", to);
	if (fs->conf.ro || !fs->conf.rw)
		fputs(",ro", to);
	if (!fs->conf.exec)
		fputs(",noexec", to);
	if (fs->conf.suid)
		fputs(",suid", to);
	if (fs->conf.dev)
		fputs(",dev", to);
	if (fs->conf.noexec)
		fputs(",noexec", to);
	return fclose(to) ? NULL : text;
}

static int number_of(const struct mcfs *fs)
{
	int connection = fs->taken_over ? mcfs_handoff()->connection : 0;

	if (!connection)
		connection = mcfs_mountpoint_connection(fs->mountpoint);
	return connection < 0 ? 0 : connection;
}

static int mount_session(struct mcfs *fs, char *options)
{
	char *argv[] = { (char *)(uintptr_t)"mcfs", (char *)(uintptr_t)"-o", options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	char where[32];
	int r;

	fs->session = fuse_session_new(&args, &operations, sizeof(operations), fs);
	fuse_opt_free_args(&args);
	if (!fs->session)
		return mc_fail(-EINVAL, "libfuse rejects the mount options: %s", session.last_message);
	if (fs->taken_over)
		(void)snprintf(where, sizeof(where), "/dev/fd/%d", fs->fuse_fd);
	if (fuse_session_mount(fs->session, fs->taken_over ? where : fs->mountpoint))
		return mc_fail(-EIO, "cannot mount on %s: %s", fs->mountpoint,
			       session.last_message[0] ? session.last_message : "see above");
	fs->connection = number_of(fs);
	r = mcfs_compat_attach(fs->session, fs->pool);
	if (r < 0)
		return mc_fail(r, "cannot install the hook in libfuse");
	return fs->taken_over ? mcfs_compat_resume(fs->session) : 0;
}

int mcfs_session_start(struct mcfs *fs, void (*ended)(void *arg), void *arg)
{
	auto_free char *options = mount_options(fs);
	int r;

	if (!options)
		return -ENOMEM;
	session.tell = ended;
	session.arg = arg;
	session.ready = session.ended = false;
	(void)mc_cond_init(&session.changed);
	fuse_set_log_func(log_libfuse);
	r = mount_session(fs, options);
	if (r < 0)
		return r;
	r = mc_thread_start(&session.thread, "mcfs-session", session_serve, fs);
	if (r < 0)
		return r;
	session.started = true;
	return 0;
}

int mcfs_session_wait_ready(struct mcfs *fs, uint64_t ms)
{
	uint64_t deadline = mc_deadline_ms((int64_t)ms);

	MC_LOCKED(&session.lock);
	while (!session.ready && !session.ended)
		if (mc_cond_wait_until(&session.changed, &session.lock, deadline) == -ETIMEDOUT)
			return mc_fail(-ETIMEDOUT, "timed out waiting for FUSE_INIT from the kernel");
	return session.ready ? 0 : mc_fail(-EIO, "the mount ended at once: %s", session.last_message);
}

static bool has_ended(void)
{
	MC_LOCKED(&session.lock);
	return session.ended;
}

/* Wait until all requests that the kernel has sent are answered, among them the closes of programs that have
 * ended. Also after the kernel's last request: the store may still call back for reads of killed programs. */
static int session_drain(struct mcfs *fs, uint64_t deadline)
{
	struct pollfd pfd = { .fd = fuse_session_fd(fs->session), .events = POLLIN };

	do {
		if ((has_ended() || poll(&pfd, 1, 0) == 0) && mcfs_reply_inflight() == 0)
			return 0;
		mc_sleep_ms(2);
	} while (mc_now_ns() < deadline);
	return mc_fail(-ETIMEDOUT, "operations are still running");
}

bool mcfs_session_is_mounted(const struct mcfs *fs)
{
	struct pollfd pfd = { .events = POLLIN };
	int err;

	if (!fs->session || !fs->connection || mcfs_mountpoint_connection(fs->mountpoint) != fs->connection)
		return false;
	pfd.fd = fuse_session_fd(fs->session);
	/* While the connection is alive, no other mount has its number. Afterwards our mount, if it
	 * still exists, is dead. */
	if (poll(&pfd, 1, 0) >= 0 && !(pfd.revents & (POLLERR | POLLHUP | POLLNVAL)))
		return true;
	err = mcfs_mountpoint_probe(fs->mountpoint);
	return err == ENOTCONN || err == ECONNABORTED;
}

int mcfs_session_stop(struct mcfs *fs, uint64_t ms)
{
	if (mcfs_session_is_mounted(fs))
		mcfs_mountpoint_detach(fs->mountpoint);
	return mcfs_session_join(fs, ms);
}

int mcfs_session_join(struct mcfs *fs, uint64_t ms)
{
	uint64_t deadline = mc_deadline_ms((int64_t)ms);
	int r;

	if (!session.started)
		return 0;
	r = session_drain(fs, deadline);
	if (r < 0)
		return r;
	fuse_session_exit(fs->session);
	mc_mutex_lock(&session.lock);
	while (!session.ended && mc_now_ns() < deadline) {
		/* Repeat the signal: the first one may arrive just before libfuse starts to wait. */
		(void)pthread_kill(session.thread.id, WAKE_SIGNAL);
		(void)mc_cond_wait_until(&session.changed, &session.lock, mc_deadline_ms(20));
	}
	if (!session.ended) {
		mc_mutex_unlock(&session.lock);
		return mc_fail(-ETIMEDOUT, "threads of the session are still running");
	}
	mc_mutex_unlock(&session.lock);
	mc_thread_join(session.thread);
	session.started = false;
	return 0;
}

/* Replace the session's descriptor with a broken one. If it looked alive, libfuse would unmount by
 * path, and another file system may be mounted at that path by now. */
static void session_sever(struct fuse_session *se)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	close(fds[0]);
	(void)dup3(fds[1], fuse_session_fd(se), O_CLOEXEC);
	close(fds[1]);
}

void mcfs_session_free(struct mcfs *fs)
{
	if (!fs->session)
		return;
	if (fuse_session_fd(fs->session) >= 0) {
		mcfs_compat_detach();
		session_sever(fs->session);
		fuse_session_unmount(fs->session);
	}
	fuse_session_destroy(fs->session);
	fs->session = NULL;
	mc_cond_destroy(&session.changed);
}
