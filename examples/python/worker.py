#!/usr/bin/env python3
"""worker.py: does jobs until SIGTERM or Ctrl-C, with redis-py."""
import contextlib
import os
import signal
import sys
import threading
import time

import redis

QUEUE = os.environ.get("FILA_QUEUE", "jobs")
LEASE_MS = int(os.environ.get("FILA_LEASE_MS", "30000"))
BLOCK_MS = 2000  # how long it may take to see that it is to stop

fila = redis.Redis(
    host=os.environ.get("FILA_HOST", "127.0.0.1"),
    port=int(os.environ.get("FILA_PORT", "5555")),
    socket_timeout=BLOCK_MS / 1000 + 5,  # longer than any call may take
)


@contextlib.contextmanager
def kept(receipt):
    """Extends a lease, in a thread, for as long as the block takes."""
    done = threading.Event()

    def extend():
        while not done.wait(LEASE_MS / 3000):
            fila.execute_command("FILA.EXTEND", QUEUE, receipt, LEASE_MS)

    thread = threading.Thread(target=extend)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def work(job):
    verb, _, rest = job.decode().partition(" ")
    if verb == "say":
        print(rest, flush=True)
    elif verb == "sleep":
        time.sleep(float(rest))
    else:
        raise ValueError(rest)


def handle(receipt, job, *_):
    try:
        with kept(receipt):
            work(job)
    except Exception as e:
        fila.execute_command("FILA.NACK", QUEUE, receipt, "ERROR", str(e))
    else:
        fila.execute_command("FILA.ACK", QUEUE, receipt)


def main():
    stopping = threading.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: stopping.set())
    while not stopping.is_set():
        try:
            for message in fila.execute_command("FILA.LEASE", QUEUE, "BLOCK", BLOCK_MS, "VISIBILITY", LEASE_MS):
                handle(*message)
        except redis.ConnectionError as e:
            print("the broker is away:", e, file=sys.stderr)
            stopping.wait(1)
        except redis.ResponseError as e:
            if not str(e).startswith("NOQUEUE"):
                raise
            print("the queue does not exist yet:", e, file=sys.stderr)
            stopping.wait(1)


if __name__ == "__main__":
    main()
