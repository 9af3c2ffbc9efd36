"""A Celery application on its transport for SQS, with a gateway that the environment names."""

import os
import time
from urllib.parse import urlsplit

from celery import Celery

KEY, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
QUEUE = os.environ["QUEUE"]

app = Celery("app", broker=f"sqs://{KEY}:{SECRET}@{urlsplit(os.environ['AWS_ENDPOINT_URL_SQS']).netloc}")
app.conf.task_default_queue = QUEUE
app.conf.task_ignore_result = True
app.conf.worker_enable_remote_control = False  # the transport has none
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_transport_options = {
    "region": os.environ["AWS_DEFAULT_REGION"],
    "is_secure": False,
    "visibility_timeout": 8,  # more than Celery 5.5 takes to acknowledge, some seconds
    "wait_time_seconds": 2,
    "polling_interval": 0.1,
}
if os.environ.get("QUEUE_URL"):
    app.conf.broker_transport_options["predefined_queues"] = {
        QUEUE: {"url": os.environ["QUEUE_URL"], "access_key_id": KEY, "secret_access_key": SECRET}
    }


def note(line):
    """Notes in a file, which outlives processes, what was done and when."""
    with open(os.environ["NOTES"], "a") as f:
        f.write(f"{time.time()} {line}\n")


@app.task
def noted(line):
    note(line)


@app.task(bind=True, max_retries=3)
def third_time(self):
    note(f"attempt {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)


@app.task(acks_late=True)
def held(line, until):
    """Works until a file exists."""
    note(line + " began")
    while not os.path.exists(until):
        time.sleep(0.02)
    note(line + " ended")
