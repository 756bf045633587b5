/* SPDX-License-Identifier: Apache-2.0
 * transport.c - the list of transports, the names and counters of their paths, and the slots that do nothing. */
#include <config.h>

#include "engine/transport.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "common/err.h"
#include "common/metrics.h"

const struct mce_transport *const mce_transports[] = {
	&mce_local_transport,
	&mce_disk_transport,
	&mce_mapped_transport,
	&mce_process_vm_transport,
	&mce_follow_transport,
	&mce_rdma_transport,
	&mce_staged_transport,
	&mce_tcp_transport,
	NULL,
};

const struct mce_transport *const mce_upstream_transports[] = {
	&mce_follow_transport,
	&mce_staged_transport,
	&mce_upstream_transport,
	NULL,
};

const struct mce_transport *const mce_upstream_rdma_transports[] = {
	&mce_follow_transport,
	&mce_rdma_transport,
	&mce_staged_transport,
	NULL,
};

/* ---- paths ------------------------------------------------------------------------------------- */

/* NULL: no transport, MCE_PATH_NONE. */
static const struct mce_transport *transport_of(enum mce_path path)
{
	for (const struct mce_transport *const *t = mce_transports; *t; t++)
		if ((*t)->path == path)
			return *t;
	for (const struct mce_transport *const *t = mce_upstream_transports; *t; t++)
		if ((*t)->path == path)
			return *t;
	return NULL;
}

const char *mce_path_name(enum mce_path path)
{
	const struct mce_transport *t = transport_of(path);

	return t ? t->name : "none";
}

enum mce_distance mce_path_distance(enum mce_path path)
{
	const struct mce_transport *t = transport_of(path);

	return t ? t->distance : MCE_DISTANCE_HOST;
}

static struct path_counters {
	char labels[48];
	struct mc_metric bytes, requests, errors;
} counters[MCE_PATHS][2];

MC_COUNTER(unconnected_errors, "mooncake_transfer_errors_total", "path=\"none\",op=\"any\"",
	   "Failed transfers this process asked for")

static void counter_init(struct mc_metric *m, const char *labels, const char *name, const char *help)
{
	*m = (struct mc_metric){ .name = name, .labels = labels, .help = help, .type = MC_COUNTER_TYPE, .scale = 1 };
	mc_metric_register(m);
}

__attribute__((constructor)) static void counters_register(void)
{
	for (unsigned path = MCE_PATH_NONE + 1; path < MCE_PATHS; path++) {
		for (unsigned op = 0; op < 2; op++) {
			struct path_counters *c = &counters[path][op];

			snprintf(c->labels, sizeof(c->labels), "path=\"%s\",op=\"%s\"", mce_path_name(path),
				 op == MCE_WRITE ? "write" : "read");
			counter_init(&c->bytes, c->labels, "mooncake_transfer_bytes_total",
				     "Bytes moved by completed transfers this process asked for");
			counter_init(&c->requests, c->labels, "mooncake_transfer_requests_total",
				     "Completed transfers this process asked for");
			counter_init(&c->errors, c->labels, "mooncake_transfer_errors_total",
				     "Failed transfers this process asked for");
		}
	}
}

void mce_path_count(enum mce_path path, enum mce_op op, int status, uint64_t bytes)
{
	struct path_counters *c = &counters[path][op == MCE_WRITE];

	if (path == MCE_PATH_NONE) {
		if (status < 0)
			mc_metric_add(&unconnected_errors, 1);
	} else if (status < 0) {
		mc_metric_add(&c->errors, 1);
	} else {
		mc_metric_add(&c->requests, 1);
		mc_metric_add(&c->bytes, (int64_t)bytes);
	}
}

/* ---- slots with nothing to do ------------------------------------------------------------------ */

int mce_no_attach(struct mce_peer *p)
{
	return 0;
}

void mce_no_detach(struct mce_peer *p)
{
}

int mce_no_connect(struct mce_peer *p, uint64_t deadline)
{
	return 0;
}

int mce_no_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	return 0;
}

unsigned mce_no_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	return 0;
}

void mce_no_flush(struct mce_peer *p)
{
}

void mce_no_poll(struct mce_peer *p)
{
}

int mce_no_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline)
{
	return -EAGAIN;
}

void mce_no_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
}

bool mce_no_doubt(struct mce_peer *p)
{
	return false;
}

void mce_no_doubts(struct mce_peer *p)
{
}

void mce_no_fence(struct mce_peer *p)
{
}

int mce_no_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret)
{
	return -MC_ENOTSUP;
}
