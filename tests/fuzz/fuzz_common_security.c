/* SPDX-License-Identifier: Apache-2.0
 * fuzz_common_security.c - identities, tokens, and the files of secrets and credentials.  The first byte chooses. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/security/secret.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file in memory with the bytes; its name. */
static const char *fuzz_file(const uint8_t *data, size_t size)
{
	static char path[64];
	static int fd = -1;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		if (fd < 0 || fchmod(fd, 0600) < 0)
			abort();
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	return path;
}

/* An identity that is accepted has one text, which gives it again. */
static void fuzz_identity(const uint8_t *data, size_t size)
{
	struct mc_principal principal;
	char text[MC_IDENTITY_MAX + 1];
	struct mc_identity id;

	if (mc_identity_parse((const char *)data, size, &id) < 0)
		return;
	if (mc_identity_format(&id, text) != (int)size || memcmp(text, data, size) || memchr(data, 0, size))
		abort();
	if (!id.serial || !id.expires_s || !id.role || (id.role & (id.role - 1)))
		abort();
	mc_identity_principal(&id, &principal);
	if (principal.roles != id.role || principal.serial != id.serial)
		abort();
}

/* The numbers of secrets that are accepted. */
static void fuzz_secrets(const uint8_t *data, size_t size)
{
	struct mc_secrets *s;
	unsigned n = 0;

	if (mc_secrets_load(fuzz_file(data, size), &s) < 0)
		return;
	for (uint32_t i = 0; i <= MC_SECRET_NUMBER_MAX + 1; i++)
		n += mc_secrets_accepts(s, i);
	if (n < 1 || n > MC_SECRETS_MAX || mc_secrets_accepts(s, 0) || !mc_secrets_accepts(s, mc_secrets_newest(s)) ||
	    !mc_identity_component(mc_secrets_cluster(s), MC_CLUSTER_NAME_MAX))
		abort();
	mc_secrets_free(s);
}

/* A credential that was read gives a file that is read as the same credential. */
static void fuzz_credential(const uint8_t *data, size_t size)
{
	static struct mc_credential c, again;
	char text[1024];
	int n;

	if (mc_credential_load(fuzz_file(data, size), &c) < 0)
		return;
	n = mc_credential_text(&c, text, sizeof(text));
	if (n < 0 || mc_credential_load(fuzz_file((const uint8_t *)text, (size_t)n), &again) < 0 ||
	    memcmp(&c, &again, sizeof(c)))
		abort();
}

/* No token has the key of a secret that the input does not know. */
static void fuzz_token(const uint8_t *data, size_t size)
{
	static struct mc_secrets *s;
	char *token = malloc(size + 1);
	struct mc_identity id;

	if (!s) {
		static const char file[] =
			"cluster pool\nsecret 1 8f1b9d0a5c3e7f2246688aaccee013579bdf02468ace13579bdf02468ace1357\n";

		if (mc_secrets_load(fuzz_file((const uint8_t *)file, sizeof(file) - 1), &s) < 0)
			abort();
	}
	if (!token)
		abort();
	memcpy(token, data, size);
	token[size] = '\0';
	if (mc_bearer_check(s, token, 1, &id) != -EACCES)
		abort();
	free(token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	switch (data[0]) {
	case 'i':
		fuzz_identity(data + 1, size - 1);
		break;
	case 's':
		fuzz_secrets(data + 1, size - 1);
		break;
	case 'c':
		fuzz_credential(data + 1, size - 1);
		break;
	default:
		fuzz_token(data + 1, size - 1);
	}
	return 0;
}
