/* SPDX-License-Identifier: Apache-2.0
 * te_pair.h - two programs of transfer_engine_c.h that communicate over pipes: the target in a
 * child process, forked before there is any thread, and the initiator.  Only the installed header
 * is used, as by programs written for upstream. */
#ifndef TE_PAIR_H
#define TE_PAIR_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mooncake/transfer_engine_c.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

/* A message from one side to the other. */
struct te_note {
	char name[128];
	uint64_t addr, len;
};

struct te_pair {
	pid_t pid;
	int to, from;
};

static inline void te_tell(int fd, const void *what, size_t n)
{
	CHECK(write(fd, what, n) == (ssize_t)n);
}

static inline void te_hear(int fd, void *what, size_t n)
{
	CHECK(read(fd, what, n) == (ssize_t)n);
}

/* Run @target(from, to) in a child. */
static inline void te_pair_start(struct te_pair *p, void (*target)(int from, int to))
{
	int down[2], up[2];

	CHECK(pipe(down) == 0 && pipe(up) == 0);
	p->pid = fork();
	CHECK(p->pid >= 0);
	if (p->pid == 0) {
		close(down[1]);
		close(up[0]);
		target(down[0], up[1]);
		exit(0);
	}
	close(down[0]);
	close(up[1]);
	p->to = down[1];
	p->from = up[0];
}

/* SIGSTOP takes effect some time after kill(): wait until no thread of the target runs.  SIGCONT
 * continues it. */
static inline void te_pair_stop(const struct te_pair *p)
{
	int status;

	CHECK(kill(p->pid, SIGSTOP) == 0);
	CHECK(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status));
}

/* Let the target continue, and check that it ends with status 0. */
static inline void te_pair_end(struct te_pair *p)
{
	int status;

	te_tell(p->to, "q", 1);
	CHECK(waitpid(p->pid, &status, 0) == p->pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(p->to);
	close(p->from);
}

static inline void te_fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed);
}

static inline int te_filled(const unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (unsigned char)(i * 31 + (i >> 8) * 7 + seed))
			return 0;
	return 1;
}

#endif
