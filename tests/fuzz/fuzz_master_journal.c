/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_journal.c - any bytes as the contents of a journal directory.  Bits of the input's
 * first byte: bit 0: as a checkpoint, or as the journal after an empty checkpoint; bit 1:
 * unchanged, or as records (u8 type, u16 length, body) that are framed and checksummed here, so
 * that the master decodes the bodies.  A master that starts must have consistent ranges, and must
 * be able to write a checkpoint that it can read again.  A check finds as many objects as the start. */
#include <config.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/err.h"
#include "master/journal/check.h"
#include "master/mcm_i.h"
#include "proto/codec.h"
#include "tests/unit/test_master_alloc_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t image[1 << 20];
static size_t image_len;

static void add(const void *p, size_t len)
{
	if (sizeof(image) - image_len < len)
		return;
	if (len)
		memcpy(image + image_len, p, len);
	image_len += len;
}

static void add_header(bool checkpoint)
{
	struct mcm_header_record h = {
		.sequence = 1, .checkpoint = checkpoint, .synced = 1, .seed = 7,
		.cluster = mcp_bytes("mooncake_cluster", 16),
	};
	uint8_t mem[256];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };

	image_len = 0;
	mcm_pack_header(&p, &h);
	add(mem, p.len);
}

static void add_framed(const uint8_t *p, size_t left)
{
	static const uint8_t zero[8];

	while (left >= 3) {
		uint32_t len = (uint32_t)p[1] | (uint32_t)p[2] << 8, word, crc;
		uint8_t head[MCM_RECORD_HEAD] = { 0x4d, 0x4a };

		p += 3;
		left -= 3;
		if (len > left)
			len = (uint32_t)left;
		word = p[-3] | len << 8;
		memcpy(head + 8, &word, 4);
		crc = mc_crc32c_add(mc_crc32c(head + 8, 4), p, len);
		memcpy(head + 4, &crc, 4);
		add(head, sizeof(head));
		add(p, len);
		add(zero, -(sizeof(head) + len) & 7);
		p += len;
		left -= len;
	}
}

static void write_file(const char *dir, const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, image, image_len) != (ssize_t)image_len)
		abort();
	close(fd);
}

static void remove_dir(const char *dir)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(dir);
}

/* Number of objects that the started master finds; its state must be consistent. */
static int64_t start(const struct mcm_conf *conf, bool checkpoint)
{
	struct mcm *m;
	int64_t n;
	unsigned i;

	if (mcm_core_new(conf, &m) < 0)
		return -1;
	n = (int64_t)mcm_index_count(&m->index);
	for (i = 0; i < m->segments.top; i++) {
		const struct mcm_segment *s = m->segments.at[i];

		if (mcm_segment_state(s) != MCM_SEG_NONE && mcm_alloc_check(&s->alloc) < 0)
			abort();
	}
	if (checkpoint && mcm_checkpoint(m) < 0)
		abort();
	mcm_core_free(m);
	return n;
}

/* Number of objects that a master would find, without a start. */
static int64_t check(const struct mcm_conf *conf)
{
	struct mcm_check c;
	int64_t n = mcm_journal_check(conf, conf->journal_dir, &c) < 0 ? -1 : (int64_t)c.objects;

	mcm_check_done(&c);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mc_options *options;
	static struct mcm_conf conf;
	char dir[] = "/tmp/mc-fuzz-journal.XXXXXX";
	int64_t n;

	if (!size)
		return 0;
	if (!options && mcm_conf_defaults(&conf, &options) < 0)
		abort();
	if (!mkdtemp(dir))
		abort();
	conf.journal_dir = dir;
	add_header(true);
	if (!(data[0] & 1)) {
		write_file(dir, "checkpoint-0000000000000001");
		add_header(false);
	}
	if (data[0] & 2)
		add_framed(data + 1, size - 1);
	else
		add(data + 1, size - 1);
	write_file(dir, data[0] & 1 ? "checkpoint-0000000000000001" : "journal-0000000000000001");
	n = check(&conf);
	if (start(&conf, true) != n)
		abort();
	if (n >= 0 && start(&conf, false) != n)
		abort();
	remove_dir(dir);
	return 0;
}
