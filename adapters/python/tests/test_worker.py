"""Workers with threads and for asyncio, with a real broker."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import redis

import fila_worker
from fila_worker import AsyncQueue, AsyncWorker, Dead, Queue, Result, Retry, Worker

logging.disable(logging.CRITICAL)
fila_worker.BLOCK = 0.2  # workers notice a stop sooner


def patience():
    """How long a test waits for something, in seconds: two minutes, times TEST_PATIENCE."""
    return 120 * float(os.environ.get("TEST_PATIENCE", "1"))


reserved = []  # sockets that hold ports


def reserve():
    """A port for a server. The system gives it to no other process until this one ends: a socket that never
    listens is bound to it, and servers may bind it beside that, as they set SO_REUSEADDR."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    reserved.append(s)
    return s.getsockname()[1]


def until(what, condition):
    end = time.monotonic() + patience()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience():.0f} s: {what}")
        time.sleep(0.01)


async def until_async(what, condition):
    await asyncio.get_running_loop().run_in_executor(None, until, what, condition)


class Broker:
    def __init__(self):
        self.port = reserve()
        self.directory = tempfile.TemporaryDirectory()
        self.start()

    @property
    def url(self):
        return f"fila://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen([
            os.environ["TEST_BROKER"], "--server.listen_addr", f"127.0.0.1:{self.port}", "--storage.path", self.directory.name,
            "--admin.listen_addr", "", "--log.level", "error"], stdout=subprocess.DEVNULL)
        until("the broker answers", self.answers)

    def answers(self):
        try:
            return fila_worker.connect(self.url).ping()
        except redis.ConnectionError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


class Base:
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker()
        cls.client = fila_worker.connect(cls.broker.url)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.broker.kill()
        cls.broker.directory.cleanup()

    def info(self, queue, field):
        pairs = iter(self.client.execute_command("FILA.QUEUE", "INFO", queue))
        return dict(zip(pairs, pairs))[field.encode()]


class TestWorker(Base, unittest.TestCase):
    def started(self, queue, handler, **options):
        worker = Worker(queue, handler, **options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(worker.stop)
        return worker

    def test_messages_and_results(self):
        queue = Queue("jobs", self.client, maxattempts=2, backoff=0)
        got = []

        def handle(message):
            got.append(message)
            return message.payload.upper()

        id = queue.send("hello", key="acme", throttle=["a", "b"], headers={"kind": "greeting"}, priority=7)
        self.assertEqual(queue.result(id).status, "pending")
        self.started(queue, handle)
        self.assertEqual(queue.result(id, timeout=patience()).value, b"HELLO")
        self.assertEqual((got[0].id, got[0].key, got[0].headers, got[0].attempt), (id, "acme", {"kind": "greeting"}, 1))
        self.assertEqual(self.info("jobs", "max_attempts"), 2)
        self.assertIsNone(queue.result("019b76da-a800-7a3c-8f00-4b1a52c5d0e1"))

    def test_failures(self):
        queue = Queue("failures", self.client, maxattempts=2, backoff=0)
        times = []

        def handle(message):
            if message.payload == b"later" and message.attempt == 1:
                times.append(time.monotonic())
                raise Retry(0.3)
            if message.payload == b"dead":
                raise Dead("no such order")
            if message.payload == b"broken":
                raise ValueError("not a number")
            times.append(time.monotonic())

        later, dead, broken = (queue.send(p) for p in ("later", "dead", "broken"))
        self.started(queue, handle)
        self.assertEqual(queue.result(dead, timeout=patience()).error, "Dead: no such order")
        self.assertEqual(queue.result(broken, timeout=patience()).error, "ValueError: not a number")
        until("it is done", lambda: len(times) == 2)
        self.assertGreaterEqual(times[1] - times[0], 0.29)
        until("its end is known, without a value", lambda: queue.result(later).status != "pending")
        self.assertEqual(queue.result(later), Result("done", None, None))

    def test_concurrency_and_extension(self):
        queue = Queue("long", self.client)
        working, most, done = [], [], []
        end = threading.Event()

        def handle(message):
            working.append(message)
            most.append(len(working))
            end.wait(patience())
            working.remove(message)
            done.append(message.payload)

        for n in range(5):
            queue.send(str(n))
        self.started(queue, handle, concurrency=3, visibility=2)
        until("three are handled", lambda: len(working) == 3)
        time.sleep(2.5)  # longer than a lease, which is extended
        self.assertEqual((len(working), self.info("long", "ready"), self.info("long", "expired")), (3, 2, 0))
        end.set()
        until("all are done", lambda: len(done) == 5)
        self.assertEqual((max(most), sorted(done)), (3, [b"0", b"1", b"2", b"3", b"4"]))

    def test_a_lost_lease(self):
        queue = Queue("lost", self.client)
        seen = []

        def handle(message):
            seen.append(message.lost.wait(patience()))

        id = queue.send("x")
        self.started(queue, handle, visibility=1)
        until("it is leased", lambda: self.info("lost", "leased"))
        self.client.execute_command("FILA.CANCEL", "lost", id)
        until("the handler knows", lambda: seen == [True])

    def test_an_orderly_stop(self):
        queue = Queue("stopped", self.client)
        begun, end, done = threading.Event(), threading.Event(), []

        def handle(message):
            begun.set()
            end.wait(patience())
            done.append(message.payload)

        for n in range(3):
            queue.send(str(n))
        worker = Worker(queue, handle)
        thread = threading.Thread(target=worker.run)
        thread.start()
        begun.wait(patience())
        worker.stop()
        end.set()
        thread.join(patience())
        self.assertEqual((done, self.info("stopped", "ready"), self.info("stopped", "leased")), ([b"0"], 2, 0))

    def test_a_signal_stops_a_program(self):
        program = "import fila_worker, sys\nfila_worker.Worker(fila_worker.Queue('program', fila_worker.connect(sys.argv[1])), lambda m: print(m.payload.decode(), flush=True)).run()\nprint('ended')"
        process = subprocess.Popen([sys.executable, "-c", program, self.broker.url], stdout=subprocess.PIPE, text=True)
        Queue("program", self.client).send("hello")
        self.assertEqual(process.stdout.readline(), "hello\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=patience())[0], "ended\n")
        self.assertEqual(process.returncode, 0)
        process.stdout.close()

    def test_the_trace_goes_on(self):
        first, second = Queue("first", self.client), Queue("second", self.client)
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        got = []
        self.started(first, lambda m: second.send("next") and None)
        self.started(second, lambda m: got.append(m.headers))
        first.send("begin", headers={"traceparent": trace})
        until("the second has it", lambda: got == [{"traceparent": trace}])


class TestAsyncWorker(Base, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.aio = fila_worker.connect_async(self.broker.url)

    async def asyncTearDown(self):
        await self.aio.close()
        await self.aio.connection_pool.disconnect()

    async def test_messages_failures_and_results(self):
        queue = AsyncQueue("jobs", self.aio, maxattempts=1)

        async def handle(message):
            if message.payload == b"broken":
                raise ValueError("not a number")
            return message.payload.upper()

        worker = AsyncWorker(queue, handle, concurrency=2)
        running = asyncio.create_task(worker.run())
        good, bad = await queue.send("hello", key="acme"), await queue.send("broken", ttl=60)
        self.assertEqual((await queue.result(good, timeout=patience())).value, b"HELLO")
        self.assertEqual((await queue.result(bad, timeout=patience())).error, "ValueError: not a number")
        worker.stop()
        await running

    async def test_concurrency_extension_and_stop(self):
        queue = AsyncQueue("long", self.aio)
        working, end = [], asyncio.Event()

        async def handle(message):
            working.append(message)
            await end.wait()

        for n in range(5):
            await queue.send(str(n))
        worker = AsyncWorker(queue, handle, concurrency=3, visibility=2)
        running = asyncio.create_task(worker.run())
        await until_async("three are handled", lambda: len(working) == 3)
        await asyncio.sleep(2.5)  # longer than a lease, which is extended
        self.assertEqual((len(working), self.info("long", "ready"), self.info("long", "expired")), (3, 2, 0))
        worker.stop()
        end.set()
        await running
        self.assertEqual([self.info("long", f) for f in ("acked", "released", "expired", "ready")], [3, 0, 0, 2])

    async def test_a_lost_lease_cancels_the_handler(self):
        queue, ended = AsyncQueue("lost", self.aio), []

        async def handle(message):
            try:
                await asyncio.sleep(patience())
            finally:
                ended.append(message.id)

        id = await queue.send("x")
        worker = AsyncWorker(queue, handle, visibility=1)
        running = asyncio.create_task(worker.run())
        await until_async("it is leased", lambda: self.info("lost", "leased"))
        self.client.execute_command("FILA.CANCEL", "lost", id)
        await until_async("the handler has ended", lambda: ended == [id])
        worker.stop()
        await running

    async def test_cancelling_gives_back_what_nobody_has_seen(self):
        queue = AsyncQueue("cancelled", self.aio)
        await queue.create()

        async def handle(message):
            raise AssertionError("handled")

        running = asyncio.create_task(AsyncWorker(queue, handle).run())
        await until_async("it waits", lambda: self.info("cancelled", "waiters"))
        running.cancel()
        await asyncio.sleep(0)
        await queue.send("x")
        with self.assertRaises(asyncio.CancelledError):
            await running
        self.assertEqual((self.info("cancelled", "ready"), self.info("cancelled", "leased")), (1, 0))


class TestAKilledBroker(unittest.TestCase):
    def test_workers_go_on(self):
        broker = Broker()
        self.addCleanup(broker.directory.cleanup)
        self.addCleanup(broker.kill)
        queue, got = Queue("jobs", fila_worker.connect(broker.url)), []
        worker = Worker(queue, lambda m: got.append(m.payload), concurrency=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(worker.stop)
        queue.send("before")
        until("the first is done", lambda: got == [b"before"])
        for n in range(5):
            queue.send(str(n), delay=1)
        broker.kill()
        broker.start()
        until("all are done", lambda: set(got) == {b"before", b"0", b"1", b"2", b"3", b"4"})


if __name__ == "__main__":
    unittest.main()
