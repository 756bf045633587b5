/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_journal.c - any bytes as the contents of a journal directory.  Bits of the input's
 * first byte: bit 0: as a checkpoint, or as the journal after an empty checkpoint; bit 1:
 * unchanged, or as records (u8 type, u16 length, body) that are framed and checksummed here, so
 * that the master decodes the bodies.  A master that starts must have consistent ranges.  One input
 * of eight (by its checksum, because it takes four times as long): the master must be able to write a
 * checkpoint that it can read again, and a check finds as many objects as the start. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "master/mcm_i.h"
#include "proto/codec.h"
#include "tests/fuzz/memory_dir.h"
#include "tests/fuzz/small_master.h"

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

/* Number of objects that the started master finds; its state must be consistent. */
static int64_t start(const struct mcm_conf *conf, bool checkpoint)
{
	struct mcm *m;
	int64_t n;

	if (mcm_core_new(conf, &m) < 0)
		return -1;
	n = small_master_check(m);
	if (checkpoint && mcm_checkpoint(m) < 0)
		abort();
	mcm_core_free(m);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct mcm_conf *conf = small_master_conf();
	int64_t n;

	if (!size)
		return 0;
	add_header(true);
	if (!(data[0] & 1)) {
		memory_dir_write("checkpoint-0000000000000001", image, image_len);
		add_header(false);
	}
	if (data[0] & 2)
		add_framed(data + 1, size - 1);
	else
		add(data + 1, size - 1);
	memory_dir_write(data[0] & 1 ? "checkpoint-0000000000000001" : "journal-0000000000000001", image, image_len);
	if (mc_crc32c(data, size) % 8) {
		(void)start(conf, false);
	} else {
		n = small_master_count(conf);
		if (start(conf, true) != n || (n >= 0 && start(conf, false) != n))
			abort();
	}
	memory_dir_clear();
	return 0;
}
