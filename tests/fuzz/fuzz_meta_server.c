/* SPDX-License-Identifier: Apache-2.0
 * fuzz_meta_server.c - file of the metadata server: after an accepted file the next start reads the
 * same table, and the table accepts another text. */
#include <config.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "meta/server_store_i.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mc_log_conf quiet = { .levels = "err" };
	struct mcd_store *s;
	size_t n, len;
	char path[64], *text;
	int fd;

	mc_log_open(&quiet);
	fd = memfd_create("journal", MFD_CLOEXEC);
	check(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (mcd_store_open(path, 1 << 30, &s) == 0) {
		n = s->n;
		mcd_store_close(s);
		check(mcd_store_open(path, 1 << 30, &s) == 0);
		check(s->n == n);
		check(mcd_store_put(s, "one more", "text", 4, 0, false) >= 0);
		mcd_store_close(s);
		check(mcd_store_open(path, 1 << 30, &s) == 0);
		check(mcd_store_get(s, "one more", &text, &len) == 0);
		check(len == 4 && !memcmp(text, "text", 5));
		free(text);
		mcd_store_close(s);
	}
	close(fd);
	return 0;
}
