/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_blank.c - a device that has content is never overwritten: the check alone on a file, and on a loop device,
 * where the machine has one. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "tiers/ssd/ssd_i.h"
#include "tiers/tier.h"

#define SIZE (8u << 20)
#define KIB 1024

/* Content that volumes of these kinds have; @at below 0: before the end. */
static const struct {
	const char *name, *bytes;
	unsigned len;
	int at;
	const char *found;	/* in the message */
} content[] = {
	{ "btrfs", "_BHRfS_M", 8, 64 * KIB + 0x40, "btrfs" },
	{ "md 1.2", "\xfc\x4e\x2b\xa9", 4, 4 * KIB, "md RAID" },
	{ "md 1.0", "\xfc\x4e\x2b\xa9", 4, -8 * KIB, "near its end" },
	{ "ZFS, first label", "\x0c\xb1\xba\x00", 4, 128 * KIB, "byte 131072" },
	{ "ZFS, last label", "\x0c\xb1\xba\x00", 4, -256 * KIB + 128 * KIB, "near its end" },
	{ "LUKS", "LUKS\xba\xbe", 6, 0, "LUKS" },
	{ "GPT", "EFI PART", 8, 512, "GPT" },
	{ "GPT's copy", "EFI PART", 8, -512, "near its end" },
	{ "bcache", "\xc6\x85\x73\xf6", 4, 4 * KIB + 24, "byte 4120" },
	{ "random", "\x9e\x37\x79\xb9", 4, 777, "byte 777" },
	{ "the last byte", "\x01", 1, -1, "near its end" },
	{ "the last byte of the first MiB", "\x01", 1, KIB * KIB - 1, "byte 1048575" },
};
#define CONTENTS (sizeof(content) / sizeof(content[0]))

static char dir[] = "/var/tmp/mc-blank.XXXXXX";
static char image[64];
static unsigned char had[SIZE], is[SIZE];

/* An image of zeros, with content @i if it is below CONTENTS; its descriptor. */
static int image_make(size_t i)
{
	int fd = open(image, O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	if (i < CONTENTS)
		assert_int_equal(pwrite(fd, content[i].bytes, content[i].len,
					content[i].at < 0 ? (int)SIZE + content[i].at : content[i].at), content[i].len);
	assert_int_equal(pread(fd, had, SIZE, 0), SIZE);
	return fd;
}

static void content_at_either_end_is_found(void **state)
{
	char what[64];
	int fd;

	for (size_t i = 0; i < CONTENTS; i++) {
		fd = image_make(i);
		if (mct_ssd_content(fd, SIZE, what, sizeof(what)) != 1)
			fail_msg("%s is not seen", content[i].name);
		if (!strstr(what, content[i].found))
			fail_msg("%s: %s", content[i].name, what);
		close(fd);
	}
	fd = image_make(CONTENTS);
	assert_int_equal(mct_ssd_content(fd, SIZE, what, sizeof(what)), 0);
	/* sizes at which the two ends meet, and that are not whole blocks */
	for (unsigned size = 0; size <= SIZE; size = size * 3 + 511) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_equal(mct_ssd_content(fd, size, what, sizeof(what)), 0);
		if (!size)
			continue;
		assert_int_equal(pwrite(fd, "x", 1, size - 1), 1);
		assert_int_equal(mct_ssd_content(fd, size, what, sizeof(what)), 1);
	}
	close(fd);
	assert_true(mct_ssd_content(-1, SIZE, what, sizeof(what)) < 0);
}

/* A loop device of the image; its path, or skip. */
static int loop_attach(int image_fd, char path[32])
{
	int control = open("/dev/loop-control", O_RDWR), fd, n = -1;

	for (unsigned tries = 0; control >= 0 && tries < 16; tries++) {
		n = ioctl(control, LOOP_CTL_GET_FREE);
		snprintf(path, 32, "/dev/loop%d", n);
		fd = n < 0 ? -1 : open(path, O_RDWR);
		if (fd >= 0 && ioctl(fd, LOOP_SET_FD, image_fd) == 0) {
			close(control);
			return fd;
		}
		if (fd >= 0)
			close(fd);
		/* Another process may have taken it. */
		if (fd < 0 || errno != EBUSY)
			break;
	}
	if (control >= 0)
		close(control);
	print_message("no loop device: %s\n", strerror(errno));
	return -1;
}

static int device_open(const char *path, bool format, struct mct_medium **ret)
{
	const struct mct_conf conf = { .path = path, .format = format };

	return mct_medium_open("ssd", &conf, ret);
}

static void image_is_unchanged(int fd, const char *name)
{
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(pread(fd, is, SIZE, 0), SIZE);
	if (memcmp(had, is, SIZE))
		fail_msg("%s: the device was changed", name);
}

static void a_device_with_content_is_refused(void **state)
{
	struct mct_medium *m;
	char path[32];

	for (size_t i = 0; i < CONTENTS; i++) {
		int fd = image_make(i), loop = loop_attach(fd, path), r[2];

		if (loop < 0) {
			close(fd);
			skip();
		}
		r[0] = device_open(path, false, &m);
		r[1] = device_open(path, true, &m);
		ioctl(loop, LOOP_CLR_FD);
		close(loop);
		if (r[0] != -EEXIST || r[1] != -EEXIST)
			fail_msg("%s: %d, with format %d", content[i].name, r[0], r[1]);
		assert_non_null(strstr(mc_err_detail(r[1]), content[i].found));
		assert_non_null(strstr(mc_err_detail(r[1]), "--ssd_format"));
		image_is_unchanged(fd, content[i].name);
		close(fd);
	}
}

static void a_blank_device_needs_permission_once(void **state)
{
	const uint64_t words[MCT_IDENTITY] = { 1, 2, 3 };
	int fd = image_make(CONTENTS), loop;
	uint64_t found[MCT_IDENTITY] = { 0 };
	struct mct_medium *m;
	char path[32];

	loop = loop_attach(fd, path);
	if (loop < 0) {
		close(fd);
		skip();
	}
	assert_int_equal(device_open(path, false, &m), -EPERM);
	assert_non_null(strstr(mc_err_detail(-EPERM), "--ssd_format"));
	image_is_unchanged(fd, "blank");
	assert_int_equal(device_open(path, true, &m), 0);
	assert_int_equal(m->ops->set_identity(m, words), 0);
	mct_medium_close(m);
	for (int format = 0; format < 2; format++) {
		assert_int_equal(device_open(path, format, &m), 0);
		assert_int_equal(m->ops->identity(m, found), 0);
		assert_memory_equal(found, words, sizeof(words));
		mct_medium_close(m);
	}
	ioctl(loop, LOOP_CLR_FD);
	close(loop);
	close(fd);
}

static void a_file_with_content_is_refused(void **state)
{
	const struct mct_conf conf = { .size = 1u << 20, .path = dir };
	struct mct_medium *m;
	int fd = image_make(0);

	assert_int_equal(mct_medium_open("ssd", &conf, &m), -EEXIST);
	image_is_unchanged(fd, "a file");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(mct_medium_open("ssd", &conf, &m), 0);
	mct_medium_close(m);
	assert_int_equal(mct_medium_open("ssd", &conf, &m), 0);
	mct_medium_close(m);
	close(fd);
}

static int make_dir(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(image, sizeof(image), "%s/mooncake-0.ssd", dir);
	return 0;
}

static int remove_dir(void **state)
{
	unlink(image);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_at_either_end_is_found),
		cmocka_unit_test(a_device_with_content_is_refused),
		cmocka_unit_test(a_blank_device_needs_permission_once),
		cmocka_unit_test(a_file_with_content_is_refused),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
