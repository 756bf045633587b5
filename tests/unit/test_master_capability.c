/* SPDX-License-Identifier: Apache-2.0
 * test_master_capability.c - holder, range, direction and expiry of the capabilities that the master signs. */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <string.h>

#include "client/layout.h"
#include "common/principal.h"
#include "common/security/capability.h"
#include "common/sys/clock.h"
#include "master/security/capability.h"

#define MIB (1ull << 20)
#define SIZE 200000u	/* with a trailer */
#define SERIAL 99u

static const uint8_t key[MC_CAPABILITY_KEY] = "the segment key";
static const struct mc_principal holder = { .source = MC_PRINCIPAL_CREDENTIAL, .serial = SERIAL };

/* The owner mounts segment 1 again, with a key of @len bytes. */
static int mount_key(struct fixture *fx, unsigned len)
{
	const struct mcm_segment *s = fx->m->segments.at[fx->m->segments.live[0]];
	struct mcp_mount rq = {
		.segment = s->id, .client = s->client, .epoch = s->epoch, .size = s->size, .base = s->base,
		.rkey = s->rkey, .name = fx_bytes("seg-1"), .endpoint = fx_bytes("host:1"),
		.protocol = fx_bytes("tcp"), .key = mcp_bytes(key, len),
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, s->client, NULL, &rq, &reply);
}

static void up(struct fixture *fx)
{
	fx_up(fx, 1, 8 * MIB, NULL);
	assert_int_equal(mount_key(fx, sizeof(key)), 0);
	assert_int_equal(fx_put(fx, "other", 5000, 0), 0);
	assert_int_equal(fx_put(fx, "a", SIZE, 0), 0);
}

/* Does the owner admit [@offset, @offset + @len) for @right, @ms from now? */
static int admit(const struct mcp_replica *rep, uint64_t generation, uint8_t right, uint64_t offset, uint64_t len,
		 uint64_t ms)
{
	struct mc_capability c = {
		.offset = rep->offset, .len = mcs_stored_size(SIZE), .generation = generation,
		.expires_s = rep->expires_s, .rights = right,
	};

	mcp_mac_get(rep->mac, c.mac);
	return mc_capability_check(key, SERIAL, &c, right, offset, len, mc_wall_ms() + ms);
}

static void get(struct fixture *fx, uint32_t flags, struct mcp_object *o, struct mcp_replica *rep)
{
	assert_int_equal(fx_pin(fx, fx->s, "a", flags, o, rep), 0);
	o->replicas = mcp_seq(rep, 1);
	mcm_capabilities_read(fx->m, &holder, flags, o, 1);
	assert_true(rep->expires_s);
}

static void a_get_gives_the_range_of_the_object_to_read(void **state)
{
	struct mcp_replica rep;
	struct mcp_object o;
	struct fixture fx;
	uint64_t len = mcs_stored_size(SIZE);

	up(&fx);
	get(&fx, MCP_GET_LEASE, &o, &rep);
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_READ, rep.offset, len, 0), 0);
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_READ, rep.offset, len + 1, 0), -EACCES);
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_READ, rep.offset - 1, 1, 0), -EACCES);
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_WRITE, rep.offset, 1, 0), -EACCES);
	assert_int_equal(admit(&rep, o.generation + 1, MC_CAPABILITY_READ, rep.offset, 1, 0), -EACCES);
	/* It lasts as long as the lease, and for a while after. */
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_READ, rep.offset, 1, o.lease_ms + 29000), 0);
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_READ, rep.offset, 1, o.lease_ms + 32000),
			 -MC_ELEASE_EXPIRED);
	fx_down(&fx);
}

static void a_stat_gives_none(void **state)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct mcp_object o;
	struct fixture fx;
	unsigned copies;

	up(&fx);
	assert_int_equal(mcm_get(fx.m, fx.s, 0, fx_bytes("a"), &o, rep, &copies), 0);
	o.replicas = mcp_seq(rep, copies);
	mcm_capabilities_read(fx.m, &holder, 0, &o, 1);
	assert_int_equal(rep[0].expires_s, 0);
	fx_down(&fx);
}

static void a_put_gives_its_range_to_write_before_it_times_out(void **state)
{
	struct mcm_put_granted granted;
	struct mcp_put_grant grant;
	struct mcp_replica *rep = &granted.replica[0];
	struct fixture fx;
	uint64_t timeout;

	up(&fx);
	timeout = fx.m->conf.put_start_release_timeout_sec;
	assert_int_equal(fx_start(&fx, fx.s, "b", SIZE, 0, &granted), 0);
	grant = (struct mcp_put_grant){ .generation = granted.generation, .replicas = mcp_seq(rep, granted.copies) };
	mcm_capabilities_write(fx.m, &holder, &grant, SIZE);
	assert_int_equal(admit(rep, grant.generation, MC_CAPABILITY_WRITE, rep->offset, SIZE, timeout / 2), 0);
	assert_int_equal(admit(rep, grant.generation, MC_CAPABILITY_READ, rep->offset, 1, 0), -EACCES);
	assert_int_equal(admit(rep, grant.generation, MC_CAPABILITY_WRITE, rep->offset, 1, timeout - 1),
			 -MC_ELEASE_EXPIRED);
	fx_down(&fx);
}

/* Also when the object has another name and generation, or its key has another object. */
static void a_pin_gives_new_ones(void **state)
{
	struct mcp_replica rep, again[MCM_REPLICA_MAX];
	struct mcp_object o, now;
	struct fixture fx;
	unsigned copies;

	up(&fx);
	get(&fx, MCP_GET_HOLD, &o, &rep);
	assert_int_equal(admit(&rep, o.generation, MC_CAPABILITY_READ, rep.offset, 1, 599000), 0);
	assert_int_equal(fx_rename(&fx, "a", "renamed", 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(mcm_get_pinned(fx.m, fx.s, o.pin, &now, again, &copies), 0);
		assert_int_equal(copies, 1);
		assert_true(now.size == SIZE && now.generation > o.generation);
		now.replicas = mcp_seq(again, copies);
		mcm_capabilities_read(fx.m, &holder, MCP_GET_HOLD, &now, 1);
		assert_int_equal(again[0].offset, rep.offset);
		assert_int_equal(admit(again, now.generation, MC_CAPABILITY_READ, rep.offset, SIZE, 0), 0);
		if (i == 0)
			assert_int_equal(fx_put(&fx, "renamed", 10, MCP_PUT_UPSERT), 0);
	}
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(mcm_get_pinned(fx.m, fx.s, o.pin, &now, again, &copies), -MC_ENOOBJECT);
	fx_down(&fx);
}

static void a_segment_without_a_key_has_none(void **state)
{
	struct mcp_replica rep;
	struct mcp_object o;
	struct fixture fx;

	up(&fx);
	assert_int_equal(mount_key(&fx, sizeof(key) - 1), -MC_EPARAM);
	assert_int_equal(mount_key(&fx, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_LEASE, &o, &rep), 0);
	o.replicas = mcp_seq(&rep, 1);
	mcm_capabilities_read(fx.m, &holder, MCP_GET_LEASE, &o, 1);
	assert_int_equal(rep.expires_s, 0);
	assert_int_equal(mcm_capability_time(fx.m), 0);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_get_gives_the_range_of_the_object_to_read),
		cmocka_unit_test(a_stat_gives_none),
		cmocka_unit_test(a_put_gives_its_range_to_write_before_it_times_out),
		cmocka_unit_test(a_pin_gives_new_ones),
		cmocka_unit_test(a_segment_without_a_key_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
