# SPDX-License-Identifier: Apache-2.0
"""Locks that are unlocked in a forked child, where the thread that held one at the fork does not exist."""

import functools
import os
import threading
import weakref

_locks = weakref.WeakSet()


def _free():
    for one in list(_locks):
        # as Python's modules threading and logging do
        one._at_fork_reinit()


os.register_at_fork(after_in_child=_free)


def _new(kind):
    one = kind()
    _locks.add(one)
    return one


lock = functools.partial(_new, threading.Lock)
rlock = functools.partial(_new, threading.RLock)
condition = functools.partial(_new, threading.Condition)
