# SPDX-License-Identifier: Apache-2.0
"""Intended differences from upstream's results: name of the case -> (our result, reason)."""

DIFFERENCES = {
    "key: 4097": ([-400, 0, ""], "keys have at most 4096 bytes"),
    "multi: inner lengths": ([-600], "two pointers and one size are a mistake"),
    "multi: too long": ([12], "a buffer larger than the object is taken, as by get_into"),
    "put session: get_size before its end": (-704, "the object exists when its session ends, not before"),
    "put session: remove before its end": ([-704, -704], "as above"),
    "put session: end unwritten": ([[0], [-700], 0], "upstream publishes whatever was in that memory"),
    "put: int array stored": (12, "all bytes are stored, not one for each item"),
    "put: strided stored": ("ace", "the elements are stored, not the memory between them"),
    "register: again": (0, "callers of older releases register twice; a note does no harm"),
    "register: inside": (0, "as above"),
    "remove: after get": (0, "a read gives its lease back when it ends"),
    "remove: force": (-704, "removed by the call before"),
    "remove_all: leased stay": ([True, 0], "as above, and exist asks for nothing that is left"),
}
