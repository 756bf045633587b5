/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_admin.c - input of the admin service: JSON bodies, ids, lists of keys.  The first
 * byte selects the decoder. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "master/admin/admin_json.h"
#include "master/task/task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void drain(const char *text, size_t len)
{
	struct mcm_drain_body b;
	size_t sum = 0;

	if (mcm_drain_body_parse(text, len, &b) == 0) {
		if (b.n_sources > MCM_ADMIN_NAMES || b.n_targets > MCM_ADMIN_NAMES ||
		    b.max_active > 1024)
			abort();
		for (unsigned i = 0; i < b.n_sources; i++)
			sum += strnlen(b.source[i].data, b.source[i].len);
		for (unsigned i = 0; i < b.n_targets; i++)
			sum += strnlen(b.target[i].data, b.target[i].len);
		/* Every name is part of the body; decoding escapes only shortens it. */
		if (sum > len)
			abort();
	}
	mcm_drain_body_done(&b);
}

static void pins(const char *text, size_t len, bool pin)
{
	struct mcm_pin_body b;

	if (mcm_pin_body_parse(text, len, pin, &b) == 0 &&
	    (!json_array_size(b.keys) || json_array_size(b.keys) > MCM_ADMIN_PINS || b.ttl_ms > INT64_MAX ||
	     b.tenant.len > MCP_TENANT_MAX || (!pin && b.ttl_ms)))
		abort();
	json_decref(b.json);
}

static void id(const char *text)
{
	char again[MCM_ID_TEXT];
	struct mcp_id a, b;

	if (mcm_id_parse(text, &a) < 0)
		return;
	if (mcm_id_parse(mcm_id_text(a, again), &b) < 0 || a.hi != b.hi || a.lo != b.lo)
		abort();
}

static void part(void *arg, const char *text, size_t len)
{
	if (memchr(text, ',', len))
		abort();
	*(size_t *)arg += len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = size ? malloc(size) : NULL;
	uint64_t bytes;
	size_t sum = 0;

	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0]) {
	case 'd':
		drain(text, size - 1);
		break;
	case 'q':
		if (mcm_quota_body_parse(text, size - 1, &bytes) == 0 &&
		    (!bytes || bytes > INT64_MAX))
			abort();
		break;
	case 'p':
	case 'u':
		pins(text, size - 1, data[0] == 'p');
		break;
	case 'i':
		id(text);
		break;
	default:
		(void)mcm_list_parse(text, size - 1, part, &sum);
		(void)mcm_flag_parse(text);
		if (sum > size)
			abort();
	}
	free(text);
	return 0;
}
