/* SPDX-License-Identifier: Apache-2.0
 * test_tools_fake.h - an in-memory store with the functions of mcs.h, for unit tests of the tools:
 * it drops the oldest object when it is full, and returns wrong data on request. */
#ifndef TEST_TOOLS_FAKE_H
#define TEST_TOOLS_FAKE_H

#include <stdint.h>

struct fake {
	unsigned objects_max;		/* capacity in objects */
	unsigned wrong_every;		/* flip a bit of every n-th object that is read, 0: never */
	unsigned swap_every;		/* give the previous object's bytes instead */
	unsigned untouched_every;	/* report success and write nothing */
	unsigned gone_every;		/* report every n-th object as missing */
	int put_error;			/* result of all puts; 0: success */
	int exist_error;
	unsigned long long gets, puts;	/* objects requested */
};
extern struct fake fake;

void fake_reset(unsigned objects_max);
unsigned fake_objects(void);

#endif
