/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_segdesc.c - segment descriptors from untrusted peers: an accepted descriptor keeps to the
 * limits, has only valid ranges, and is the same after encoding and decoding. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/upstream/segdesc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_sane(const struct mce_segdesc *d)
{
	check(*d->name && *d->protocol && strlen(d->name) < MCE_SEGDESC_NAME_MAX);
	check(d->tcp_data_port >= 0 && d->tcp_data_port <= 65535);
	check(d->nbuffers <= MCE_SEGDESC_BUFFERS_MAX && d->ndevices <= MCE_SEGDESC_DEVICES_MAX);
	for (size_t i = 0; i < d->nbuffers; i++) {
		const struct mce_segdesc_buffer *b = &d->buffers[i];

		check(b->length && b->addr + (b->length - 1) >= b->addr && *b->name);
		check(i == 0 || d->buffers[i - 1].addr <= b->addr);
		check(!b->rkeys == !b->lkeys);
	}
}

static void check_same(const struct mce_segdesc *a, const struct mce_segdesc *b)
{
	check(!strcmp(a->name, b->name) && !strcmp(a->endpoint, b->endpoint));
	check(!strcmp(a->tcp_data_host, b->tcp_data_host) && !strcmp(a->protocol, b->protocol));
	check(a->tcp_data_port == b->tcp_data_port && a->tcp_proto_version == b->tcp_proto_version);
	check(a->nbuffers == b->nbuffers && a->ndevices == b->ndevices);
	for (size_t i = 0; i < a->nbuffers; i++)
		check(a->buffers[i].addr == b->buffers[i].addr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mce_segdesc *d, *again;
	char *text = NULL;

	if (mce_segdesc_decode((const char *)data, size, &d) < 0)
		return 0;
	check_sane(d);
	/* Some accepted descriptors cannot be encoded: those with keys but no devices. */
	if (mce_segdesc_encode(d, &text) == 0) {
		check(mce_segdesc_decode(text, strlen(text), &again) == 0);
		check_same(d, again);
		mce_segdesc_free(again);
	}
	free(text);
	mce_segdesc_free(d);
	return 0;
}
