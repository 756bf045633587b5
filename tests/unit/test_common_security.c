/* SPDX-License-Identifier: Apache-2.0
 * test_common_security.c - identities, their keys, the files of secrets and credentials, bearer tokens. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/security/secret.h"

#define CREDENTIAL "mc1/pool/node/default/gpu17/0123456789abcdef/1790000000"
#define TICKET "mt1/pool/gpu17/client/*/alice/0000000000000007/1790000000"
#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static char dir[] = "/tmp/mc-security-XXXXXX";
static char path[64];

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/file", dir);
	return 0;
}

static int teardown(void **state)
{
	return rmdir(dir);
}

/* ---- identities -------------------------------------------------------------------------------- */

static int parse(const char *text)
{
	struct mc_identity id;

	return mc_identity_parse(text, strlen(text), &id);
}

static void an_identity_has_one_text(void **state)
{
	static const char *const bad[] = {
		"", "m", "mc", "mc1", "/", "//////", "///////", "mc/////////////",
		"Mc1/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"md1/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc01/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc0/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc+1/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc 1/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc-1/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc10000/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc4294967297/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc18446744073709551617/pool/node/default/gpu17/0123456789abcdef/1790000000",
		"mc1/pool/nodes/default/gpu17/0123456789abcdef/1790000000",
		"mc1/pool/none/default/gpu17/0123456789abcdef/1790000000",
		"mc1/pool/NODE/default/gpu17/0123456789abcdef/1790000000",
		"mc1/pool/node/default/gpu17/0123456789ABCDEF/1790000000",
		"mc1/pool/node/default/gpu17/123456789abcdef/1790000000",
		"mc1/pool/node/default/gpu17/00123456789abcdef/1790000000",
		"mc1/pool/node/default/gpu17/10123456789abcdef/1790000000",
		"mc1/pool/node/default/gpu17/0x23456789abcdef0/1790000000",
		"mc1/pool/node/default/gpu17/0000000000000000/1790000000",
		"mc1/pool/node/default/gpu17/0123456789abcdef/0",
		"mc1/pool/node/default/gpu17/0123456789abcdef/01790000000",
		"mc1/pool/node/default/gpu17/0123456789abcdef/-1",
		"mc1/pool/node/default/gpu17/0123456789abcdef/18446744073709551616",
		"mc1/pool/node/default/gpu17/0123456789abcdef/1790000000/",
		"mc1/pool/node/default/gpu17/0123456789abcdef/1790000000/x",
		"mc1/pool/node/default/gpu17/0123456789abcdef",
		"mc1/pool/gpu17/client/*/alice/0000000000000007/1790000000",
		"mt1/pool/client/*/alice/0000000000000007/1790000000",
		"mc1/*/node/default/gpu17/0123456789abcdef/1790000000",
		"mc1/pool/node/default/*/0123456789abcdef/1790000000",
		"mc1/pool/node/**/gpu17/0123456789abcdef/1790000000",
	};
	struct mc_identity id;

	assert_int_equal(parse(CREDENTIAL), 0);
	assert_int_equal(parse("mc9999/pool/node/default/gpu17/ffffffffffffffff/18446744073709551615"), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(parse(bad[i]), -EINVAL);
		assert_true(strlen(bad[i]) < 4 || !strstr(mc_err_detail(-EINVAL), bad[i]));
	}
	assert_int_equal(mc_identity_parse(CREDENTIAL "\0", sizeof(CREDENTIAL), &id), -EINVAL);
	assert_int_equal(mc_identity_parse(CREDENTIAL, sizeof(CREDENTIAL) - 2, &id), 0);
	assert_int_equal(id.expires_s, 179000000);
	assert_int_equal(mc_identity_parse(TICKET, strlen(TICKET), &id), 0);
	assert_true(id.ticket);
	assert_string_equal(id.node, "gpu17");
	assert_string_equal(id.tenant, "*");
	assert_string_equal(id.name, "alice");
	assert_int_equal(id.role, MC_ROLE_CLIENT);
}

static void a_component_has_a_length_and_an_alphabet(void **state)
{
	const struct {
		const char *before, *after;
		size_t max;
	} at[] = {
		{ "mc1/", "/node/default/gpu17/0123456789abcdef/1790000000", MC_CLUSTER_NAME_MAX },
		{ "mc1/pool/node/", "/gpu17/0123456789abcdef/1790000000", MC_PRINCIPAL_TENANT_MAX },
		{ "mc1/pool/node/default/", "/0123456789abcdef/1790000000", MC_PRINCIPAL_NAME_MAX },
		{ "mt1/pool/", "/client/*/alice/0000000000000007/1790000000", MC_PRINCIPAL_NAME_MAX },
	};
	const size_t many = 200;
	char text[512], fill[201];

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		for (size_t len = 0; len <= many; len++) {
			memset(fill, 'x', len);
			fill[len] = '\0';
			snprintf(text, sizeof(text), "%s%s%s", at[i].before, fill, at[i].after);
			assert_int_equal(parse(text), len && len <= at[i].max ? 0 : -EINVAL);
		}
		for (int c = 1; c < 256; c++) {
			bool good = strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@+-", c);

			snprintf(text, sizeof(text), "%sx%cy%s", at[i].before, c, at[i].after);
			assert_int_equal(parse(text), good ? 0 : -EINVAL);
		}
	}
}

static void the_longest_identity_fits(void **state)
{
	struct mc_identity id = {
		.ticket = true, .secret = MC_SECRET_NUMBER_MAX, .serial = UINT64_MAX, .expires_s = UINT64_MAX,
		.role = MC_ROLE_METRICS,
	}, again;
	char text[MC_IDENTITY_MAX + 1];
	int n;

	memset(id.cluster, 'c', MC_CLUSTER_NAME_MAX);
	memset(id.node, 'n', MC_PRINCIPAL_NAME_MAX);
	memset(id.tenant, 't', MC_PRINCIPAL_TENANT_MAX);
	memset(id.name, 'a', MC_PRINCIPAL_NAME_MAX);
	n = mc_identity_format(&id, text);
	assert_true(n > 0);
	assert_int_equal(mc_identity_parse(text, (size_t)n, &again), 0);
	assert_memory_equal(&id, &again, sizeof(id));
}

static void rights_and_expiry_are_those_of_the_text(void **state)
{
	struct mc_principal p;
	struct mc_identity id;

	assert_int_equal(mc_identity_parse(CREDENTIAL, strlen(CREDENTIAL), &id), 0);
	mc_identity_principal(&id, &p);
	assert_int_equal(p.source, MC_PRINCIPAL_CREDENTIAL);
	assert_int_equal(p.roles, MC_ROLE_NODE);
	assert_string_equal(p.tenant, "default");
	assert_string_equal(p.name, "gpu17");
	assert_true(p.serial == 0x0123456789abcdef);
	assert_int_equal(mc_identity_check_time(&id, 1789999999), 0);
	assert_int_equal(mc_identity_check_time(&id, 1790000000), -EACCES);
	assert_int_equal(mc_identity_check_time(&id, UINT64_MAX), -EACCES);
	assert_int_equal(mc_identity_parse(TICKET, strlen(TICKET), &id), 0);
	mc_identity_principal(&id, &p);
	assert_string_equal(p.tenant, "");
}

/* ---- keys -------------------------------------------------------------------------------------- */

static void assert_hex(const uint8_t key[MC_KEY_LEN], const char *hex)
{
	char text[2 * MC_KEY_LEN + 1];

	for (unsigned i = 0; i < MC_KEY_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
	assert_string_equal(text, hex);
}

/* def hkdf(key, salt, info):		# Python's hmac and hashlib; salt: the purpose, info: the text
 *	prk = hmac.new(salt, key, sha256).digest()
 *	return hmac.new(prk, info + b"\1", sha256).digest() */
static void keys_are_those_of_hkdf(void **state)
{
	uint8_t secret[MC_KEY_LEN], key[MC_KEY_LEN], node[MC_KEY_LEN];

	for (unsigned i = 0; i < MC_KEY_LEN; i++)
		secret[i] = (uint8_t)i;
	mc_key_credential(secret, CREDENTIAL, key);
	assert_hex(key, "b79bc9048138f7c6661a6ac09ac71762092867e1904628db229b1cd8a820b330");
	mc_key_bearer(key, CREDENTIAL, key);
	assert_hex(key, "bd094e428cf0ca57796941843c20d57b5ec00420ab5889ce8985c3310b71ce75");
	mc_key_node(secret, "pool", "gpu17", node);
	assert_hex(node, "0ada13adfa254af1f66feb965ce2851a025caafaa19164911c2f44b63e7982c8");
	mc_key_ticket(node, TICKET, key);
	assert_hex(key, "676e2ee240a48cfe966d40cd66f84eeeb1c4029d9af73b86c9c92a6559f75c94");
}

/* ---- files ------------------------------------------------------------------------------------- */

static void write_file(const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, mode), 0);
}

/* The result of reading @text as a file with secrets; no error has bytes of a key. */
static int load_secrets(const char *text)
{
	struct mc_secrets *s = NULL;
	int r;

	write_file(text, 0600);
	r = mc_secrets_load(path, &s);
	if (r < 0) {
		assert_null(s);
		assert_non_null(strstr(mc_err_detail(r), path));
		assert_null(strstr(mc_err_detail(r), "1a1b1c"));
	}
	mc_secrets_free(s);
	assert_int_equal(unlink(path), 0);
	return r;
}

static void a_file_of_secrets_is_strict(void **state)
{
	static const char good[] = "# c\n\n  cluster\tpool\r\nsecret 2 " HEX "\n#secret 3 x\nsecret 1 " HEX;
	static const char *const bad[] = {
		"", "\n", "# only\n", "cluster pool\n", "secret 1 " HEX "\n", "cluster po/ol\nsecret 1 " HEX "\n",
		"cluster\nsecret 1 " HEX "\n", "cluster a b\nsecret 1 " HEX "\n",
		"cluster pool\ncluster pool\nsecret 1 " HEX "\n",
		"cluster pool\nsecret 1 " HEX "\nsecret 2 " HEX "\n",
		"cluster pool\nsecret 1 " HEX "\nsecret 1 " HEX "\n",
		"cluster pool\nsecret 3 " HEX "\nsecret 2 " HEX "\nsecret 1 " HEX "\n",
		"cluster pool\nsecret 0 " HEX "\n", "cluster pool\nsecret 01 " HEX "\n",
		"cluster pool\nsecret -1 " HEX "\n",
		"cluster pool\nsecret 1x " HEX "\n", "cluster pool\nsecret 10000 " HEX "\n",
		"cluster pool\nsecret 4294967297 " HEX "\n", "cluster pool\nsecret 1 " HEX "0\n",
		"cluster pool\nsecret 1 " HEX " x\n", "cluster pool\nsecret 1 A" HEX "\n", "cluster pool\nsecret 1\n",
		"cluster pool\nsecret\n", "cluster pool\nkey " HEX "\n",
	};
	size_t first = strlen("# c\n\n  cluster\tpool\r\nsecret 2 " HEX);
	char text[sizeof(good)];

	assert_int_equal(load_secrets(good), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(load_secrets(bad[i]), -EINVAL);
	/* Cut anywhere, it is the same or refused, except after a whole line. */
	for (size_t len = 0; len < strlen(good); len++) {
		bool whole = len >= first && len <= strlen(good) - strlen("secret 1 " HEX);

		memcpy(text, good, len);
		text[len] = '\0';
		assert_int_equal(load_secrets(text), whole ? 0 : -EINVAL);
	}
}

static void a_file_that_others_can_read_is_refused(void **state)
{
	struct mc_secrets *s = NULL;
	char big[5000];

	assert_int_equal(mc_secrets_load(path, &s), -ENOENT);
	for (mode_t bit = 01; bit <= 040; bit <<= 1) {
		write_file("cluster pool\nsecret 1 " HEX "\n", 0600 | bit);
		assert_int_equal(mc_secrets_load(path, &s), -EACCES);
		assert_non_null(strstr(mc_err_detail(-EACCES), "chmod 600"));
	}
	assert_int_equal(mc_secrets_load(dir, &s), -EACCES);
	memset(big, '#', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(load_secrets(big), -EFBIG);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(mc_secrets_load(path, &s), -EACCES);
	assert_int_equal(unlink(path), 0);
	assert_null(s);
}

static void rotation_keeps_the_secret_before(void **state)
{
	struct mc_identity id = { .secret = 1, .role = MC_ROLE_CLIENT, .serial = 1, .expires_s = 1, .cluster = "pool",
				  .tenant = "*", .name = "a" };
	uint8_t first[MC_KEY_LEN], key[MC_KEY_LEN];
	struct mc_secrets *s;
	struct stat st;

	assert_int_equal(mc_secrets_init(path, "a b"), -EINVAL);
	assert_int_equal(mc_secrets_init(path, "pool"), 0);
	assert_int_equal(mc_secrets_init(path, "pool"), -EEXIST);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (unsigned round = 1; round <= 3; round++) {
		assert_int_equal(mc_secrets_load(path, &s), 0);
		assert_string_equal(mc_secrets_cluster(s), "pool");
		assert_int_equal(mc_secrets_newest(s), round);
		for (uint32_t n = 0; n <= round + 1; n++)
			assert_int_equal(mc_secrets_accepts(s, n), n && n <= round && n + 2 > round);
		/* Credentials of secret 1: valid after one rotation, and not after two. */
		assert_int_equal(mc_secrets_key(s, &id, "text", round == 1 ? first : key), round <= 2 ? 0 : -EACCES);
		if (round == 2)
			assert_memory_equal(key, first, MC_KEY_LEN);
		id.ticket = true;
		assert_int_equal(mc_secrets_key(s, &id, "text", key), -EACCES);
		id.ticket = false;
		strcpy(id.cluster, "other");
		assert_int_equal(mc_secrets_key(s, &id, "text", key), -EACCES);
		strcpy(id.cluster, "pool");
		mc_secrets_free(s);
		assert_int_equal(mc_secrets_rotate(path), 0);
	}
	assert_int_equal(unlink(path), 0);
	write_file("cluster pool\nsecret 9999 " HEX "\n", 0600);
	assert_int_equal(mc_secrets_rotate(path), -ERANGE);
	assert_int_equal(unlink(path), 0);
}

/* A credential of secret 1 of @s. */
static struct mc_credential *credential(const struct mc_secrets *s)
{
	struct mc_credential *c = mc_credential_new();

	assert_non_null(c);
	strcpy(c->text, CREDENTIAL);
	assert_int_equal(mc_identity_parse(c->text, strlen(c->text), &c->id), 0);
	assert_int_equal(mc_secrets_key(s, &c->id, c->text, c->key), 0);
	assert_int_equal(mc_secrets_node_key(s, 1, c->id.name, c->node_key), 0);
	c->has_node_key = true;
	return c;
}

static struct mc_secrets *secrets(void)
{
	struct mc_secrets *s;

	write_file("cluster pool\nsecret 1 " HEX "\n", 0600);
	assert_int_equal(mc_secrets_load(path, &s), 0);
	assert_int_equal(unlink(path), 0);
	return s;
}

static int load_credential(const char *text)
{
	struct mc_credential c;
	int r;

	memset(&c, 0xaa, sizeof(c));
	write_file(text, 0600);
	r = mc_credential_load(path, &c);
	/* A file that is refused leaves nothing of its key. */
	for (size_t i = 0; r < 0 && i < sizeof(c); i++)
		assert_int_equal(((uint8_t *)&c)[i], 0);
	assert_true(r == 0 || !strstr(mc_err_detail(r), "1a1b1c"));
	assert_int_equal(unlink(path), 0);
	return r;
}

static void a_credential_survives_its_file(void **state)
{
	static const char *const bad[] = {
		"", "identity " CREDENTIAL "\n", "key " HEX "\n", "identity " CREDENTIAL "x\nkey " HEX "\n",
		"identity " CREDENTIAL "\nkey " HEX "\nkey " HEX "\n", "identity " CREDENTIAL "\nkey 0" HEX "\n",
		"identity " CREDENTIAL "\nidentity " CREDENTIAL "\nkey " HEX "\n", "identity\nkey " HEX "\n",
		"identity " CREDENTIAL "\nkey " HEX "\nnode_key " HEX "\nnode_key " HEX "\n",
		"identity " CREDENTIAL "\nkey " HEX "\nnode_key\n", "identity " CREDENTIAL "\nkey " HEX "\nother x\n",
	};
	struct mc_secrets *s = secrets();
	struct mc_credential *c = credential(s), again;
	char text[1024];

	for (int node_key = 0; node_key < 2; node_key++) {
		c->has_node_key = node_key;
		assert_int_equal(mc_credential_save(c, path), 0);
		assert_int_equal(mc_credential_save(c, path), -EEXIST);
		assert_int_equal(mc_credential_load(path, &again), 0);
		assert_string_equal(again.text, c->text);
		assert_memory_equal(&again.id, &c->id, sizeof(c->id));
		assert_memory_equal(again.key, c->key, MC_KEY_LEN);
		assert_int_equal(again.has_node_key, node_key);
		assert_true(!node_key || !memcmp(again.node_key, c->node_key, MC_KEY_LEN));
		assert_int_equal(unlink(path), 0);
		assert_int_equal(mc_credential_text(c, text, 100), -ENOBUFS);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(load_credential(bad[i]), -EINVAL);
	mc_credential_free(c);
	mc_secrets_free(s);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

static void each_byte_of_a_token_counts(void **state)
{
	struct mc_secrets *s = secrets();
	struct mc_credential *c = credential(s);
	char token[MC_BEARER_MAX], copy[MC_BEARER_MAX + 1];
	struct mc_identity id;
	size_t len;

	mc_bearer_make(c, token);
	len = strlen(token);
	assert_int_equal(mc_bearer_check(s, token, 1789999999, &id), 0);
	assert_memory_equal(&id, &c->id, sizeof(id));
	assert_int_equal(mc_bearer_check(s, token, 1790000000, &id), -EACCES);
	for (size_t i = 0; i <= len; i++) {
		strcpy(copy, token);
		copy[i] ^= 1;
		copy[len + 1] = '\0';
		assert_int_equal(mc_bearer_check(s, copy, 1, &id), -EACCES);
		assert_null(strstr(mc_err_detail(-EACCES), token + len - 10));
		strcpy(copy, token);
		copy[i] = '\0';
		assert_int_equal(mc_bearer_check(s, copy, 1, &id), i < len ? -EACCES : 0);
	}
	assert_int_equal(mc_bearer_check(s, "", 1, &id), -EACCES);
	assert_int_equal(mc_bearer_check(s, ".", 1, &id), -EACCES);
	assert_int_equal(mc_bearer_check(s, "." HEX, 1, &id), -EACCES);
	mc_credential_free(c);
	mc_secrets_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_identity_has_one_text),
		cmocka_unit_test(a_component_has_a_length_and_an_alphabet),
		cmocka_unit_test(the_longest_identity_fits),
		cmocka_unit_test(rights_and_expiry_are_those_of_the_text),
		cmocka_unit_test(keys_are_those_of_hkdf),
		cmocka_unit_test(a_file_of_secrets_is_strict),
		cmocka_unit_test(a_file_that_others_can_read_is_refused),
		cmocka_unit_test(rotation_keeps_the_secret_before),
		cmocka_unit_test(a_credential_survives_its_file),
		cmocka_unit_test(each_byte_of_a_token_counts),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
