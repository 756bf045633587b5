/* SPDX-License-Identifier: Apache-2.0
 * segdesc.c - segment descriptors in memory: free, protocols, search by address. */
#include <config.h>

#include "engine/upstream/segdesc.h"

#include <stdlib.h>
#include <string.h>

void mce_segdesc_free(struct mce_segdesc *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->nbuffers; i++) {
		free(d->buffers[i].name);
		free(d->buffers[i].rkeys);
		free(d->buffers[i].lkeys);
	}
	for (size_t i = 0; i < d->ndevices; i++) {
		free(d->devices[i].name);
		free(d->devices[i].gid);
	}
	free(d->buffers);
	free(d->devices);
	free(d->name);
	free(d->protocol);
	free(d->timestamp);
	free(d->rdma_server_name);
	free(d->tcp_data_host);
	free(d->priority_matrix);
	free(d->endpoint);
	free(d);
}

bool mce_segdesc_speaks(const struct mce_segdesc *d, const char *protocol)
{
	size_t len = strlen(protocol);
	const char *p = d->protocol;

	while (p && *p) {
		size_t n = strcspn(p, ",");

		if (n == len && !memcmp(p, protocol, len))
			return true;
		p += n + (p[n] == ',');
	}
	return false;
}
