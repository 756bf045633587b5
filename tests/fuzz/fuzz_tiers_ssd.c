/* SPDX-License-Identifier: Apache-2.0
 * fuzz_tiers_ssd.c - any bytes as the first block of a file that a medium is opened on.  Bits of the first byte:
 *	0x01 the checksum is made right
 *	0x06 the wanted size: 0 none, 1 the least, 2 larger and no multiple of a block, 3 less than the least
 *	0x08 zeros follow the bytes up to a whole block, else the file ends with them
 *	0x10 the medium is to be encrypted; its owner has a key under secret 1
 *
 * A file that is opened has a size within the limits, and opened again the same size and identity, also after its
 * header was written and the medium was enlarged.  Its key is found again.  A file that is refused keeps its bytes. */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/log.h"
#include "tests/fuzz/memory_dir.h"
#include "tiers/ssd/ssd_i.h"

#define CRC_AT 64u
#define LEAST (1ull << 20)
#define MOST (1ull << 44)
#define FILE_NAME "mooncake-0.ssd"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t block[MCT_BLOCK];
static bool seal;

static void check(bool ok)
{
	if (!ok)
		abort();
}

static int ssd_open(struct mct_ssd *d, uint64_t size)
{
	const struct mct_conf conf = { .path = memory_dir(), .size = size, .seal = seal };

	memset(d, 0, sizeof(*d));
	d->fd = -1;
	mc_mutex_init(&d->lock);
	mc_mutex_init(&d->header_lock);
	check(mct_ssd_seal_open(d, &conf) == 0);
	return mct_ssd_file_open(d, &conf);
}

static int keys(void *arg, uint32_t secret, struct mct_keys *ret)
{
	static const uint8_t key[MC_KEY_LEN] = { 1 };

	(void)arg;
	ret->known = secret == 1;
	ret->newest = 1;
	memcpy(ret->key, key, sizeof(key));
	memcpy(ret->newest_key, key, sizeof(key));
	return 0;
}

static void ssd_close(struct mct_ssd *d)
{
	if (d->fd >= 0)
		close(d->fd);
	free(d->path);
	mct_ssd_seal_close(d);
	mc_mutex_destroy(&d->lock);
	mc_mutex_destroy(&d->header_lock);
}

/* Has the file these size and words? */
static void check_same(uint64_t size, const uint64_t words[MCT_IDENTITY])
{
	struct mct_ssd d;

	check(ssd_open(&d, 0) == 0 && d.size == size && !memcmp(d.words, words, sizeof(d.words)));
	ssd_close(&d);
}

static void check_opened(struct mct_ssd *d)
{
	uint64_t words[MCT_IDENTITY], size = d->size;
	int r;

	check(size >= LEAST && size <= MOST && size % MCT_BLOCK == 0);
	memcpy(words, d->words, sizeof(words));
	ssd_close(d);
	check_same(size, words);
	check(ssd_open(d, 0) == 0);
	r = d->form->unlock(d, keys, NULL);
	check(r == 0 || (seal && r == -EBADMSG));
	for (unsigned i = 0; i < MCT_IDENTITY; i++)
		words[i] = ~words[i];
	check(d->form->mark(d, size, words) == 0);
	check(d->form->unlock(d, keys, NULL) == 0);
	ssd_close(d);
	check_same(size, words);
	check(ssd_open(d, 0) == 0);
	check(d->form->unlock(d, keys, NULL) == 0);
	if (size < MOST / 2 && mct_ssd_file_grow(d, 2 * size) == 0)
		size *= 2;
	ssd_close(d);
	check_same(size, words);
}

static void check_kept(size_t len)
{
	uint8_t now[MCT_BLOCK + 1];
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/" FILE_NAME, memory_dir());
	f = fopen(path, "re");
	check(f && fread(now, 1, sizeof(now), f) >= len && !memcmp(now, block, len));
	fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t wanted[4] = { 0, LEAST, 5 * LEAST + 1, LEAST - 1 };
	static const struct mc_log_conf quiet = { .program = "fuzz", .levels = "err" };
	static bool begun;
	struct mct_ssd d;
	uint32_t crc;
	size_t len;
	int r;

	if (!begun)
		check(mc_log_open(&quiet) >= 0);
	begun = true;
	if (!size)
		return 0;
	len = size - 1 < MCT_BLOCK ? size - 1 : MCT_BLOCK;
	memset(block, 0, sizeof(block));
	memcpy(block, data + 1, len);
	if (data[0] & 1 && len >= CRC_AT + sizeof(crc)) {
		crc = mc_crc32c(block, CRC_AT);
		memcpy(block + CRC_AT, &crc, sizeof(crc));
	}
	if (data[0] & 8)
		len = MCT_BLOCK;
	seal = data[0] & 0x10;
	memory_dir_write(FILE_NAME, block, len);
	r = ssd_open(&d, wanted[data[0] / 2 % 4]);
	if (r == 0) {
		check_opened(&d);
	} else {
		ssd_close(&d);
		check_kept(len);
	}
	memory_dir_clear();
	return 0;
}
