/* SPDX-License-Identifier: Apache-2.0
 * test_tools_fake.h - a store in this process under the names of mcs.h, for the tools' unit tests: it
 * forgets the oldest object when it is full, and lies when told to. */
#ifndef TEST_TOOLS_FAKE_H
#define TEST_TOOLS_FAKE_H

#include <stdint.h>

struct fake {
	unsigned objects_max;		/* how many it holds */
	unsigned wrong_every;		/* flip a bit of every n-th object that is read, 0: never */
	unsigned swap_every;		/* give the previous object's bytes instead */
	unsigned untouched_every;	/* say yes and write nothing */
	unsigned gone_every;		/* say no to every n-th get */
	int put_error;			/* result of all puts, 0: they work */
	int exist_error;
	unsigned long long gets, puts;	/* objects asked for */
};
extern struct fake fake;

void fake_reset(unsigned objects_max);
unsigned fake_objects(void);

#endif
