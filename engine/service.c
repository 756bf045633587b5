/* SPDX-License-Identifier: Apache-2.0
 * service.c - the list of services and the slots that do nothing. */
#include <config.h>

#include "engine/service.h"

#include <stddef.h>

#include "common/err.h"

const struct mce_service *const mce_services[] = {
	/* Before the one that lets peers in, whose greetings say whether there are NICs. */
	&mce_rdma_service,
	&mce_tcp_service,
	&mce_map_service,
	NULL,
};

int mce_services_open(struct mce_engine *e, const struct mce_conf *conf)
{
	int r = 0;

	for (const struct mce_service *const *s = mce_services; *s && r == 0; s++)
		r = (*s)->open(e);
	for (const struct mce_service *const *s = mce_services; *s && r == 0; s++)
		r = (*s)->start(e, conf);
	return r;
}

void mce_services_close(struct mce_engine *e)
{
	for (const struct mce_service *const *s = mce_services; *s; s++)
		(*s)->close(e);
}

bool mce_services_know(struct mce_engine *e, uint64_t token, uint8_t ret_nonce[16], struct mc_principal *ret_who)
{
	bool known = false;

	for (const struct mce_service *const *s = mce_services; *s && !known; s++)
		known = (*s)->knows_peer(e, token, ret_nonce, ret_who);
	return known;
}

uint64_t mce_services_features(const struct mce_engine *e)
{
	uint64_t features = 0;

	for (const struct mce_service *const *s = mce_services; *s; s++)
		features |= (*s)->features(e);
	return features;
}

int mce_services_take_connection(struct mce_engine *e, const struct mc_stream *stream, const struct mce_greeting *g)
{
	int r = -MC_ENOTSUP;

	for (const struct mce_service *const *s = mce_services; *s && r == -MC_ENOTSUP; s++)
		r = (*s)->take_connection(e, stream, g);
	return r;
}

int mce_services_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto)
{
	int r = 0, one;

	for (const struct mce_service *const *s = mce_services; *s; s++) {
		one = (*s)->fence(e, nonce, upto);
		r = one < 0 ? one : r;
	}
	return r;
}

void mce_no_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr)
{
}

void mce_no_revoke(struct mce_mr *mr)
{
}

bool mce_no_peer(struct mce_engine *e, uint64_t token, uint8_t ret_nonce[16], struct mc_principal *ret_who)
{
	return false;
}

uint64_t mce_no_features(const struct mce_engine *e)
{
	return 0;
}

int mce_no_connection(struct mce_engine *e, const struct mc_stream *stream, const struct mce_greeting *g)
{
	return -MC_ENOTSUP;
}
