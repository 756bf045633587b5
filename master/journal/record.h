/* SPDX-License-Identifier: Apache-2.0
 * record.h - records of the journal and its checkpoints, framed and checksummed.
 *
 *	frame	u16 magic | u16 0 | u32 CRC32C of all that follows | u8 type, u24 length | body
 *
 * padded to a multiple of 8 bytes, little-endian.  Each record contains the whole state of one
 * subject, or says that it is gone.  So replaying records over a state that already includes some
 * of them gives the same state.  Bodies grow only at their end: a field that an older version did
 * not write reads as zero, and fields that a newer version added are skipped. */
#ifndef MCM_RECORD_H
#define MCM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/index/attrs.h"

/* The version that is written; all versions up to this one are read. */
#define MCM_RECORD_VERSION 1u

#define MCM_RECORD_HEAD 12u
#define MCM_RECORD_BODY_MAX 32768u
/* Any object's frame fits: two keys, and room for all other fields. */
#define MCM_RECORD_OBJECT_MAX (2u * MCP_KEY_MAX + MCP_XATTRS_MAX + 4096u)

/* Numbers are never reused. */
enum mcm_record_type {
	MCM_REC_HEADER = 1,	/* first of each file */
	MCM_REC_OBJECT,		/* version of a key */
	MCM_REC_OBJECT_GONE,	/* the key has no version */
	MCM_REC_RENAMED,	/* the key's version now belongs to another key */
	MCM_REC_PUT,		/* ranges that a writer may write to */
	MCM_REC_PUT_GONE,	/* the ranges are free, unless an object of that generation has them */
	MCM_REC_SEGMENT,	/* mounted, or changed */
	MCM_REC_SEGMENT_GONE,
	MCM_REC_DURABLE,	/* a named value (durable.h) */
	MCM_REC_DURABLE_GONE,
	MCM_REC_END,		/* the file is complete up to here */
	MCM_REC_BATCH,		/* so long are the records behind it: apply all, or none if some are missing */
};

/* A range of a segment, in granules; segment is its number. */
struct mcm_extent_record {
	uint64_t at, len;	/* 40 bits each */
	uint16_t segment;
};

/* mcm_object_ext.adopted: a bit of the byte with the reads, of which older versions ignore the others */
#define MCM_RECORD_ADOPTED 0x08u
#define MCM_RECORD_NAME 0x10u	/* beside the flags: the object is a name of another (index/links.h) */
_Static_assert(!(MCM_MARKS_OF_READS & MCM_RECORD_ADOPTED), "they are in one byte");

/* All durable properties of a committed object.  Add a new one here, in mcm_object_describe() and
 * mcm_object_restore() (object/restore.c), and at the end of the record's body (record.c). */
struct mcm_object_record {
	const char *key;	/* borrowed */
	uint32_t key_len;
	uint32_t crc;
	uint64_t generation, size;
	uint64_t mtime_ms;	/* wall clock */
	uint64_t soft_until_ms;	/* wall clock; meaningful with MCM_OBJ_SOFT */
	struct mcp_bytes group;	/* borrowed; with the tenant's prefix (tenant.h), "": none */
	uint8_t data_type;
	uint8_t flags;		/* MCM_OBJ_KIND, _HARD, _SOFT */
	uint8_t reads;		/* MCM_MARK_TOUCHED, _READ, _AGAIN when the record was written; MCM_RECORD_ADOPTED */
	uint8_t copies;
	struct mcm_attrs_value attrs;	/* set 0 and no xattrs: none */
	/* in checkpoints only: the object's traits and age for the policy learn (learn/learn.h) */
	uint16_t traits;
	uint32_t age;
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
	uint8_t medium, high, low, policy;
	uint16_t tenant;	/* whose objects it has: number + 1; 0: of all */
	uint8_t unproven;	/* its objects are from a snapshot, and its owner has not confirmed all of them */
};

struct mcm_durable_record {
	uint16_t kind;		/* enum mcm_durable_kind */
	struct mcp_bytes name, value;	/* borrowed */
};

#define MCM_BOOT_ID 16u

struct mcm_header_record {
	uint64_t sequence;	/* number of the file */
	uint64_t generation;	/* larger than all generations assigned before the file began */
	uint64_t wall_ms;	/* when the file was begun */
	uint8_t checkpoint;	/* 0: a journal */
	uint8_t synced;		/* answers waited for syncs of this file */
	uint8_t boot[MCM_BOOT_ID];	/* identifies the machine's boot */
	struct mcp_bytes cluster;	/* borrowed */
	uint64_t seed;		/* seed of the index's hash, which determines the order of the keys */
};

/* A record in memory: after one of mcm_pack_*() it is bytes[0 .. len). */
struct mcm_packer {
	uint8_t *bytes;
	size_t cap, len;
	bool overflow;		/* the record did not fit and must not be used */
};

void mcm_pack_header(struct mcm_packer *p, const struct mcm_header_record *r);
void mcm_pack_object(struct mcm_packer *p, const struct mcm_object_record *r);
void mcm_pack_renamed(struct mcm_packer *p, struct mcp_bytes from, const struct mcm_object_record *r);
void mcm_pack_object_gone(struct mcm_packer *p, struct mcp_bytes key);
void mcm_pack_put(struct mcm_packer *p, const struct mcm_put_record *r);
void mcm_pack_segment(struct mcm_packer *p, const struct mcm_segment_record *r);
void mcm_pack_durable(struct mcm_packer *p, const struct mcm_durable_record *r);
void mcm_pack_durable_gone(struct mcm_packer *p, uint16_t kind, struct mcp_bytes name);
/* MCM_REC_PUT_GONE: generation; MCM_REC_SEGMENT_GONE: number of the segment; MCM_REC_END: number of records;
 * MCM_REC_BATCH: bytes. */
void mcm_pack_number(struct mcm_packer *p, enum mcm_record_type type, uint64_t v);

/* ---- reading ---- */

struct mcm_record {
	enum mcm_record_type type;	/* may be unknown to this version */
	const uint8_t *body;
	uint32_t len;
};

/* Parse the record at @p, where @len bytes are available.  Returns the size of its frame, or 0 if
 * there is no complete, undamaged record. */
size_t mcm_record_next(const uint8_t *p, size_t len, struct mcm_record *ret);
/* The first offset at or after @from with an undamaged record, @len if there is none. */
size_t mcm_record_resync(const uint8_t *p, size_t len, size_t from);

/* Decode bodies.  Borrowed bytes point into @r->body.  -MC_EPROTO with a detail if the body is malformed. */
int mcm_unpack_header(const struct mcm_record *r, struct mcm_header_record *ret);
int mcm_unpack_object(const struct mcm_record *r, struct mcm_object_record *ret);
int mcm_unpack_renamed(const struct mcm_record *r, struct mcp_bytes *ret_from,
		       struct mcm_object_record *ret);
int mcm_unpack_key(const struct mcm_record *r, struct mcp_bytes *ret);
int mcm_unpack_put(const struct mcm_record *r, struct mcm_put_record *ret);
int mcm_unpack_number(const struct mcm_record *r, uint64_t *ret);
int mcm_unpack_segment(const struct mcm_record *r, struct mcm_segment_record *ret);
int mcm_unpack_durable(const struct mcm_record *r, struct mcm_durable_record *ret);

#endif
