/* SPDX-License-Identifier: Apache-2.0
 * test_engine_impostor.c - a peer written by a test. */
#include <config.h>

#include "test_engine_impostor.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/socket.h"
#include "test_engine_fixture.h"

#define TICK_MS 20

bool impostor_stopping(const struct impostor *im)
{
	return im && __atomic_load_n(&im->stop, __ATOMIC_RELAXED);
}

bool impostor_move(const struct impostor *im, int fd, void *p, size_t n, bool out)
{
	struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };

	while (n) {
		ssize_t k = out ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, 0);

		if (k > 0) {
			p = (char *)p + k;
			n -= (size_t)k;
			continue;
		}
		if (k == 0 || errno != EAGAIN || impostor_stopping(im))
			return false;
		poll(&pfd, 1, TICK_MS);
	}
	return true;
}

static void *impostor_main(void *arg)
{
	struct impostor *im = arg;
	struct pollfd pfd = { .fd = im->listener, .events = POLLIN };
	int fd;

	while (!impostor_stopping(im)) {
		poll(&pfd, 1, TICK_MS);
		fd = mc_socket_accept(im->listener);
		if (fd < 0)
			continue;
		im->serve(im, fd);
		close(fd);
	}
	return NULL;
}

void impostor_start(struct impostor *im, void (*serve)(struct impostor *im, int fd))
{
	im->serve = serve;
	im->stop = false;
	im->listener = mc_socket_listen("127.0.0.1:0", 64, 0, im->addr);
	assert_true(im->listener >= 0);
	assert_int_equal(pthread_create(&im->thread, NULL, impostor_main, im), 0);
}

void impostor_stop(struct impostor *im)
{
	__atomic_store_n(&im->stop, true, __ATOMIC_RELAXED);
	pthread_join(im->thread, NULL);
	close(im->listener);
}
