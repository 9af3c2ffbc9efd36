"""Connections of the transport on which a reply is not waited for at once: leases, and what ends them."""

import atexit
import os
import threading
import weakref
from collections import deque
from time import monotonic

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


_all = weakref.WeakSet()  # of the settlements in use


@atexit.register
def _close_all():
    """Reads the replies that are on their way, so that the end of the process does not reset the connection before the
    broker has read the last acks."""
    for settlements in list(_all):
        settlements.close()


class Settlements:
    """The acks and nacks of a process, on a connection of their own.

    Each is sent at once, in order, and its reply is read later: a worker that has acked a task asks for the next one
    while the broker writes the ack to its disk, and the broker writes many acks at a time. What has no reply when the
    connection is lost is sent once more on another one. If that fails, too, the lease expires and the message is
    delivered again, as after the loss of any ack. Safe for use by several threads.
    """

    # How many settlements may be without a reply before the next one waits.
    LIMIT = 1000

    def __init__(self, pool, before_close):
        """Calls before_close(self) before a connection is closed, so that whoever watches fileno() can stop."""
        self._pool, self._before_close = pool, before_close
        self._begin()
        _all.add(self)

    def _begin(self):
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._open = deque()  # [command, whether it has been sent again], in the order of their replies
        self._connection = None

    def _locked(self):
        if self._pid != os.getpid():  # the connection belongs to the parent of this process
            self._begin()
        return self._lock

    def fileno(self):
        """The socket to watch for replies; None if there is none."""
        return fileno(self._connection)

    def send(self, *command):
        """Sends FILA.ACK or FILA.NACK. A lost connection is an error only if another one fails as well."""
        with self._locked():
            self.collect(wait=len(self._open) >= self.LIMIT)
            self._open.append([command, False])
            try:
                if self._connection is None:
                    self._connect()
                self._connection.send_command(*command)
            except LOST:
                self._send_again()

    def collect(self, wait=False):
        """Reads the replies that are there, or all of them: then every settlement has reached the broker's disk."""
        with self._locked():
            while self._open:
                try:
                    if not wait and not self._connection.can_read(0):
                        return
                    self._connection.read_response()
                except redis.ResponseError as e:
                    command = self._open.popleft()[0]
                    if not str(e).startswith("LEASELOST") and not no_queue(e):  # the lease belongs to another consumer by now, or to none
                        logger.error("%s of a message of queue %s: %s", command[0], command[1], e)
                except LOST:
                    self._send_again()
                else:
                    self._open.popleft()

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
                logger.warning("%d messages whose acks are lost are delivered again: %s", len(self._open), e)
            self._drop()
            self._open.clear()

    def _connect(self):
        self._connection = self._pool.make_connection()
        self._connection.connect()

    def _drop(self):
        if self._connection is not None:
            self._before_close(self)
            self._connection.disconnect()
            self._connection = None

    def _send_again(self):
        """Sends what has no reply on another connection. What was sent again before is given up, with the error."""
        self._drop()
        lost = sum(again for _, again in self._open)
        self._open = deque([command, True] for command, again in self._open if not again)
        if lost:
            logger.warning("%d messages whose acks are lost are delivered again", lost)
        try:
            self._connect()
            for command, _ in self._open:
                self._connection.send_command(*command)
        except LOST:
            self._drop()
            self._open.clear()
            raise
