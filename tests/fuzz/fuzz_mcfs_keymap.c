/* SPDX-License-Identifier: Apache-2.0
 * fuzz_mcfs_keymap.c - any bytes as a key and as a path: both survive the conversion to the other
 * form and back. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mcfs/keymap.h"
#include "tests/unit/test_mcfs_path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void key_round_trip(const uint8_t *key, size_t len)
{
	static char path[4 * MCFS_KEY_MAX + 1], back[MCFS_KEY_MAX];
	int n = mcfs_key_to_path(key, len, path, sizeof(path));

	if (n < 0)
		abort();
	n = mcfs_path_to_key(path, back, sizeof(back));
	if (n < 0 || (size_t)n != len || memcmp(back, key, len) != 0)
		abort();
}

static void flat_round_trip(const uint8_t *data, size_t size, bool top)
{
	static char name[3 * MCFS_KEY_MAX + 1], back[3 * MCFS_KEY_MAX + 1];
	int n = mcfs_flat_encode(data, size, top, name, sizeof(name));

	if (n < 0 || strchr(name, '/'))
		abort();
	n = mcfs_flat_decode(name, top, back, sizeof(back));
	if (n < 0 || (size_t)n != size || memcmp(back, data, size) != 0)
		abort();
	/* Any bytes as a name: either no key has this name, or the key of this name converts back to it. */
	memcpy(name, data, size);
	name[size] = '\0';
	n = mcfs_flat_decode(name, top, back, sizeof(back));
	if (n > 0 && !memchr(data, '/', size)) {
		static char again[3 * MCFS_KEY_MAX + 1];

		if (mcfs_flat_encode(back, (size_t)n, top, again, sizeof(again)) < 0 || strcmp(again, name) != 0)
			abort();
	}
}

/* A file name, unless the bytes cannot be one. */
static void name_round_trip(const uint8_t *data, size_t size)
{
	static char name[MCFS_NAME_MAX + 1], comp[MCFS_NAME_MAX], back[3 * MCFS_NAME_MAX + 1];

	memcpy(name, data, size);
	name[size] = '\0';
	if (!size || memchr(data, '/', size) || memchr(data, '\0', size) || !strcmp(name, ".") ||
	    !strcmp(name, ".."))
		return;
	for (int top = 0; top < 2; top++) {
		int n;

		if (top && !strcmp(name, MCFS_CONTROL_NAME))
			continue;
		n = mcfs_name_decode(name, top, comp, sizeof(comp));
		if (n < 0 || mcfs_name_encode(comp, (size_t)n, top, back, sizeof(back)) < 0 ||
		    strcmp(back, name) != 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A longer key may have a component whose name is too long to be shown. */
	if (size && size <= MCFS_NAME_MAX / 3)
		key_round_trip(data, size);
	for (int top = 0; top < 2 && size && size <= MCFS_KEY_MAX; top++)
		flat_round_trip(data, size, top);
	if (size <= MCFS_NAME_MAX)
		name_round_trip(data, size);
	return 0;
}
