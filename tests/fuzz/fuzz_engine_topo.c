/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_topo.c - topology file: an accepted matrix is the same after encoding and decoding. */
#include <config.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mce_topo *t, *again;
	char *json, *json2;

	if (mce_topo_parse((const char *)data, size, &t) < 0)
		return 0;
	if (mce_topo_json(t, NULL, &json) < 0)
		abort();
	if (mce_topo_parse(json, strlen(json), &again) < 0 || mce_topo_json(again, NULL, &json2) < 0 ||
	    strcmp(json, json2))
		abort();
	free(json);
	free(json2);
	mce_topo_free(t);
	mce_topo_free(again);
	return 0;
}
