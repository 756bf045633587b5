#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a trace for "mcbench replay" to standard output: make_trace.py KIND [--requests N] [--seed S]

A line is a request with the ids of its blocks of 512 tokens (tools/bench/mcbench_trace.h).  The same arguments write the
same bytes.  Sizes in tokens are log-normal: the median, and sigma of the logarithm.

Kinds with requests of one block, every 10 ms, for eviction policies alone:
uniform  Each of --keys keys with the same probability.  No policy is better than another.
zipf     Key number i with a probability in proportion to 1/i^0.9.
scan     zipf over half of the keys; after every 2000 of these requests, 4000 keys that are read once in the whole trace.
loop     All keys in order, again and again: the worst case of lru when the pool is a little smaller.

Kinds of engines' requests; an id stands for its block and all blocks before it, so equal ids are equal prefixes:
chat     Conversations begin at random, one per second on average (Poisson).  Each has one of 20 system prompts
         (popularity as in zipf with exponent 1; 200 to 4000 tokens).  A turn adds a question (median 120, sigma 1.0) and,
         for the next turn, an answer (median 250, sigma 0.8).  The number of turns is geometric with a mean of 5; between
         two turns is a think time (median 30 s, sigma 1.2).  At 32768 tokens a conversation ends.
agent    8 sessions at a time; a new one replaces an ended one.  All share a prompt with tool definitions (12000 tokens);
         each reads 20000 tokens (sigma 0.6) of a project, which is one of 6.  A turn adds an answer (median 150, sigma
         0.8) and the result of a tool (median 500, sigma 1.2).  The time between turns is short (median 3 s, sigma 0.7),
         or in 5% a pause for a slow tool (median 60 s, sigma 1.0).  The number of turns is geometric with a mean of 60.
         A turn starts 1 to 4 sub-agents with a probability of 4%: they branch off behind the project, add a task (median
         800, sigma 0.7), make 8 turns on average, and the session waits for them.  Above 120000 tokens a session
         replaces all behind the project by a summary of 4000 tokens.

The last block of a prompt is mostly not full.  Its id is never used again: the next turn has other bytes in it."""
import argparse
import bisect
import heapq
import itertools
import json
import math
import random
import sys

BLOCK = 512
STEP_MS = 10


class Zipf:
    """Numbers from 0 on; number i with a probability in proportion to 1/(i+1)^alpha."""

    def __init__(self, n, alpha):
        self.sums = list(itertools.accumulate((i + 1) ** -alpha for i in range(n)))

    def draw(self, rnd):
        return bisect.bisect_left(self.sums, rnd.random() * self.sums[-1])


# ---- single blocks: generators of keys

def uniform(rnd, keys):
    while True:
        yield rnd.randrange(keys)


def zipf(rnd, keys):
    popular = Zipf(keys, 0.9)
    while True:
        yield popular.draw(rnd)


def scan(rnd, keys):
    popular = Zipf(max(keys // 2, 1), 0.9)
    fresh = itertools.count(keys)
    while True:
        for _ in range(2000):
            yield popular.draw(rnd)
        yield from itertools.islice(fresh, 4000)


def loop(_rnd, keys):
    yield from itertools.cycle(range(keys))


def single(keys):
    """Requests of one block each."""
    for n, key in enumerate(keys):
        yield n * STEP_MS, BLOCK, 1, [key]


# ---- growing contexts

class Context:
    """Tokens of a prompt and the ids of its full blocks."""

    ids = itertools.count()

    def __init__(self, parent=None):
        self.tokens = parent.tokens if parent else 0
        self.blocks = list(parent.blocks) if parent else []

    def add(self, tokens):
        """Only full blocks have a lasting id; one that was full before stays as it is."""
        self.tokens += tokens
        while (len(self.blocks) + 1) * BLOCK <= self.tokens:
            self.blocks.append(next(self.ids))
        return self

    def prompt(self):
        return self.blocks + ([next(self.ids)] if self.tokens % BLOCK else [])


def lognormal(rnd, median, sigma):
    return max(1, int(rnd.lognormvariate(math.log(median), sigma)))


def geometric(rnd, mean):
    return 1 + int(math.log(1 - rnd.random()) / math.log(1 - 1 / mean))


class Simulation:
    """A queue of events: run(ms) yields the requests of that time and adds later events."""

    def __init__(self, rnd):
        self.rnd = rnd
        self.queue = []
        self.order = itertools.count()

    def at(self, ms, run):
        heapq.heappush(self.queue, (ms, next(self.order), run))

    def requests(self):
        while self.queue:
            ms, _, run = heapq.heappop(self.queue)
            yield from run(ms)


class Chat(Simulation):
    def __init__(self, rnd):
        super().__init__(rnd)
        self.systems = [Context().add(rnd.randrange(200, 4000)) for _ in range(20)]
        self.popular = Zipf(len(self.systems), 1)
        self.at(0, self.arrive)

    def arrive(self, now):
        context = Context(self.systems[self.popular.draw(self.rnd)])
        self.at(now + self.rnd.expovariate(1) * 1000, self.arrive)
        return self.turn(now, context, geometric(self.rnd, 5))

    def turn(self, now, context, left):
        answer = lognormal(self.rnd, 250, 0.8)
        context.add(lognormal(self.rnd, 120, 1.0))
        yield now, context.tokens, answer, context.prompt()
        context.add(answer)
        if left > 1 and context.tokens < 32768:
            later = now + 1000 * lognormal(self.rnd, 30, 1.2)
            self.at(later, lambda ms: self.turn(ms, context, left - 1))


class Agent(Simulation):
    def __init__(self, rnd):
        super().__init__(rnd)
        tools = Context().add(12000)
        self.projects = [Context(tools).add(lognormal(rnd, 20000, 0.6)) for _ in range(6)]
        for _ in range(8):
            self.at(rnd.random() * 10000, self.begin)

    def begin(self, now):
        project = self.rnd.choice(self.projects)
        return self.turn(now, project, Context(project), geometric(self.rnd, 60), self.begin, True)

    def pause(self):
        slow = self.rnd.random() < 0.05
        return lognormal(self.rnd, 60000, 1.0) if slow else lognormal(self.rnd, 3000, 0.7)

    def turn(self, now, project, context, left, end, main):
        """One turn; after the last one, end() runs."""
        answer = lognormal(self.rnd, 150, 0.8)
        context.add(lognormal(self.rnd, 500, 1.2))
        if context.tokens > 120000:
            context = Context(project).add(4000)
        yield now, context.tokens, answer, context.prompt()
        context.add(answer)
        later = now + self.pause()

        def proceed(ms):
            return self.turn(ms, project, context, left - 1, end, main)

        if left == 1:
            self.at(later, end)
        elif main and self.rnd.random() < 0.04:
            self.branch(later, project, proceed)
        else:
            self.at(later, proceed)

    def branch(self, now, project, proceed):
        """Sub-agents; proceed() runs when the last one ends."""
        running = self.rnd.randint(1, 4)

        def ended(ms):
            nonlocal running
            running -= 1
            if not running:
                self.at(ms, proceed)
            return ()

        for _ in range(running):
            context = Context(project).add(lognormal(self.rnd, 800, 0.7))
            self.at(now, lambda ms, c=context: self.turn(ms, project, c, geometric(self.rnd, 8), ended, False))


KEYS = {"uniform": uniform, "zipf": zipf, "scan": scan, "loop": loop}
SIMULATIONS = {"chat": Chat, "agent": Agent}


def main():
    parser = argparse.ArgumentParser(description="Write a trace for mcbench replay to standard output.")
    parser.add_argument("kind", choices=[*KEYS, *SIMULATIONS])
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keys", type=int, default=10000, help="of uniform, zipf, scan and loop")
    args = parser.parse_args()
    if args.keys < 1 or args.requests < 1:
        parser.error("--keys and --requests must be at least 1")
    # A text as seed: equal seeds of two kinds have nothing in common.
    rnd = random.Random(f"{args.kind} {args.seed}")
    if args.kind in KEYS:
        requests = single(KEYS[args.kind](rnd, args.keys))
    else:
        requests = SIMULATIONS[args.kind](rnd).requests()
    for ms, tokens, answer, ids in itertools.islice(requests, args.requests):
        line = {"timestamp": int(ms), "input_length": tokens, "output_length": answer, "hash_ids": ids}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
