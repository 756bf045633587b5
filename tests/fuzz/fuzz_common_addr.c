/* SPDX-License-Identifier: Apache-2.0
 * fuzz_common_addr.c - address strings, which peers send too, and sets of fault points. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/fault.h"
#include "common/net/net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), host[64];
	int port = -1;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!mc_addr_split(text, host, sizeof(host), 80, &port) &&
	    (port < 0 || port > 65535 || strlen(host) >= sizeof(host)))
		abort();
	(void)mc_fault_set(text);
	(void)mc_fault_set(NULL);
	free(text);
	return 0;
}
