/* SPDX-License-Identifier: Apache-2.0
 * hist_actor.h - the calls that the threads of an actor make: of a store handle, or on files of a mount. */
#ifndef HIST_ACTOR_H
#define HIST_ACTOR_H

#include <stdbool.h>

#include "tests/history/hist.h"

#define HIST_SIZE_MAX ((size_t)1 << 20)

struct hist_actor {
	const char *log, *master, *hostname, *daemon, *dir;
	unsigned writer, threads, keys, pause_us;
	uint64_t size_max, segment, disk_size;
	const char *disk;	/* directory of a disk; NULL: none */
	const char *shared;	/* shared directory; NULL: none */
	uint64_t far, shared_size;
	bool tcp, hard, writes;		/* force TCP; puts with a hard pin; mostly large puts */
	bool tiers;			/* ask for copies in memory and on disks, too */
};

/* One thread of an actor. */
struct hist_thread {
	const struct hist_actor *a;
	uint32_t writer, count;
	uint64_t rnd;
	bool watches;			/* maps values and reads them for up to a second */
	unsigned char *buf;		/* HIST_SIZE_MAX bytes */
};

struct hist_calls {
	int (*open)(const struct hist_actor *a);
	void (*close)(void);
	/* Write @rec->size bytes of t->buf: PUT, PUT_EXCL, UPSERT, or RENAME, whose preparation is done by stage. */
	int (*write)(struct hist_thread *t, struct hist_rec *rec);
	int (*stage)(struct hist_thread *t, const struct hist_rec *rec);
	int (*remove)(const struct hist_rec *rec);
	/* GET, RANGE, MAP, STAT, EXIST; fills in all known properties of the version, and ret_ns when the version is
	 * determined. */
	int (*read)(struct hist_thread *t, struct hist_rec *rec);
	/* Fill in one record for each key. */
	int (*list)(struct hist_rec *rec, unsigned keys);
};
extern const struct hist_calls hist_store_calls, hist_file_calls;

bool hist_stopping(void);
uint64_t hist_rnd(struct hist_thread *t);
/* Check @n bytes of a value from @offset (a multiple of 16) on, and note the value.  -1: they are wrong; the first
 * wrong row is noted. */
int hist_look(struct hist_rec *rec, const void *bytes, size_t n, uint64_t offset);
/* "h07": the key, and its file in a mount */
void hist_key(unsigned key, char ret[16]);
/* The private name that this thread renames to a key. */
void hist_private_key(uint32_t writer, char ret[16]);

#endif
