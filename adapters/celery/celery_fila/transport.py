"""The transport of kombu on Fila.

A queue of kombu is a queue of Fila of the same name. Messages are leased; an ack is FILA.ACK, and
the lease of a message that is not acked yet is extended in the background, so that the visibility
timeout bounds only how long the messages of a worker that died take to come back.

An exchange is a topic: one of its name for a fanout or topic exchange, and "exchange/routing key"
for each routing key of a direct one. Publishing without an exchange, as Celery does with tasks,
goes to the queue itself.
"""

import os
import socket
import threading
from collections import defaultdict
from multiprocessing.connection import wait as wait_for
from queue import Empty
from time import monotonic, sleep, time

import redis
from kombu.log import get_logger
from kombu.transport import virtual
from kombu.utils.compat import register_after_fork
from kombu.utils.encoding import bytes_to_str
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import message as messages
from .connections import LOST, Lessee, Pipeline, no_queue

logger = get_logger(__name__)

DEFAULT_PORT = 5555

# How long a lease waits for a message in the broker, in seconds, before it is asked for again.
BLOCK = 5.0

# How many messages are leased at once by a consumer without a prefetch limit.
UNLIMITED = 10

# Bounds of a queue that is deleted with its consumer, unless it is declared with others.
TEMPORARY_TTL = 300_000  # milliseconds
TEMPORARY_DEPTH = 10_000

# After how long such a queue may be taken for one whose consumer has died, in seconds, and how many
# of them a new consumer looks at.
SWEEP_AFTER = 60
SWEPT = 20


def fields(reply):
    """The map that a reply of Fila is: a flat array in RESP2."""
    if isinstance(reply, dict):
        return reply
    pairs = iter(reply)
    return dict(zip(pairs, pairs))


def settled(reply):
    """Takes the reply to an ack or a nack. A lease that is over belongs to another consumer by now, or to none."""
    if isinstance(reply, redis.ResponseError) and not str(reply).startswith("LEASELOST") and not no_queue(reply):
        logger.error("a message is not acked, and comes back when its lease expires: %s", reply)


class QoS(virtual.QoS):
    """The messages that a channel has delivered and that are not acked yet."""

    def ack(self, delivery_tag):
        self.channel.settle("FILA.ACK", delivery_tag)
        super().ack(delivery_tag)
        self.channel.ask_again()

    def reject(self, delivery_tag, requeue=False):
        # A message that is requeued has failed: the queue's backoff and attempts hold for it, so
        # that one which kills its worker ends in the dead-letter queue.
        how = ("ERROR", "requeued") if requeue else ("ERROR", "rejected", "DEAD")
        self.channel.settle("FILA.NACK", delivery_tag, *how)
        self.channel.settlements.collect(wait=True)  # the client may look where the message went
        self._quick_ack(delivery_tag)
        self.channel.ask_again()

    def restore_unacked(self):
        self._flush()
        self._delivered.clear()
        self.channel.release_all()
        return []

    def restore_unacked_once(self, stderr=None):
        self._on_collect.cancel()
        if not getattr(self._delivered, "restored", False):
            self.restore_unacked()
            self._delivered.restored = True


class Channel(virtual.Channel):
    """A channel: consumers of queues, with a connection on which they wait."""

    QoS = QoS
    supports_fanout = True

    #: Seconds for which a message is leased. Its lease is extended until it is acked.
    visibility_timeout = 30
    #: Options of FILA.QUEUE CREATE for queues that do not exist yet, such as {"MAXATTEMPTS": 5}.
    queue_options = {}

    from_transport_options = virtual.Channel.from_transport_options + ("visibility_timeout", "queue_options")

    def __init__(self, connection, **kwargs):
        super().__init__(connection, **kwargs)
        self.client, self.settlements = connection.redis, connection.settlements
        self.lessee = None
        self._delivering = False
        self._leases = {}  # receipt: queue, of what is delivered and not acked
        self._no_ack = set()  # queues whose messages are acked when they are delivered
        self._temporary = set()  # queues that go with the channel
        self._extender = None
        self._ended = threading.Event()
        if register_after_fork is not None:
            register_after_fork(self, Channel._after_fork)

    def _after_fork(self):
        # A child process must not keep the parent's connection open: the broker would go on
        # answering it after the parent has died.
        if self.lessee is not None:  # the event loop stays as it is: the parent has the same one
            self.lessee.close()
        self.lessee, self._leases = None, {}

    def _drop_lessee(self):
        """Closes the connection that waits. A lease that it has got is ready again when the broker notices."""
        if self.lessee is not None:
            self.connection.unwatch(self.lessee)
            self.lessee.close()
            self.lessee = None

    # Queues and exchanges.

    def _new_queue(self, queue, auto_delete=False, arguments=None, **kwargs):
        options = {"NODLQ": True, "TTL": TEMPORARY_TTL, "MAXDEPTH": TEMPORARY_DEPTH} if auto_delete else dict(self.queue_options)
        for name, value in (arguments or {}).items():
            if name == "x-message-ttl":
                options["TTL"] = int(value)
            elif name == "x-max-length":
                options["MAXDEPTH"] = int(value)
            elif name.startswith("x-fila-"):
                options[name[len("x-fila-"):].upper()] = value
        if auto_delete:
            self._temporary.add(queue)
        self.connection.declare("FILA.QUEUE", "CREATE", queue, "IFNOTEXISTS", *messages.flat(options))

    def _has_queue(self, queue, **kwargs):
        return bool(self.client.execute_command("EXISTS", queue))

    def _size(self, queue):
        try:
            return fields(self.client.execute_command("FILA.QUEUE", "INFO", queue))[b"ready"]
        except redis.ResponseError as e:
            if no_queue(e):
                return 0
            raise

    def _purge(self, queue):
        return self.client.execute_command("FILA.PURGE", queue)

    def queue_delete(self, queue, if_unused=False, if_empty=False, **kwargs):
        if if_empty and self._size(queue):
            return
        self.state.queue_bindings_delete(queue)
        self._temporary.discard(queue)
        self.connection.forget(queue)
        try:
            self.client.execute_command("FILA.QUEUE", "DELETE", queue, "FORCE")
        except redis.ResponseError as e:
            if not no_queue(e):
                raise

    def _queue_bind(self, exchange, routing_key, pattern, queue):
        kind = self.typeof(exchange).type
        header = ("HEADER", messages.ROUTING_KEY, messages.glob(routing_key)) if kind == "topic" else ()
        topic = messages.topic(kind, exchange, routing_key)
        self.connection.declare("FILA.TOPIC", "BIND", topic, queue, *header)
        if queue in self._temporary and kind != "direct":
            self._sweep(topic, queue)

    def _sweep(self, topic, own):
        """Deletes the temporary queues of a topic whose consumers have died. One that is alive makes its queue again."""
        try:
            left = [q for q in self.connection.bound(topic) if bytes_to_str(q) != own][:SWEPT]
            for _ in range(3):  # a consumer that has just got a message waits again within moments
                left = [q for q in left if self.connection.is_abandoned(q)]
                if not left:
                    return
                sleep(0.05)
            for queue in left:
                self.client.execute_command("FILA.QUEUE", "DELETE", queue, "FORCE")
        except redis.ResponseError as e:  # another one sweeps, too, or this user may not
            logger.debug("not swept: %s", e)

    def queue_unbind(self, queue, exchange=None, routing_key="", arguments=None, **kwargs):
        super().queue_unbind(queue, exchange, routing_key, arguments, **kwargs)
        topic = messages.topic(self.typeof(exchange).type, exchange, routing_key)
        self.connection.forget(queue, topic)
        self.client.execute_command("FILA.TOPIC", "UNBIND", topic, queue)

    # Producing.

    def basic_publish(self, message, exchange, routing_key, **kwargs):
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            return self._put(routing_key, message)
        kind = self.typeof(exchange).type
        command = ["FILA.PUBLISH", messages.topic(kind, exchange, routing_key), *messages.enqueue(message)]
        if kind == "topic":
            command += ["HEADER", messages.ROUTING_KEY, routing_key or ""]
        if kind == "fanout" or not messages.is_task(message):
            command.append("BESTEFFORT")  # a full or paused receiver of events does not concern the others
        if not self.client.execute_command(*command) and messages.is_task(message):
            logger.warning("no queue is bound to exchange %s with routing key %s: the task is lost", exchange, routing_key)

    def _put(self, queue, message, **kwargs):
        command = ["FILA.ENQUEUE", queue, *messages.enqueue(message)]
        try:
            self.client.execute_command(*command)
        except redis.ResponseError as e:
            if not no_queue(e) or not self.connection.redeclare(queue):
                raise
            self.client.execute_command(*command)

    def encode_body(self, body, encoding=None):
        if isinstance(body, str):  # text stays readable in the broker
            return body, None
        return super().encode_body(body, encoding or "base64")

    # Consuming.

    def basic_consume(self, queue, no_ack, callback, consumer_tag, **kwargs):
        self.stop_waiting()  # the next lease asks for this queue, too
        (self._no_ack.add if no_ack else self._no_ack.discard)(queue)
        return super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)

    def basic_cancel(self, consumer_tag):
        self.stop_waiting()
        return super().basic_cancel(consumer_tag)

    def basic_get(self, queue, no_ack=False, **kwargs):
        try:
            raw = self._get(queue)
        except Empty:
            return None
        message = self.Message(raw, channel=self)
        if no_ack:
            self.client.execute_command("FILA.ACK", queue, message.delivery_tag)
        else:
            self._keep(message.delivery_tag, queue)
            self.qos.append(message, message.delivery_tag)
        return message

    def _get(self, queue, timeout=None):
        for leased in self.client.execute_command("FILA.LEASE", queue, *self._lease_options()):
            return messages.delivered(leased)
        raise Empty

    def _lease_options(self):
        return "VISIBILITY", int(self.visibility_timeout * 1000), "CONSUMER", f"{socket.gethostname()}:{os.getpid()}"

    def wait(self, block):
        """Sees to it that a lease waits for messages, if the channel may have some, for a number of seconds.

        Returns whether there is a connection to read from.
        """
        try:
            if self.lessee is not None and self.lessee.overdue is not None:
                self.lessee.check()
            elif self._active_queues and self.qos.can_consume():
                if self.lessee is None:
                    self.lessee = Lessee(self.client.connection_pool)
                self.lessee.ask(self._lease(block), block)
        except LOST:
            self._drop_lessee()
            raise
        return self.lessee is not None

    def _lease(self, block):
        queues = sorted(set(self._active_queues))
        count = min(self.qos.can_consume_max_estimate() or UNLIMITED, 10_000)
        waiting = ["BLOCK", max(1, int(block * 1000))] if block else []
        return ["FILA.MLEASE", len(queues), *queues, "COUNT", count, *waiting, *self._lease_options()]

    def ask_again(self):
        """Asks for the next message when one is settled. An event loop that calls back before it sleeps would do so only
        after its next event: Celery acks between these calls and the sleep."""
        if self._delivering or self.connection is None:
            return
        try:
            self.connection.tick()
        except LOST as e:  # the loop meets it as well, and handles it
            logger.debug("cannot ask for a message: %s", e)

    def stop_waiting(self):
        """Ends the lease that waits. What it has got meanwhile is given back: nobody has seen it."""
        if self.lessee is None or self.lessee.overdue is None:
            return
        try:
            self.client.execute_command("CLIENT", "UNBLOCK", self.lessee.id)
            self._release((m[0], m[8]) for m in self.lessee.reply())
        except redis.RedisError as e:
            logger.warning("cannot end a lease that waits: %s", e)
            self._drop_lessee()

    def receive(self):
        """Reads the reply to the lease and delivers its messages. Returns whether there were any."""
        try:
            leased = self.lessee.reply()
        except redis.ResponseError as e:
            if not no_queue(e):
                raise
            for queue in set(self._active_queues):
                if not self.connection.redeclare(queue):
                    raise
            return False
        except LOST:
            self._drop_lessee()
            raise
        self._deliver(leased)
        return bool(leased)

    def _deliver(self, leased):
        acked = defaultdict(list)
        for receipt, queue in ((m[0], m[8].decode()) for m in leased):
            if queue in self._no_ack:
                acked[queue].append(receipt)
            else:
                self._keep(receipt.decode(), queue)
        for queue, receipts in acked.items():
            self.client.execute_command("FILA.ACK", queue, *receipts)
        rest = list(reversed(leased))
        self._delivering = True
        try:
            while rest and self.connection is not None:
                queue = rest[-1][8].decode()
                if queue not in self.connection._callbacks:  # cancelled by the message before
                    break
                self.connection._deliver(messages.delivered(rest.pop()), queue)
        finally:
            self._delivering = False
            self._release((m[0], m[8]) for m in rest)

    # Leases.

    def _keep(self, receipt, queue):
        """Has a lease extended until it is settled or released."""
        self._leases[receipt] = queue
        if self._extender is None and not self._ended.is_set():
            self._extender = threading.Thread(target=self._extend, name="fila-leases", daemon=True)
            self._extender.start()

    def _extend(self):
        while not self._ended.wait(self.visibility_timeout / 3):
            leases = list(self._leases.items())
            if not leases:
                continue
            pipe = self.client.pipeline(transaction=False)
            for receipt, queue in leases:
                pipe.execute_command("FILA.EXTEND", queue, receipt, int(self.visibility_timeout * 1000))
            try:
                replies = pipe.execute(raise_on_error=False)
            except redis.RedisError as e:
                logger.warning("cannot extend %d leases: %s", len(leases), e)
                continue
            for (receipt, queue), reply in zip(leases, replies):
                if isinstance(reply, redis.ResponseError) and self._leases.pop(receipt, None):
                    logger.warning("the lease of a message of queue %s is lost, it is delivered again: %s", queue, reply)

    def settle(self, command, receipt, *args):
        """Ends a lease with an outcome. A lease that is over already is left to its new consumer."""
        queue = self._leases.pop(receipt, None)  # it is not extended any more, and comes back if this fails
        if queue is not None:
            self.settlements.send(command, queue, receipt, *args, replied=settled)

    def _release(self, leases):
        """Gives leases back, as (receipt, queue). They are not counted as failures."""
        queues = defaultdict(list)
        for receipt, queue in leases:
            queues[queue].append(bytes_to_str(receipt))
        for queue, receipts in queues.items():
            try:
                self.client.execute_command("FILA.RELEASE", queue, *receipts)
            except redis.RedisError as e:  # an ack that comes later is still good
                logger.warning("cannot release %d messages of queue %s, they come back when their leases expire: %s", len(receipts), queue, e)
            else:
                for receipt in receipts:
                    self._leases.pop(receipt, None)

    def release_all(self):
        self._release(list(self._leases.items()))

    def _restore(self, message):
        self._release([(message.delivery_tag, self._leases.get(message.delivery_tag, ""))])

    def close(self):
        if self.closed:
            return
        self.stop_waiting()
        self._ended.set()
        self._drop_lessee()
        self.release_all()
        for queue in list(self._temporary):
            try:
                self.queue_delete(queue)
            except redis.RedisError as e:
                logger.warning("cannot delete queue %s: %s", queue, e)
        super().close()


class Transport(virtual.Transport):
    """A connection to a broker: a pool of connections that the channels share."""

    Channel = Channel

    default_port = DEFAULT_PORT
    polling_interval = None
    driver_type = "fila"
    driver_name = "redis-py"

    connection_errors = virtual.Transport.connection_errors + (OSError, redis.ConnectionError, redis.TimeoutError)
    channel_errors = virtual.Transport.channel_errors + (redis.ResponseError, redis.DataError)

    implements = virtual.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
    )

    def __init__(self, client, **kwargs):
        super().__init__(client, **kwargs)
        self.redis = redis.Redis(connection_pool=redis.ConnectionPool(**self._parameters()))
        self.settlements = Pipeline(self.redis.connection_pool, self.unwatch)
        self._declared = {}  # queue: commands that make it and its bindings
        self._loop = self._on_tick = None

    def _parameters(self):
        """The arguments of connections of redis-py."""
        info, options = self.client, self.client.transport_options
        parameters = {
            "host": info.hostname or "127.0.0.1",
            "port": info.port or self.default_port,
            "username": info.userid,
            "password": info.password,
            "socket_timeout": options.get("socket_timeout", 30),
            "socket_connect_timeout": options.get("socket_connect_timeout", info.connect_timeout),
            "socket_keepalive": options.get("socket_keepalive", True),
            "health_check_interval": options.get("health_check_interval", 25),
            "client_name": options.get("client_name"),
            "retry": Retry(NoBackoff(), 0),  # an enqueue that is sent twice may be two messages
        }
        if (info.virtual_host or "/").strip("/") not in ("", "0"):
            raise ValueError(f"Fila has one database, 0, not {info.virtual_host}")
        if info.ssl:
            parameters["connection_class"] = redis.SSLConnection
            parameters.update(info.ssl if isinstance(info.ssl, dict) else {})
        return parameters

    def driver_version(self):
        return redis.__version__

    def establish_connection(self):
        self.redis.ping()
        return super().establish_connection()

    def close_connection(self, connection):
        if self._loop is not None:
            self._loop.on_tick.discard(self._on_tick)
        super().close_connection(connection)
        self.settlements.close()
        self._loop = self._on_tick = None
        self.redis.connection_pool.disconnect()

    def declare(self, *command):
        """Makes a queue or a binding, and remembers it for the case that it disappears.

        A user that may not manage queues works with those that exist.
        """
        queue = command[2] if command[0] == "FILA.QUEUE" else command[3]
        commands = self._declared.setdefault(queue, [])
        if command not in commands:
            commands.append(command)
        try:
            self.redis.execute_command(*command)
        except redis.exceptions.NoPermissionError as e:
            logger.debug("not declared: %s", e)

    def bound(self, topic):
        """The queues that are bound to a topic."""
        reply = self.redis.execute_command("FILA.TOPIC", "INFO", topic)
        return [fields(b)[b"queue"] for b in fields(reply)[b"bindings"]]

    def is_abandoned(self, queue):
        """Whether a queue was made for a consumer, some time ago, and none waits for its messages."""
        info = fields(self.redis.execute_command("FILA.QUEUE", "INFO", queue))
        temporary = info[b"dlq"] is None and info[b"max_depth"] == TEMPORARY_DEPTH
        return temporary and info[b"waiters"] == 0 and info[b"created_at"] < (time() - SWEEP_AFTER) * 1000

    def redeclare(self, queue):
        """Makes a queue again with its bindings; False if this connection does not know it."""
        for command in self._declared.get(queue, ()):
            self.redis.execute_command(*command)
        return queue in self._declared

    def forget(self, queue, topic=None):
        """Ends declare for a queue, or for one of its bindings."""
        if topic is None:
            self._declared.pop(queue, None)
        else:
            self._declared[queue] = [c for c in self._declared.get(queue, ()) if c[2] != topic]

    def register_with_event_loop(self, connection, loop):
        def on_tick():
            for channel in list(self.channels):
                if channel.wait(BLOCK) and channel.lessee.fileno() not in loop.readers:
                    loop.add_reader(channel.lessee.fileno(), self.on_readable, channel)
            acks = self.settlements.fileno()
            if acks is not None and acks not in loop.readers:
                loop.add_reader(acks, self.settlements.readable)

        self._loop, self._on_tick = loop, on_tick
        loop.on_tick.add(on_tick)

    def tick(self):
        """Does what an event loop has this transport do before it sleeps."""
        if self._on_tick is not None:
            self._on_tick()

    def unwatch(self, lessee):
        """Ends on_readable for a connection that is about to be closed."""
        if self._loop is not None and lessee.fileno() is not None:
            self._loop.remove(lessee.fileno())

    def on_readable(self, channel):
        if channel.lessee is not None:
            channel.receive()

    def drain_events(self, connection, timeout=None):
        end = None if timeout is None else monotonic() + timeout
        while True:
            self.settlements.collect()
            left = BLOCK if end is None else max(0, min(BLOCK, end - monotonic()))
            waiting = [c.lessee for c in self.channels if c.wait(left)]
            if not waiting:
                sleep(min(left, 0.1))
            ready = wait_for(waiting, left or 0.1) if waiting else []
            if any([c.receive() for c in list(self.channels) if c.lessee in ready and c.lessee is not None]):
                return
            if end is not None and monotonic() >= end:
                raise socket.timeout


class SSLTransport(Transport):
    """The same with TLS: filas://. The certificate is verified unless the URL says otherwise."""

    def __init__(self, client, **kwargs):
        if not client.ssl:
            client.ssl = True
        super().__init__(client, **kwargs)
