/* SPDX-License-Identifier: Apache-2.0
 * test_master_check.c - the check of a journal names each fault, and changes nothing. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "master/journal/check.h"
#include "master/journal/journal_i.h"

#define MIB (1u << 20)

/* A killed master with a checkpoint and 20 objects, ten of them after the checkpoint; its files are copied. */
static void files_made(struct fixture *fx)
{
	char key[16];

	jx_up(fx, 1, MIB);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		assert_int_equal(fx_put(fx, key, 5000, 0), 0);
		if (i == 9)
			assert_int_equal(mcm_checkpoint(fx->m), 0);
	}
	assert_int_equal(fx_put(fx, "dir/", 0, MCP_PUT_COMMIT), 0);
	jx_answer(fx);
	jx_copy_dir();
}

/* Check the copy: as many faults, the first of which has this text. */
static struct mcm_check checked(struct fixture *fx, uint64_t faults, const char *text)
{
	struct mcm_check c;

	assert_int_equal(mcm_journal_check(&fx->conf, jx_copy, &c), 0);
	if (c.faults != faults || (faults && !strstr(c.fault[0], text)))
		fail_msg("%llu faults: %s", (unsigned long long)c.faults, c.faults ? c.fault[0] : "");
	return c;
}

/* The next master finds as many objects as the check. */
static void starts_with(struct fixture *fx, struct mcm_check *c)
{
	struct mcm *m = jx_open_copy(fx, 0);

	assert_int_equal(mcm_index_count(&m->index), c->objects);
	mcm_core_free(m);
	mcm_check_done(c);
}

static void file_write(const char *part, off_t at, const void *bytes, size_t len)
{
	int fd = open(jx_file(jx_copy, part), O_RDWR);

	assert_true(fd >= 0);
	if (at < 0)
		at += lseek(fd, 0, SEEK_END);
	assert_int_equal(pwrite(fd, bytes, len, at), len);
	close(fd);
}

static void a_good_journal(void **state)
{
	struct mcm_check c;
	struct fixture fx;

	(void)state;
	files_made(&fx);
	c = checked(&fx, 0, NULL);
	assert_int_equal(c.objects, 21);
	assert_int_equal(c.object_bytes, 20 * 5000);
	assert_int_equal(c.segments, 1);
	assert_int_equal(c.capacity, MIB);
	assert_int_equal(c.used, fx_used(&fx));
	assert_false(c.empty || c.ended || c.torn_bytes);
	starts_with(&fx, &c);
	mcm_journal_close(fx.m, true);
	jx_copy_dir();
	c = checked(&fx, 0, NULL);
	assert_true(c.ended);
	assert_int_equal(c.objects, 21);
	mcm_check_done(&c);
	fx_down(&fx);
}

static void no_files_and_no_directory(void **state)
{
	struct mcm_check c;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 0, 0);
	snprintf(jx_copy, sizeof(jx_copy), "%s.copy", jx_dir);
	mkdir(jx_copy, 0700);
	while (jx_file(jx_copy, "copy/"))
		assert_int_equal(unlink(jx_file(jx_copy, "copy/")), 0);
	c = checked(&fx, 0, NULL);
	assert_true(c.empty);
	mcm_check_done(&c);
	assert_null(jx_file(jx_copy, "copy/"));
	assert_int_equal(mcm_journal_check(&fx.conf, "/nonexistent", &c), -ENOENT);
	mcm_check_done(&c);
	fx_down(&fx);
}

/* As a process leaves it that is killed while it writes. */
static void an_incomplete_end_is_no_fault(void **state)
{
	struct mcm_check c;
	struct fixture fx;
	struct stat st;

	(void)state;
	files_made(&fx);
	assert_int_equal(stat(jx_file(jx_copy, "journal-"), &st), 0);
	assert_int_equal(truncate(jx_file(jx_copy, "journal-"), st.st_size - 5), 0);
	c = checked(&fx, 0, NULL);
	assert_int_equal(c.objects, 20);
	assert_true(c.torn_bytes > 0);
	starts_with(&fx, &c);
	fx_down(&fx);
}

static void a_changed_byte_is_found(void **state)
{
	struct mcm_check c;
	struct fixture fx;

	(void)state;
	files_made(&fx);
	file_write("journal-", 400, "\xff\x00\xff", 3);
	c = checked(&fx, 1, "unreadable bytes");
	assert_non_null(strstr(c.fault[0], "journal-"));
	assert_non_null(strstr(c.fault[0], " offset="));
	assert_non_null(strstr(c.fault[0], " record="));
	starts_with(&fx, &c);
	jx_copy_dir();
	file_write("checkpoint-", 400, "\xff\x00\xff", 3);
	c = checked(&fx, 1, "unreadable bytes");
	assert_non_null(strstr(c.fault[0], "checkpoint-"));
	starts_with(&fx, &c);
	fx_down(&fx);
}

static void missing_files_are_found(void **state)
{
	struct mcm_check c;
	struct fixture fx;
	char to[512];

	(void)state;
	files_made(&fx);
	assert_int_equal(unlink(jx_file(jx_copy, "checkpoint-")), 0);
	c = checked(&fx, 1, "no checkpoint can be read");
	/* Only the start removes it. */
	assert_non_null(jx_file(jx_copy, "journal-"));
	starts_with(&fx, &c);
	jx_copy_dir();
	assert_int_equal(unlink(jx_file(jx_copy, "journal-")), 0);
	c = checked(&fx, 2, "is missing");
	starts_with(&fx, &c);
	/* A number is left out: the last file is a later one. */
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "last", 5000, 0), 0);
	jx_answer(&fx);
	jx_again(&fx);
	jx_copy_dir();
	mcm_journal_name(to, false, fx.m->journal->sequence - 1);
	assert_int_equal(unlink(jx_file(jx_copy, to)), 0);
	c = checked(&fx, 1, "are missing");
	starts_with(&fx, &c);
	fx_down(&fx);
}

static void append_object(struct fixture *fx, const char *key, uint64_t at, uint16_t segment)
{
	struct mcm_object_record r = {
		.key = key, .key_len = (uint32_t)strlen(key), .generation = mcm_generation_next(fx->m, 0),
		.size = 5000, .copies = 1, .extent = { { at, mcm_alloc_round(5000), segment } },
	};
	uint8_t mem[512];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };
	struct stat st;

	mcm_pack_object(&p, &r);
	assert_int_equal(stat(jx_file(jx_copy, "journal-"), &st), 0);
	file_write("journal-", st.st_size, p.bytes, p.len);
}

static void wrong_ranges_are_found(void **state)
{
	struct mcm_check c;
	struct fixture fx;

	(void)state;
	files_made(&fx);
	append_object(&fx, "outside", 0, 7);
	c = checked(&fx, 1, "an object has memory in the unmounted segment 7");
	assert_int_equal(c.objects, 21);
	starts_with(&fx, &c);
	jx_copy_dir();
	append_object(&fx, "behind", MIB / MCM_GRANULE, 0);
	c = checked(&fx, 1, "an object has memory behind the end of segment 0");
	starts_with(&fx, &c);
	jx_copy_dir();
	append_object(&fx, "same", 0, 0);
	c = checked(&fx, 1, "two records claim the same memory");
	assert_int_equal(c.objects, 21);
	starts_with(&fx, &c);
	fx_down(&fx);
}

/* That the objects of an unmounted segment are still in the files is no fault. */
static void a_kill_after_an_unmount_is_no_fault(void **state)
{
	const struct mcp_id id = { 7, 1 };
	struct mcm_check c;
	struct fixture fx;
	uint64_t lost;

	(void)state;
	for (unsigned checkpoint = 0; checkpoint < 2; checkpoint++) {
		files_made(&fx);
		assert_int_equal(mcm_unmount(fx.m, id, id, &lost), 0);
		if (checkpoint)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
		jx_answer(&fx);
		jx_copy_dir();
		c = checked(&fx, 0, NULL);
		assert_int_equal(c.objects, 1);
		assert_int_equal(c.dropped, 20);
		starts_with(&fx, &c);
		fx_down(&fx);
	}
}

static void a_journal_of_another_pool_is_not_read(void **state)
{
	char other[] = "other";
	struct mcm_check c;
	struct fixture fx;
	struct mcm_conf conf;

	(void)state;
	files_made(&fx);
	conf = fx.conf;
	conf.cluster_id = other;
	assert_int_equal(mcm_journal_check(&conf, jx_copy, &c), -EINVAL);
	assert_non_null(strstr(mc_err_detail(-EINVAL), "cluster_id"));
	mcm_check_done(&c);
	fx_down(&fx);
}

/* A check beside a running master does not touch the checkpoint that it writes, and a master can start. */
static void a_check_disturbs_no_master(void **state)
{
	char path[512];
	struct mcm_check c;
	struct fixture fx;
	int fd;

	(void)state;
	files_made(&fx);
	snprintf(path, sizeof(path), "%s/checkpoint-0000000000000009.tmp", jx_dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(mcm_journal_check(&fx.conf, jx_dir, &c), 0);
	assert_int_equal(c.faults, 0);
	assert_int_equal(c.objects, 21);
	mcm_check_done(&c);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(fx_put(&fx, "more", 5000, 0), 0);
	jx_again(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 22);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_journal),
		cmocka_unit_test(no_files_and_no_directory),
		cmocka_unit_test(an_incomplete_end_is_no_fault),
		cmocka_unit_test(a_changed_byte_is_found),
		cmocka_unit_test(missing_files_are_found),
		cmocka_unit_test(wrong_ranges_are_found),
		cmocka_unit_test(a_kill_after_an_unmount_is_no_fault),
		cmocka_unit_test(a_journal_of_another_pool_is_not_read),
		cmocka_unit_test(a_check_disturbs_no_master),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
