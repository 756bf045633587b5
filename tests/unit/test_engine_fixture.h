/* SPDX-License-Identifier: Apache-2.0
 * test_engine_fixture.h - engines with memory that is full of a pattern, in this process and in
 * others. */
#ifndef TEST_ENGINE_FIXTURE_H
#define TEST_ENGINE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "engine/mce.h"
#include "tests/lib/transfer.h"

#define SECONDS(n) mc_deadline_ms((n) * 1000)

/* One engine and one region of its memory. */
struct side {
	struct mce_engine *e;
	struct mce_mr *mr;
	char *mem;
	uint64_t len;
	int fd;
};

/* Open an engine on conf->net, by default test_net() (tests/lib/xor_net.h); NULL @conf: defaults.  With @len its memory
 * is a memfd of the pattern of @seed, registered with @access. */
void side_open(struct side *s, const struct mce_conf *conf, uint64_t len, unsigned access,
	       uint64_t seed);
void side_close(struct side *s);
int side_dial(const struct side *s);	/* a socket to its listener */

/* The same in another process, which executes this program: main() has to begin with owner_main(). */
struct owner {
	pid_t pid;
	int to, from;		/* pipes; -1 when closed */
	char endpoint[256];
	uint64_t addr, rkey, len;
};
struct owner_conf {
	uint64_t len;
	unsigned access;
	int port;		/* 0: a free one */
	bool no_fd;		/* memory that cannot be mapped */
	bool relay;		/* reached through a port forwarder, at another address than its own */
	bool netns;		/* with relay: in its own network namespace */
	uint64_t seed;
	const char *faults;	/* MC_FAULTS of it, NULL: none */
};
/* Returns only in the process that the tests run in. */
void owner_main(int argc, char **argv);
/* 0, or 77 with a printed reason when the machine cannot do it. */
int owner_start(struct owner *o, const struct owner_conf *conf);
/* Commands: "unregister", "crc OFF LEN" (the answer is returned), "register"; "exec": the process executes another
 * program, which has memory of its own, full of OWNER_OTHER, where the owner's was, and keeps unix sockets open; it
 * knows "count": how many bytes of it are not OWNER_OTHER any more. */
#define OWNER_OTHER 'S'
uint64_t owner_tell(struct owner *o, const char *command);
void owner_stop(struct owner *o);	/* ask it to end, and wait for it */
void owner_kill(struct owner *o);	/* SIGKILL, and wait for its end */

/* The path that memory without a descriptor takes between processes of this machine. */
enum mce_path path_without_fd(void);

/* @n bytes of the pattern @seed from position @pos of it. */
void pattern_fill(void *to, uint64_t n, uint64_t seed, uint64_t pos);
void pattern_check(const void *p, uint64_t n, uint64_t seed, uint64_t pos);

/* One transfer of flat memory to or from @peer, within 30 seconds. */
int transfer(struct mce_engine *e, struct mce_peer *peer, enum mce_op op, uint64_t addr,
	     uint64_t rkey, void *mem, uint64_t len, enum mce_path *ret_path);

#endif
