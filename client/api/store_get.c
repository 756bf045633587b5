/* SPDX-License-Identifier: Apache-2.0
 * store_get.c - the public calls that read objects by key. */
#include <config.h>

#include <stdlib.h>

#include "client/store_i.h"

static int get_batch(struct mcs *s, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc, void *arg,
		     int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s), ok = 0;
	bool lost;

	for (unsigned i = 0; i < n; i++)
		items[i].result = r < 0 ? r : -MC_ERPC;
	if (r < 0)
		return r;
	do {
		r = b->ops->get_batch(b, items, n, alloc, arg, deadline);
		lost = false;
		for (unsigned i = 0; i < n; i++)
			lost = lost || items[i].result == -MC_ERPC;
	} while (lost && mcs_backend_replace(s, &b, -MC_ERPC));
	for (unsigned i = 0; i < n; i++)
		ok += items[i].result >= 0;
	return r < 0 && !ok ? r : ok;
}

int mcs_get_batch(struct mcs *s, struct mcs_get_item *items, unsigned n, int64_t timeout_ms)
{
	return get_batch(s, items, n, NULL, NULL, timeout_ms);
}

int mcs_get_batch_alloc(struct mcs *s, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			void *arg, int64_t timeout_ms)
{
	int r;

	for (unsigned i = 0; i < n; i++) {
		items[i].whole = 1;
		items[i].iov = NULL;
		items[i].iovcnt = 0;
	}
	r = get_batch(s, items, n, alloc, arg, timeout_ms);
	/* They point into the library's memory. */
	for (unsigned i = 0; i < n; i++) {
		items[i].iov = NULL;
		items[i].iovcnt = 0;
	}
	return r;
}

int64_t mcs_get(struct mcs *s, struct mcs_key key, const struct iovec *iov, int iovcnt, int64_t timeout_ms)
{
	struct mcs_get_item item = { .key = key, .whole = 1, .iov = iov, .iovcnt = iovcnt };

	(void)mcs_get_batch(s, &item, 1, timeout_ms);
	return item.result;
}

int64_t mcs_get_range(struct mcs *s, struct mcs_key key, uint64_t offset, const struct iovec *iov,
		      int iovcnt, int64_t timeout_ms)
{
	struct mcs_get_item item = { .key = key, .offset = offset, .iov = iov, .iovcnt = iovcnt };

	(void)mcs_get_batch(s, &item, 1, timeout_ms);
	return item.result;
}

static void *get_realloc(void *arg, unsigned index, uint64_t size)
{
	void **data = arg, *p = realloc(*data, size ? size : 1);

	if (p)
		*data = p;
	return p;
}

int64_t mcs_get_alloc(struct mcs *s, struct mcs_key key, void **ret_data, int64_t timeout_ms)
{
	struct mcs_get_item item = { .key = key };
	void *data = NULL;

	(void)mcs_get_batch_alloc(s, &item, 1, get_realloc, &data, timeout_ms);
	if (item.result < 0)
		free(data);
	else
		*ret_data = data;
	return item.result;
}
