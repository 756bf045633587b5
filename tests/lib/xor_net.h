/* SPDX-License-Identifier: Apache-2.0
 * xor_net.h - a net (common/net/stream.h) whose streams behave as TLS does: each byte is changed with a key that
 * depends on its position, bytes travel in records, a record that was sent in part has to be repeated, and bytes that
 * were received ahead cause no event of the descriptor.  Counts are short.  A caller that breaks the contract of
 * streams aborts the test. */
#ifndef XOR_NET_H
#define XOR_NET_H

#include <stdatomic.h>

#include "common/net/stream.h"

const struct mc_net *xor_net(void);

/* xor_net() if the environment has TEST_NET=xor, else mc_net_plain(). */
const struct mc_net *test_net(void);

/* Bytes of a socket's send buffer (SO_SNDBUF), so that more records are sent in part; 0: the kernel's default. */
extern int xor_socket_buffer;

/* Records that were repeated, and receives that left bytes without an event; since the start of the process. */
extern atomic_long xor_repeated, xor_delivered_late;

#endif
