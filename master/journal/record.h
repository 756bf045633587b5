/* SPDX-License-Identifier: Apache-2.0
 * record.h - what the journal and its checkpoints consist of: framed, checksummed records.
 *
 *	frame	u16 magic | u16 0 | u32 CRC32C of all that follows | u8 type, u24 length | body
 *
 * padded to a multiple of 8 bytes, little-endian.  Each record sets the whole state of one thing or
 * says that it is gone, so that replaying records over a state that has some of them already leads to
 * the same state.  Bodies grow at their end only: what an older version did not write reads as zero,
 * and what a newer one has added is skipped. */
#ifndef MCM_RECORD_H
#define MCM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/index/object.h"

/* The version of what is written; this one and all before it are read. */
#define MCM_RECORD_VERSION 1u

#define MCM_RECORD_HEAD 12u
#define MCM_RECORD_BODY_MAX 32768u
#define MCM_RECORD_MAX (MCM_RECORD_HEAD + MCM_RECORD_BODY_MAX + 8u)
/* A frame of an object fits, whatever it has: two keys and room for what else there may be. */
#define MCM_RECORD_OBJECT_MAX (2u * MCP_KEY_MAX + 4096u)

/* Numbers are never reused. */
enum mcm_record_type {
	MCM_REC_HEADER = 1,	/* first of each file */
	MCM_REC_OBJECT,		/* a key has this version */
	MCM_REC_OBJECT_GONE,	/* a key has none */
	MCM_REC_RENAMED,	/* a key's version is now another key's */
	MCM_REC_PUT,		/* ranges that a writer may write to */
	MCM_REC_PUT_GONE,	/* and not any more, unless an object of that generation has them */
	MCM_REC_SEGMENT,	/* mounted, or described anew */
	MCM_REC_SEGMENT_GONE,
	MCM_REC_NOTE,		/* a named value of some kind: tenants, tasks */
	MCM_REC_NOTE_GONE,
	MCM_REC_END,		/* nothing is missing behind this */
};

/* A range of a segment, in granules; the segment is known by its number. */
struct mcm_extent_record {
	uint64_t at, len;	/* 40 bits each */
	uint16_t segment;
};

/* Everything of a committed object that survives a restart.  Whoever gives objects another durable
 * property adds it here, in mcm_object_describe() and mcm_object_restore() (restore_object.c), and at
 * the end of the record's body (record.c). */
struct mcm_object_record {
	const char *key;	/* borrowed */
	uint32_t key_len;
	uint32_t crc;
	uint64_t generation, size;
	uint64_t mtime_ms;	/* wall clock */
	uint64_t soft_until_ms;	/* wall clock; meaningful with MCM_OBJ_SOFT */
	struct mcp_bytes group;	/* borrowed; as inside the master (tenant.h), "": none */
	uint8_t data_type;
	uint8_t flags;		/* MCM_OBJ_KIND, _HARD, _SOFT */
	uint8_t copies;
	struct mcm_extent_record extent[MCM_REPLICA_MAX];
};

struct mcm_put_record {
	uint64_t generation;
	uint8_t copies;
	struct mcm_extent_record extent[MCM_REPLICA_MAX];
};

struct mcm_segment_record {
	uint16_t index;
	struct mcp_id id, client;
	uint64_t epoch, base, rkey, size;
	struct mcp_bytes name, endpoint, protocol;	/* borrowed */
};

struct mcm_note_record {
	uint16_t kind;		/* enum mcm_note_kind (journal.h) */
	struct mcp_bytes name;	/* borrowed, both */
	struct mcp_bytes value;
};

#define MCM_BOOT_ID 16u

struct mcm_header_record {
	uint64_t sequence;	/* of the file */
	uint64_t generation;	/* none at or above it was given out before the file began */
	uint64_t wall_ms;	/* when it was begun */
	uint8_t checkpoint;	/* 0: a journal */
	uint8_t synced;		/* answers waited for the disk */
	uint8_t boot[MCM_BOOT_ID];	/* the machine's start */
	struct mcp_bytes cluster;	/* borrowed */
	uint64_t seed;		/* of the index's hash: keys are met again in its order */
};

/* A whole record in memory: encode with one of mcm_pack_*(), then it is bytes[0 .. len). */
struct mcm_packer {
	uint8_t *bytes;
	size_t cap, len;
	bool overflow;		/* it did not fit: nothing of it may be used */
};

void mcm_pack_header(struct mcm_packer *p, const struct mcm_header_record *r);
void mcm_pack_object(struct mcm_packer *p, const struct mcm_object_record *r);
void mcm_pack_renamed(struct mcm_packer *p, struct mcp_bytes from,
		      const struct mcm_object_record *r);
void mcm_pack_object_gone(struct mcm_packer *p, struct mcp_bytes key);
void mcm_pack_put(struct mcm_packer *p, const struct mcm_put_record *r);
void mcm_pack_put_gone(struct mcm_packer *p, uint64_t generation);
void mcm_pack_segment(struct mcm_packer *p, const struct mcm_segment_record *r);
void mcm_pack_segment_gone(struct mcm_packer *p, uint16_t index);
void mcm_pack_note(struct mcm_packer *p, const struct mcm_note_record *r);
void mcm_pack_note_gone(struct mcm_packer *p, uint16_t kind, struct mcp_bytes name);
void mcm_pack_end(struct mcm_packer *p, uint64_t records);

/* ---- reading ---- */

struct mcm_record {
	enum mcm_record_type type;	/* may be one that this version does not know */
	const uint8_t *body;
	uint32_t len;
};

/* The record at @p, of which @len bytes are there.  Returns the bytes that its frame takes, or 0: what
 * stands there is no whole, undamaged record. */
size_t mcm_record_next(const uint8_t *p, size_t len, struct mcm_record *ret);
/* The first offset from @from on at which a whole record stands, @len when there is none. */
size_t mcm_record_resync(const uint8_t *p, size_t len, size_t from);

/* Bodies.  What is borrowed points into @r->body.  -MC_EPROTO with a detail: what it says cannot be. */
int mcm_unpack_header(const struct mcm_record *r, struct mcm_header_record *ret);
int mcm_unpack_object(const struct mcm_record *r, struct mcm_object_record *ret);
int mcm_unpack_renamed(const struct mcm_record *r, struct mcp_bytes *ret_from,
		       struct mcm_object_record *ret);
int mcm_unpack_key(const struct mcm_record *r, struct mcp_bytes *ret);
int mcm_unpack_put(const struct mcm_record *r, struct mcm_put_record *ret);
int mcm_unpack_number(const struct mcm_record *r, uint64_t *ret);
int mcm_unpack_segment(const struct mcm_record *r, struct mcm_segment_record *ret);
int mcm_unpack_note(const struct mcm_record *r, struct mcm_note_record *ret);

#endif
