/* SPDX-License-Identifier: Apache-2.0
 * capability.h - the right to read or write one range of a segment, as data that proves itself.
 *
 * The owner of a segment makes a key and tells it to the master, which signs a capability for each range that it tells
 * a client.  The client sends it with its requests, and the owner checks it without asking the master.  The signature
 * covers the range, the direction, the generation of the put or object, the expiry, and the serial number of the
 * client's credential, which the owner knows from the connection.  So a captured capability is of no use to the holder
 * of another credential, at another segment, for another range or direction, or later.
 *
 * The signature is SipHash-2-4 with 128 bits under the segment's key, over 40 bytes, little-endian: serial u64,
 * offset u64, len u64, generation u64, expires_s u32, rights u8, and three bytes 0.  All functions are pure; any
 * thread. */
#ifndef MC_CAPABILITY_H
#define MC_CAPABILITY_H

#include <stddef.h>
#include <stdint.h>

#define MC_CAPABILITY_KEY 16u
#define MC_CAPABILITY_MAC 16u

#define MC_CAPABILITY_READ 0x1u
#define MC_CAPABILITY_WRITE 0x2u

struct mc_capability {
	uint64_t offset, len;	/* range in the segment, in bytes */
	uint64_t generation;	/* generation of the put that writes it, or of the object that has it */
	uint32_t expires_s;	/* Unix time of the master from which it is invalid */
	uint8_t rights;		/* MC_CAPABILITY_* */
	uint8_t mac[MC_CAPABILITY_MAC];
};

/* SipHash-2-4 with a result of 128 bits. */
void mc_siphash128(const uint8_t key[16], const void *data, size_t len, uint8_t ret[16]);

/* Set c->mac. */
void mc_capability_sign(const uint8_t key[MC_CAPABILITY_KEY], uint64_t serial, struct mc_capability *c);

/* May the holder of the credential @serial use all of [@offset, @offset + @len) for @right, one MC_CAPABILITY_*?
 * @now_ms: Unix time of the master.  0; -MC_ELEASE_EXPIRED: it is genuine, but has expired; else -EACCES. */
int mc_capability_check(const uint8_t key[MC_CAPABILITY_KEY], uint64_t serial, const struct mc_capability *c,
			uint8_t right, uint64_t offset, uint64_t len, uint64_t now_ms);

#endif
