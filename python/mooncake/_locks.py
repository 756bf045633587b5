# SPDX-License-Identifier: Apache-2.0
"""Locks that are free in a forked child: the thread that held one at the fork is not there to give it back."""

import os
import threading
import weakref

_locks = weakref.WeakSet()


def _free():
    for one in list(_locks):
        # what Python's own modules (threading, logging) do with theirs
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
