#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs with open files whose daemon is killed: each waits for a line on its standard input
before it continues, and prints what it saw."""
import errno
import fcntl
import os
import signal
import socket
import sys


def name(e):
    return errno.errorcode[e.errno]


def say(text):
    print(text, flush=True)


def reader(path, expected, then):
    """Read half of a file before the kill, one byte at a time, and the rest after it."""
    want = open(expected, "rb").read()
    fd = os.open(path, os.O_RDONLY)
    got = b""
    while len(got) < len(want) // 2:
        got += os.read(fd, 100000)
    ino = os.fstat(fd).st_ino
    say("half")
    sys.stdin.readline()
    try:
        while True:
            piece = os.read(fd, 100000)
            if not piece:
                break
            got += piece
    except OSError as e:
        say(name(e))
        # the bytes that were read are a prefix of the file nevertheless
        say("beginning" if want.startswith(got) else "wrong")
        return
    say("equal" if got == want else "wrong")
    say("same" if os.fstat(fd).st_ino == ino else "another")
    os.close(fd)


def writer(path, expected, then):
    """Write half of a file before the kill and the rest after it; close(2) reports the error."""
    data = open(expected, "rb").read()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, data[: len(data) // 2])
    say("half")
    sys.stdin.readline()
    for what in (lambda: os.write(fd, data[len(data) // 2:]), lambda: os.fsync(fd),
                 lambda: os.close(fd)):
        try:
            what()
            say("ok")
        except OSError as e:
            say(name(e))


def closer(path, expected, then):
    """Everything is stored before the kill; a duplicate is closed after it, without an error."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, open(expected, "rb").read())
    os.close(os.dup(fd))
    say("half")
    sys.stdin.readline()
    try:
        os.close(fd)
        say("ok")
    except OSError as e:
        say(name(e))


def maker(path, expected, then):
    """Create a file read-only, as flock(1) does: it has no data that can be lost."""
    fd = os.open(path, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    say("half")
    sys.stdin.readline()
    for what in lambda: os.fstat(fd).st_size, lambda: os.read(fd, 10), lambda: os.close(fd):
        try:
            say(what())
        except OSError as e:
            say(name(e))


def steady(path, expected, then):
    """Open and read in a loop until the file `then` exists: never an error or other bytes."""
    want = open(expected, "rb").read()
    say("half")
    n = 0
    while not os.path.exists(then):
        with open(path, "rb", buffering=0) as f:
            got = b""
            while True:
                piece = f.read(1 << 20)
                if not piece:
                    break
                got += piece
        if got != want:
            say("wrong")
            return
        os.stat(path)
        n += 1
    say("equal" if n else "none")


def watcher(path, expected, then):
    """Call stat in a loop until the file `then` exists; print the errors."""
    say("half")
    errors = set()
    while not os.path.exists(then):
        try:
            os.stat(path)
        except OSError as e:
            errors.add(name(e))
    say(sorted(errors))


def directory(path, expected, then):
    """A directory and a file below it, through a directory descriptor."""
    fd = os.open(path, os.O_RDONLY)
    os.chdir(path)
    say("half")
    sys.stdin.readline()
    # the kernel's inode of the directory still works
    say("equal" if open("in", "rb").read() == open(expected, "rb").read() else "wrong")
    f = os.open("in", os.O_RDONLY, dir_fd=fd)
    os.close(f)
    os.close(fd)
    say(" ".join(sorted(os.listdir("."))))


def manager(path, *command):
    """The work of systemd for a service with FileDescriptorStoreMax=: store named descriptors, and
    restart a killed daemon with them, from descriptor 3 on."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(path)
    sock.settimeout(0.05)
    kept = {}

    def start():
        pid = os.fork()
        if pid:
            return pid
        env = dict(os.environ, NOTIFY_SOCKET=path)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in kept.values()]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
            os.close(fd)
        if high:
            env.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)),
                       LISTEN_FDNAMES=":".join(kept))
        os.execve(command[0], command, env)

    pid = start()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    while True:
        try:
            text, fds, _, _ = socket.recv_fds(sock, 4096, 8)
            words = dict(line.split("=", 1) for line in text.decode().splitlines())
            if words.get("FDSTOREREMOVE") == "1" and words["FDNAME"] in kept:
                os.close(kept.pop(words["FDNAME"]))
            if words.get("FDSTORE") == "1":
                kept[words["FDNAME"]] = fds[0]
            if words.get("READY") == "1":
                say("ready")
        except TimeoutError:
            pass
        done, status = os.waitpid(pid, os.WNOHANG)
        if done and os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        if done:
            pid = start()


if sys.argv[1] == "manager":
    manager(*sys.argv[2:])
{f.__name__: f for f in (reader, writer, closer, maker, steady, watcher,
                                  directory)}[sys.argv[1]](
    sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else "")
