#!/usr/bin/env python3
"""producer.py KEY JOB...: enqueues jobs for a tenant, with redis-py."""
import os
import sys

import redis

QUEUE = os.environ.get("FILA_QUEUE", "jobs")


def main(key, *jobs):
    fila = redis.Redis(host=os.environ.get("FILA_HOST", "127.0.0.1"), port=int(os.environ.get("FILA_PORT", "5555")))
    fila.execute_command("FILA.QUEUE", "CREATE", QUEUE, "IFNOTEXISTS")
    for job in jobs:
        print(fila.execute_command("FILA.ENQUEUE", QUEUE, job, "KEY", key, "HEADER", "from", "python").decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
