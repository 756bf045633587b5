/* SPDX-License-Identifier: Apache-2.0
 * secret_memory.c - memory for keys. */
#include <config.h>

#include "common/security/secret_memory.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <sys/mman.h>

#include "common/err.h"

void *mc_secret_alloc(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		mc_fail(-ENOMEM, "no memory for a secret");
		return NULL;
	}
	(void)mlock(p, len);
	(void)madvise(p, len, MADV_DONTDUMP);
	return p;
}

void mc_secret_free(void *p, size_t len)
{
	if (!p)
		return;
	OPENSSL_cleanse(p, len);
	munmap(p, len);
}
