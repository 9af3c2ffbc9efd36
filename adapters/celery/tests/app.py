"""The application of the tests. Nothing in it knows what broker it runs on but the URL."""

import os
import time

from celery import Celery, chord

app = Celery("app", broker=os.environ["URL"], backend=os.environ["URL"])
app.conf.worker_prefetch_multiplier = 1
# A lease is extended after 1.5 seconds, so a worker may be stopped for 3.
app.conf.broker_transport_options = {"visibility_timeout": 4.5}
app.conf.task_routes = [lambda name, args, kwargs, options, task=None, **kw:
                        {"fila_key": kwargs["tenant"]} if kwargs and "tenant" in kwargs else None]


def note(line):
    """Notes in a file, which outlives processes, what was done."""
    with open(os.environ["NOTES"], "a") as f:
        f.write(line + "\n")


@app.task
def add(x, y):
    return x + y


@app.task
def tsum(numbers):
    return sum(numbers)


@app.task
def same(value):
    return value


@app.task(bind=True, max_retries=3)
def third_time(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task
def fail():
    raise ValueError("no such order")


@app.task
def noted(line):
    note(line)


def hold(line, until):
    """Works until a file exists."""
    note(line + " began")
    while not os.path.exists(until):
        time.sleep(0.02)
    note(line + " ended")


held = app.task(hold, name="app.held", acks_late=True)
held_acked = app.task(hold, name="app.held_acked")


@app.task(bind=True, acks_late=True)
def reject(self, requeue):
    from celery.exceptions import Reject
    raise Reject("not for me", requeue=requeue)


@app.task
def work(n, tenant):
    time.sleep(0.005)
    note(tenant)


@app.task(bind=True)
def progress(self, until):
    """Works until a file exists."""
    self.update_state(state="PROGRESS", meta={"done": 1})
    while not os.path.exists(until):
        time.sleep(0.02)
    return "all"


@app.task(bind=True)
def later(self):
    add.apply_async((1, 1), queue="children")
    raise self.retry(countdown=600)


@app.task(bind=True)
def widen(self, numbers):
    """Adds parts to the chord that it is a part of."""
    for n in numbers:
        self.add_to_chord(same.s(n))
    return 0


@app.task(bind=True)
def deepen(self, n):
    if n > 1:
        self.add_to_chord(deepen.s(n - 1))
    return n


@app.task(bind=True)
def nest(self, numbers):
    self.add_to_chord(chord([same.s(n) for n in numbers], tsum.s()))
    return 0


@app.task(acks_late=True)
def part(n):
    note(str(n))
    return n


@app.task(acks_late=True)
def closing(numbers):
    note("body")
    return sum(numbers)
