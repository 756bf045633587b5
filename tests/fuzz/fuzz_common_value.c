/* SPDX-License-Identifier: Apache-2.0
 * fuzz_common_value.c - sizes, durations and switches: an accepted value, printed as --print_config
 * does, is accepted again with the same value. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/options/options_i.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(enum mc_opt_type type, uint64_t v)
{
	struct mc_opt_row row = { .name = "x", .type = type };
	uint64_t again = ~v;
	char buf[64];

	if (mc_opt_set(&row, mc_opt_format(&row, &v, buf, sizeof(buf)), &again, NULL) ||
	    again != v)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), buf[32];
	struct mc_opt_row row = { .name = "x" };
	char *string = NULL;
	union {
		bool b;
		int64_t i;
		double d;
		char *s;
	} field;
	uint64_t v;
	bool b;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!mc_parse_size(text, &v)) {
		check_round_trip(MC_OPT_SIZE, v);
		mc_format_size(v, buf, sizeof(buf));
	}
	if (!mc_parse_duration(text, 1, &v))
		check_round_trip(MC_OPT_MS, v);
	if (!mc_parse_duration(text, 1000, &v))
		check_round_trip(MC_OPT_SEC, v);
	(void)mc_parse_bool(text, &b);
	for (row.type = MC_OPT_BOOL; row.type <= MC_OPT_STR; row.type++)
		(void)mc_opt_set(&row, text, &field, &string);
	free(string);
	free(text);
	return 0;
}
