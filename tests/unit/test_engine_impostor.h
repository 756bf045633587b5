/* SPDX-License-Identifier: Apache-2.0
 * test_engine_impostor.h - a peer written by a test: a thread that accepts one connection after
 * the other and calls the test's own server function for each. */
#ifndef TEST_ENGINE_IMPOSTOR_H
#define TEST_ENGINE_IMPOSTOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/net/net.h"

/* First in the test's own struct. */
struct impostor {
	char addr[MC_ADDR_MAX];		/* where it listens; constant */
	int listener;
	pthread_t thread;
	bool stop;			/* atomic */
	void (*serve)(struct impostor *im, int fd);	/* in its thread; the caller closes @fd */
};

/* Fails the test when it cannot. */
void impostor_start(struct impostor *im, void (*serve)(struct impostor *im, int fd));
/* Ends a serve() that is running, too, within moments. */
void impostor_stop(struct impostor *im);
bool impostor_stopping(const struct impostor *im);

/* Send or receive all bytes of @p.  False: the other side ended it, or the impostor is to stop; NULL is one
 * that never does. */
bool impostor_move(const struct impostor *im, int fd, void *p, size_t n, bool out);

#endif
