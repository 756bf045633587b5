/* SPDX-License-Identifier: Apache-2.0
 * test_client_relay.h - a relay in front of the fixture's master that cuts connections at a
 * chosen message. */
#ifndef TEST_CLIENT_RELAY_H
#define TEST_CLIENT_RELAY_H

#include <pthread.h>
#include <stdbool.h>

#include "common/net/net.h"
#include "common/sys/lock.h"

struct relay {
	int listener;
	char addr[MC_ADDR_MAX];
	pthread_t thread;
	/* atomic */
	unsigned type;		/* cut at this message type, 0: never */
	bool reply;		/* cut at the reply, else at the request */
	unsigned cuts;
	bool stop;
	bool cut_all;		/* all connections, now */
	bool hush;		/* forward no bytes, and not the end of a connection either */
	void (*meanwhile)(void);	/* called before a cut; not atomic */
};
extern struct relay relay;
/* Held while a connection is made to the master or while the master restarts. */
extern struct mc_mutex relay_dialling;

void relay_start(void);
void relay_stop(void);
/* Cut once, at the next message of @type, or at its reply (@reply). */
void relay_cut_at(unsigned type, bool reply);
void relay_expect_cut(void);

#endif
