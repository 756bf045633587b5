/* SPDX-License-Identifier: Apache-2.0
 * msg.h - C structs of the messages of msg.def, their numbers and flags.
 *
 * Decoded structs borrow: their bytes and lists point into the frame from which they were decoded. */
#ifndef MCP_MSG_H
#define MCP_MSG_H

#include <stdint.h>

#define MCP_MAGIC 0x5346434du		/* "MCFS" */
#define MCP_VERSION 3
#define MCP_MIN_VERSION 1
#define MCP_CREDENTIAL_VERSION 3	/* the first one whose clients can have a credential */
#define MCP_KEY_MAX 4096		/* bytes of a key, at least 1 */
#define MCP_BATCH_MAX 65536		/* items of one request */
#define MCP_TENANT_MAX 255		/* bytes of a tenant's name */
#define MCP_GROUP_MAX 1024		/* bytes of a group's name */
#define MCP_DATA_TYPES 16		/* data types are smaller than this */
/* Orders in one answer to a heartbeat, and confirmations in one heartbeat. */
#define MCP_FENCES_MAX 64

enum mcp_channel { MCP_CHANNEL_CONTROL, MCP_CHANNEL_HEARTBEAT };
/* SPECIAL: a fifo, socket or device node; only its attributes say more. */
enum mcp_kind { MCP_KIND_OBJECT, MCP_KIND_DIR, MCP_KIND_SYMLINK, MCP_KIND_SPECIAL };
/* Soft pin of an upserted object: the one of the value that it replaces, a new one, or none. */
enum mcp_soft_pin { MCP_SOFT_PIN_PRESERVE, MCP_SOFT_PIN_ENABLE, MCP_SOFT_PIN_DISABLE };
enum mcp_segment_state { MCP_SEG_OK = 1, MCP_SEG_SILENT, MCP_SEG_UNMOUNTING,
	/* OK, but takes no new objects; since version 2 */
	MCP_SEG_DRAINING, MCP_SEG_DRAINED,
	/* its owner compares the objects of a snapshot with its memory (CONFIRM); since version 3 */
	MCP_SEG_CONFIRMING,
	/* OK, but its owner says that its device does not work; since version 3 */
	MCP_SEG_PAUSED };

enum mcp_medium { MCP_MEDIUM_MEMORY, MCP_MEDIUM_DISK, MCP_MEDIUM_FAR, MCP_MEDIUM_DIRECTORY, MCP_MEDIUM_S3,
	MCP_MEDIUM_NOF, MCP_MEDIA };

/* Order of eviction from a disk. */
/* mount.confirms: can the client carry out CONFIRM; are the bytes of the medium encrypted? */
#define MCP_MOUNT_CONFIRMS 1u
#define MCP_MOUNT_SEALED 2u
enum mcp_evict_policy { MCP_EVICT_DEFAULT, MCP_EVICT_LRU, MCP_EVICT_FIFO, MCP_EVICT_POLICIES };

enum mcp_task_type {
	MCP_TASK_COPY,			/* copy one object to each target */
	MCP_TASK_MOVE,			/* move one object from the source to the target */
	MCP_TASK_DRAIN,			/* move all objects off the sources, which take no new ones */
	MCP_TASK_EVICT,			/* evict all evictable objects in the sources */
	MCP_TASK_REBALANCE,		/* move objects from the fullest segments to the emptiest */
	MCP_TASK_REPLICATE,		/* add a copy of an object that is read often */
	MCP_TASK_TYPES
};
enum mcp_task_status {
	MCP_TASK_PENDING, MCP_TASK_RUNNING, MCP_TASK_SUCCEEDED, MCP_TASK_FAILED, MCP_TASK_CANCELED
};

enum mcp_event_type {
	MCP_EVENT_PUT, MCP_EVENT_REMOVE, MCP_EVENT_EVICT, MCP_EVENT_RENAME, MCP_EVENT_ATTRS, MCP_EVENT_TYPES
};

#define MCP_PUT_UPSERT		0x01u	/* replace an existing value when the put ends */
#define MCP_PUT_HARD_PIN	0x02u	/* never evict */
#define MCP_PUT_SOFT_PIN	0x04u	/* evict after all other objects; version 2: soft_pin ENABLE */
#define MCP_PUT_COMMIT		0x08u	/* items of size 0 need no PUT_END */
#define MCP_PUT_ALL_REPLICAS	0x10u	/* fail instead of granting fewer replicas */
#define MCP_PUT_SAME_NODE	0x20u	/* one replica per item, all items on the writer's host */
#define MCP_PUT_NO_EVICT	0x80u	/* fail instead of evicting objects, now or in the background */
#define MCP_GET_LEASE		0x01u
#define MCP_GET_HOLD		0x02u
#define MCP_GET_DIRS		0x04u	/* a key that ends in '/' is found while there are keys below it */
#define MCP_GET_PROMISE		0x08u
#define MCP_GET_DESCRIBE	0x10u
#define MCP_GET_XATTRS		0x20u
#define MCP_EXIST_PEEK		0x01u
#define MCP_REMOVE_FORCE	0x01u
#define MCP_REMOVE_TENANTS	0x02u
#define MCP_RENAME_NOREPLACE	0x01u
#define MCP_ATTR_MODE		0x01u
#define MCP_ATTR_UID		0x02u
#define MCP_ATTR_GID		0x04u
#define MCP_ATTR_MTIME		0x08u
#define MCP_ATTR_CTIME		0x10u	/* not set by clients */
#define MCP_ATTR_RDEV		0x20u	/* only by a put */
/* Conditions of a put: an object that it replaces has the uid attrs.owner; has none.  Otherwise -EPERM. */
#define MCP_ATTR_IF_OWNER	0x40u
#define MCP_ATTR_IF_NO_OWNER	0x80u
#define MCP_ATTR_INO		0x100u	/* only by a put; a replaced version's stays */
/* The object has the shared key of attrs.ino, and nlink names.  In a put, a condition: the object that it replaces is
 * such a one, otherwise -MC_ENOOBJECT. */
#define MCP_ATTR_LINKED		0x200u
#define MCP_SET_NOW		0x01u	/* mtime_ns is the present */
#define MCP_XATTR_CREATE	0x02u
#define MCP_XATTR_REPLACE	0x04u
#define MCP_XATTR_REMOVE	0x08u	/* the value is ignored */
#define MCP_SET_IF_OWNER	0x10u	/* only if the attribute uid is set_attrs.owner */
#define MCP_SET_IF_NO_OWNER	0x20u	/* only if there is no attribute uid */
#define MCP_XATTR_NAME_MAX	250u	/* bytes */
#define MCP_XATTR_RESERVED	"mooncake."	/* names that begin so belong to mounts; none has a NUL */
#define MCP_XATTRS_MAX		4072u	/* names, values and 3 bytes for each, of one object */
#define MCP_LIST_DIR		0x01u
#define MCP_ADOPT_MAX 64u	/* items of one ADOPT */
/* Capabilities of objects that are held (MCP_GET_HOLD) last so long, in seconds. */
#define MCP_CAPABILITY_HELD_S 600u
#define MCP_DISK_RECORD_HEAD 64u	/* bytes that a disk's owner adds to copy.record */
#define MCP_OBJ_HARD_PIN	0x01u
#define MCP_OBJ_SOFT_PIN	0x02u

struct mcp_id {
	uint64_t hi, lo;
};

struct mcp_bytes {
	const void *data;
	uint32_t len;
};

/* A list.  For the encoder @items is an array of @count element structs.  From the decoder @raw has
 * the encoded elements, already checked, to be read with mcp_iter. */
struct mcp_seq {
	uint32_t count;
	uint32_t raw_len;
	const void *items;
	const uint8_t *raw;
};

#define MCP_STRUCT(name)		struct mcp_##name {
#define MCP_MESSAGE(NAME, name, num, roles)	struct mcp_##name {
#define MCP_REPLY(NAME, name)		struct mcp_##name##_reply {
#define MCP_U8(s, f)			uint8_t f;
#define MCP_U16(s, f)			uint16_t f;
#define MCP_U32(s, f)			uint32_t f;
#define MCP_U64(s, f)			uint64_t f;
#define MCP_I32(s, f)			int32_t f;
#define MCP_ID(s, f)			struct mcp_id f;
#define MCP_BYTES(s, f)			struct mcp_bytes f;
#define MCP_LIST(s, f, e)		struct mcp_seq f;
#define MCP_END(s)			};
#include "proto/msg_each.h"

enum mcp_type {
#define MCP_MESSAGE(NAME, name, num, roles)	MCP_##NAME = num,
#include "proto/msg_each.h"
};

#endif
