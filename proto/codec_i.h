/* SPDX-License-Identifier: Apache-2.0
 * codec_i.h - layout of field tables.  For proto/ and its tests, which define tables of versions
 * that no released message has yet. */
#ifndef MCP_CODEC_I_H
#define MCP_CODEC_I_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum mcp_field_kind {
	MCP_F_U8, MCP_F_U16, MCP_F_U32, MCP_F_U64, MCP_F_I32, MCP_F_ID,
	MCP_F_SINCE,		/* no field: a body may end here */
	MCP_F_BYTES, MCP_F_LIST,
	MCP_F_OPTIONAL,		/* no field, behind an MCP_F_SINCE: the encoding ends here if the next field is 0 */
	MCP_F_END
};

struct mcp_field {
	const char *name;
	const struct mcp_desc *elem;	/* MCP_F_LIST: table of its elements */
	uint16_t offset;		/* in the C struct; ascending.  MCP_F_SINCE: the version */
	uint8_t kind;			/* enum mcp_field_kind */
};

/* Code for list elements of one table (elem.c). */
struct mcp_elem {
	/* Add the bytes of the encoding.  False: something is wrong, *@size is unchanged. */
	bool (*measure)(const void *msg, uint64_t *size);
	uint8_t *(*write)(const void *msg, uint8_t *p);
	/* Is the body good?  Also false if it is not certain. */
	bool (*check)(const uint8_t *p, const uint8_t *end);
	void (*load)(const uint8_t *p, const uint8_t *end, void *out);
};

struct mcp_desc {
	const char *name;
	const struct mcp_field *fields;	/* ends with MCP_F_END */
	size_t size;			/* size of the C struct */
	const struct mcp_elem *elem;	/* NULL: interpret the table */
};

/* For elem.c, of lists that are not empty.  *@p is behind the list's header, and behind the list afterwards. */
struct mcp_seq;
bool mcp_list_measure(const struct mcp_desc *elem, const struct mcp_seq *list, uint64_t *size);
uint8_t *mcp_list_write(const struct mcp_desc *elem, const struct mcp_seq *list, uint8_t *p);
bool mcp_list_check(const struct mcp_desc *elem, const uint8_t **p, const uint8_t *end);

/* Little-endian integers at any alignment. */
static inline uint16_t mcp_get_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t mcp_get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t mcp_get_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline void mcp_put_u16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void mcp_put_u32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void mcp_put_u64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

#endif
