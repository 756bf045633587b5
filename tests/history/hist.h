/* SPDX-License-Identifier: Apache-2.0
 * hist.h - the log of calls that the actors write and hist_check reads, and the values that describe themselves.
 *
 * Each process life has one log file.  It is mapped, so it survives the SIGKILL of its writer.  Times are of
 * CLOCK_MONOTONIC, which is one clock for all network namespaces of a machine.
 *
 * A value is a sequence of rows of 16 bytes.  Each row names its value (writer and count), the key that the value is
 * for, and its own position.  A value is put at most once, so a read of any row tells which call wrote it. */
#ifndef HIST_H
#define HIST_H

#include <stddef.h>
#include <stdint.h>

#define HIST_KEYS_MAX 64u
#define HIST_LOG_MAX (1u << 21)		/* records of one file; it is sparse */
#define HIST_ABSENT (-2)		/* result: the key has no value */
#define HIST_EXISTS (-17)		/* result: the key has a value, so nothing was written */
#define HIST_DAMAGED (-74)		/* result: the bytes in memory do not match their checksum */

enum hist_op {
	HIST_NONE,			/* the record was not completed before the process ended */
	HIST_PUT,			/* of an absent key; 0 also if the key had a value */
	HIST_PUT_EXCL,			/* of an absent key; HIST_EXISTS if the key had a value */
	HIST_UPSERT,
	HIST_RENAME,			/* of a private name with this value to the key: like an upsert */
	HIST_REMOVE,
	HIST_GET,			/* the whole value */
	HIST_RANGE,			/* a part */
	HIST_MAP,			/* the bytes in memory, between two mcs_object_held() == 0 */
	HIST_STAT,			/* only the generation and size */
	HIST_EXIST,			/* 1, or HIST_ABSENT */
	HIST_LIST,			/* one record for each key: generation and size, or HIST_ABSENT */
	HIST_FINAL,			/* a get after the end of all faults */
	HIST_OPS
};

#define HIST_WRONG 0x1u			/* rows of other values, or no rows: wrong bytes */
#define HIST_LOOKED 0x2u		/* the read saw rows: key_in_value is set */
/* The version had a readable copy on this rank (0: near memory, ..., 3: shared) when its generation was determined. */
#define HIST_RANK(rank) (0x10u << (rank))
#define HIST_RANKS 4u

struct hist_rec {
	uint64_t inv_ns, ret_ns;	/* ret_ns 0: the call has not returned */
	uint64_t value;			/* written or read; 0: none, or not known */
	uint64_t generation;		/* 0: not known */
	uint64_t size;			/* of the value; 0: not known */
	uint64_t where;			/* of wrong bytes: offset of the first wrong row */
	int32_t result;			/* 0 or 1, a HIST_ value, or another -errno */
	uint32_t thread;		/* number of the writer: process life and thread */
	uint8_t op, flags;
	uint16_t key;
	uint32_t key_in_value;		/* of a read */
};

struct hist_row {
	uint32_t writer, count, key, position;
};

static inline uint64_t hist_value(uint32_t writer, uint32_t count)
{
	return (uint64_t)writer << 32 | count;
}

#endif
