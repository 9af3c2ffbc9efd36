"""Celery's own transport for SQS with a gateway: tasks that a worker does, with queues that it creates and with predefined ones."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import boto3

sys.dont_write_bytecode = True


def until(what, condition):
    patience = 120 * float(os.environ.get("TEST_PATIENCE", "1"))
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience:.0f} s: {what}")
        time.sleep(0.05)


class TestCelery(unittest.TestCase):
    predefined = False

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.sqs = boto3.client("sqs", endpoint_url=os.environ["AWS_ENDPOINT_URL_SQS"])
        cls.addClassCleanup(cls.sqs.close)
        cls.queue = f"celery-{uuid.uuid4().hex}"
        os.environ.update(QUEUE=cls.queue, NOTES=os.path.join(cls.directory.name, "notes"), QUEUE_URL="")
        if cls.predefined:
            os.environ["QUEUE_URL"] = cls.sqs.create_queue(QueueName=cls.queue, Attributes={"VisibilityTimeout": "8"})["QueueUrl"]
        sys.modules.pop("app", None)  # it is configured by the environment
        import app

        cls.app = app
        cls.start()
        cls.addClassCleanup(lambda: cls.stop())

    @classmethod
    def start(cls):
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "app", "worker", "-P", "prefork", "-c", "2", "-l", "error", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        cls.worker = subprocess.Popen(command, start_new_session=True)

    @classmethod
    def stop(cls):
        os.killpg(cls.worker.pid, signal.SIGKILL)
        cls.worker.wait()

    def notes(self):
        try:
            with open(os.environ["NOTES"]) as f:
                return [tuple(line.rstrip("\n").split(" ", 1)) for line in f]
        except FileNotFoundError:
            return []

    def lines(self):
        return [line for _, line in self.notes()]

    def until_empty(self):
        """Waits until all messages are acknowledged."""
        url = self.sqs.get_queue_url(QueueName=self.queue)["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]

        def empty():
            counts = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            return set(counts.values()) == {"0"}

        until("nothing is left in the queue", empty)

    def test_tasks_are_done(self):
        for i in range(30):
            self.app.noted.delay(f"é task {i}")
        until("30 tasks are done", lambda: {f"é task {i}" for i in range(30)} <= set(self.lines()))
        self.until_empty()

    def test_a_countdown(self):
        sent = time.time()
        self.app.noted.apply_async(["later"], countdown=2)
        until("it is done", lambda: "later" in self.lines())
        at = next(float(at) for at, line in self.notes() if line == "later")
        self.assertGreaterEqual(at, sent + 1.9)

    def test_a_retry(self):
        self.app.third_time.delay()
        until("the third attempt", lambda: "attempt 2" in self.lines())

    def test_a_task_that_acknowledges_late_is_done_again_when_its_worker_dies(self):
        gate = os.path.join(self.directory.name, "gate")
        self.app.held.delay("held", gate)
        until("it has begun", lambda: "held began" in self.lines())
        self.stop()
        open(gate, "w").close()
        type(self).start()
        until("it is done", lambda: "held ended" in self.lines())
        self.until_empty()


class TestPredefined(TestCelery):
    predefined = True


if __name__ == "__main__":
    unittest.main()
