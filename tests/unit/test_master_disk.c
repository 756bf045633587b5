/* SPDX-License-Identifier: Apache-2.0
 * test_master_disk.c - which data the journal syncs: after a power failure only synced data is
 * left, and the next master must know which of it is valid. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fault.h"
#include "master/journal/journal_i.h"

#define MIB (1u << 20)
#define FILES 64

/* ---- a disk that remembers which data was synced; linked instead of the real functions ---- */

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
struct dirent *__wrap_readdir(DIR *d);
struct dirent *__real_readdir(DIR *d);

static struct {
	struct {
		int fd;			/* kept open, so that no other file gets its inode */
		ino_t ino;
		off_t size;
	} file[FILES];
	struct {
		char text[sizeof(((struct dirent *)0)->d_name)];
		ino_t ino;
	} name[FILES];
	unsigned files, names;
	unsigned bad_readdir;		/* which of the next calls fails, 0: none */
	void (*on_fdatasync)(void);
} disk;

static void sync_names(int fd)
{
	DIR *d = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY));
	struct dirent *e;

	disk.names = 0;
	while ((e = __real_readdir(d))) {
		if (!strchr(e->d_name, '-'))
			continue;
		assert_true(disk.names < FILES);
		strcpy(disk.name[disk.names].text, e->d_name);
		disk.name[disk.names++].ino = e->d_ino;
	}
	closedir(d);
}

int __wrap_fsync(int fd)
{
	struct stat st, dir;
	unsigned i;

	assert_int_equal(fstat(fd, &st), 0);
	if (S_ISDIR(st.st_mode)) {
		if (stat(jx_dir, &dir) == 0 && dir.st_ino == st.st_ino)
			sync_names(fd);
		return 0;
	}
	for (i = 0; i < disk.files && disk.file[i].ino != st.st_ino; i++)
		;
	assert_true(i < FILES);
	if (i == disk.files) {
		disk.file[disk.files].fd = dup(fd);
		disk.file[disk.files++].ino = st.st_ino;
	}
	disk.file[i].size = st.st_size;
	return 0;
}

int __wrap_fdatasync(int fd)
{
	void (*fn)(void) = disk.on_fdatasync;

	disk.on_fdatasync = NULL;
	if (fn)
		fn();
	return __wrap_fsync(fd);
}

struct dirent *__wrap_readdir(DIR *d)
{
	if (disk.bad_readdir && !--disk.bad_readdir) {
		errno = EIO;
		return NULL;
	}
	return __real_readdir(d);
}

static void disk_new(void)
{
	while (disk.files)
		close(disk.file[--disk.files].fd);
	memset(&disk, 0, sizeof(disk));
}

static void cut(const char *path, ino_t ino)
{
	char from[64];
	unsigned i;
	int fd;

	for (i = 0; i < disk.files && disk.file[i].ino != ino; i++)
		;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	close(fd);
	if (i == disk.files)
		return;
	/* The file may have been unlinked meanwhile: read it through its descriptor. */
	snprintf(from, sizeof(from), "/proc/self/fd/%d", disk.file[i].fd);
	jx_copy_file(from, path);
	assert_int_equal(truncate(path, disk.file[i].size), 0);
}

/* Make the copy contain only synced names and synced bytes, as after a power failure. */
static void power_failure(void)
{
	char path[512];

	jx_copy_dir();
	while (jx_file(jx_copy, "copy/"))
		assert_int_equal(unlink(jx_file(jx_copy, "copy/")), 0);
	for (unsigned i = 0; i < disk.names; i++) {
		snprintf(path, sizeof(path), "%s/%s", jx_copy, disk.name[i].text);
		cut(path, disk.name[i].ino);
	}
}

/* Make the journals in @where look as if the machine had restarted since they were written. */
static void machine_restarted(const char *where)
{
	char path[128], name[MCM_JOURNAL_NAME];
	uint8_t mem[256];
	uint32_t len;

	for (unsigned n = 1; n < FILES; n++) {
		int fd;

		mcm_journal_name(name, false, n);
		snprintf(path, sizeof(path), "%s/%s", where, name);
		fd = open(path, O_RDWR);
		if (fd >= 0 && pread(fd, mem, sizeof(mem), 0) > 64) {
			/* change the boot id, and the checksum that covers it */
			mem[MCM_RECORD_HEAD + 30] ^= 1;
			memcpy(&len, mem + 8, 4);
			len = mc_crc32c(mem + 8, 4 + (len >> 8));
			memcpy(mem + 4, &len, 4);
			assert_true(pwrite(fd, mem, 64, 0) == 64);
		}
		if (fd >= 0)
			close(fd);
	}
}

/* The number of objects that a master restores from the copy. */
static uint64_t found(struct fixture *fx)
{
	struct mcm *other = jx_open_copy(fx, 0);
	uint64_t n = mcm_index_count(&other->index);

	/* Owners offer the objects on their disks to another pool only. */
	if (!n)
		assert_false(mcp_id_eq(other->pool, fx->m->pool));
	else
		assert_true(mcp_id_eq(other->pool, fx->m->pool));
	mcm_core_free(other);
	return n;
}

static void up(struct fixture *fx, const char *sync)
{
	disk_new();
	jx_want.journal_sync = (char *)sync;
	jx_up(fx, 1, MIB);
}

static void down(struct fixture *fx)
{
	fx_down(fx);
	disk_new();
	jx_want.journal_sync = NULL;
}

/* ---- which journals are used ---- */

/* After a restart of the machine, a journal is used only if it was synced or closed. */
static void t_other_boot(void **state)
{
	struct fixture fx;

	(void)state;
	for (int how = 0; how < 3; how++) {
		up(&fx, how == 1 ? "fdatasync" : "write");
		assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
		jx_answer(&fx);
		if (how == 2)
			mcm_journal_close(fx.m, true);
		jx_copy_dir();
		machine_restarted(jx_copy);
		assert_int_equal(found(&fx), how == 0 ? 0 : 1);
		down(&fx);
	}
}

/* A machine whose boot id cannot be read may have restarted at any time. */
static void t_unknown_boot(void **state)
{
	struct fixture fx;

	(void)state;
	for (int how = 0; how < 3; how++) {
		assert_int_equal(mc_fault_set("journal.boot_id=error:EACCES"), 0);
		up(&fx, how == 1 ? "fdatasync" : "write");
		assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
		jx_answer(&fx);
		if (how == 2)
			mcm_journal_close(fx.m, true);
		jx_copy_dir();
		assert_int_equal(found(&fx), how == 0 ? 0 : 1);
		assert_true(mc_fault_hits("journal.boot_id") >= 2);
		down(&fx);
		mc_fault_set(NULL);
	}
}

/* A journal that was closed before the machine restarted is used like a synced one, also if another
 * journal follows it. */
static void t_ended_before(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "write");
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	mcm_journal_close(fx.m, true);
	jx_killed(&fx);
	machine_restarted(jx_dir);
	jx_started(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "l", 5000, 0), 0);
	jx_answer(&fx);
	jx_copy_dir();
	assert_int_equal(found(&fx), 2);
	/* If the machine restarts again, nothing is used, because the new journal was only
	 * written. */
	machine_restarted(jx_copy);
	assert_int_equal(found(&fx), 0);
	down(&fx);
}

/* ---- which data is synced ---- */

/* The header and the name of a new journal are synced: without them the next master would not
 * notice that records may be missing. */
static void t_new_file(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "write");
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	jx_answer(&fx);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	assert_int_equal(fx_remove(&fx, "k", MCP_REMOVE_FORCE), 0);
	jx_answer(&fx);
	power_failure();
	machine_restarted(jx_copy);
	assert_int_equal(found(&fx), 0);
	down(&fx);
}

/* The same for a journal begun by a checkpoint that then failed. */
static void t_switched(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "fdatasync");
	assert_int_equal(mc_fault_set("checkpoint.write=error:ENOSPC"), 0);
	assert_int_equal(mcm_checkpoint(fx.m), -ENOSPC);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	jx_answer(&fx);
	power_failure();
	assert_int_equal(found(&fx), 1);
	down(&fx);
}

/* A killed master had written records that it had not synced. The next master uses them, so it
 * syncs them before its own records. */
static void t_tail(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "fdatasync");
	assert_int_equal(fx_put(&fx, "synced", 5000, 0), 0);
	jx_answer(&fx);
	assert_int_equal(fx_put(&fx, "written", 5000, 0), 0);
	mcm_journal_flush(fx.m);
	power_failure();
	assert_int_equal(found(&fx), 1);
	jx_killed(&fx);
	jx_started(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 2);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "later", 5000, 0), 0);
	jx_answer(&fx);
	power_failure();
	assert_int_equal(found(&fx), 3);
	down(&fx);
}

/* An end record makes the journal valid, so all other records are synced before it, also if the
 * last checkpoint fails. */
static void t_end(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "write");
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	jx_answer(&fx);
	assert_int_equal(mc_fault_set("checkpoint.write=error:ENOSPC"), 0);
	mcm_journal_close(fx.m, true);
	assert_int_equal(mc_fault_set(NULL), 0);
	power_failure();
	machine_restarted(jx_copy);
	assert_int_equal(found(&fx), 1);
	down(&fx);
}

/* ---- lost records ---- */

static struct mcm *flooded;

/* Append more records than the buffer holds, while the thread that would write them waits for the
 * disk. */
static void flood(void)
{
	static char value[MCM_DURABLE_VALUE_MAX];

	while (!__atomic_load_n(&flooded->journal->lost, __ATOMIC_RELAXED))
		assert_int_equal(mcm_durable_set(flooded, MCM_DURABLE_TASK, fx_bytes("n"),
					      mcp_bytes(value, sizeof(value))), 0);
}

/* A buffer that overflows while a checkpoint switches to a new file is a loss like any other. */
static void t_full_at_the_switch(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "fdatasync");
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	jx_answer(&fx);
	flooded = fx.m;
	disk.on_fdatasync = flood;
	assert_int_equal(mcm_checkpoint(fx.m), -EIO);
	assert_null(disk.on_fdatasync);
	/* No old state may be found. */
	assert_null(jx_file(jx_dir, "journal-"));
	assert_null(jx_file(jx_dir, "checkpoint-"));
	/* The next checkpoint begins a new journal. */
	assert_int_equal(fx_put(&fx, "l", 5000, 0), 0);
	jx_answer(&fx);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	assert_int_equal(fx_put(&fx, "m", 5000, 0), 0);
	jx_again(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 3);
	down(&fx);
}

/* A directory that can be read only in part must not be used. */
static void t_unreadable(void **state)
{
	struct mcm *other = NULL;
	struct fixture fx;

	(void)state;
	up(&fx, "write");
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	jx_answer(&fx);
	jx_killed(&fx);
	for (unsigned n = 1; n <= 3; n++) {
		disk.bad_readdir = n;
		assert_int_equal(mcm_core_new(&fx.conf, &other), -EIO);
		assert_int_equal(disk.bad_readdir, 0);
	}
	jx_started(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 1);
	down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_other_boot), cmocka_unit_test(t_unknown_boot), cmocka_unit_test(t_ended_before),
		cmocka_unit_test(t_new_file), cmocka_unit_test(t_switched),
		cmocka_unit_test(t_tail), cmocka_unit_test(t_end),
		cmocka_unit_test(t_full_at_the_switch),
		cmocka_unit_test(t_unreadable),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
