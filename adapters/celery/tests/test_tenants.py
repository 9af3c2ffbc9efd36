"""The same application on Redis and on Fila: what a quiet tenant waits for behind a noisy one."""

import tempfile
import unittest

from harness import Fila, Redis, Worker, application, until

NOISY, QUIET = 100, 5


class TestTenants(unittest.TestCase):
    def position(self, server):
        """After how many tasks the last one of the quiet tenant is done."""
        self.addCleanup(server.stop)
        work = application(server.url).work
        notes = tempfile.NamedTemporaryFile("r")
        for n in range(NOISY):
            work.delay(n, tenant="noisy")
        for n in range(QUIET):
            work.delay(n, tenant="quiet")
        worker = Worker(server.url, "shared@test", "-c", "1", NOTES=notes.name)
        try:
            until("all is done", lambda: len(self.done(notes)) == NOISY + QUIET)
        finally:
            worker.kill()
        done = self.done(notes)
        return len(done) - done[::-1].index("quiet")

    def done(self, notes):
        with open(notes.name) as f:
            return f.read().split()

    def test_a_noisy_tenant_does_not_delay_a_quiet_one(self):
        redis, fila = self.position(Redis()), self.position(Fila())
        print(f"\nthe last of {QUIET} tasks of a quiet tenant, behind {NOISY} of a noisy one: number {redis} on Redis, {fila} on Fila")
        self.assertGreater(redis, NOISY)
        self.assertLessEqual(fila, 3 * QUIET)  # 2 x QUIET is fair; a process, so that none overtakes another


if __name__ == "__main__":
    unittest.main()
