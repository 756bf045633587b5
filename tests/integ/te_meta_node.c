/* SPDX-License-Identifier: Apache-2.0
 * te_meta_node.c - an engine with some memory that executes one command per line of input and prints one line for
 * each; te_meta_node.py is the same with upstream's engine.
 *
 *	te_meta_node META NAME LEN
 *	fill SEED, check SEED		its own memory
 *	read NAME SEED			all memory of that segment into its own, and check it
 *	write NAME SEED			fill its own, and write all of it there
 *	batch N				register N buffers at once, and unregister them at once
 *	remove N			removeLocalSegment()
 *	end */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mooncake/mce_te.h>
#include <mooncake/transfer_engine_c.h>

#define BLOCK 65521u

static struct mce_te *te;
static unsigned char *mem;
static size_t len;

/* The block of bytes that fills the memory repeatedly. */
static const unsigned char *block_of(unsigned seed)
{
	static unsigned char block[BLOCK];

	for (size_t k = 0; k < BLOCK; k++)
		block[k] = (unsigned char)((k * 131 + seed * 7) >> 3);
	return block;
}

static size_t piece_at(size_t i)
{
	return len - i < BLOCK ? len - i : BLOCK;
}

static const char *check(unsigned seed)
{
	const unsigned char *block = block_of(seed);

	for (size_t i = 0; i < len; i += BLOCK)
		if (memcmp(mem + i, block, piece_at(i)))
			return "the bytes differ";
	return "ok";
}

static void fill(unsigned seed)
{
	const unsigned char *block = block_of(seed);

	for (size_t i = 0; i < len; i += BLOCK)
		memcpy(mem + i, block, piece_at(i));
}

static const char *ended(batch_id_t batch)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	struct transfer_status st;

	for (int i = 0; i < 60000; i++) {
		if (getTransferStatus(te, batch, 0, &st))
			return "getTransferStatus fails";
		if (st.status == STATUS_COMPLETED)
			return st.transferred_bytes == len ? "ok" : "not all bytes were moved";
		if (st.status != STATUS_WAITING)
			return "the transfer failed";
		nanosleep(&nap, NULL);
	}
	return "the transfer does not end";
}

static const char *move(int opcode, const char *name)
{
	struct transfer_request req = { .opcode = opcode, .source = mem, .length = len };
	segment_id_t segment;
	const char *said;
	batch_id_t batch;
	uint64_t there;
	int r;

	/* openSegment() with the reason, which the log would say only once a second. */
	r = mce_te_open_segment(te, name, 0, &segment);
	if (r < 0)
		return mce_te_error_detail(r);
	if (mce_te_first_buffer(te, segment, &req.target_offset, &there) < 0 || there < len)
		return "no buffer of that length";
	req.target_id = segment;
	batch = allocateBatchID(te, 1);
	if (batch == INVALID_BATCH)
		return "no batch";
	said = submitTransfer(te, batch, &req, 1) ? "submitTransfer fails" : ended(batch);
	freeBatchID(te, batch);
	return said;
}

/* All calls on a batch of buffers: the metadata server counts the resulting requests. */
static const char *batch(unsigned n)
{
	static unsigned char room[1024][16];
	static buffer_entry_t list[1024];
	static void *at[1024];

	if (n > 1024)
		return "too many";
	for (unsigned i = 0; i < n; i++) {
		at[i] = list[i].addr = room[i];
		list[i].length = sizeof(room[i]);
	}
	if (registerLocalMemoryBatch(te, list, n, "*"))
		return "registerLocalMemoryBatch fails";
	return unregisterLocalMemoryBatch(te, at, n) ? "unregisterLocalMemoryBatch fails" : "ok";
}

static const char *obey(const char *word, const char *name, unsigned seed)
{
	const char *said;

	if (!strcmp(word, "check"))
		return check(seed);
	if (!strcmp(word, "batch"))
		return batch(seed);
	if (!strcmp(word, "remove"))
		return removeLocalSegment(te, mce_te_name(te)) ? "removeLocalSegment fails" : "ok";
	if (!strcmp(word, "write"))
		fill(seed);
	if (!strcmp(word, "fill")) {
		fill(seed);
		return "ok";
	}
	if (!strcmp(word, "read"))
		memset(mem, 0, len);
	said = move(!strcmp(word, "read") ? OPCODE_READ : OPCODE_WRITE, name);
	return strcmp(said, "ok") || !strcmp(word, "write") ? said : check(seed);
}

int main(int argc, char **argv)
{
	char line[512], word[16], name[256];
	unsigned seed;

	len = argc == 4 ? (size_t)atol(argv[3]) : 0;
	mem = len ? malloc(len) : NULL;
	te = mem ? createTransferEngine(argv[1], argv[2], "", 0, 1) : NULL;
	if (!te) {
		printf("no engine\n");
		return 1;
	}
	if (registerLocalMemory(te, mem, len, "cpu:0", 1)) {
		printf("no memory\n");
		return 1;
	}
	printf("ok\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n")) {
		name[0] = '\0';
		if (sscanf(line, "%15s %255s %u", word, name, &seed) != 3 &&
		    sscanf(line, "%15s %u", word, &seed) != 2)
			break;
		printf("%s\n", obey(word, name, seed));
		fflush(stdout);
	}
	destroyTransferEngine(te);
	free(mem);
	return 0;
}
