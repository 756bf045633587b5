/* SPDX-License-Identifier: Apache-2.0
 * fuzz_common_conf.c - config files.  The first byte chooses the format: 'j' is JSON, anything else
 * YAML. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/options/options_i.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_pair(void *arg, const char *key, const char *value, enum mc_conf_shape shape)
{
	size_t *left = arg;

	/* The contract: only a map has no text, a key is never empty, and the total size has a bound. */
	if (!*key || strlen(key) > 256 || (shape == MC_CONF_MAP) != !value)
		abort();
	if (value && strlen(value) > *left)
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t longest = 1 << 20;

	if (size == 0)
		return 0;
	(void)mc_conf_parse((const char *)data + 1, size - 1,
			    data[0] == 'j' ? MC_CONF_JSON : MC_CONF_YAML, on_pair, &longest);
	return 0;
}
