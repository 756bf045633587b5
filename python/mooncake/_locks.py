# SPDX-License-Identifier: Apache-2.0
"""Locks that are unlocked in a forked child, where the thread that held one at the fork does not exist."""

import os
import threading
import weakref

_locks = weakref.WeakSet()


def _free():
    for one in list(_locks):
        # as Python's modules threading and logging do
        one._at_fork_reinit()


os.register_at_fork(after_in_child=_free)


def lock():
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock():
    made = threading.RLock()
    _locks.add(made)
    return made


def condition():
    made = threading.Condition()
    _locks.add(made)
    return made
