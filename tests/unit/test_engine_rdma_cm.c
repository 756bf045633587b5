/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_cm.c - connections by the connection manager, between fake NICs that need it and others. */
#include <config.h>

#include "test_engine_rdma_pair.h"

#include <errno.h>
#include <poll.h>

#include "common/fault.h"

static void iwarp_nics_carry_bytes(void **state)
{
	struct pair p;

	fake_reset(2);
	fake_iwarp(0);
	fake_iwarp(1);
	pair_open_on(&p, "fake0", "fake1");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	pair_close(&p);
}

static void nics_of_two_kinds_use_tcp(void **state)
{
	struct pair p;

	for (unsigned i = 0; i < 2; i++) {
		fake_reset(2);
		fake_iwarp(i);
		pair_open_on(&p, "fake0", "fake1");
		assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_TCP);
		pair_close(&p);
	}
	/* With one more NIC there is a pair that fits. */
	fake_reset(3);
	fake_iwarp(0);
	fake_iwarp(2);
	pair_open_on(&p, "fake0", "fake1,fake2");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	assert_int_equal(fake_bytes(1), 0);
	pair_close(&p);
}

/* Peers that want it use it; a peer that does not is reached by the handshake. */
static void roce_nics_use_it_when_both_want_it(void **state)
{
	struct mce_conf conf = rdma_conf;
	struct pair p;

	for (unsigned both = 0; both < 2; both++) {
		fake_reset(2);
		mce_verbs_replace(fake_verbs());
		mce_cm_replace(fake_cm());
		memset(&p, 0, sizeof(p));
		if (both)
			setenv("MC_RDMA_CM", "1", 1);
		conf.rdma_devices = "fake0";
		side_open(&p.owner, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
		setenv("MC_RDMA_CM", "1", 1);
		conf.rdma_devices = "fake1";
		side_open(&p.user, &conf, REGION, 0, 2);
		unsetenv("MC_RDMA_CM");
		assert_int_equal(mce_peer_get(p.user.e, mce_engine_endpoint(p.owner.e), &p.peer), 0);
		assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
		/* the listeners, and both ends of two queue pairs with the callers' channels */
		assert_int_equal(fake_cm_live(), both ? 2 + 2 + 4 + 2 : 2);
		pair_close(&p);
	}
}

/* WRITEs whose connection ends before the owner has answered the READ behind them are not taken as done. */
static void unproven_writes_are_written_again(void **state)
{
	/* the first WRITE, the READ behind 16 of them, and others */
	static const unsigned wr[] = { 1, 17, 2, 16, 9 };
	struct pair p;

	fake_reset(2);
	fake_iwarp(0);
	fake_iwarp(1);
	setenv("MC_SLICE_SIZE", "4096", 1);
	pair_open_on(&p, "fake0", "fake1");
	unsetenv("MC_SLICE_SIZE");
	/* Each loss doubles the pause before the pair of NICs connects again. */
	for (unsigned i = 0; i < sizeof(wr) / sizeof(wr[0]); i++) {
		settle(&p);
		fake_wc_error(1, i % 2 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR, wr[i]);
		(void)round_trip(&p, 4096 * i, p.user.mem, 64 << 10, i);
	}
	fake_wc_error(1, IBV_WC_SUCCESS, 0);
	pair_close(&p);
}

static void connections_that_fail_leave_nothing(void **state)
{
	struct pair p;

	fake_reset(2);
	fake_iwarp(0);
	fake_iwarp(1);
	fake_cm_refuse(1000);
	pair_open_on(&p, "fake0", "fake1");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_TCP);
	fake_cm_refuse(0);
	settle(&p);
	pair_close(&p);
	/* requests that get no answer end with their deadline */
	fake_reset(2);
	fake_iwarp(0);
	fake_iwarp(1);
	fake_cm_silent(true);
	pair_open_on(&p, "fake0", "fake1");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_TCP);
	fake_cm_silent(false);
	pair_close(&p);
	/* without a connection manager, an iWARP NIC is of no use */
	fake_reset(2);
	fake_iwarp(0);
	fake_iwarp(1);
	assert_int_equal(mc_fault_set("engine.rdma.cm=error:ENODEV"), 0);
	pair_open_on(&p, "fake0", "fake1");
	mc_fault_set(NULL);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_TCP);
	pair_close(&p);
}

/* One stranger's connection: refused, whatever it says. */
static void stranger_dials(const char *to, const void *data, uint8_t len)
{
	const struct mce_cm *cm = fake_cm();
	struct rdma_event_channel *ch = cm->create_event_channel();
	struct rdma_conn_param param = { .private_data = data, .private_data_len = len, .qp_num = 1 };
	struct sockaddr_storage src, dst;
	struct rdma_cm_event *event;
	enum rdma_cm_event_type last = RDMA_CM_EVENT_ADDR_ERROR;
	struct rdma_cm_id *id;

	cm->device_addr("fake1", 1, &src);
	cm->device_addr("fake0", 1, &dst);
	((struct sockaddr_in *)&dst)->sin_port = htons((uint16_t)atoi(strrchr(to, ':') + 1));
	assert_int_equal(cm->create_id(ch, &id), 0);
	assert_int_equal(cm->resolve_addr(id, (struct sockaddr *)&src, (struct sockaddr *)&dst, 100), 0);
	assert_int_equal(cm->connect(id, &param), 0);
	for (unsigned i = 0; i < 1000 && last != RDMA_CM_EVENT_REJECTED; i++) {
		if (cm->get_event(ch, &event) < 0) {
			(void)poll(&(struct pollfd){ .fd = ch->fd, .events = POLLIN }, 1, 10);
			continue;
		}
		last = event->event;
		(void)cm->ack_event(event);
	}
	assert_int_equal(last, RDMA_CM_EVENT_REJECTED);
	cm->destroy_id(id);
	cm->destroy_event_channel(ch);
}

static void strangers_are_refused(void **state)
{
	uint8_t data[20] = { 'M', 'C', 'R', '1', 1 };
	const char *at;
	struct pair p;

	fake_reset(2);
	fake_iwarp(0);
	fake_iwarp(1);
	pair_open_on(&p, "fake0", "fake1");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	at = mce_rdma_of(p.owner.e)->nic[0].addr.cm;
	stranger_dials(at, data, sizeof(data));		/* no token */
	memset(data + 8, 0x55, 8);
	stranger_dials(at, data, sizeof(data));		/* a wrong one */
	stranger_dials(at, data, 3);
	stranger_dials(at, "", 0);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 2), MCE_PATH_RDMA);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(iwarp_nics_carry_bytes),
		cmocka_unit_test(nics_of_two_kinds_use_tcp),
		cmocka_unit_test(roce_nics_use_it_when_both_want_it),
		cmocka_unit_test(unproven_writes_are_written_again),
		cmocka_unit_test(connections_that_fail_leave_nothing),
		cmocka_unit_test(strangers_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
