/* SPDX-License-Identifier: Apache-2.0
 * test_client_relay.h - a relay in front of the fixture's master that cuts connections where it is told. */
#ifndef TEST_CLIENT_RELAY_H
#define TEST_CLIENT_RELAY_H

#include <pthread.h>
#include <stdbool.h>

#include "common/net/net.h"

struct relay {
	int listener;
	char addr[MC_ADDR_MAX];
	pthread_t thread;
	/* atomic */
	unsigned type;		/* cut at this message, 0: never */
	bool reply;		/* at its answer, else at the request */
	unsigned cuts;
	bool stop;
	bool cut_all;		/* every connection, now */
	bool hush;		/* nothing comes through, and no end either */
	void (*meanwhile)(void);	/* what others do before a cut; not atomic */
};
extern struct relay relay;
/* One dials or the master is started again, not both. */
extern pthread_mutex_t relay_dialling;

void relay_start(void);
void relay_stop(void);
/* Once, at the next message of @type, or at its answer (@reply). */
void relay_cut_at(unsigned type, bool reply);
void relay_expect_cut(void);

#endif
