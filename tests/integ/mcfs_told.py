# SPDX-License-Identifier: Apache-2.0
"""Result of a call on a mount, as a program sees it."""
import errno


def told(fn):
    """Name of the errno of fn(), or "ok"."""
    try:
        fn()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok"
