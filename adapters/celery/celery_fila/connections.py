"""Connections on which a reply is not waited for at once: leases, acks, results."""

import atexit
import os
import threading
import weakref
from collections import deque
from time import monotonic, sleep

import redis
from kombu.log import get_logger

logger = get_logger(__name__)

# The errors of a connection that is lost.
LOST = (redis.ConnectionError, redis.TimeoutError, OSError)


def no_queue(error):
    """Whether an error reply says that a queue does not exist."""
    return str(error).startswith("NOQUEUE")


def fileno(connection):
    """The socket of a connection of redis-py; None if it has none."""
    return connection._sock.fileno() if connection is not None and connection._sock is not None else None


class Lessee:
    """A connection on which a channel waits for messages. At most one lease waits at a time."""

    def __init__(self, pool):
        self.connection = pool.make_connection()
        self.connection.connect()
        self.connection.send_command("CLIENT", "ID")
        self.id = self.connection.read_response()
        self.overdue = None  # while a lease waits: when its reply is late

    def fileno(self):
        return fileno(self.connection)

    def ask(self, command, block):
        self.connection.send_command(*command)
        self.overdue = monotonic() + block + 10

    def reply(self):
        """The reply to the lease. Without a lease there is nothing to read but the end of the connection."""
        try:
            return self.connection.read_response()
        finally:
            self.overdue = None

    def check(self):
        """Raises an error if the broker does not answer any more, as after the loss of its machine."""
        if self.overdue is not None and monotonic() > self.overdue:
            raise redis.ConnectionError("the broker does not answer a lease")

    def close(self):
        self.connection.disconnect()


_all = weakref.WeakSet()  # of the pipelines in use


@atexit.register
def _close_all():
    """Reads the replies that are on their way, so that the end of the process does not reset a connection before the
    broker has read what was sent last."""
    for pipeline in list(_all):
        pipeline.close()


class Pipeline:
    """A connection of a process whose commands are sent at once, in order, and whose replies are read later.

    A worker goes on with the next task while the broker writes to its disk, and the broker writes much at a time. What has
    no reply when the connection is lost is sent again on another one. So only what may be done several times is sent. Safe
    for use by several threads.
    """

    # How many commands may be without a reply before the next one waits.
    LIMIT = 1000

    # How often a command is sent at most, each time on a connection of its own.
    TIMES = 5

    def __init__(self, pool, before_close=lambda pipeline: None, first=(), retried=lambda connect: connect()):
        """Calls before_close(self) before a connection is closed, so that an event loop can stop watching fileno(). The commands
        of first are sent on each new connection; their replies are passed over. retried calls its argument, which
        connects, as often as it wants to until it raises none of LOST."""
        self._pool, self._before_close, self._first, self._retried = pool, before_close, first, retried
        self._begin()
        _all.add(self)

    def _begin(self):
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._open = deque()  # [command, what its reply is given to, how often it was sent], in their order
        self._connection = None
        self._watcher, self._sent = None, threading.Event()

    def _locked(self):
        if self._pid != os.getpid():  # the connection belongs to the parent of this process
            self._begin()
        return self._lock

    def fileno(self):
        """The socket to watch for replies; None if there is none."""
        return fileno(self._connection)

    def send(self, *command, replied):
        """Sends a command; its reply or its error is given to replied. A lost connection is an error only if another
        one fails as well."""
        with self._locked():
            self.collect(wait=len(self._open) >= self.LIMIT)
            self._open.append([command, replied, 1])
            try:
                if self._connection is None:
                    self._retried(self._connect)
                self._connection.send_command(*command)
            except LOST:
                self._send_again()

    def collect(self, wait=False):
        """Reads the replies that are there, or all of them: then everything sent has reached the broker's disk."""
        with self._locked():
            while self._open:
                try:
                    if not wait and not self._connection.can_read(0):
                        return
                    reply = self._connection.read_response()
                except redis.ResponseError as e:
                    reply = e
                except LOST:
                    self._send_again()
                    continue
                self._open.popleft()[1](reply)

    def collect_soon(self):
        """Has a thread read the replies of what is sent, where no event loop does: a lost connection is seen without
        the next command."""
        with self._locked():
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="fila-replies", daemon=True)
                self._watcher.start()
            self._sent.set()

    def _watch(self):
        while self._sent.wait():
            self._sent.clear()
            sleep(0.05)  # while more is sent, its sender reads the replies
            try:
                self.collect(wait=True)
            except LOST as e:
                logger.error("cannot read replies of the broker: %s", e)

    def readable(self):
        """Reads what has come, as an event loop asks when there is something: replies, or the end of the connection."""
        with self._locked():
            if self._open:
                self.collect()
                return
            try:
                ended = self._connection is not None and self._connection.can_read(0)
            except LOST:
                ended = True
            if ended:
                self._drop()

    def close(self):
        """Waits for the replies, as far as the broker can be reached."""
        with self._locked():
            try:
                self.collect(wait=True)
            except LOST as e:
                logger.warning("cannot read replies of the broker: %s", e)
            self._drop()
            self._open.clear()

    def _connect(self):
        self._drop()
        self._connection = self._pool.make_connection()
        self._connection.connect()
        for command in self._first:
            self._connection.send_command(*command)
            try:
                self._connection.read_response()
            except redis.ResponseError as e:  # such as a right that the user does not have, nor need
                logger.debug("%s: %s", command[0], e)

    def _drop(self):
        if self._connection is not None:
            self._before_close(self)
            self._connection.disconnect()
            self._connection = None

    def _send_again(self):
        """Sends what has no reply on another connection. What was sent too often is given up: it may be what ends them."""
        self._drop()
        again = deque([command, replied, times + 1] for command, replied, times in self._open if times < self.TIMES)
        if len(again) < len(self._open):
            logger.error("%d commands to the broker are lost with their connections", len(self._open) - len(again))
        self._open = again
        try:
            self._retried(self._connect)
            for command, *_ in self._open:
                self._connection.send_command(*command)
        except LOST:
            self._drop()
            if self._open:
                logger.error("%d commands to the broker are lost: it cannot be reached", len(self._open))
            self._open.clear()
            raise
