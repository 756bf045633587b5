/* SPDX-License-Identifier: Apache-2.0
 * identity.c - identity of this engine and of its host.
 *
 * Addresses do not identify hosts (containers, NAT, port forwards).  The boot id names the running kernel.  Of
 * the namespaces only the network namespace matters: the abstract socket is looked up in it, while a descriptor
 * is valid across all others.  Clones of one VM snapshot have equal ids, so a match is only a reason to try. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/random.h"
#include "engine/engine_i.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* "8c1f…-…" without its dashes; all zero, which matches no host, when the kernel does not tell. */
static void read_boot_id(uint8_t ret[16])
{
	auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
	unsigned digits = 0;
	uint8_t id[16] = { 0 };

	for (ssize_t i = 0; i < n && digits < 32; i++) {
		int v = hex_digit(text[i]);

		if (v >= 0) {
			id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | v);
			digits++;
		}
	}
	if (digits == 32)
		memcpy(ret, id, 16);
}

int mce_id_make(struct mce_id *ret)
{
	struct mce_id id = { .netns_dev = 0 };
	struct stat st;
	int r;

	r = mc_random_bytes(id.nonce, sizeof(id.nonce));
	if (r < 0)
		return r;
	read_boot_id(id.boot);
	if (stat("/proc/self/ns/net", &st) == 0) {
		id.netns_dev = st.st_dev;
		id.netns_ino = st.st_ino;
	}
	*ret = id;
	return 0;
}

bool mce_id_same_host(const struct mce_id *a, const struct mce_id *b)
{
	static const uint8_t unknown[16];

	return memcmp(a->boot, unknown, 16) && !memcmp(a->boot, b->boot, 16) && a->netns_ino &&
	       a->netns_ino == b->netns_ino && a->netns_dev == b->netns_dev;
}

bool mce_id_same_engine(const struct mce_id *a, const struct mce_id *b)
{
	return !memcmp(a->nonce, b->nonce, sizeof(a->nonce));
}
