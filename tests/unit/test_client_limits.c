/* SPDX-License-Identifier: Apache-2.0
 * test_client_limits.c - the master's limit of the bytes that one connection pins, as readers see it. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void small_share(struct mcm_conf *conf)
{
	conf->max_session_pinned_ratio = 0.1;
}

struct reader {
	mcs_t *s;
	pthread_t thread;
	unsigned found;
	int error;
};

#define SHARE_OBJECTS 48u

static void *read_all(void *arg)
{
	char key[SHARE_OBJECTS][8];
	struct mcs_get_item item[SHARE_OBJECTS];
	struct iovec iov[SHARE_OBJECTS];
	struct reader *rd = arg;
	char *buf = malloc(SHARE_OBJECTS * MIB);

	for (unsigned i = 0; i < SHARE_OBJECTS; i++) {
		snprintf(key[i], sizeof(key[i]), "s%u", i);
		iov[i] = (struct iovec){ buf + i * MIB, MIB };
		item[i] = (struct mcs_get_item){ .key = fixture_key(key[i]), .whole = 1, .iov = &iov[i], .iovcnt = 1 };
	}
	mcs_get_batch(rd->s, item, SHARE_OBJECTS, 20000);
	for (unsigned i = 0; i < SHARE_OBJECTS; i++) {
		if (item[i].result == (int64_t)MIB && fixture_same(iov[i].iov_base, MIB, i, 0))
			rd->found++;
		else
			rd->error = (int)item[i].result;
	}
	free(buf);
	return NULL;
}

/* A batch of more bytes than one connection may pin is read in parts, by several threads too; an object held open
 * counts, and one too many fails with the reason. */
static void batches_beyond_the_pin_limit_are_read(void **state)
{
	struct reader rd[3];
	mcs_object_t *o[8];
	mcs_t *owner, *s;
	char key[8];
	unsigned i;
	int r = 0;

	(void)state;
	fixture_master(small_share);
	owner = fixture_store(64 * MIB);
	s = fixture_store_with(0, 0, fixture_master_addr());
	for (i = 0; i < SHARE_OBJECTS; i++) {
		snprintf(key, sizeof(key), "s%u", i);
		fixture_put_ok(owner, key, MIB, i);
	}
	for (i = 0; i < 3; i++) {
		rd[i] = (struct reader){ .s = s };
		assert_int_equal(pthread_create(&rd[i].thread, NULL, read_all, &rd[i]), 0);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(rd[i].thread, NULL);
		assert_int_equal(rd[i].error, 0);
		assert_int_equal(rd[i].found, SHARE_OBJECTS);
	}
	for (i = 0; i < 8 && r == 0; i++) {
		snprintf(key, sizeof(key), "s%u", i);
		r = mcs_object_open(s, fixture_key(key), &o[i], 5000);
	}
	/* 0.1 of 64 MiB */
	assert_int_equal(r, -MCS_ELIMIT);
	assert_int_equal(i, 7);
	assert_non_null(strstr(mcs_error_detail(r), "max_session_pinned_ratio"));
	for (i = 0; i < 6; i++)
		mcs_object_close(o[i]);
	mcs_close(s);
	mcs_close(owner);
	fixture_master_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_beyond_the_pin_limit_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
