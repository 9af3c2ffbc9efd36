"""Chords: with a worker and the broker killed while their parts run, nested, and with parts that are added."""

import os
import tempfile
import threading
import unittest

from celery import chain, chord, group

from harness import Fila, Worker, application, patience, until

PARTS = 300 if os.environ.get("TEST_SHORT") else 10_000


class TestChords(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fila = Fila()
        cls.app = application(cls.fila.url)
        cls.worker = Worker(cls.fila.url, "one@test", "-c", "2").ready()

    @classmethod
    def tearDownClass(cls):
        cls.worker.kill()
        cls.fila.stop()

    def nothing_is_left(self):
        """The results queue has nothing of chords, but the results of their tasks."""
        until("nothing of the chords is left", lambda: all(m["key"].startswith(b"celery-task-meta-") for m in self.fila.messages("celery.results")))

    def test_parts_are_added(self):
        app = self.app
        for what, canvas, expected in (
            ("to a part", chord([app.widen.s([2, 3]), app.same.s(1)], app.tsum.s()), 6),
            ("to an added part", chord([app.deepen.s(3)], app.tsum.s()), 6),
            ("a chord", chord([app.nest.s([2, 3])], app.tsum.s()), 5),
        ):
            with self.subTest(what):
                self.assertEqual(canvas.apply_async().get(timeout=patience()), expected)
        self.nothing_is_left()

    def test_chords_in_chords(self):
        app = self.app
        inner = chord([app.add.s(1, 1), app.add.s(2, 2)], app.tsum.s())
        result = chord([inner, app.same.s(4), chain(app.add.s(1, 1), app.add.s(1))], app.tsum.s()).apply_async()
        self.assertEqual(result.get(timeout=patience()), 13)

    def test_a_chord_fails_with_the_chord_in_it(self):
        app = self.app
        for what, body in (("a task", app.tsum.s()), ("a chain", chain(app.tsum.s(), app.add.s(1)))):
            with self.subTest(what):
                result = chord([chord([app.fail.s(), app.same.s(1)], body), app.same.s(4)], app.tsum.s()).apply_async()
                with self.assertRaisesRegex(Exception, "no such order"):
                    result.get(timeout=patience())
        result = chord([app.fail.s(), app.same.s(1)], group(app.same.s(), app.tsum.s())).apply_async()
        for one in result.children:
            with self.assertRaisesRegex(Exception, "no such order"):
                one.get(timeout=patience())
        self.nothing_is_left()

    def test_the_error_callback_of_the_body_is_called(self):
        with open(os.environ["NOTES"]) as notes:
            notes.seek(0, os.SEEK_END)
            result = chord([self.app.fail.s(), self.app.same.s(1)], self.app.tsum.s().on_error(self.app.noted.si("it failed"))).apply_async()
            with self.assertRaisesRegex(Exception, "no such order"):
                result.get(timeout=patience())
            noted = []
            until("it is called", lambda: noted.extend(notes.readlines()) or noted)
            self.assertEqual(noted, ["it failed\n"])

    def test_the_body_is_sent_once(self):
        """Also if the worker of the last part dies after it has sent it, and the part runs again."""
        body = self.app.noted.si("body").set(queue="bodies")
        body.freeze()
        for _ in range(2):
            self.app.app.backend._send_body("group", body.clone(), [])
        self.assertEqual(len(self.fila.messages("bodies")), 1)


class TestKills(unittest.TestCase):
    def test_a_chord_while_a_worker_and_the_broker_are_killed(self):
        fila = Fila()
        self.addCleanup(fila.stop)
        app = application(fila.url)
        notes = tempfile.NamedTemporaryFile("r")
        workers = []

        def start():
            workers.append(Worker(fila.url, f"{len(workers)}@test", "-c", "2", NOTES=notes.name))
            self.addCleanup(lambda worker=workers[-1]: worker.process.poll() is None and worker.kill())

        def noted():
            with open(notes.name) as f:
                return f.read().split()

        result = chord([app.part.s(n) for n in range(PARTS)], app.closing.s()).apply_async()
        start()
        faults = {10: lambda: (workers[-1].kill(), start()), 40: lambda: (fila.kill(), fila.start()), 70: lambda: (workers[-1].kill(), start())}
        for percent in range(1, 101):  # a part may run twice; it counts once
            until(f"{percent} % of the parts have run", lambda: len(set(noted())) >= percent * PARTS // 100)
            faults.get(percent, lambda: None)()
        self.assertEqual(result.get(timeout=patience()), sum(range(PARTS)))
        until("the queue is empty", lambda: not fila.messages("celery"))
        self.assertEqual([n for n in noted() if n == "body"], ["body"])


class TestEnds(unittest.TestCase):
    def test_the_body_waits_for_a_broker_that_is_away(self):
        """Longer than Celery tries to send a task."""
        fila = Fila()
        self.addCleanup(fila.stop)
        app = application(fila.url)
        backend = app.app.backend
        body = app.tsum.s()
        body.freeze()
        fila.call("FILA.QUEUE", "CREATE", "celery")
        fila.kill()
        sending = threading.Thread(target=backend._send_body, args=("group", body, [1, 2]))
        sending.start()
        sending.join(3)
        self.assertTrue(sending.is_alive())
        fila.start()
        sending.join(patience())
        self.assertEqual(len(fila.messages("celery")), 1)


if __name__ == "__main__":
    unittest.main()
