/* SPDX-License-Identifier: Apache-2.0
 * disk_keys.c - keys of encrypted media, asked of the master. */
#include <config.h>

#include "client/owner/disk_keys.h"

#include <string.h>

#include "common/err.h"

static int keys_take(const struct mcp_disk_key_reply *reply, struct mct_keys *ret)
{
	if ((reply->key.len && reply->key.len != MC_KEY_LEN) || reply->newest_key.len != MC_KEY_LEN ||
	    !reply->newest || reply->newest > MC_SECRET_NUMBER_MAX)
		return mc_fail(-MC_EPROTO, "the master's key of a disk has a wrong size");
	ret->known = reply->key.len;
	if (ret->known)
		memcpy(ret->key, reply->key.data, MC_KEY_LEN);
	ret->newest = (uint32_t)reply->newest;
	memcpy(ret->newest_key, reply->newest_key.data, MC_KEY_LEN);
	return 0;
}

int mcs_disk_keys_ask(void *arg, uint32_t secret, struct mct_keys *ret)
{
	const struct mcs_disk_keys *from = arg;
	const struct mcp_disk_key msg = { .segment = from->segment, .secret = secret };
	struct mcp_disk_key_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	r = from->c ? mcp_call(from->c, MCP_DISK_KEY, &msg, &reply, &mem, from->deadline) :
		mcs_call(from->session, MCP_DISK_KEY, &msg, &reply, &mem, from->deadline);
	if (r < 0)
		return mc_fail(r, "the master gives no key for the segment's bytes: %s", strdupa(mc_err_detail(r)));
	r = keys_take(&reply, ret);
	explicit_bzero((void *)(uintptr_t)reply.key.data, reply.key.len);
	explicit_bzero((void *)(uintptr_t)reply.newest_key.data, reply.newest_key.len);
	mcp_reply_done(&mem);
	return r;
}
