"""Brokers, workers and waiting for the tests. They fail where something is missing."""

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import redis

# Where the tasks of a worker note what they do, unless it has a file of its own.
notes = tempfile.NamedTemporaryFile("r")
os.environ["NOTES"] = notes.name


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
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + patience()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience():.0f} s: {what}")
        time.sleep(0.02)


def application(url):
    """The application of the tests, anew, as a process that is started with this URL has it."""
    os.environ["URL"] = url
    sys.modules.pop("app", None)
    return importlib.import_module("app")


class Server:
    """A server in a process of its own, with a directory that is removed when it stops."""

    scheme = ""

    def __init__(self, *options, **connection):
        self.directory = tempfile.mkdtemp()
        self.port = reserve()
        self.options = options
        self.client = redis.Redis(port=self.port, socket_timeout=patience(), **connection)
        self.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}/0"

    def command(self):
        raise NotImplementedError

    def start(self):
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL)
        until("the server answers", self.answers)

    def answers(self):
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        self.client.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Fila(Server):
    scheme = "fila"

    def command(self):
        return [os.environ["TEST_BROKER"], "--server.listen_addr", f"127.0.0.1:{self.port}",
                "--storage.path", self.directory, "--admin.listen_addr", "", "--log.level", "error", *self.options]

    def call(self, *command):
        """A command; a reply that is a map is a dict."""
        reply = self.client.execute_command(*command)
        if isinstance(reply, list) and reply and reply[0] in (b"id", b"name", b"key"):
            pairs = iter(reply)
            reply = {k.decode(): v for k, v in zip(pairs, pairs)}
        return reply

    def messages(self, queue):
        """All messages of a queue."""
        found = []
        for m in self.client.execute_command("FILA.BROWSE", queue, "COUNT", 1000)[1]:
            pairs = iter(m)
            found.append({k.decode(): v for k, v in zip(pairs, pairs)})
        return found

    def wait_for_extension(self, queue, payload):
        """Waits until the lease of the message whose payload has some bytes has been extended once more."""
        def end():
            return next((m["lease_until"] or 0 for m in self.messages(queue) if payload in m["payload"]), 0)

        before = until("the message is leased", end)
        until("the lease is extended", lambda: end() > before)


class Redis(Server):
    scheme = "redis"

    def command(self):
        return ["redis-server", "--port", str(self.port), "--save", "", "--dir", self.directory, "--loglevel", "warning"]


class Worker:
    """A worker of Celery, started from its command line."""

    def __init__(self, url, name, *options, **environment):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "app", "worker", "-n", name, "-l", "INFO", *options],
            stdout=self.log, stderr=self.log, start_new_session=True,
            env={**os.environ, "URL": url, **environment},
        )

    def says(self, text):
        with open(self.log.name) as f:
            return text in f.read()

    def ready(self):
        until("the worker is ready", lambda: self.says("ready."))
        return self

    def kill(self):
        """Kills the worker and its pool at once, as the loss of a machine does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def terminate(self):
        """Has the worker finish what it does."""
        self.process.terminate()
        self.process.wait(patience())
