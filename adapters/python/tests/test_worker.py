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
from fila_worker import AsyncGroup, AsyncQueue, AsyncWorker, Dead, Group, Hold, LeaseLost, Queue, Result, Retry, Worker

logging.disable(logging.CRITICAL)
fila_worker.BLOCK = 0.2  # workers notice a stop sooner

LEASE = 4.5  # seconds: extended after 1.5, so a process may be stopped for 3


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

    def lease_until(self, queue, id):
        """When the lease of a message ends; None if it is not leased."""
        pairs = iter(self.client.execute_command("FILA.GET", queue, id))
        return dict(zip(pairs, pairs))[b"lease_until"]

    def are_extended(self, messages):
        """Whether the leases of messages have been extended."""
        return all((self.lease_until(m.queue, m.id) or 0) > m.lease_until for m in messages)


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
        self.started(queue, handle, concurrency=3, visibility=LEASE)
        until("three are handled", lambda: len(working) == 3)
        until("their leases are extended", lambda: self.are_extended(working))
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

    def test_attempts_of_a_message(self):
        queue, tried = Queue("own-attempts", self.client, maxattempts=3, backoff=60000), []

        def handle(message):
            tried.append(message.payload)
            if tried.count(b"ever") < 5:
                raise ValueError("refused")

        once, ever = queue.send("once", maxattempts=1), queue.send("ever", maxattempts=0, backoff=0.001, maxbackoff=0.002)
        self.started(queue, handle)
        self.assertEqual(queue.result(once, timeout=patience()).status, "dead")
        self.assertEqual(queue.result(ever, timeout=patience()).status, "done")
        self.assertEqual((tried.count(b"once"), tried.count(b"ever")), (1, 5))

    def test_the_last_message_of_an_id_wins(self):
        queue = Queue("unique", self.client)
        state = dict(key="acme", unique="state:acme", until="lease", replace=True, delay=3600, maxdelay=0.3)
        first = queue.send("1", **state)
        self.assertEqual(queue.send("2", **state), first)
        self.assertEqual(queue.send("3", key="acme", unique="state:acme", replace=False), first)
        begun, end = threading.Event(), threading.Event()

        def handle(message):
            begun.set()
            end.wait(patience())
            return message.payload

        self.started(queue, handle)
        self.assertTrue(begun.wait(patience()))  # maxdelay has ended the hour
        after = queue.send("4", **state)
        self.assertNotEqual(after, first)
        end.set()
        self.assertEqual([queue.result(id, timeout=patience()).value for id in (first, after)], [b"2", b"4"])

    def test_progress(self):
        queue = Queue("progress", self.client)
        end, refused = threading.Event(), []

        def handle(message):
            message.progress("3 of 7")
            try:
                message.progress("x" * 1025)
            except redis.ResponseError as e:
                refused.append(e)
            end.wait(patience())

        id = queue.send("x")
        self.started(queue, handle, visibility=LEASE)
        until("it is refused", lambda: refused)
        before = self.lease_until("progress", id)
        until("its lease is extended", lambda: self.lease_until("progress", id) > before)
        self.assertEqual(queue.result(id), Result("pending", None, None, "3 of 7"))
        end.set()
        self.assertEqual(queue.result(id, timeout=patience()), Result("done", None, None))

    def test_a_throttle_is_held(self):
        queue, at = Queue("held", self.client, backoff=0), []

        def handle(message):
            at.append(time.monotonic())
            if len(at) == 1:
                raise Hold("provider:x", 0.7)
            if message.payload == b"wrong":
                raise Dead("no such order", hold={"provider:y": 3600})  # which it does not name

        first = queue.send("x", throttle="provider:x")
        self.started(queue, handle)
        until("it has failed", lambda: self.info("held", "nacked"))
        second = queue.send("x", throttle="provider:x")
        self.assertEqual([queue.result(id, timeout=patience()).status for id in (first, second)], ["done", "done"])
        self.assertGreaterEqual(min(at[1:]) - at[0], 0.69)
        self.assertEqual(queue.result(queue.send("wrong"), timeout=patience()).error, "Dead: no such order")

    def test_a_group(self):
        pages, reports = Queue("pages", self.client), Queue("reports", self.client)
        reports.create()
        seen = []
        self.started(pages, lambda m: seen.append(m.payload))
        group = Group("import-7", self.client)
        self.assertTrue(group.open(reports, "summary", expire=3600))
        for number in range(3):
            pages.send(f"page {number}", group="import-7")
        group.seal()
        state = group.wait(patience())
        self.assertEqual((state.state, state.members, state.done, len(seen)), ("done", 3, 3, 3))
        got = []
        self.started(reports, got.append)
        self.assertEqual(reports.result(state.message, timeout=patience()).status, "done")
        self.assertEqual((got[0].payload, got[0].headers["fila-group-done"]), (b"summary", "3"))
        self.assertFalse(group.open(reports, "again"))

    def test_a_group_is_cancelled(self):
        queue = Queue("cancelled", self.client)
        group = Group("import-8", self.client)
        self.assertIsNone(group.get())
        self.assertTrue(group.open(queue, "summary", when="done"))
        queue.send("page", group="import-8")
        self.assertEqual((group.wait(0.05).state, group.seal()), ("open", 1))
        self.assertTrue(group.cancel())
        self.assertEqual(group.wait(patience()).state, "cancelled")
        self.assertFalse(group.cancel())

    def test_a_result_that_is_none(self):
        queue = Queue("unfit", self.client, maxattempts=1)
        self.started(queue, lambda m: {"a": 1})
        self.assertEqual(queue.result(queue.send("x"), timeout=patience()).error, "TypeError: a result is bytes or str, and not dict")

    def test_batches(self):
        queue, batches = Queue("batches", self.client, maxattempts=1, batch=4, batchwait=500), []

        def handle(messages):
            batches.append([m.payload for m in messages])
            if messages[0].key == "a":
                messages[3].ack("before")
                with self.assertRaises(ValueError):
                    messages[3].fail("it is acked")
                return ["first", ValueError("not a number"), None, "has no effect"]
            messages[0].ack("done")
            messages[1].fail(Dead("no such order"))
            raise ValueError("out of range")

        ids = {name: queue.send(name, key=name[0]) for name in ("a0", "b0", "a1", "b1", "a2", "b2", "a3")}
        self.started(queue, handle, batch=10)
        got = {name: queue.result(id, timeout=patience()) for name, id in ids.items()}
        self.assertEqual(got, {
            "a0": Result("done", b"first", None), "a1": Result("dead", None, "ValueError: not a number"),
            "a2": Result("done", None, None), "a3": Result("done", b"before", None),
            "b0": Result("done", b"done", None), "b1": Result("dead", None, "Dead: no such order"), "b2": Result("dead", None, "ValueError: out of range")})
        self.assertEqual(sorted(batches), [[b"a0", b"a1", b"a2", b"a3"], [b"b0", b"b1", b"b2"]])

    def test_a_lost_lease_of_a_batch(self):
        queue, seen = Queue("lost-batch", self.client), []

        def handle(messages):
            seen.append(messages[1].lost.wait(patience()))
            for end in messages[1].ack, lambda: messages[1].progress("too late"):
                with self.assertRaises(LeaseLost):
                    end()
            seen.append(messages[0].lost.is_set())

        ids = [queue.send(str(n)) for n in range(3)]
        self.started(queue, handle, batch=3, visibility=LEASE)
        until("they are leased", lambda: self.info("lost-batch", "leased") == 3)
        self.client.execute_command("FILA.CANCEL", "lost-batch", ids[1])
        self.assertEqual([queue.result(ids[n], timeout=patience()).status for n in (0, 2)], ["done", "done"])
        self.assertEqual(seen, [True, False])

    def test_what_a_batch_has_acked_before_a_kill_stays_done(self):
        queue = Queue("killed-batch", self.client, backoff=0)
        ids = [queue.send(str(n)) for n in range(3)]
        program = ("import fila_worker, sys, time\ndef handle(messages):\n messages[0].ack('first')\n print(len(messages), flush=True)\n time.sleep(3600)\n"
                   "fila_worker.Worker(fila_worker.Queue('killed-batch', fila_worker.connect(sys.argv[1])), handle, batch=5, visibility=3).run()")
        process = subprocess.Popen([sys.executable, "-c", program, self.broker.url], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "3\n")
        process.kill()
        process.communicate()
        self.assertEqual(queue.result(ids[0]).value, b"first")
        self.started(queue, lambda messages: ["other"] * len(messages), batch=5)
        self.assertEqual([queue.result(id, timeout=patience()).value for id in ids], [b"first", b"other", b"other"])
        self.assertEqual(self.info("killed-batch", "acked"), 3)

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

    async def test_a_group(self):
        queue, group = AsyncQueue("parts", self.aio), AsyncGroup("import-9", self.aio)
        self.assertTrue(await group.open(queue, "whole", expire=3600))
        for n in range(3):
            await queue.send(f"part {n}", group="import-9")
        self.assertEqual((await group.wait(0.05)).pending, 3)
        got = []

        async def handle(message):
            got.append(message.payload)

        worker = AsyncWorker(queue, handle)
        running = asyncio.create_task(worker.run())
        await group.seal()
        state = await group.wait(patience())
        self.assertEqual((state.state, state.done), ("done", 3))
        self.assertEqual((await queue.result(state.message, timeout=patience())).status, "done")
        self.assertEqual(got[3:], [b"whole"])
        self.assertFalse(await group.cancel())
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
        worker = AsyncWorker(queue, handle, concurrency=3, visibility=LEASE)
        running = asyncio.create_task(worker.run())
        await until_async("three are handled", lambda: len(working) == 3)
        await until_async("their leases are extended", lambda: self.are_extended(working))
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

    async def test_batches_progress_and_holds(self):
        queue, batches = AsyncQueue("batches", self.aio, maxattempts=2, backoff=0), []
        await queue.create()
        said, end = asyncio.Event(), asyncio.Event()

        async def handle(messages):
            batches.append([m.payload for m in messages])
            if messages[0].attempt == 2:
                return
            await messages[0].progress("1 of 3")
            said.set()
            await end.wait()
            await messages[0].ack("first")
            await messages[1].fail(Hold("provider:x", 0.7))
            return [None, None, "last"]

        ids = [await queue.send(p, key="acme", throttle=["provider:x"]) for p in ("a", "b", "c")]
        worker = AsyncWorker(queue, handle, batch=3)
        running = asyncio.create_task(worker.run())
        await said.wait()
        self.assertEqual((await queue.result(ids[0])).progress, "1 of 3")
        begun = time.monotonic()
        end.set()
        self.assertEqual([(await queue.result(id, timeout=patience())).value for id in ids], [b"first", None, b"last"])
        self.assertGreaterEqual(time.monotonic() - begun, 0.69)
        self.assertEqual(batches, [[b"a", b"b", b"c"], [b"b"]])
        worker.stop()
        await running

    async def test_a_batch_without_leases_is_cancelled(self):
        queue, leased, ended = AsyncQueue("lost-batch", self.aio), [], []

        async def handle(messages):
            leased.extend(messages)
            try:
                await asyncio.sleep(patience())
            finally:
                ended.append([m.lost.is_set() for m in messages])

        ids = [await queue.send(str(n)) for n in range(2)]
        worker = AsyncWorker(queue, handle, batch=2, visibility=LEASE)
        running = asyncio.create_task(worker.run())
        await until_async("they are leased", lambda: len(leased) == 2)
        self.client.execute_command("FILA.CANCEL", "lost-batch", ids[0])
        await until_async("the lease of one is lost", lambda: leased[0].lost.is_set())
        self.assertEqual(ended, [])
        self.client.execute_command("FILA.CANCEL", "lost-batch", ids[1])
        await until_async("the handler has ended", lambda: ended == [[True, True]])
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
