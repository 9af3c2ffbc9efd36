"""How many jobs a second the workers of a language do on Fila, beside what they usually run on, in the same run.

    adapters/speed/run [--rounds 5] [--jobs 3000] [ROW ...]

A round runs both brokers in turns. Jobs that do nothing but note that they ran are enqueued, then a worker is started, and
its rate is that from the first note to the last. The medians of the rounds are printed, each as "usual Fila = ratio": jobs
done and enqueued a second, and the CPU milliseconds of a job in the worker and in the broker. What is usual is a Redis that writes
nothing to a disk; Fila syncs each job, result and ack.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "celery" / "tests"))

from harness import Fila, Redis, until  # noqa: E402


def celery(*options):
    work = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "python", "worker", "-l", "WARNING", *options]
    return lambda kind: (work, [sys.executable, "-W", "ignore", "python.py", "celery"])


def program(*command):
    """A program that works, and enqueues when it is given a number."""
    return lambda kind: ([*command, kind], [*command, kind])


# What works and what enqueues, for "redis" or "fila": the second gets the number of jobs as its last argument.
ROWS = {
    "celery -c 1": celery("-c", "1"),
    "celery -c 8": celery("-c", "8"),
    "celery gevent": celery("-P", "gevent", "-c", "100"),
    "python, RQ": program(sys.executable, "python.py"),
    "node, BullMQ": program("node", "node.mjs"),
    "go, asynq": program(os.environ.get("SPEED_GO", "")),
    "active job, Sidekiq": program("ruby", "ruby.rb"),
    "symfony, redis": program("php", "symfony.php"),
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


def once(row, server, jobs):
    """Jobs a second that are done and that are enqueued, and the CPU milliseconds of a job in the worker and the broker."""
    kind = server.scheme
    work, send = ROWS[row](kind)
    with tempfile.TemporaryDirectory() as directory:
        notes = os.path.join(directory, "notes")
        open(notes, "w").close()
        environment = {**os.environ, "URL": f"{kind}://127.0.0.1:{server.port}", "PORT": str(server.port), "NOTES": notes, "CACHE": directory}
        run = dict(cwd=HERE, env=environment, stdout=subprocess.DEVNULL)
        try:
            began = time.monotonic()
            subprocess.run([*send, str(jobs)], check=True, **run)
            sent = time.monotonic() - began
            started = cpu(server.process.pid)
            worker = subprocess.Popen(work, start_new_session=True, **run)
            try:
                done = lambda: os.path.getsize(notes)  # noqa: E731
                until("the first jobs are done", lambda: done() >= jobs // 10)
                began, first, used = time.monotonic(), done(), cpu(worker.pid)
                until("all jobs are done", lambda: done() >= jobs)
                ended = time.monotonic()
                of_worker = (cpu(worker.pid) - used) / (jobs - first)
                of_broker = (cpu(server.process.pid) - started) / jobs
            finally:
                os.killpg(worker.pid, 9)
                worker.wait()
        finally:
            server.stop()
    return (jobs - first) / (ended - began), jobs / sent, 1000 * of_worker, 1000 * of_broker


def main():
    parser = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("rows", nargs="*", metavar="ROW", default=list(ROWS), help=", ".join(ROWS))
    args = parser.parse_args()
    unknown = set(args.rows) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(unknown)}: {', '.join(ROWS)}")
    for row in args.rows:
        figures = {Redis: [], Fila: []}
        for n in range(args.rounds):
            for kind in (Redis, Fila) if n % 2 == 0 else (Fila, Redis):
                figures[kind].append(once(row, kind(), args.jobs))
        line = [f"{row:20}"]
        for i, (what, digits) in enumerate((("done/s", 0), ("enqueued/s", 0), ("worker ms", 3), ("broker ms", 3))):
            usual, fila = (statistics.median(round[i] for round in figures[kind]) for kind in (Redis, Fila))
            line.append(f"{what} {usual:.{digits}f} {fila:.{digits}f} = {fila / usual:.2f}")
        print("   ".join(line), flush=True)


if __name__ == "__main__":
    main()
