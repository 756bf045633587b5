/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_vault.c - encrypted files of a master's state that were changed.  The first byte chooses: 'r': the rest
 * is the file; else changes to a good file of two pieces, 4 bytes each: u8 kind, u16 place, u8 value.  Kinds:
 *	0 change a byte			1 end the file there
 *	2 copy 64 bytes from there to the place of the value
 *	3 write the head of a piece there
 *
 * A file is refused, or it has the bytes that were written, in their order, and zeros between them. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/file.h"
#include "master/journal/vault.h"
#include "master/security/security.h"
#include "tests/fuzz/memory_dir.h"

#define WORDS 64u
#define ROOM 8192u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mcm_vault vault;
static uint8_t good[ROOM];
static size_t good_len;

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* The words 1, 2, 3 ... */
static void file_make(void)
{
	uint64_t words[WORDS];
	struct mcm_vault_file f;
	int fd = memfd_create("vault", MFD_CLOEXEC);

	for (unsigned i = 0; i < WORDS; i++)
		words[i] = i + 1;
	check(fd >= 0 && mcm_vault_begin(&vault, fd, &f) == 0);
	check(mcm_vault_write(&f, words, sizeof(words) / 2) == 0);
	check(mcm_vault_write(&f, words + WORDS / 2, sizeof(words) / 2) == 0);
	good_len = (size_t)pread(fd, good, sizeof(good), 0);
	mcm_vault_close(&f);
}

static void start(void)
{
	static const char secret[] =
		"cluster mooncake_cluster\nsecret 2 8f1b9d0a5c3e7f2246688aaccee013579bdf02468ace13579bdf02468ace1357\n";
	static const struct mc_log_conf quiet = { .program = "fuzz", .levels = "err" };
	static char on[] = "on", name[256];
	static struct mcm_security *security;
	struct mc_options *options = NULL;
	struct mcm_conf conf;

	check(mc_log_open(&quiet) == 0 && mcm_conf_defaults(&conf, &options) == 0);
	memory_dir_write(MCM_SECRET_FILE, secret, sizeof(secret) - 1);
	snprintf(name, sizeof(name), "%s/%s", memory_dir(), MCM_SECRET_FILE);
	check(chmod(name, 0600) == 0);
	conf.security = on;
	conf.security_dir = memory_dir();
	check(mcm_security_open(&conf, NULL, &security) == 0);
	mc_options_free(options);
	mcm_vault_init(&vault, security);
	file_make();
}

static size_t change(const uint8_t *data, size_t size, uint8_t *to)
{
	static const uint8_t piece[8] = { 'M', 'C', 'P', '1', 0, 1, 0, 0 };
	size_t len = good_len;

	memcpy(to, good, good_len);
	for (; size >= 4; data += 4, size -= 4) {
		size_t at = ((size_t)data[1] | (size_t)data[2] << 8) % good_len;

		switch (data[0] % 4) {
		case 0:
			to[at] ^= data[3];
			break;
		case 1:
			len = at < len ? at : len;
			break;
		case 2:
			if (at + 64 <= good_len && data[3] + 64u <= good_len)
				memmove(to + data[3], to + at, 64);
			break;
		default:
			if (at + sizeof(piece) <= good_len)
				memcpy(to + at / 8 * 8, piece, sizeof(piece));
		}
	}
	return len;
}

/* The end of the file may be a part of a word of zeros. */
static void compare(const uint8_t *p, size_t len)
{
	uint64_t last = 0, word;

	for (size_t n = 0; n < len; n += sizeof(word)) {
		size_t part = len - n < sizeof(word) ? len - n : sizeof(word);

		word = 0;
		memcpy(&word, p + n, part);
		check(!word || (word > last && word <= WORDS));
		last = word ? word : last;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t changed[ROOM], out[ROOM];
	const uint8_t *file = changed;
	size_t len;
	int r;

	if (!vault.ops)
		start();
	if (!size || size > ROOM)
		return 0;
	if (data[0] == 'r') {
		file = data + 1;
		len = size - 1;
	} else {
		len = change(data + 1, size - 1, changed);
	}
	r = mcm_vault_decode(&vault, file, len, out, &len);
	check(r == 0 || r == -EINVAL || r == -EACCES || r == -MC_EPROTO);
	if (r == 0)
		compare(out, len);
	return 0;
}
