"""Celery with its tasks, canvas and remote control on one broker and one worker."""

import os
import tempfile
import time
import unittest
import unittest.mock

from celery import uuid
from celery_fila.backend import Events
from harness import Fila, Worker, application, patience, until


class TestCelery(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fila = Fila()
        cls.app = application(cls.fila.url)
        cls.worker = Worker(cls.fila.url, "one@test", "-c", "2").ready()

    @classmethod
    def tearDownClass(cls):
        cls.worker.kill()
        cls.fila.stop()

    def get(self, result):
        return result.get(timeout=patience())

    def test_a_result(self):
        result = self.app.add.delay(2, 3)
        self.assertEqual(self.get(result), 5)
        self.assertTrue(result.successful())
        self.assertEqual(self.app.app.AsyncResult(result.id).get(timeout=patience()), 5)
        result.forget()
        self.assertEqual(self.app.app.AsyncResult(result.id).state, "PENDING")

    def test_an_error(self):
        result = self.app.fail.delay()
        with self.assertRaisesRegex(ValueError, "no such order"):
            self.get(result)
        self.assertIn("ValueError", result.traceback)

    def test_a_state_of_the_task(self):
        with tempfile.TemporaryDirectory() as directory:
            result = self.app.progress.delay(directory + "/end")
            until("there is progress", lambda: result.state == "PROGRESS")
            self.assertEqual(result.info, {"done": 1})
            open(directory + "/end", "w").close()
            self.assertEqual(self.get(result), "all")
        key = f"celery-task-meta-{result.id}"
        until("the state before is gone", lambda: self.fila.call("FILA.KEY", "GET", "celery.results", key)["depth"] == 1)

    def test_no_result_within_the_time(self):
        from celery.exceptions import TimeoutError
        wait, waits = Events.wait, []

        def noted(events, timeout):
            waits.append(timeout)
            return wait(events, timeout)

        with unittest.mock.patch.object(Events, "wait", noted), self.assertRaises(TimeoutError):
            self.app.app.AsyncResult("nobody").get(timeout=0.3)
        self.assertLessEqual(max(waits, default=0), 0.3)

    def test_retries(self):
        self.assertEqual(self.get(self.app.third_time.delay()), 2)

    def test_a_failure_is_not_replaced_by_a_late_retry(self):
        backend = self.app.app.backend
        key = backend.get_key_for_task("failed")
        backend.store_result("failed", ValueError("no such order"), "FAILURE")
        backend._set_with_state(key, backend.encode({"status": "RETRY", "result": None, "task_id": "failed"}), "RETRY")
        with self.assertRaises(ValueError):
            self.get(self.app.app.AsyncResult("failed"))

    def test_a_success_is_not_replaced_by_a_late_retry(self):
        backend = self.app.app.backend
        key = backend.get_key_for_task("late")
        backend.store_result("late", 7, "SUCCESS")
        backend._set_with_state(key, backend.encode({"status": "RETRY", "result": None, "task_id": "late"}), "RETRY")
        self.assertEqual(self.get(self.app.app.AsyncResult("late")), 7)
        self.assertEqual(self.fila.call("FILA.KEY", "GET", "celery.results", key)["depth"], 1)
        backend.store_result("late", 8, "SUCCESS")
        self.assertEqual(self.fila.call("FILA.KEY", "GET", "celery.results", key)["depth"], 1)

    def test_a_countdown_waits_in_the_broker(self):
        later = self.app.add.apply_async((1, 1), countdown=3600)
        [message] = [m for m in self.fila.messages("celery") if later.id.encode() in m["payload"]]
        self.assertEqual(message["status"], b"delayed")
        self.fila.call("FILA.CANCEL", "celery", message["id"])
        began = time.monotonic()
        result = self.app.add.apply_async((1, 1), countdown=1)
        self.assertEqual(self.get(result), 2)
        self.assertGreaterEqual(time.monotonic() - began, 0.99)

    def test_canvas(self):
        from celery import chain, chord, group
        add, tsum, same = self.app.add, self.app.tsum, self.app.same
        for what, canvas, expected in (
            ("group", group(add.s(i, i) for i in range(10)), [2 * i for i in range(10)]),
            ("chain", chain(add.s(1, 2), add.s(3)), 6),
            ("chord", chord([add.s(i, 0) for i in range(30)], same.s()), list(range(30))),
            ("chord of a generator", chord((add.s(i, i) for i in range(10)), tsum.s()), 90),
            ("chord of one", chord([add.s(1, 1)], tsum.s()), 2),
            ("group in a chord", chord([group(add.s(1, 1), add.s(2, 2)), add.s(3, 3)], tsum.s()), 12),
            ("chain with a group", chain(add.s(1, 2), group(add.s(1), add.s(2)), tsum.s(), add.s(1)), 10),
        ):
            with self.subTest(what):
                self.assertEqual(self.get(canvas.apply_async()), expected)

    def test_a_chord_fails_with_a_part_of_it(self):
        from celery import chord
        result = chord([self.app.add.s(1, 1), self.app.fail.s(), self.app.add.s(2, 2)])(self.app.tsum.s())
        with self.assertRaisesRegex(Exception, "no such order"):
            self.get(result)

    def test_a_chord_leaves_only_its_results(self):
        from celery import chord
        self.get(chord([self.app.add.s(1, 1), self.app.add.s(2, 2)])(self.app.tsum.s()))
        left = until("the chord is gone", lambda: {m["key"][:11] for m in self.fila.messages("celery.results")} == {b"celery-task"})
        self.assertTrue(left)

    def test_remote_control(self):
        inspect = self.app.app.control.inspect(timeout=patience(), limit=1)
        self.assertEqual(inspect.ping(), {"one@test": {"ok": "pong"}})
        self.assertIn("app.add", inspect.registered()["one@test"])
        id = uuid()
        self.app.app.control.revoke(id, reply=True, timeout=patience(), limit=1)
        result = self.app.add.apply_async((1, 1), task_id=id)
        with self.assertRaises(Exception) as raised:
            self.get(result)
        self.assertEqual(type(raised.exception).__name__, "TaskRevokedError")

    def test_a_consumer_is_added_and_cancelled(self):
        control = self.app.app.control
        control.add_consumer("extra", reply=True, timeout=patience(), limit=1)
        self.assertEqual(self.app.add.apply_async((4, 4), queue="extra").get(timeout=patience()), 8)
        control.cancel_consumer("extra", reply=True, timeout=patience(), limit=1)
        self.app.add.apply_async((5, 5), queue="extra")
        self.assertEqual(self.get(self.app.add.delay(1, 1)), 2)
        self.assertEqual(self.fila.call("FILA.QUEUE", "INFO", "extra")["ready"], 1)

    def test_what_a_task_rejects_is_dead(self):
        result = self.app.reject.delay(False)
        dead = until("the message is dead", lambda: [m for m in self.fila.messages("celery.dlq") if result.id.encode() in m["payload"]])
        self.assertEqual(dead[0]["error"], b"rejected")

    def test_what_a_task_requeues_has_failed_once(self):
        result = self.app.reject.delay(True)
        again = until("the message is tried again", lambda: [m for m in self.fila.messages("celery") if result.id.encode() in m["payload"] and m["attempt"] > 1])
        self.assertEqual(again[0]["error"], b"requeued")
        self.fila.call("FILA.CANCEL", "celery", again[0]["id"])

    def test_a_task_may_outlast_the_visibility_timeout(self):
        with tempfile.TemporaryDirectory() as directory, open(os.environ["NOTES"]) as f:
            f.seek(0, os.SEEK_END)
            result = self.app.held.delay("long", directory + "/end")
            self.fila.wait_for_extension("celery", result.id.encode())
            open(directory + "/end", "w").close()
            self.get(result)
            self.assertEqual(f.read().split("\n")[:-1], ["long began", "long ended"])

    def test_a_program_in_another_language_sends_a_task(self):
        id = self.fila.call("FILA.ENQUEUE", "celery", "[[20, 3], {}, {}]", "HEADER", "task", "app.add").decode()
        self.assertEqual(self.app.app.AsyncResult(id).get(timeout=patience()), 23)

    def test_one_value_is_left_of_a_result(self):
        """Whatever states there were before: one that the task told, a retry, or none."""
        for result, value in ((self.app.add.delay(1, 1), 2), (self.app.progress.delay(os.devnull), "all"), (self.app.third_time.delay(), 2)):
            self.assertEqual(self.get(result), value)
            key = self.app.app.backend.get_key_for_task(result.id)
            until("one value is left", lambda: len([m for m in self.fila.messages("celery.results") if m["key"] == key]) == 1)

    def test_what_is_no_task_does_not_stop_a_worker(self):
        """Celery drops what it cannot decode, and rejects what it does not know."""
        for payload, headers, dead in ((b"\xff\xfe", (), False), ("{}", (), True), ("7", ("HEADER", "task", "nobody.knows"), True)):
            with self.subTest(payload):
                id = self.fila.call("FILA.ENQUEUE", "celery", payload, *headers)
                until("the worker has had it", lambda: not self.fila.call("FILA.GET", "celery", id))
                self.assertEqual(bool(self.fila.call("FILA.GET", "celery.dlq", id)), dead)
        self.assertEqual(self.get(self.app.add.delay(1, 1)), 2)


class TestWhatATaskNames(unittest.TestCase):
    """Fairness keys, throttles and priorities, looked at in the broker. No worker runs."""

    @classmethod
    def setUpClass(cls):
        cls.fila = Fila()
        cls.app = application(cls.fila.url)

    @classmethod
    def tearDownClass(cls):
        cls.fila.stop()

    def sent(self, **options):
        self.app.add.apply_async((1, 1), queue="named", **options)
        m = self.fila.messages("named")[-1]
        self.fila.call("FILA.PURGE", "named")
        return m

    def test_nothing(self):
        m = self.sent()
        self.assertEqual((m["key"], m["throttle"], m["priority"]), (b"default", [], 0))
        headers = dict(zip(m["headers"][::2], m["headers"][1::2]))
        self.assertEqual(headers[b"task"], b"app.add")
        self.assertIn(b'"body": "[[1, 1]', m["payload"])  # it can be read and searched

    def test_headers(self):
        m = self.sent(headers={"fila_key": "acme", "fila_throttle": ["provider:x", "tenant:acme"], "fila_cost": 3, "region": "eu"})
        self.assertEqual((m["key"], m["throttle"], m["cost"]), (b"acme", [b"provider:x", b"tenant:acme"], 3))
        self.assertIn(b"region", m["headers"])

    def test_options(self):
        m = self.sent(fila_key="acme", fila_throttle="provider:x", priority=7)
        self.assertEqual((m["key"], m["throttle"], m["priority"]), (b"acme", [b"provider:x"], 7))

    def test_a_route(self):
        self.app.work.apply_async((1,), {"tenant": "globex"}, queue="named")
        self.assertEqual(self.fila.messages("named")[-1]["key"], b"globex")
        self.fila.call("FILA.PURGE", "named")

    def test_what_a_task_sends_has_its_key_and_a_retry_its_throttles(self):
        self.app.later.apply_async(queue="celery", headers={"fila_key": "acme", "fila_throttle": "x"})
        self.app.later.apply_async(queue="celery", fila_key="globex", fila_throttle="y")
        worker = Worker(self.fila.url, "two@test", "-P", "solo")
        try:
            retries = until("both are tried again", lambda: [m for m in self.fila.messages("celery") if m["status"] == b"delayed"][1:] and self.fila.messages("celery"))
        finally:
            worker.kill()
        self.assertEqual({(m["key"], *m["throttle"]) for m in retries}, {(b"acme", b"x"), (b"globex", b"y")})
        self.assertEqual({(m["key"], *m["throttle"]) for m in self.fila.messages("children")}, {(b"acme",), (b"globex",)})


if __name__ == "__main__":
    unittest.main()
