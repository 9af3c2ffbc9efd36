"""What is lost, and what comes again, when a worker or the broker is killed."""

import signal
import tempfile
import threading
import time
import unittest

from celery.result import AsyncResult
from harness import Fila, Worker, application, patience, until


class TestFaults(unittest.TestCase):
    def setUp(self):
        self.fila = Fila()
        self.addCleanup(self.fila.stop)
        self.notes = tempfile.NamedTemporaryFile("r")
        self.end = self.fila.directory + "/end"  # ends tasks that are held
        self.app = application(self.fila.url)

    def worker(self, name, *options):
        worker = Worker(self.fila.url, name, *options, NOTES=self.notes.name)
        self.addCleanup(lambda: worker.process.poll() is None and worker.kill())
        return worker

    def noted(self):
        with open(self.notes.name) as f:
            return f.read().split("\n")[:-1]

    def test_a_killed_worker(self):
        """Its messages go to another worker when its leases expire."""
        first = self.worker("first@test", "-c", "1").ready()
        result = self.app.held.delay("task", self.end)
        until("the task has begun", self.noted)
        second = self.worker("second@test", "-c", "1").ready()
        self.fila.wait_for_extension("celery", result.id.encode())  # nothing is delivered again
        self.assertEqual(self.noted(), ["task began"])
        first.kill()
        until("the task has begun again", lambda: len(self.noted()) == 2)
        open(self.end, "w").close()
        result.get(timeout=patience())
        self.assertEqual(self.noted(), ["task began", "task began", "task ended"])
        second.kill()

    def test_a_killed_broker(self):
        """What was sent is done, also by a worker that was connected, and results are known."""
        worker = self.worker("only@test", "-c", "2").ready()
        before = [self.app.add.delay(i, i) for i in range(30)]
        later = self.app.add.apply_async((7, 7), countdown=3)
        self.fila.kill()
        time.sleep(0.5)
        self.fila.start()
        self.assertEqual(self.app.add.delay(1, 1).get(timeout=patience()), 2)
        self.assertEqual([r.get(timeout=patience()) for r in before], [2 * i for i in range(30)])
        self.assertEqual(later.get(timeout=patience()), 14)
        until("nothing is left in the queue", lambda: not self.fila.messages("celery"))  # what was being acked is delivered again
        worker.kill()

    def test_a_task_that_ends_while_the_broker_is_away(self):
        """Its result is stored when the broker is back, also where the task was acked before it ran."""
        worker = self.worker("only@test", "-c", "4").ready()
        results = [self.app.held_acked.delay(str(i), self.end) for i in range(4)]
        until("they have begun", lambda: len(self.noted()) == 4)
        self.fila.kill()
        open(self.end, "w").close()
        until("they have ended", lambda: len(self.noted()) == 8)
        time.sleep(1)  # their results find no broker
        self.fila.start()
        self.assertEqual([r.get(timeout=patience()) for r in results], [None] * 4)
        worker.kill()

    def test_a_result_that_is_on_its_way_when_the_broker_dies(self):
        """It is stored when the broker is back, also if nothing else is."""
        backend = self.app.app.backend
        for way in ("before", "after"):
            task = f"way-{way}"
            backend._set_later(backend.get_key_for_task("first"), backend.encode({"status": "SUCCESS"}), "SUCCESS")
            backend.stores.collect(wait=True)
            store = (backend.get_key_for_task(task), backend.encode({"status": "SUCCESS", "result": way}), "SUCCESS")
            if way == "before":
                self.fila.process.send_signal(signal.SIGSTOP)  # it is sent, and not read
                backend._set_later(*store)
                self.fila.kill()
                again = threading.Timer(1.5, self.fila.start)
            else:
                self.fila.kill()
                again = threading.Timer(1.5, self.fila.start)
                again.start()
                backend._set_later(*store)
            if way == "before":
                again.start()
            result = AsyncResult(task, app=self.app.app)
            again.join()
            self.assertEqual(result.get(timeout=patience()), way)

    def test_a_worker_that_stops_in_order(self):
        """It ends what it does and gives back what it has not begun, at once."""
        worker = self.worker("leaving@test", "-c", "1", "--prefetch-multiplier", "8").ready()
        for i in range(8):
            self.app.held.delay(str(i), self.end)
        until("the first has begun", self.noted)
        until("the others are leased", lambda: self.fila.call("FILA.QUEUE", "INFO", "celery")["leased"] == 8)
        worker.process.terminate()
        until("it stops", lambda: worker.says("Warm shutdown"))
        open(self.end, "w").close()
        worker.process.wait(patience())
        done = sum(line.endswith("ended") for line in self.noted())
        self.assertGreaterEqual(done, 1)
        info = self.fila.call("FILA.QUEUE", "INFO", "celery")
        self.assertEqual((info["ready"] + done, info["leased"]), (8, 0))
        self.assertEqual({m["attempt"] for m in self.fila.messages("celery")} | {1}, {1})
        self.assertEqual([k for k in self.fila.client.keys("*pidbox*")], [])

    def test_a_queue_that_disappears(self):
        worker = self.worker("staying@test", "-c", "1").ready()
        self.assertEqual(self.app.add.delay(1, 1).get(timeout=patience()), 2)
        self.fila.call("FILA.QUEUE", "DELETE", "celery", "FORCE")
        self.assertEqual(self.app.add.delay(2, 2).get(timeout=patience()), 4)
        worker.kill()


if __name__ == "__main__":
    unittest.main()
