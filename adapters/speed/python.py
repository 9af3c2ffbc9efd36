"""The jobs of Celery, and a worker of fila_worker beside one of RQ, each with one job at a time."""

import os
import sys

URL = os.environ.get("URL", "")


def note():
    with open(os.environ["NOTES"], "a") as f:
        f.write(".")


try:
    from celery import Celery

    app = Celery("python", broker=URL, backend=URL)
    app.conf.worker_prefetch_multiplier = 4  # the default
    task = app.task(name="note")(note)
except ImportError:
    pass


def main(kind, jobs):
    if kind == "celery":
        for _ in range(jobs):
            task.delay()
    elif kind == "redis":
        import redis
        from rq import Queue, SimpleWorker  # without a process for each job

        queue = Queue(connection=redis.Redis.from_url(URL))
        if jobs:
            for _ in range(jobs):
                queue.enqueue("python.note")
        else:
            SimpleWorker([queue], connection=queue.connection).work(logging_level="ERROR")
    else:
        import fila_worker

        queue = fila_worker.Queue("default", fila_worker.connect(URL))
        if jobs:
            for _ in range(jobs):
                queue.send("")
        else:
            fila_worker.Worker(queue, lambda message: note()).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
