/* SPDX-License-Identifier: Apache-2.0
 * attrs.h - attributes of files in messages. */
#ifndef MCS_ATTRS_CONV_H
#define MCS_ATTRS_CONV_H

#include <mooncake/mcs.h>

#include "proto/codec.h"

/* For a message; NULL: none are set. */
struct mcp_attrs mcs_attrs_wire(const struct mcs_attrs *a);
/* The attributes of an object in a reply; none are set if there are none. */
struct mcs_attrs mcs_attrs_decode(const struct mcp_seq *list);

#endif
