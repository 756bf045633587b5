# SPDX-License-Identifier: Apache-2.0
"""Private names of mooncake_config that programs import."""

from cases import case, finish
from mooncake.mooncake_config import _parse_bool, _parse_segment_size


def parsed(parse, value):
    try:
        return parse(value)
    except ValueError:
        return "ValueError"


for value in (5, 0, "5", "1gb", " 1.5 GB ", "16mb", "512KB", "7b", "", "gb", "x"):
    case(f"_parse_segment_size {value!r}", lambda: parsed(_parse_segment_size, value))
for value in (True, False, 1, 0, None, "", "true", " Yes ", "on", "1", "enable", "off", "No", "0", "disable", "maybe"):
    case(f"_parse_bool {value!r}", lambda: parsed(_parse_bool, value))

finish({})
