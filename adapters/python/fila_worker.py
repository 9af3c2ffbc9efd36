"""Queues and workers of Fila, on redis-py: with threads, and for asyncio.

A worker leases messages and hands them to a function. While that works, the lease is extended. Its
return acks the message, an exception nacks it. A message is delivered at least once.
"""

import asyncio
import contextlib
import contextvars
import logging
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os import getpid

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry as Retries

logger = logging.getLogger("fila_worker")

BLOCK = 1.0  # seconds for which a lease waits for messages, and so about how long it takes to notice a stop
PAUSE = 0.5  # seconds after an error of the connection

UNREACHABLE = (redis.ConnectionError, redis.TimeoutError)

# Headers that what a handler sends has from the message that it handles.
TRACE = ("traceparent", "tracestate")

handled = contextvars.ContextVar("handled", default=None)  # the message that a handler works on


class Retry(Exception):
    """Raised by a handler: the message is tried again after a number of seconds."""

    def __init__(self, delay, error="retry"):
        super().__init__(error)
        self.delay = delay


class Dead(Exception):
    """Raised by a handler: the message is not tried again, it goes to the dead-letter queue."""


@dataclass
class Message:
    """A message that is leased."""

    receipt: str
    payload: bytes
    headers: dict
    key: str
    attempt: int
    deliveries: int
    enqueued_at: int  # Unix milliseconds
    lease_until: int  # Unix milliseconds, when it was leased
    queue: str
    lost: threading.Event = field(default_factory=threading.Event, repr=False)  # set when the lease is over too early

    @property
    def id(self):
        return self.receipt.partition(":")[0]


@dataclass
class Result:
    """What has become of a message: status is pending, done or dead; value is what its handler returned,
    None if it returned nothing, or nothing but an empty value."""

    status: str
    value: bytes
    error: str


def connect(url="fila://127.0.0.1:5555", **options):
    """A client of redis-py for Queue; filas:// is TLS."""
    return redis.Redis.from_url(_url(url), **{**_safe(Retries), **options})


def connect_async(url="fila://127.0.0.1:5555", **options):
    """A client of redis-py for AsyncQueue."""
    from redis.asyncio.retry import Retry as AsyncRetries

    return redis.asyncio.Redis.from_url(_url(url), **{**_safe(AsyncRetries), **options})


def _url(url):
    scheme, _, rest = url.partition("://")
    return {"fila": "redis", "filas": "rediss"}.get(scheme, scheme) + "://" + rest


def _safe(retries):
    # A command that is sent again happens again: that is left to the caller.
    return {"socket_timeout": 30, "socket_keepalive": True, "retry": retries(NoBackoff(), 0)}


# The commands, as lists of arguments.


def _create(queue):
    command = ["FILA.QUEUE", "CREATE", queue.name, "IFNOTEXISTS"]
    for name, value in queue.options.items():
        command += [name.upper()] if value is True else [name.upper(), value]
    return command


def _enqueue(name, payload, headers=None, delay=None, ttl=None, **options):
    command = ["FILA.ENQUEUE", name, payload]
    for option, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if one is not None:
                command += [option.upper(), one]
    for option, seconds in (("DELAY", delay), ("TTL", ttl)):
        if seconds is not None:
            command += [option, int(seconds * 1000)]
    before = handled.get()
    inherited = {} if before is None else {h: before.headers[h] for h in TRACE if h in before.headers}
    for header, value in {**inherited, **(headers or {})}.items():
        command += ["HEADER", header, value]
    return command


def _lease(worker, count):
    return ["FILA.LEASE", worker.queue.name, "COUNT", count, "BLOCK", int(BLOCK * 1000),
            "VISIBILITY", int(worker.visibility * 1000), "CONSUMER", worker.name]


def _outcome(message, value, error):
    """The command that ends the lease of a message that was handled."""
    if error is None:
        # Without RESULT it would be known to those alone that wait already: None is an empty one.
        return ["FILA.ACK", message.queue, message.receipt, "RESULT", b"" if value is None else value]
    command = ["FILA.NACK", message.queue, message.receipt, "ERROR", f"{type(error).__name__}: {error}"]
    if isinstance(error, Dead):
        command.append("DEAD")
    elif isinstance(error, Retry):
        command += ["DELAY", int(error.delay * 1000)]
    return command


def _release(message):
    """Gives a message back that was not handled. That is no failure."""
    return ["FILA.RELEASE", message.queue, message.receipt]


def _message(leased):
    receipt, payload, headers, key, attempt, deliveries, enqueued_at, lease_until, queue = leased[:9]
    pairs = (h.decode(errors="replace") for h in headers)
    return Message(receipt.decode(), payload, dict(zip(pairs, pairs)), key.decode(errors="replace"),
                   attempt, deliveries, enqueued_at, lease_until, queue.decode())


def _result(reply):
    if reply is None:
        return None
    if not isinstance(reply, dict):
        pairs = iter(reply)
        reply = dict(zip(pairs, pairs))
    error = reply[b"error"]
    return Result(reply[b"status"].decode(), reply[b"value"] or None, error and error.decode(errors="replace"))


def _no_queue(error):
    return str(error).startswith("NOQUEUE")


class Queue:
    """A queue. It is created when it is missing, with the options of FILA.QUEUE CREATE, such as maxattempts=5."""

    def __init__(self, name, client=None, **options):
        self.name, self.options = name, options
        self.client = connect() if client is None else client

    def create(self):
        self.client.execute_command(*_create(self))

    def send(self, payload, **options):
        """Stores a message and returns its id.

        Options: key, weight, cost, throttle, budget, charge, priority, at, dedup as in FILA.ENQUEUE, throttle
        and budget also as lists; headers, a dict; delay and ttl in seconds.
        """
        command = _enqueue(self.name, payload, **options)
        return self._run(command).decode()

    def result(self, id, timeout=0):
        """Waits for what becomes of a message, for a number of seconds; None if it is not known."""
        end = time.monotonic() + timeout
        while True:
            left = max(0, min(BLOCK, end - time.monotonic()))
            wait = ["BLOCK", int(left * 1000)] if left >= 0.001 else []
            result = _result(self._run(["FILA.RESULT", self.name, id, *wait]))
            if result is None or result.status != "pending" or not wait:
                return result

    def _run(self, command):
        try:
            return self.client.execute_command(*command)
        except redis.ResponseError as e:
            if not _no_queue(e):
                raise
        self.create()
        return self.client.execute_command(*command)


class _Worker:
    """What both workers have in common.

    A worker hands up to concurrency messages at a time to handler(message). visibility is the time of
    a lease in seconds, which is extended at a third of it; after it the messages of a worker that died
    are delivered again. name is shown to operators.
    """

    def __init__(self, queue, handler, concurrency=1, visibility=30.0, name=None):
        self.queue, self.handler = queue, handler
        self.concurrency, self.visibility = concurrency, visibility
        self.name = name or f"{socket.gethostname()}:{getpid()}"
        self._busy = {}  # receipt: message
        self._stopping = threading.Event()

    def stop(self):
        """Has run return once the messages that are being handled are done. Any thread may call it."""
        self._stopping.set()

    def _extensions(self):
        messages = list(self._busy.values())
        return messages, [["FILA.EXTEND", m.queue, m.receipt, int(self.visibility * 1000)] for m in messages]

    def _extended(self, messages, replies):
        """Returns the messages whose leases are lost."""
        lost = [m for m, r in zip(messages, replies) if isinstance(r, redis.ResponseError) and m.receipt in self._busy]
        for m in lost:
            logger.warning("the lease of message %s is lost, it is delivered again", m.id)
            m.lost.set()
        return lost


class Worker(_Worker):
    """A worker with threads. The handler gets a Message; what it returns, bytes or str, is its result."""

    def run(self):
        """Works until stop is called, or in the main thread until SIGTERM or SIGINT; then ends what it has begun."""
        self._free = threading.Semaphore(self.concurrency)
        ended = threading.Event()
        extender = threading.Thread(target=self._extend, args=(ended,), daemon=True)
        extender.start()
        try:
            with self._signals(), ThreadPoolExecutor(self.concurrency) as pool:
                while not self._stopping.is_set():
                    self._round(pool)
        finally:
            ended.set()
            extender.join()

    @contextlib.contextmanager
    def _signals(self):
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, lambda *_: self.stop()) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    def _round(self, pool):
        """Leases messages for what is free, and has them handled."""
        if not self._free.acquire(timeout=BLOCK):
            return
        free = 1
        while self._free.acquire(blocking=False):
            free += 1
        leased = []
        try:
            if not self._stopping.is_set():
                leased = [_message(m) for m in self.queue._run(_lease(self, free))]
        except UNREACHABLE as e:
            logger.warning("the broker cannot be reached: %s", e)
            self._stopping.wait(PAUSE)
        if self._stopping.is_set():
            for m in leased:
                self._settle(m, _release(m))
            leased = []
        for m in leased:
            self._busy[m.receipt] = m
            pool.submit(self._handle, m)
        for _ in range(free - len(leased)):
            self._free.release()

    def _handle(self, message):
        token = handled.set(message)
        try:
            command = _outcome(message, self.handler(message), None)
        except Exception as e:
            logger.exception("message %s has failed", message.id)
            command = _outcome(message, None, e)
        finally:
            handled.reset(token)
        try:
            self._settle(message, command)
        finally:
            self._busy.pop(message.receipt, None)
            self._free.release()

    def _settle(self, message, command):
        """Ends a lease. While the broker cannot be reached it tries again, until the lease would be over."""
        end = time.monotonic() + self.visibility
        while True:
            try:
                self.queue.client.execute_command(*command)
                return
            except redis.ResponseError as e:  # the lease is lost, or what the handler returned is too big
                logger.warning("%s of message %s: %s", command[0], message.id, e)
                return
            except UNREACHABLE as e:
                logger.warning("%s of message %s: %s", command[0], message.id, e)
                if time.monotonic() > end:
                    return
                time.sleep(PAUSE)

    def _extend(self, ended):
        while not ended.wait(self.visibility / 3):
            messages, commands = self._extensions()
            pipe = self.queue.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            try:
                self._extended(messages, pipe.execute(raise_on_error=False) if commands else [])
            except UNREACHABLE as e:
                logger.warning("cannot extend %d leases: %s", len(messages), e)


class AsyncQueue:
    """A queue for asyncio, as Queue."""

    def __init__(self, name, client=None, **options):
        self.name, self.options = name, options
        self.client = connect_async() if client is None else client

    async def create(self):
        await self.client.execute_command(*_create(self))

    async def send(self, payload, **options):
        """As Queue.send."""
        return (await self._run(_enqueue(self.name, payload, **options))).decode()

    async def result(self, id, timeout=0):
        """As Queue.result."""
        end = time.monotonic() + timeout
        while True:
            left = max(0, min(BLOCK, end - time.monotonic()))
            wait = ["BLOCK", int(left * 1000)] if left >= 0.001 else []
            result = _result(await self._run(["FILA.RESULT", self.name, id, *wait]))
            if result is None or result.status != "pending" or not wait:
                return result

    async def _run(self, command):
        try:
            return await self.client.execute_command(*command)
        except redis.ResponseError as e:
            if not _no_queue(e):
                raise
        await self.create()
        return await self.client.execute_command(*command)


class AsyncWorker(_Worker):
    """A worker for asyncio, as Worker. A handler whose lease is lost is cancelled."""

    async def run(self):
        """Works until stop is called, or until the task that runs it is cancelled; then ends what it has begun."""
        self._tasks = {}  # receipt: task
        extender = asyncio.create_task(self._extend())
        try:
            while not self._stopping.is_set():
                await self._round()
        finally:
            while self._tasks:
                await asyncio.wait(list(self._tasks.values()))
            extender.cancel()

    async def _round(self):
        if len(self._tasks) >= self.concurrency:
            await asyncio.wait(list(self._tasks.values()), timeout=BLOCK, return_when=asyncio.FIRST_COMPLETED)
            return
        lease = asyncio.ensure_future(self.queue._run(_lease(self, self.concurrency - len(self._tasks))))
        try:
            leased = await asyncio.shield(lease)
        except UNREACHABLE as e:
            logger.warning("the broker cannot be reached: %s", e)
            await asyncio.sleep(PAUSE)
            return
        except asyncio.CancelledError:  # what the lease brings is given back
            with contextlib.suppress(*UNREACHABLE):
                for m in map(_message, await lease):
                    await self._settle(m, _release(m))
            raise
        for m in map(_message, leased):
            if self._stopping.is_set():
                await self._settle(m, _release(m))
                continue
            self._busy[m.receipt] = m
            self._tasks[m.receipt] = asyncio.create_task(self._handle(m))

    async def _handle(self, message):
        handled.set(message)
        try:
            value = await self.handler(message)
            command = _outcome(message, value, None)
        except asyncio.CancelledError:
            command = _release(message)
        except Exception as e:
            logger.exception("message %s has failed", message.id)
            command = _outcome(message, None, e)
        try:
            await self._settle(message, command)
        finally:
            self._busy.pop(message.receipt, None)
            self._tasks.pop(message.receipt, None)

    async def _settle(self, message, command):
        end = time.monotonic() + self.visibility
        while True:
            try:
                await self.queue.client.execute_command(*command)
                return
            except redis.ResponseError as e:
                logger.warning("%s of message %s: %s", command[0], message.id, e)
                return
            except UNREACHABLE as e:
                logger.warning("%s of message %s: %s", command[0], message.id, e)
                if time.monotonic() > end:
                    return
                await asyncio.sleep(PAUSE)

    async def _extend(self):
        while True:
            await asyncio.sleep(self.visibility / 3)
            messages, commands = self._extensions()
            pipe = self.queue.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            try:
                for m in self._extended(messages, await pipe.execute(raise_on_error=False) if commands else []):
                    self._tasks[m.receipt].cancel()
            except UNREACHABLE as e:
                logger.warning("cannot extend %d leases: %s", len(messages), e)
