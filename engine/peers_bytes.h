/* SPDX-License-Identifier: Apache-2.0
 * peers_bytes.h - marks accesses to registered memory on behalf of peers.  Peers may read and write
 * the same bytes at the same time, and the result is their own responsibility: ThreadSanitizer must
 * not report it as a race of this program. */
#ifndef MCE_PEERS_BYTES_H
#define MCE_PEERS_BYTES_H

#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static inline void mce_peers_bytes_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void mce_peers_bytes_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void mce_peers_bytes_begin(void)
{
}

static inline void mce_peers_bytes_end(void)
{
}
#endif

#endif
