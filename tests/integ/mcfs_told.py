# SPDX-License-Identifier: Apache-2.0
"""What a program is told by a call on a mount."""
import errno


def told(fn):
    """The name of its errno, or "ok"."""
    try:
        fn()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok"
