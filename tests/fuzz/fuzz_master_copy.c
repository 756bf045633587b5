/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_copy.c - a standby's copy that receives any parts of a journal.  The first input makes a leader's journal
 * of two checkpoints, in parts.  Input: operations of a byte, of which the low 3 bits count, and its arguments:
 *	0-2 the next part of the leader's		3 part u8 of the leader's; the parts after it are next
 *	4 the next part, changed: u8 fields, u8 by	5 any part: u8 flags, u8 number, u8 offset, u8 length, bytes
 *	6 sync						7 u8 bit 0: close and open, else begin again
 *
 * After an error the copy begins again, as its contract demands.  At the end a master starts with the directory: a copy
 * that is not complete is no state; one that got the leader's parts in their order is a state of the leader's, and all
 * of it with the last part; any other one is refused or is a consistent state, and a check finds as many objects. */
#include <config.h>

#include <stdbool.h>
#include <string.h>

#include "../unit/test_master_fixture.h"
#include "master/journal/copy.h"
#include "tests/fuzz/memory_dir.h"
#include "tests/fuzz/small_master.h"

#define PARTS_MAX 64
#define PART 400u		/* bytes; less than the files have */
#define OBJECTS 6		/* of the leader, at each of its checkpoints */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct part {
	struct mcm_feed_part p;
	uint8_t bytes[PART];
} part[PARTS_MAX];
static unsigned parts;

struct input {
	const uint8_t *p, *end;
};

struct run {
	struct mcm_copy *copy;
	unsigned next;		/* part */
	bool true_copy;		/* of the parts before the next one, since it began */
};

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the functions under test ---- */

static void copy_open(struct run *r)
{
	const struct mcm_copy_conf conf = { .dir = memory_dir(), .cluster = small_master_conf()->cluster_id };

	check(mcm_copy_open(&conf, &r->copy) == 0);
}

static void copy_begin(struct run *r)
{
	check(mcm_copy_begin(r->copy) == 0);
	r->next = 0;
	r->true_copy = true;
}

static void copy_add(struct run *r, const struct mcm_feed_part *p, const void *bytes)
{
	if (mcm_copy_add(r->copy, p, bytes) < 0)
		copy_begin(r);
}

/* ---- the leader ---- */

static void tune(struct mcm_conf *conf)
{
	conf->journal_dir = memory_dir();
	conf->client_ttl = 1000000;
}

static void leader_pump(struct mcm_feed *feed)
{
	int r;

	while ((r = mcm_feed_read(feed, part[parts].bytes, PART, &part[parts].p)) > 0)
		check(++parts < PARTS_MAX);
	check(r == 0);
}

static void leader_put(struct fixture *fx, unsigned from)
{
	char key[16];

	for (unsigned i = from; i < from + OBJECTS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		check(fx_put(fx, key, 1000 + i, 0) == 0);
	}
	mcm_journal_wait(fx->m);
}

static void leader_run(void)
{
	struct mcm_feed *feed;
	struct fixture fx;

	fx_up(&fx, 1, 1 << 20, tune);
	leader_put(&fx, 0);
	check(mcm_feed_open(fx.m, &feed) == 0);
	leader_pump(feed);
	check(mcm_checkpoint(fx.m) == 0);
	leader_put(&fx, OBJECTS);
	leader_pump(feed);
	mcm_feed_close(feed);
	fx_down(&fx);
	memory_dir_clear();
}

/* ---- operations ---- */

static uint8_t number(struct input *in)
{
	return in->p < in->end ? *in->p++ : 0;
}

static void next(struct run *r)
{
	if (r->next == parts)
		return;
	copy_add(r, &part[r->next].p, part[r->next].bytes);
	r->next++;
}

static void changed(struct run *r, struct input *in)
{
	unsigned what = number(in), by = number(in);
	struct part c;

	if (r->next == parts)
		return;
	c = part[r->next++];
	r->true_copy = false;
	if (what & 1)
		c.p.checkpoint = !c.p.checkpoint;
	if (what & 2)
		c.p.last = !c.p.last;
	if (what & 4)
		c.p.sequence += by;
	if (what & 8)
		c.bytes[by % PART] ^= 1;
	else if (c.p.len)
		c.p.len -= by % c.p.len;
	copy_add(r, &c.p, c.bytes);
}

static void any(struct run *r, struct input *in)
{
	unsigned flags = number(in);
	struct mcm_feed_part p = { .checkpoint = flags & 1, .last = flags & 2 };
	size_t left;

	p.sequence = flags & 4 ? UINT64_MAX - number(in) : number(in);
	p.offset = flags & 8 ? UINT64_MAX - number(in) : number(in);
	p.len = number(in);
	left = (size_t)(in->end - in->p);
	if (p.len > left)
		p.len = left;
	r->true_copy = false;
	copy_add(r, &p, in->p);
	in->p += p.len;
}

static void one(struct run *r, struct input *in)
{
	switch (number(in) % 8) {
	case 0:
	case 1:
	case 2:
		next(r);
		break;
	case 3:
		r->next = number(in) % parts;
		r->true_copy = false;
		next(r);
		break;
	case 4:
		changed(r, in);
		break;
	case 5:
		any(r, in);
		break;
	case 6:
		check(mcm_copy_sync(r->copy) == 0);
		break;
	default:
		if (number(in) & 1) {
			mcm_copy_close(r->copy);
			copy_open(r);
		}
		/* Files that were opened before cannot be continued. */
		copy_begin(r);
		break;
	}
}

/* Number of objects of a master that starts with the directory, -1: it is refused. */
static int64_t started(const struct mcm_conf *conf)
{
	struct mcm *m;
	int64_t n;

	if (mcm_core_new(conf, &m) < 0)
		return -1;
	n = small_master_check(m);
	mcm_core_free(m);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + (size < 2048 ? size : 2048) };
	struct mcm_conf *conf = small_master_conf();
	struct run r = { .next = 0 };
	int64_t counted, n;
	bool complete;

	if (!parts)
		leader_run();
	copy_open(&r);
	copy_begin(&r);
	while (in.p < in.end)
		one(&r, &in);
	complete = mcm_copy_complete(r.copy);
	mcm_copy_close(r.copy);
	counted = complete ? small_master_count(conf) : 0;
	n = started(conf);
	check(n == counted);
	if (r.true_copy)
		check(n == 0 || n == OBJECTS || (n > 0 && r.next > 1));
	if (r.true_copy && r.next == parts)
		check(n == 2 * OBJECTS);
	memory_dir_clear();
	return 0;
}
