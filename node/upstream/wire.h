/* SPDX-License-Identifier: Apache-2.0
 * wire.h - messages between upstream's dummy clients and their daemon, as 0.3.13.post1 and 0.3.14 send them: frames of
 * coro_rpc (yalantinglibs, protocol/coro_rpc_protocol.hpp), in them values in the form of its struct_pack.
 * Little-endian.
 *
 *	request: u8 magic 21, u8 version 0, u8 serialization 0, u8 type 0, u32 sequence, u32 function, u32 length,
 *		 u32 length of an attachment; then that many bytes of both
 *	answer:  u8 magic, u8 version, u8 error, u8 type 0, u32 sequence, u32 length, u32 length of an attachment; bytes
 *
 * A function's number is the first four bytes of the MD5 of its C++ name ("mooncake::RealClient::ping"), the first byte
 * as the highest.  An answer repeats the sequence of its request; answers need no order.  With an error (11: there is
 * no such function, 4: these arguments do not fit, 3: too late) the bytes are a string.  A request without arguments
 * has no bytes.
 *
 * A message is u32 hash, and if the hash is odd u8 traits; then the values one after another.  The hash is the first
 * four bytes of the MD5 of a text that describes the types, read in the same order as above, with its lowest bit
 * replaced.  Traits: bits 0 and 1: not 0 if the types have optional fields, of which the text knows nothing; the
 * message's length with 2, 4 or 8 bytes follows then, and the fields themselves are behind all other values.  Bit 2:
 * the text follows, ended by a NUL; bits 3 and 4: the numbers of elements have 1, 2, 4 or 8 bytes.  Without traits they
 * have 1 byte.
 *
 *	bool, number	its bytes; an enumeration has the size of its number
 *	string, span	number of bytes, bytes
 *	vector, map	number of elements, elements
 *	optional	u8 0; or u8 1, value
 *	expected	u8 1, value; or u8 0, i32 error code
 *	struct, tuple	its members
 *
 * Upstream's programs put the text into their messages; it is not compared here, the hash is.  Answers of this daemon
 * have no text.  The optional fields of 0.3.14 are hints of a ReplicateConfig (NICs, sessions); they have no effect. */
#ifndef MCN_UP_WIRE_H
#define MCN_UP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/mcs.h>

#define MCN_UP_REQUEST_HEAD 20u
#define MCN_UP_ANSWER_HEAD 16u
/* Elements of all vectors of a request. */
#define MCN_UP_ELEMENTS_MAX (1u << 18)

enum mcn_up_errc {
	MCN_UP_OK = 0, MCN_UP_TIMED_OUT = 3, MCN_UP_BAD_ARGUMENTS = 4, MCN_UP_NO_FUNCTION = 11
};

struct mcn_up_head {
	uint32_t sequence, function;
	uint32_t length, attached;
};

/* -MC_EPROTO: not a request of this protocol. */
int mcn_up_head_unpack(const uint8_t b[MCN_UP_REQUEST_HEAD], struct mcn_up_head *ret);

/* ---- requests ---- */

struct mcn_up_uuid {
	uint64_t first, second;
};

struct mcn_up_strings {
	struct mcs_key *v;
	uint64_t n;
};

/* The options of a put, upstream's ReplicateConfig. */
struct mcn_up_config {
	uint64_t replicas, nof_replicas, dfs_replicas;
	uint64_t soft_pin_ms;
	uint8_t soft_pin, data_type;
	bool has_soft_pin_ms, hard_pin, same_node, has_groups;
	struct mcs_key preferred_one, host_id;
	struct mcn_up_strings preferred, preferred_nof, groups;
};

/* One argument.  Strings point into the message. */
struct mcn_up_arg {
	union {
		uint64_t number;		/* 'u', 'i', 'b'; of a map: 0 */
		struct mcs_key text;		/* 's' */
		struct mcn_up_uuid id;		/* 'I' */
		struct mcn_up_config *config;	/* 'C' */
		struct mcn_up_strings strings;	/* "[s" */
		struct {			/* "[u" */
			uint64_t *v;
			uint64_t n;
		} numbers;
		struct {			/* "[[..." */
			struct mcn_up_arg *v;
			uint64_t n;
		} rows;
	};
};

#define MCN_UP_ARGS 8u

/* Memory of decoded arguments; zeroed at first. */
struct mcn_up_memory {
	void *chunks;		/* each begins with a pointer to the next */
	uint64_t elements;
};
void mcn_up_memory_done(struct mcn_up_memory *m);

/* Decode a message.  @types has a letter for each argument: s string, u number of 8 bytes, i of 4, b of 1, I UUID, C
 * ReplicateConfig, M a map that has to be empty; "[" before a letter is a vector.  @hash is that of the message, even.
 * -MC_EPROTO: other types, or not complete; -MC_ELIMIT: more than MCN_UP_ELEMENTS_MAX; -ENOMEM.  Returns 1 if optional
 * fields have values, which are left out, else 0. */
int mcn_up_decode(const void *data, size_t len, uint32_t hash, const char *types, struct mcn_up_memory *m,
		  struct mcn_up_arg ret[MCN_UP_ARGS]);

/* ---- answers ---- */

struct mcn_up_answer {
	uint8_t *data;		/* begins with the head */
	size_t len, size;
	unsigned width;		/* bytes of a number of elements */
	bool failed;		/* no memory */
};

/* Begin an answer with the even @hash; no vector or string in it has more than @most elements. */
void mcn_up_answer_begin(struct mcn_up_answer *a, uint32_t hash, uint64_t most);
void mcn_up_put8(struct mcn_up_answer *a, uint8_t v);
void mcn_up_put32(struct mcn_up_answer *a, uint32_t v);
void mcn_up_put64(struct mcn_up_answer *a, uint64_t v);
void mcn_up_put_count(struct mcn_up_answer *a, uint64_t n);
void mcn_up_put_string(struct mcn_up_answer *a, const void *data, size_t len);
/* An expected<>: of a value, which the caller writes next; or of upstream's code of the negative @err. */
void mcn_up_put_ok(struct mcn_up_answer *a);
void mcn_up_put_error(struct mcn_up_answer *a, int err);
/* An expected<void>, and an expected<int64>: 0 and more are values. */
void mcn_up_put_result(struct mcn_up_answer *a, int r);
void mcn_up_put_size(struct mcn_up_answer *a, int64_t r);
/* Replace the answer by an error of the protocol; @text NULL: upstream's. */
void mcn_up_answer_fail(struct mcn_up_answer *a, enum mcn_up_errc err, const char *text);
/* Fill in the head.  -ENOMEM: there is no answer. */
int mcn_up_answer_end(struct mcn_up_answer *a, uint32_t sequence);
void mcn_up_answer_done(struct mcn_up_answer *a);

#endif
