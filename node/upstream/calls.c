/* SPDX-License-Identifier: Apache-2.0
 * calls.c - the table of the functions that upstream's clients call.
 *
 * The numbers are those of 0.3.13.post1 and 0.3.14, computed by the rules in wire.h and compared with the messages of
 * their clients and mooncake_client.  Not here: functions between owners, those of a cache that upstream's daemon has
 * (this daemon offers none), and those with handles of GPU memory (batch_*_cuda_ipc_dummy_helper).  They get the answer
 * that there is no such function, as upstream's daemon gives it to get_replica_desc and batch_get_replica_desc. */
#include <config.h>

#include "node/upstream/calls.h"

#include <errno.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"

#define VOID	0xaf2868ccu	/* expected<void> */
#define VOIDS	0x39fc52ceu	/* a vector of them */
#define SIZE	0xb83381feu	/* expected<int64> */
#define SIZES	0xd659bde8u
#define RANGES	0x5be2815au	/* vectors of vectors of SIZES */
#define BOOL	0x90e800d2u
#define BOOLS	0x2a5f8c5cu
#define BUFFER	0x5288323au	/* expected<tuple<address, size>> */
#define BUFFERS	0xaec0be84u
#define PING	0x742a8f52u
#define UUID	0x8f9bae8au	/* expected<UUID> */
#define TASK	0x02d57de6u

const struct mcn_up_call mcn_up_calls[] = {
	{ "service_ready_internal", 0xe833f9c8, 0, VOID, "", true, mcn_up_run_ready, MC_MAY_READ },
	{ "ping", 0x876368aa, 0x3c6d83e0, PING, "I", true, mcn_up_run_ping, MC_MAY_READ },
	{ "is_shm_mapped_internal", 0xfc06d53c, 0x8e72d1e2, BOOL, "uI", true, mcn_up_run_is_mapped, MC_MAY_READ },
	{ "unmap_shm_internal", 0x7cbfb191, 0x3c6d83e0, VOID, "I", true, mcn_up_run_unmap, MC_MAY_READ },
	{ "unregister_shm_buffer_internal", 0x482f16aa, 0x8e72d1e2, VOID, "uI", true,
	  mcn_up_run_unregister, MC_MAY_READ },
	{ "release_buffer_dummy", 0x048afcbf, 0x8e72d1e2, VOID, "uI", true, mcn_up_run_release, MC_MAY_READ },
	{ "allocate_buffer_dummy", 0x3a7c1a4a, 0x8e72d1e2, BUFFER, "uI", true, mcn_up_run_allocate, MC_MAY_READ },

	{ "put_dummy_helper", 0xb337b643, 0x49719842, VOID, "ssCI", false, mcn_up_run_put, MC_MAY_WRITE },
	{ "upsert_dummy_helper", 0x864b0fce, 0x49719842, VOID, "ssCI", false, mcn_up_run_upsert, MC_MAY_WRITE },
	{ "put_parts_dummy_helper", 0x1201d7ad, 0xc4fd9178, VOID, "s[sCI", false, mcn_up_run_put_parts, MC_MAY_WRITE },
	{ "upsert_parts_dummy_helper", 0x8c252670, 0xc4fd9178, VOID, "s[sCI", false,
	  mcn_up_run_upsert_parts, MC_MAY_WRITE },
	{ "put_batch_dummy_helper", 0x8138f005, 0x7d8f482e, VOID, "[s[sCI", false, mcn_up_run_put_batch, MC_MAY_WRITE },
	{ "upsert_batch_dummy_helper", 0xd80ac80c, 0x7d8f482e, VOID, "[s[sCI", false,
	  mcn_up_run_upsert_batch, MC_MAY_WRITE },
	{ "upsert_from_dummy_helper", 0x4c3d3f22, 0x62ad1e9e, VOID, "suuCI", false,
	  mcn_up_run_upsert_from, MC_MAY_WRITE },
	{ "batch_put_from_dummy_helper", 0x44bb4f32, 0xf9b61cd2, VOIDS, "[s[u[uCiI", false,
	  mcn_up_run_batch_put_from, MC_MAY_WRITE },
	{ "batch_upsert_from_dummy_helper", 0x95c3773f, 0x141c2146, VOIDS, "[s[u[uCI", false,
	  mcn_up_run_batch_upsert_from, MC_MAY_WRITE },
	{ "batch_put_from_multi_buffers_dummy_helper", 0x1d6aa546, 0x70f1517a, VOIDS, "[s[[u[[uCiI", false,
	  mcn_up_run_batch_put_multi, MC_MAY_WRITE },
	{ "batch_upsert_from_multi_buffers_dummy_helper", 0x9faa6d26, 0x70f1517a, VOIDS, "[s[[u[[uCiI", false,
	  mcn_up_run_batch_upsert_multi, MC_MAY_WRITE },

	{ "acquire_buffer_dummy", 0xb9917e7d, 0xd3cadf22, BUFFER, "sI", false, mcn_up_run_acquire, MC_MAY_READ },
	{ "batch_acquire_buffer_dummy", 0x0fa36629, 0x729856dc, BUFFERS, "[sI", false,
	  mcn_up_run_batch_acquire, MC_MAY_READ },
	{ "get_into_range_shm_helper", 0x771ec37f, 0xbb88a65a, SIZE, "suuuubbI", false,
	  mcn_up_run_get_range, MC_MAY_READ },
	{ "get_into_ranges_shm_helper", 0xb8c37ddb, 0xff810aa8, RANGES, "[u[[s[[[u[[[u[[[uMiI", false,
	  mcn_up_run_get_ranges, MC_MAY_READ },
	{ "batch_get_into_dummy_helper", 0x6d242501, 0xbff0ea30, SIZES, "[s[u[uiI", false,
	  mcn_up_run_batch_get, MC_MAY_READ },
	{ "batch_get_into_multi_buffers_dummy_helper", 0x0618109c, 0x445aa330, SIZES, "[s[[u[[ubiI", false,
	  mcn_up_run_batch_get_multi, MC_MAY_READ },

	{ "isExist_internal", 0x406f57ef, 0x9dcffa76, BOOL, "s", false, mcn_up_run_exist, MC_MAY_READ },
	{ "batchIsExist_internal", 0x5b35a287, 0x8a86e11a, BOOLS, "[s", false, mcn_up_run_batch_exist, MC_MAY_READ },
	{ "getSize_internal", 0xb327e77d, 0x9dcffa76, SIZE, "s", false, mcn_up_run_size, MC_MAY_READ },
	{ "remove_internal", 0xe475d346, 0xdbcf8900, VOID, "sb", false, mcn_up_run_remove, MC_MAY_WRITE },
	{ "removeByRegex_internal", 0x9254d0cf, 0xdbcf8900, SIZE, "sb", false, mcn_up_run_remove_regex, MC_MAY_WRITE },
	{ "removeAll_internal", 0xf7627256, 0x13c8ffd8, SIZE, "b", false, mcn_up_run_remove_all, MC_MAY_WRITE },
	{ "batchRemove_internal", 0xf1c15e2d, 0xa389d4d8, VOIDS, "[sb", false, mcn_up_run_batch_remove, MC_MAY_WRITE },
	{ "create_copy_task", 0x8ef447d8, 0xd1dc057a, UUID, "s[s", false, mcn_up_run_copy_task, MC_MAY_WRITE },
	{ "create_move_task", 0xc5aadc8d, 0xa429cc38, UUID, "sss", false, mcn_up_run_move_task, MC_MAY_WRITE },
	{ "query_task", 0xd48a4f31, 0x3c6d83e0, TASK, "I", false, mcn_up_run_query_task, MC_MAY_READ },
	{ NULL, 0, 0, 0, NULL, false, NULL, 0 },
};

const struct mcn_up_call *mcn_up_call_find(uint32_t function)
{
	for (const struct mcn_up_call *c = mcn_up_calls; c->name; c++)
		if (c->function == function)
			return c;
	return NULL;
}

void mcn_up_call_run(struct mcn_up_run *r, const void *data, size_t len)
{
	static bool told;
	struct mcn_up_memory m = { 0 };
	int err = -MC_EPROTO;

	if (r->call && mc_principal_check(r->identity, r->call->roles) < 0) {
		mc_debug("node", "upstream's client: %s: user %u: %s", r->call->name, (unsigned)r->uid,
			 mc_err_detail(-EACCES));
		mcn_up_answer_fail(r->answer, MCN_UP_BAD_ARGUMENTS, mc_err_detail(-EACCES));
		return;
	}
	if (r->call && !r->call->quick && mc_now_ns() >= r->deadline) {
		mc_debug("node", "upstream's client: %s: its time was over before it began", r->call->name);
		mcn_up_answer_fail(r->answer, MCN_UP_TIMED_OUT, "the request came too late");
		return;
	}
	if (r->call)
		err = mcn_up_decode(data, len, r->call->asks, r->call->types, &m, r->arg);
	if (err > 0 && !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		mc_warn("node", "hints of upstream's client (NICs, sessions) have no effect: %s", r->call->name);
	if (err >= 0) {
		r->call->run(r);
	} else {
		if (r->call)
			mc_warn("node", "upstream's client: %s: %s", r->call->name, mc_err_detail(err));
		mcn_up_answer_fail(r->answer, r->call ? MCN_UP_BAD_ARGUMENTS : MCN_UP_NO_FUNCTION, NULL);
	}
	mcn_up_memory_done(&m);
}

int64_t mcn_up_left_ms(const struct mcn_up_run *r)
{
	return mc_deadline_left_ms(r->deadline);
}

int mcn_up_client_check(const struct mcn_up_run *r, struct mcn_up_uuid id)
{
	return mcn_up_dummy_known(r->dummies, id, r->uid) ? 0 : mc_fail(-MCS_EPARAM, "a client that shares no memory");
}

void mcn_up_answer_results(struct mcn_up_run *r, const int *result, uint64_t n)
{
	mcn_up_answer_begin(r->answer, r->call->answers, n);
	mcn_up_put_count(r->answer, n);
	r->answer->failed = r->answer->failed || !result;
	for (uint64_t i = 0; i < n && result; i++)
		mcn_up_put_result(r->answer, result[i]);
}

void mcn_up_answer_sizes(struct mcn_up_run *r, const int64_t *result, uint64_t n)
{
	mcn_up_answer_begin(r->answer, r->call->answers, n);
	mcn_up_put_count(r->answer, n);
	r->answer->failed = r->answer->failed || !result;
	for (uint64_t i = 0; i < n && result; i++)
		mcn_up_put_size(r->answer, result[i]);
}
