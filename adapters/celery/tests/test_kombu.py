"""The transport as kombu uses it, without Celery: exchanges, consumers, connections."""

import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import redis
from kombu import Connection, Consumer, Exchange, Message, Producer, Queue
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError

from celery_fila import transport
from harness import Fila, patience, reserve, until


class TestTransport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fila = Fila()

    @classmethod
    def tearDownClass(cls):
        cls.fila.stop()

    def connect(self, **options):
        connection = Connection(self.fila.url, transport_options=options)
        self.addCleanup(connection.release)
        return connection

    def received(self, connection, queues, count, **options):
        """The bodies of a number of messages, which are acked; nothing else comes."""
        bodies = []

        def on_message(body, message):
            bodies.append(body)
            message.ack()

        with Consumer(connection, queues, callbacks=[on_message], **options):
            while len(bodies) < count:
                connection.drain_events(timeout=patience())
            with self.assertRaises(socket.timeout):
                connection.drain_events(timeout=0.1)
        return bodies

    def test_exchanges(self):
        connection = self.connect()
        direct, news, all = Exchange("orders", "direct"), Exchange("news", "topic"), Exchange("all", "fanout")
        queues = [
            Queue("a", direct, "paid"),
            Queue("b", direct, "sent"),
            Queue("de", news, "de.#"),
            Queue("sport", news, "*.sport"),
            Queue("one", all), Queue("two", all),
        ]
        for q in queues:
            q(connection.default_channel).declare()
        queues[0](connection.default_channel).bind_to("orders", "sent")
        producer = Producer(connection)
        for exchange, key in ((direct, "paid"), (direct, "sent"), (direct, "lost"), (news, "de.sport"), (news, "fr.sport"), (news, "fr.art"), (all, "any")):
            producer.publish(key, exchange=exchange, routing_key=key)
        for q, expected in zip(queues, (["paid", "sent"], ["sent"], ["de.sport"], ["de.sport", "fr.sport"], ["any"], ["any"])):
            with self.subTest(q.name):
                self.assertEqual(self.received(connection, [q], len(expected)), expected)

    def test_priorities(self):
        connection = self.connect()
        queue = Queue("sorted")
        queue(connection.default_channel).declare()
        for priority in (0, 3, 9, 5, None):
            connection.Producer().publish(priority, routing_key="sorted", priority=priority)
        self.assertEqual(self.received(connection, [queue], 5), [9, 5, 3, 0, None])

    def test_bodies(self):
        """Every serializer and compression; what is text can be read in the broker."""
        connection = self.connect()
        queue = Queue("bodies")
        queue(connection.default_channel).declare()
        value = {"text": "ü\n", "number": 1.5, "list": [1, None]}
        sent = [(serializer, compression) for serializer in ("json", "pickle") for compression in (None, "zlib")]
        for serializer, compression in sent:
            connection.Producer().publish(value, routing_key="bodies", serializer=serializer, compression=compression)
        self.assertIn(b'"body": "{\\"text', self.fila.messages("bodies")[0]["payload"])
        self.assertEqual(self.received(connection, [queue], len(sent), accept=["json", "pickle"]), [value] * len(sent))

    def test_get_ack_reject_and_close(self):
        connection = self.connect()
        channel = connection.default_channel
        queue = Queue("single")(channel)
        queue.declare()
        self.assertIsNone(queue.get())
        for n in range(3):
            Producer(channel).publish(n, routing_key="single")
        self.assertEqual(queue.get(no_ack=True).payload, 0)
        first, second = queue.get(), queue.get()
        self.assertEqual((first.payload, second.payload), (1, 2))
        self.assertFalse(first.delivery_info["redelivered"])
        first.ack()
        connection.release()  # gives the second one back
        again = Queue("single")(self.connect().default_channel).get()
        self.assertEqual(again.payload, 2)
        self.assertTrue(again.delivery_info["redelivered"])
        again.reject()
        self.assertEqual(self.fila.messages("single.dlq")[0]["reason"], b"nack")

    def test_acks_survive_the_loss_of_their_connection(self):
        """An ack is not waited for; one whose reply was lost is sent once more, and nothing is delivered again."""
        connection = self.connect()
        queue = Queue("acked")(connection.default_channel)
        queue.declare()
        for n in range(4):
            Producer(connection.default_channel).publish(n, routing_key="acked")
        got = [queue.get() for _ in range(4)]
        settlements = connection.default_channel.connection.settlements
        got[0].ack()
        settlements.collect(wait=True)
        lost = settlements._connection
        lost._sock.shutdown(socket.SHUT_WR)  # what is sent from here on does not arrive
        with unittest.mock.patch.object(lost, "send_command"):
            got[1].ack()
            got[2].ack()
        settlements.collect(wait=True)
        self.assertIsNot(settlements._connection, lost)
        self.assertEqual(self.left("acked"), 1)
        self.fila.call("CLIENT", "KILL", "ID", str(self.settler(settlements)))
        until("the end of the connection is seen", lambda: settlements.readable() or settlements.fileno() is None)
        got[3].ack()
        connection.release()  # waits for the reply
        self.assertEqual(self.left("acked"), 0)

    def left(self, queue):
        """The number of messages that are not acked."""
        return len(self.fila.messages(queue))

    def settler(self, settlements):
        settlements._connection.send_command("CLIENT", "ID")
        return settlements._connection.read_response()

    def test_acks_of_a_process_that_just_ends(self):
        """Nothing is closed, and the last acks have reached the broker all the same. A child does not use the
        connection of its parent."""
        program = """if True:
            import os, sys
            from kombu import Connection, Producer, Queue
            connection = Connection(sys.argv[1])
            queue = Queue("ending")(connection.default_channel)
            queue.declare()
            for n in range(200):
                Producer(connection.default_channel).publish(n, routing_key="ending")
            queue.get().ack()
            child = os.fork()
            for _ in range(99 if child else 100):
                queue.get().ack()
            if child:
                sys.exit(os.waitpid(child, 0)[1])
        """
        subprocess.run([sys.executable, "-c", program, self.fila.url], check=True, timeout=patience())
        self.assertEqual(self.left("ending"), 0)

    def test_no_more_than_the_prefetch_count(self):
        connection = self.connect()
        queue = Queue("few")(connection.default_channel)
        queue.declare()
        for n in range(10):
            connection.Producer().publish(n, routing_key="few")
        held = []
        consumer = Consumer(connection, [queue], on_message=held.append, prefetch_count=4)
        with consumer:
            while len(held) < 4:
                connection.drain_events(timeout=patience())
            with self.assertRaises(socket.timeout):
                connection.drain_events(timeout=0.2)
            self.assertEqual(len(held), 4)
            held[0].ack()
            connection.drain_events(timeout=patience())
            self.assertEqual(len(held), 5)

    def test_an_ack_in_an_event_loop_asks_for_the_next_message(self):
        """At once: the loop calls back, then runs what Celery acks with, then sleeps until its next event."""
        connection = self.connect()
        queue = Queue("looped")(connection.default_channel)
        queue.declare()
        for n in range(4):
            connection.Producer().publish(n, routing_key="looped")
        hub, held, asked = Hub(), [], []
        sleep = hub.poller.poll

        def poll(timeout):
            asked.append(lessee is not None and lessee.overdue is not None)
            return sleep(timeout)

        lessee, hub.poller.poll = None, poll
        connection.register_with_event_loop(hub)
        with Consumer(connection, [queue], on_message=held.append, prefetch_count=1) as consumer:
            for end in (Message.ack, Message.reject, Message.requeue):
                until("a message is delivered", lambda: next(hub.loop) or held)
                lessee = consumer.channel.lessee
                next(hub.loop)
                self.assertFalse(asked[-1])  # no more than the prefetch count
                hub.call_soon(end, held.pop())
                next(hub.loop)
                self.assertTrue(asked[-1])

    def test_a_consumer_that_is_cancelled_takes_nothing(self):
        connection = self.connect()
        queue = Queue("left")(connection.default_channel)
        queue.declare()
        with Consumer(connection, [queue], on_message=lambda m: None):
            with self.assertRaises(socket.timeout):
                connection.drain_events(timeout=0.05)
        connection.Producer().publish(1, routing_key="left")
        self.assertEqual(self.fila.call("FILA.QUEUE", "INFO", "left")["ready"], 1)

    def test_arguments_of_queues(self):
        channel = self.connect(queue_options={"MAXATTEMPTS": 7}).default_channel
        Queue("plain")(channel).declare()
        Queue("set", queue_arguments={"x-fila-maxattempts": 3, "x-message-ttl": 60000, "x-max-length": 5})(channel).declare()
        Queue("gone", auto_delete=True)(channel).declare()
        plain, given, gone = (self.fila.call("FILA.QUEUE", "INFO", q) for q in ("plain", "set", "gone"))
        self.assertEqual(plain["max_attempts"], 7)
        self.assertEqual((given["max_attempts"], given["ttl_ms"], given["max_depth"]), (3, 60000, 5))
        self.assertIsNone(gone["dlq"])
        channel.close()
        self.assertFalse(self.fila.client.exists("gone"))
        with self.assertRaises(ChannelError):
            Queue("nowhere")(self.connect().default_channel).queue_declare(passive=True)

    def test_the_queues_of_dead_consumers_are_swept(self):
        """A new consumer of a fanout exchange deletes them; those of living ones and durable ones stay."""
        fanout = Exchange("fan", "fanout")
        living, durable = Queue("living", fanout, auto_delete=True), Queue("durable", fanout)
        connection = self.connect()
        durable(connection.default_channel).declare()
        self.fila.call("FILA.QUEUE", "CREATE", "dead", "NODLQ", "MAXDEPTH", transport.TEMPORARY_DEPTH)
        self.fila.call("FILA.TOPIC", "BIND", "fan", "dead")
        # One lease waits throughout: the consumer is not seen between two of them.
        with unittest.mock.patch.object(transport, "BLOCK", patience()), Consumer(connection, [living], callbacks=[lambda body, m: None], no_ack=True):
            draining = threading.Thread(target=connection.drain_events, kwargs={"timeout": patience()})
            draining.start()
            until("the consumer waits", lambda: self.fila.call("FILA.QUEUE", "INFO", "living")["waiters"])
            Queue("new", fanout, auto_delete=True)(self.connect().default_channel).declare()
            self.assertTrue(self.fila.client.exists("dead"))  # it is young
            with unittest.mock.patch.object(transport, "SWEEP_AFTER", -1):
                Queue("newer", fanout, auto_delete=True)(self.connect().default_channel).declare()
            left = [q for q in ("dead", "new", "living", "durable", "newer") if self.fila.client.exists(q)]
            Producer(self.connect()).publish("end", exchange=fanout, declare=[fanout])
            draining.join()
        self.assertEqual(left, ["living", "durable", "newer"])  # nobody has waited for what is new

    def test_a_user_that_may_not_create_queues(self):
        self.fila.call("FILA.QUEUE", "CREATE", "open", "IFNOTEXISTS")
        self.fila.call("ACL", "SETUSER", "sender", "on", ">secret", "%W~open", "+@all", "-@admin")
        connection = Connection(f"fila://sender:secret@127.0.0.1:{self.fila.port}")
        self.addCleanup(connection.release)
        Queue("open")(connection.default_channel).queue_declare()
        connection.Producer().publish(1, routing_key="open")
        self.assertEqual(self.fila.call("FILA.QUEUE", "INFO", "open")["ready"], 1)
        with self.assertRaises(redis.ResponseError):
            connection.Producer().publish(1, routing_key="shut")


class TestURLs(unittest.TestCase):
    def test_tls_and_a_password(self):
        with tempfile.TemporaryDirectory() as d:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", d + "/key", "-out", d + "/cert"],
                           check=True, capture_output=True)
            port = reserve()
            fila = Fila("--tls.listen_addr", f"127.0.0.1:{port}", "--tls.cert_file", d + "/cert", "--tls.key_file", d + "/key", "--tls.auth_clients", "no",
                        "--auth.password", "secret", password="secret")
            self.addCleanup(fila.stop)
            good = f"filas://:secret@127.0.0.1:{port}/?ssl_ca_certs={d}/cert"
            with Connection(good) as connection:
                queue = connection.SimpleQueue("q")
                queue.put("over TLS")
                self.assertEqual(queue.get(timeout=patience()).payload, "over TLS")
            for wrong in (
                f"filas://:secret@127.0.0.1:{port}/",  # the certificate is not known
                f"filas://:wrong@127.0.0.1:{port}/?ssl_ca_certs={d}/cert",
                f"fila://127.0.0.1:{fila.port}/",
            ):
                with self.subTest(wrong), self.assertRaises(redis.RedisError):
                    with Connection(wrong) as connection:
                        connection.connect()

    def test_a_database(self):
        with self.assertRaisesRegex(ValueError, "one database"):
            Connection("fila://127.0.0.1:5555/3").connect()


if __name__ == "__main__":
    unittest.main()
