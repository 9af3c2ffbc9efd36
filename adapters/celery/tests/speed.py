"""How many tasks a second Celery does on Fila, beside its Redis transport in the same run.

    tests/run speed [--rounds 3] [--tasks 2400] [--producers 8] [--only -c1,-c8,gevent]

Each round runs both brokers in turns: a worker is ready, producers send the tasks side by side, and the
round ends when all have been done. Tasks do nothing, with their results stored by the same broker. The medians
of the rounds and their ratios, Fila's to Redis', are printed, with the CPU time of the worker and of the broker for a task.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time

from harness import Fila, Redis, Worker, application, until

WORKERS = {
    "-c1": ["-c", "1"],
    "-c8": ["-c", "8"],
    "gevent": ["-P", "gevent", "-c", "100"],
}


def cpu(leader):
    """CPU seconds so far of a process and of those in its session."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                of = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(pid) == leader or int(of[3]) == leader:
            ticks += int(of[11]) + int(of[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rate(server, options, tasks, producers, results):
    """Tasks a second from the first that is sent to the last that is done, those that were sent a second, and the CPU
    milliseconds of a task in the worker and in the broker."""
    notes = tempfile.NamedTemporaryFile("r")
    try:
        app = application(server.url)
        name = "speed" if results else "speed_without_result"
        task = app.app.tasks[f"app.{name}"]
        worker = Worker(server.url, "speed@test", *options, NOTES=notes.name).ready()
        try:
            used = [-cpu(p.process.pid) for p in (worker, server)]
            began = time.monotonic()

            def send():
                for _ in range(tasks // producers):
                    task.delay()

            threads = [threading.Thread(target=send) for _ in range(producers)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            sent = time.monotonic()
            until("all is done", lambda: os.path.getsize(notes.name) >= tasks)
            ended = time.monotonic()
            used = [1000 * (u + cpu(p.process.pid)) / tasks for u, p in zip(used, (worker, server))]
        finally:
            worker.kill()
        return tasks / (ended - began), tasks / (sent - began), *used
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2400)
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--only", default=",".join(WORKERS))
    parser.add_argument("--without-results", action="store_true")
    args = parser.parse_args()
    for name in args.only.split(","):
        done = {Redis: [], Fila: []}
        for n in range(args.rounds):
            for kind in (Redis, Fila) if n % 2 == 0 else (Fila, Redis):
                done[kind].append(rate(kind(), WORKERS[name], args.tasks, args.producers, not args.without_results))
        columns = {k: [statistics.median(r[i] for r in rounds) for i in range(4)] for k, rounds in done.items()}
        row = [f"{name:8}"]
        for i, what in enumerate(("tasks/s", "sent/s", "worker ms", "broker ms")):
            redis, fila = columns[Redis][i], columns[Fila][i]
            row.append(f"{what} {redis:.{3 * (i > 1)}f} {fila:.{3 * (i > 1)}f} = {fila / redis:.2f}")
        print("   ".join(row), flush=True)


if __name__ == "__main__":
    main()
