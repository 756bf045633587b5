/* SPDX-License-Identifier: Apache-2.0
 * fuzz_tiers_record.c - any bytes as the end of a block of a disk, as a record that is sealed here, or as the list of
 * all records of a disk; the first byte chooses. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "tiers/ssd/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RECORDS 512

static const uint64_t secret[2] = { 1, 2 };
static struct mct_note note[MCT_NOTES];
static unsigned char block[MCT_BLOCK] __attribute__((aligned(4096)));

static void check(int ok)
{
	if (!ok)
		abort();
}

static void opened(uint64_t end)
{
	struct mct_record r;

	if (!mct_record_open(block, end, secret, &r))
		return;
	check(r.len && r.off + r.len == end && r.off % MCT_BLOCK == 0);
	check(r.body_len <= MCT_RECORD_BODY_MAX && (const unsigned char *)r.body >= block);
}

static void raw(const uint8_t *data, size_t size)
{
	uint64_t off, len;

	memset(block, 0, sizeof(block));
	memcpy(block + MCT_BLOCK - size, data, size);
	/* Where the record says that it is. */
	memcpy(&off, block + MCT_BLOCK - 48, sizeof(off));
	memcpy(&len, block + MCT_BLOCK - 40, sizeof(len));
	opened(off + len);
	opened(MCT_BLOCK);
	memmove(block, data, size);
	check(mct_notes_open(block, secret, &off, note) <= MCT_NOTES);
}

static void sealed(const uint8_t *data, size_t size)
{
	uint64_t v[5];
	struct mct_record r;

	if (size < sizeof(v))
		return;
	memcpy(v, data, sizeof(v));
	r = (struct mct_record){
		.off = v[0], .len = v[1], .order = v[2], .generation = v[3], .name = v[4], .body = data + sizeof(v),
		.body_len = (uint32_t)(size - sizeof(v)),
	};
	if (r.body_len > MCT_RECORD_BODY_MAX)
		r.body_len = MCT_RECORD_BODY_MAX;
	mct_record_seal(block, &r, secret);
	opened(r.off + r.len);
	if (r.off % MCT_BLOCK == 0 && r.len && r.len % MCT_BLOCK == 0 && r.off + r.len > r.off)
		check(mct_record_open(block, r.off + r.len, secret, &r));
}

static void list(const uint8_t *data, size_t size)
{
	struct mct_found f[RECORDS];
	size_t n = 0, kept;

	for (; size >= 5 && n < RECORDS; data += 5, size -= 5)
		f[n++] = (struct mct_found){ data[0], 1 + data[1] % 16, data[2], data[3], data[4] };
	kept = mct_records_live(f, n, NULL, 0);
	check(kept <= n && (kept || !n));
	for (size_t i = 0; i < kept; i++) {
		check(!i || f[i].off >= f[i - 1].off + f[i - 1].len);
		for (size_t k = 0; k < i; k++)
			check(f[i].name != f[k].name);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 || size > MCT_BLOCK)
		return 0;
	if (data[0] % 3 == 0)
		raw(data + 1, size - 1);
	else if (data[0] % 3 == 1)
		sealed(data + 1, size - 1);
	else
		list(data + 1, size - 1);
	return 0;
}
