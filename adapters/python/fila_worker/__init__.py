"""Queues and workers of Fila, on redis-py: with threads, and for asyncio.

A worker leases messages and hands them to a function. While that works, the lease is extended. Its
return acks the message, an exception nacks it. A message is delivered at least once.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os import getpid
from typing import Any, Callable, Dict, List, Optional, Union

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry as Retries

__version__ = "0.0.0"

logger = logging.getLogger("fila_worker")

BLOCK = 1.0  # seconds for which a lease waits for messages, and so about how long it takes to notice a stop
PAUSE = 0.5  # seconds after an error of the connection

UNREACHABLE = (redis.ConnectionError, redis.TimeoutError)

# Refusals that end by themselves. redis-py has classes for some of them, which lack the code.
TEMPORARY = ("LOADING", "MISCONF", "CLUSTERDOWN", "READONLY", "OOM")
TEMPORARY_CLASSES = tuple(
    getattr(redis.exceptions, name) for name in ("ReadOnlyError", "ClusterDownError", "OutOfMemoryError") if hasattr(redis.exceptions, name))

# Headers that what a handler sends has from the message that it handles.
TRACE = ("traceparent", "tracestate")

handled = contextvars.ContextVar("handled", default=None)  # the message that a handler works on


class Failure(Exception):
    """What a handler raises to say what becomes of its message.

    hold has throttles that the message names, and for each the seconds for which no message that names it is
    delivered, in any queue: what a provider says in Retry-After.
    """

    delay: Optional[float] = None
    dead = False

    def __init__(self, *args: Any, hold: Optional[Dict[str, float]] = None) -> None:
        super().__init__(*args)
        self.hold = dict(hold or {})


class Retry(Failure):
    """Raised by a handler: the message is tried again after a number of seconds."""

    def __init__(self, delay: float, error: str = "retry", hold: Optional[Dict[str, float]] = None) -> None:
        super().__init__(error, hold=hold)
        self.delay = delay


class Dead(Failure):
    """Raised by a handler: the message is not tried again, it goes to the dead-letter queue."""

    dead = True


class Hold(Failure):
    """Raised by a handler: a throttle is held for a number of seconds. The message is tried again as without, but not before."""

    def __init__(self, throttle: str, seconds: float, error: str = "held") -> None:
        super().__init__(error, hold={throttle: seconds})


class LeaseLost(Exception):
    """The lease of a message is over: another worker may have it."""


@dataclass(eq=False)
class Message:
    """A message that is leased."""

    receipt: str
    payload: bytes
    headers: Dict[str, str]
    key: str
    attempt: int
    deliveries: int
    enqueued_at: int  # Unix milliseconds
    lease_until: int  # Unix milliseconds, when it was leased
    queue: str
    lost: threading.Event = field(default_factory=threading.Event, repr=False)  # set when the lease is over too early
    _work: Optional["_Work"] = field(default=None, repr=False)

    @property
    def id(self) -> str:
        return self.receipt.partition(":")[0]

    # Of a message without a worker, as a test of a handler has it, these do nothing.

    def progress(self, text: str) -> None:
        """Tells the broker how far the work is, in at most 1 KiB, and extends the lease: Queue.result and the dashboard show it."""
        if self._work:
            worker = self._work.worker
            try:
                worker.queue.client.execute_command(*_extend(worker, self), "PROGRESS", text)
            except redis.ResponseError as e:
                self._refused(e)

    def ack(self, value: Union[bytes, str, None] = None) -> None:
        """Acks the message before its handler returns, with a result. What the handler returns concerns others then."""
        if self._work:
            self._settled(_ack(self, value))

    def fail(self, error: Union[BaseException, str]) -> None:
        """Reports a failure before the handler returns: an exception, such as Retry, or a text."""
        if self._work:
            self._settled(_nack(self, error))

    def _settled(self, ending):
        self._end()
        self._ended(self._work.worker._settle([ending]))

    def _refused(self, error):
        if not str(error).startswith("LEASELOST"):
            raise error
        self._work.worker._lose(self)
        raise LeaseLost(f"the lease of message {self.id} is lost") from error

    def _end(self):
        """Takes the message from those whose leases are extended."""
        if self.lost.is_set():
            raise LeaseLost(f"the lease of message {self.id} is lost")
        if self._work.worker._busy.pop(self.receipt, None) is None:
            raise ValueError(f"message {self.id} is acked or failed already")

    def _ended(self, refusals):
        for error in refusals:  # such as of a result that is too big: the handler may fail it
            self._work.worker._busy[self.receipt] = self
            raise error


class AsyncMessage(Message):
    """A message that AsyncWorker has leased, whose methods are coroutines."""

    async def progress(self, text: str) -> None:
        if self._work:
            worker = self._work.worker
            try:
                await worker.queue.client.execute_command(*_extend(worker, self), "PROGRESS", text)
            except redis.ResponseError as e:
                self._refused(e)

    async def ack(self, value: Union[bytes, str, None] = None) -> None:
        if self._work:
            await self._settled(_ack(self, value))

    async def fail(self, error: Union[BaseException, str]) -> None:
        if self._work:
            await self._settled(_nack(self, error))

    async def _settled(self, ending):
        self._end()
        self._work.ending += 1  # the handler is not cancelled meanwhile
        try:
            self._ended(await self._work.worker._settle([ending]))
        finally:
            self._work.ending -= 1


@dataclass
class Result:
    """What has become of a message: status is pending, done or dead; value is what its handler returned,
    None if it returned nothing, or nothing but an empty value; progress is what the handler of a pending one has said last."""

    status: str
    value: Optional[bytes]
    error: Optional[str]
    progress: Optional[str] = None


@dataclass
class GroupState:
    """A group: state is open, sealed, done or cancelled; message is the id of the message that it has enqueued at its end."""

    state: str
    members: int
    pending: int
    done: int
    dead: int
    cancelled: int
    message: Optional[str]
    error: Optional[str]

    @property
    def ended(self) -> bool:
        return self.state == "done" or self.state == "cancelled"


def connect(url: str = "fila://127.0.0.1:5555", **options: Any) -> redis.Redis:
    """A client of redis-py for Queue; filas:// is TLS."""
    return redis.Redis.from_url(_url(url), **{**_safe(Retries), **options})


def connect_async(url: str = "fila://127.0.0.1:5555", **options: Any) -> redis.asyncio.Redis:
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


# Options of FILA.ENQUEUE that are seconds here.
SECONDS = ("delay", "ttl", "backoff", "maxbackoff", "maxdelay")


def _enqueue(name, payload, headers=None, **options):
    command = ["FILA.ENQUEUE", name, payload]
    for option, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if one is True:
                command.append(option.upper())
            elif one is not None and one is not False:
                command += [option.upper(), int(one * 1000) if option in SECONDS else one]
    before = handled.get()
    inherited = {} if before is None else {h: before.headers[h] for h in TRACE if h in before.headers}
    for header, value in {**inherited, **(headers or {})}.items():
        command += ["HEADER", header, value]
    return command


def _open(group, queue, payload, when=None, expire=None, **options):
    command = ["FILA.GROUP", "OPEN", group, *_enqueue(queue.name, payload, **options)[1:]]
    if when is not None:
        command += ["WHEN", when]
    if expire is not None:
        command += ["EXPIRE", int(expire * 1000)]
    return command


def _lease(worker, count):
    count = [count] if worker.batch is None else [worker.batch, "SAMEKEY"]
    return ["FILA.LEASE", worker.queue.name, "COUNT", *count, "BLOCK", int(BLOCK * 1000),
            "VISIBILITY", int(worker.visibility * 1000), "CONSUMER", worker.name]


def _extend(worker, message):
    return ["FILA.EXTEND", message.queue, message.receipt, int(worker.visibility * 1000)]


# What ends the lease of a message: the message, a command, and the one in its place if the broker refuses it.


def _ack(message, value):
    if not isinstance(value, (bytes, bytearray, memoryview, str, int, float, type(None))):
        raise TypeError(f"a result is bytes or str, and not {type(value).__name__}")
    # Without RESULT it would be known to those alone that wait already: None is an empty one.
    return message, ["FILA.ACK", message.queue, message.receipt, "RESULT", b"" if value is None else value], None


def _nack(message, error):
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    command = ["FILA.NACK", message.queue, message.receipt, "ERROR", text]
    if isinstance(error, Failure):
        if error.dead:
            command.append("DEAD")
        elif error.delay is not None:
            command += ["DELAY", int(error.delay * 1000)]
        if error.hold:  # a throttle that the message does not name is refused
            holds = [part for throttle, seconds in error.hold.items() for part in ("HOLD", throttle, int(seconds * 1000))]
            return message, command + holds, command
    return message, command, None


def _release(message):
    """Gives a message back that was not handled. That is no failure."""
    return message, ["FILA.RELEASE", message.queue, message.receipt], None


def _message(leased, kind=Message):
    receipt, payload, headers, key, attempt, deliveries, enqueued_at, lease_until, queue = leased[:9]
    pairs = (h.decode(errors="replace") for h in headers)
    return kind(receipt.decode(), payload, dict(zip(pairs, pairs)), key.decode(errors="replace"),
                attempt, deliveries, enqueued_at, lease_until, queue.decode())


def _result(reply):
    if reply is None:
        return None
    if not isinstance(reply, dict):
        pairs = iter(reply)
        reply = dict(zip(pairs, pairs))
    error, progress = reply[b"error"], reply.get(b"progress")
    return Result(reply[b"status"].decode(), reply[b"value"] or None, error and error.decode(errors="replace"),
                  progress and progress.decode(errors="replace"))


def _group(reply):
    if reply is None:
        return None
    if not isinstance(reply, dict):
        pairs = iter(reply)
        reply = dict(zip(pairs, pairs))
    values = (reply[f.name.encode()] for f in dataclasses.fields(GroupState))
    return GroupState(*(v.decode(errors="replace") if isinstance(v, bytes) else v for v in values))


def _pauses(timeout):
    """The seconds between looks at a group, which has no reply that waits."""
    end, pause = time.monotonic() + timeout, 0.01
    while time.monotonic() < end:
        yield min(pause, max(end - time.monotonic(), 0))
        pause = min(2 * pause, PAUSE)


def _temporary(error):
    return isinstance(error, UNREACHABLE + TEMPORARY_CLASSES) or str(error).startswith(TEMPORARY)


def _no_queue(error):
    return str(error).startswith("NOQUEUE")


class Queue:
    """A queue. It is created when it is missing, with the options of FILA.QUEUE CREATE, such as maxattempts=5."""

    def __init__(self, name: str, client: Optional[redis.Redis] = None, **options: Any) -> None:
        self.name, self.options = name, options
        self.client = connect() if client is None else client

    def create(self) -> None:
        self.client.execute_command(*_create(self))

    def send(self, payload: Union[bytes, str], *, key: Optional[str] = None, headers: Optional[Dict[str, Any]] = None,
             delay: Optional[float] = None, ttl: Optional[float] = None, **options: Any) -> str:
        """Stores a message and returns its id.

        Options: key, weight, cost, throttle, budget, charge, priority, at, dedup, maxattempts as in FILA.ENQUEUE,
        throttle and budget also as lists; headers, a dict; delay, ttl, backoff and maxbackoff in seconds.

        unique is an id: while a message with it is in the queue, a second one is not stored, and the id of the first
        is returned. until="lease" frees it when the message is leased. With replace=True the second takes the place
        of the first, unless that is leased or has failed; its delay starts again, but never beyond maxdelay seconds
        after the first.
        """
        options.update(key=key, headers=headers, delay=delay, ttl=ttl)
        command = _enqueue(self.name, payload, **options)
        return self._run(command).decode()

    def result(self, id: str, timeout: float = 0) -> Optional[Result]:
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


class Group:
    """A group of messages: when all of them have ended, the broker enqueues its message. Messages join with send(..., group=name)."""

    def __init__(self, name: str, client: Optional[redis.Redis] = None) -> None:
        self.name = name
        self.client = connect() if client is None else client

    def open(self, queue: Queue, payload: Union[bytes, str], *, when: Optional[str] = None, expire: Optional[float] = None, **options: Any) -> bool:
        """Opens the group with the message that is sent to a queue at its end; False if there is a group of the name.

        when="done" waits also for members that are dead, until they are redriven or removed; after expire seconds the
        group is cancelled. Other options are those of Queue.send but dedup and unique.
        """
        return queue._run(_open(self.name, queue, payload, when, expire, **options)) == 1

    def seal(self) -> int:
        """Has the group take no more members, and returns how many are pending."""
        return self.client.execute_command("FILA.GROUP", "SEAL", self.name)

    def cancel(self) -> bool:
        """Cancels the message of the group and the members that are not leased; False if it has ended."""
        return self.client.execute_command("FILA.GROUP", "CANCEL", self.name) == 1

    def get(self) -> Optional[GroupState]:
        """The state of the group; None if it is not known."""
        return _group(self.client.execute_command("FILA.GROUP", "GET", self.name))

    def wait(self, timeout: float) -> Optional[GroupState]:
        """Waits until the group has ended, for a number of seconds, and returns what get does."""
        for pause in _pauses(timeout):
            state = self.get()
            if state is None or state.ended:
                return state
            time.sleep(pause)
        return self.get()


@dataclass(eq=False)
class _Work:
    """What one call of a handler is about: a message, or several of one key."""

    worker: "_Worker"
    messages: List[Message]
    ending: int = 0  # messages that a handler for asyncio is acking or failing

    def arguments(self):
        return self.messages if self.worker.batch is not None else self.messages[0]

    def left(self):
        """The messages that are neither acked, failed nor lost."""
        return [m for m in self.messages if m.receipt in self.worker._busy]

    def take(self):
        """Takes the messages that are left from those whose leases are extended, and returns them."""
        return [m for m in self.messages if self.worker._busy.pop(m.receipt, None)]

    def outcomes(self, value):
        """What becomes of the messages that are left when the handler has returned a value. One of a batch may be a list
        with a result, or an exception, for each message."""
        values = [value] * len(self.messages)
        if self.worker.batch is not None:
            values = value if isinstance(value, (list, tuple)) else [None] * len(self.messages)
            if len(values) != len(self.messages):
                raise ValueError(f"the handler has returned {len(values)} results for {len(self.messages)} messages")
        endings = {m: _nack(m, v) if isinstance(v, BaseException) else self._acked(m, v) for m, v in zip(self.messages, values)}
        return [endings[m] for m in self.take()]

    def _acked(self, message, value):
        """A result that the broker refuses, such as one that is too big, is a failure of the message."""
        _, command, _ = _ack(message, value)
        return message, command, _nack(message, "the broker has refused the result")[1]


class _Endings:
    """Leases that are being ended, in one round trip. While the broker cannot be reached they are tried again, until
    the leases would be over. refusals has the errors of those that the broker has refused."""

    def __init__(self, worker, endings):
        self.left, self.refusals = list(endings), []
        self._end = time.monotonic() + worker.visibility

    def commands(self):
        return [command for _, command, _ in self.left]

    def take(self, replies):
        """Takes replies, or one error for all of them, and returns whether to pause before the rest."""
        if isinstance(replies, Exception):
            replies = [replies] * len(self.left)
        left, self.left, pause = self.left, [], False
        for (message, command, instead), reply in zip(left, replies):
            if not isinstance(reply, Exception):
                continue
            logger.warning("%s of message %s: %s", command[0], message.id, reply)
            if _temporary(reply):
                if time.monotonic() <= self._end:
                    self.left.append((message, command, instead))
                    pause = True
            elif instead is not None and not str(reply).startswith("LEASELOST"):
                self.left.append((message, instead, None))
            else:
                self.refusals.append(reply)
        return pause


class _Worker:
    """What both workers have in common.

    A worker hands up to concurrency messages at a time to handler(message). visibility is the time of
    a lease in seconds, which is extended at a third of it; after it the messages of a worker that died
    are delivered again. name is shown to operators.

    With batch, the handler gets a list of up to so many messages, all of one key: the one whose turn it is.
    concurrency is then the number of lists at a time.
    """

    def __init__(self, queue: Any, handler: Callable[[Any], Any], concurrency: int = 1, visibility: float = 30.0,
                 name: Optional[str] = None, batch: Optional[int] = None) -> None:
        self.queue, self.handler = queue, handler
        self.concurrency, self.visibility, self.batch = concurrency, visibility, batch
        self.name = name or f"{socket.gethostname()}:{getpid()}"
        self._busy: Dict[str, Message] = {}  # receipt: message whose lease is extended
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Has run return once the messages that are being handled are done. Any thread may call it."""
        self._stopping.set()

    def _begin(self, messages):
        """The calls of the handler for messages that were leased together."""
        works = [_Work(self, messages)] if self.batch is not None else [_Work(self, [m]) for m in messages]
        for work in works if messages else ():
            for m in work.messages:
                m._work = work
                self._busy[m.receipt] = m
        return works if messages else []

    def _handled(self, work):
        """The message that what a handler sends has its trace from."""
        return None if self.batch is not None else work.messages[0]

    def _failed(self, work, error):
        logger.exception("message %s has failed", ", ".join(m.id for m in work.left()))
        return [_nack(m, error) for m in work.take()]

    def _extended(self, messages, replies):
        for m, r in zip(messages, replies):
            if isinstance(r, Exception):
                if _temporary(r):
                    logger.warning("cannot extend the lease of message %s: %s", m.id, r)
                else:
                    self._lose(m)

    def _lose(self, message):
        """Notes that a lease is over too early; False if the message was ended meanwhile."""
        if self._busy.pop(message.receipt, None) is None:
            return False
        logger.warning("the lease of message %s is lost, it is delivered again", message.id)
        message.lost.set()
        return True


class Worker(_Worker):
    """A worker with threads. The handler gets a Message; what it returns, bytes or str, is its result."""

    def run(self) -> None:
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
        """Leases messages for what is free, and has them handled. Each batch is a lease of its own."""
        if not self._free.acquire(timeout=BLOCK):
            return
        free = 1
        while self.batch is None and self._free.acquire(blocking=False):
            free += 1
        leased = []
        try:
            if not self._stopping.is_set():
                leased = [_message(m) for m in self.queue._run(_lease(self, free))]
        except (*UNREACHABLE, redis.ResponseError) as e:
            if not _temporary(e):
                raise
            logger.warning("the broker cannot be reached: %s", e)
            self._stopping.wait(PAUSE)
        if self._stopping.is_set():
            self._settle(map(_release, leased))
            leased = []
        works = self._begin(leased)
        for work in works:
            pool.submit(self._handle, work)
        for _ in range(free - len(works)):
            self._free.release()

    def _handle(self, work):
        token = handled.set(self._handled(work))
        try:
            endings = work.outcomes(self.handler(work.arguments()))
        except Exception as e:
            endings = self._failed(work, e)
        finally:
            handled.reset(token)
        try:
            self._settle(endings)
        finally:
            self._free.release()

    def _settle(self, endings):
        """Ends leases, and returns the errors of those that the broker has refused."""
        settling = _Endings(self, endings)
        while settling.left:
            if settling.take(self._pipe(settling.commands())):
                time.sleep(PAUSE)
        return settling.refusals

    def _pipe(self, commands):
        """Sends commands in one round trip, and returns their replies, or the error of the connection."""
        pipe = self.queue.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        try:
            return pipe.execute(raise_on_error=False)
        except UNREACHABLE as e:
            return e

    def _extend(self, ended):
        while not ended.wait(self.visibility / 3):
            messages = list(self._busy.values())
            replies = self._pipe([_extend(self, m) for m in messages]) if messages else []
            if isinstance(replies, Exception):
                logger.warning("cannot extend %d leases: %s", len(messages), replies)
            else:
                self._extended(messages, replies)


class AsyncQueue:
    """A queue for asyncio, as Queue."""

    def __init__(self, name: str, client: Optional[redis.asyncio.Redis] = None, **options: Any) -> None:
        self.name, self.options = name, options
        self.client = connect_async() if client is None else client

    async def create(self) -> None:
        await self.client.execute_command(*_create(self))

    async def send(self, payload: Union[bytes, str], **options: Any) -> str:
        """As Queue.send."""
        return (await self._run(_enqueue(self.name, payload, **options))).decode()

    async def result(self, id: str, timeout: float = 0) -> Optional[Result]:
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


class AsyncGroup:
    """A group for asyncio, as Group."""

    def __init__(self, name: str, client: Optional[redis.asyncio.Redis] = None) -> None:
        self.name = name
        self.client = connect_async() if client is None else client

    async def open(self, queue: AsyncQueue, payload: Union[bytes, str], **options: Any) -> bool:
        """As Group.open."""
        return await queue._run(_open(self.name, queue, payload, **options)) == 1

    async def seal(self) -> int:
        return await self.client.execute_command("FILA.GROUP", "SEAL", self.name)

    async def cancel(self) -> bool:
        return await self.client.execute_command("FILA.GROUP", "CANCEL", self.name) == 1

    async def get(self) -> Optional[GroupState]:
        return _group(await self.client.execute_command("FILA.GROUP", "GET", self.name))

    async def wait(self, timeout: float) -> Optional[GroupState]:
        """As Group.wait."""
        for pause in _pauses(timeout):
            state = await self.get()
            if state is None or state.ended:
                return state
            await asyncio.sleep(pause)
        return await self.get()


class AsyncWorker(_Worker):
    """A worker for asyncio, as Worker. The handler gets an AsyncMessage. It is cancelled when the leases of all that is left
    of its messages are lost."""

    async def run(self) -> None:
        """Works until stop is called, or until the task that runs it is cancelled; then ends what it has begun."""
        self._tasks = {}  # work: task
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
        except (*UNREACHABLE, redis.ResponseError) as e:
            if not _temporary(e):
                raise
            logger.warning("the broker cannot be reached: %s", e)
            await asyncio.sleep(PAUSE)
            return
        except asyncio.CancelledError:  # what the lease brings is given back
            with contextlib.suppress(*UNREACHABLE, redis.ResponseError):
                await self._settle(map(_release, map(_message, await lease)))
            raise
        messages = [_message(m, AsyncMessage) for m in leased]
        if self._stopping.is_set():
            await self._settle(map(_release, messages))
            return
        for work in self._begin(messages):
            self._tasks[work] = asyncio.create_task(self._handle(work))

    async def _handle(self, work):
        handled.set(self._handled(work))
        try:
            endings = work.outcomes(await self.handler(work.arguments()))
        except asyncio.CancelledError:
            endings = map(_release, work.take())
        except Exception as e:
            endings = self._failed(work, e)
        try:
            await self._settle(endings)
        finally:
            self._tasks.pop(work, None)

    def _lose(self, message):
        lost = super()._lose(message)
        if lost and not message._work.left() and not message._work.ending:
            self._tasks[message._work].cancel()
        return lost

    async def _settle(self, endings):
        settling = _Endings(self, endings)
        while settling.left:
            if settling.take(await self._pipe(settling.commands())):
                await asyncio.sleep(PAUSE)
        return settling.refusals

    async def _pipe(self, commands):
        pipe = self.queue.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        try:
            return await pipe.execute(raise_on_error=False)
        except UNREACHABLE as e:
            return e

    async def _extend(self):
        while True:
            await asyncio.sleep(self.visibility / 3)
            messages = list(self._busy.values())
            replies = await self._pipe([_extend(self, m) for m in messages]) if messages else []
            if isinstance(replies, Exception):
                logger.warning("cannot extend %d leases: %s", len(messages), replies)
            else:
                self._extended(messages, replies)
