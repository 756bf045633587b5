/* SPDX-License-Identifier: Apache-2.0
 * poor_link.c - a link between two network namespaces that delays every packet and loses some, for kernels
 * without netem: poor_link NS_A DEV_A NS_B DEV_B DELAY_US LOSS_PER_MILLION.  The devices are tun devices
 * that exist.  Runs until it is killed. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PACKET 2048u
/* Packets that a switch would queue; more are lost. */
#define QUEUE 1000u

struct packet {
	uint64_t due;
	size_t len;
	char bytes[PACKET];
};

/* One direction. */
struct way {
	int from, to;
	unsigned head, n;
	struct packet queue[QUEUE];
};

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int attach(const char *ns, const char *dev)
{
	struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(path);
	close(fd);
	fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		die("/dev/net/tun");
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", dev);
	if (ioctl(fd, TUNSETIFF, &ifr))
		die(dev);
	return fd;
}

static void take(struct way *w, uint64_t delay, unsigned loss)
{
	char lost[PACKET];

	for (;;) {
		struct packet *p = &w->queue[(w->head + w->n) % QUEUE];
		bool lose = w->n == QUEUE || (unsigned)(random() % 1000000) < loss;
		ssize_t len = read(w->from, lose ? lost : p->bytes, PACKET);

		if (len < 0)
			return;
		if (lose)
			continue;
		p->len = (size_t)len;
		p->due = now_ns() + delay;
		w->n++;
	}
}

/* Nanoseconds until the next packet is due; -1: none. */
static int64_t give(struct way *w)
{
	uint64_t now = now_ns();

	while (w->n) {
		struct packet *p = &w->queue[w->head];

		if (p->due > now)
			return (int64_t)(p->due - now);
		/* A packet that the other end does not accept is lost too. */
		if (write(w->to, p->bytes, p->len) < 0 && errno != EAGAIN && errno != EIO)
			die("write");
		w->head = (w->head + 1) % QUEUE;
		w->n--;
	}
	return -1;
}

int main(int argc, char **argv)
{
	static struct way ab, ba;
	uint64_t delay;
	unsigned loss;

	if (argc != 7)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ab.from = ba.to = attach(argv[1], argv[2]);
	ba.from = ab.to = attach(argv[3], argv[4]);
	delay = strtoull(argv[5], NULL, 10) * 1000;
	loss = (unsigned)atoi(argv[6]);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		struct pollfd pfd[2] = {
			{ .fd = ab.from, .events = POLLIN }, { .fd = ba.from, .events = POLLIN },
		};
		int64_t a = give(&ab), b = give(&ba), ns = a < 0 || (b >= 0 && b < a) ? b : a;
		struct timespec ts = { ns / 1000000000, ns % 1000000000 };

		if (ppoll(pfd, 2, ns < 0 ? NULL : &ts, NULL) < 0 && errno != EINTR)
			die("poll");
		take(&ab, delay, loss);
		take(&ba, delay, loss);
	}
}
