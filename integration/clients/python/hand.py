"""A hand with redis-py, or with its asyncio half: hand.py [asyncio]. With FILA_MODE=cluster: its client of Redis Cluster."""
import asyncio
import os
import sys

import redis

if sys.argv[1:] == ["asyncio"]:
    import redis.asyncio  # from redis-py 4.2 on

if os.environ.get("FILA_MODE") == "cluster":
    import redis.cluster  # from redis-py 4.1 on

OPTIONS = {"host": os.environ["FILA_HOST"], "port": int(os.environ["FILA_PORT"])}
if os.environ["FILA_RESP"]:
    OPTIONS["protocol"] = int(os.environ["FILA_RESP"])  # from redis-py 5 on


def show(v):
    if isinstance(v, dict):
        return " ".join([f"%{len(v)}"] + [show(x) for pair in v.items() for x in pair])
    if isinstance(v, (list, tuple)):
        return " ".join([f"*{len(v)}"] + [show(x) for x in v])
    if isinstance(v, int):
        return f":{int(v)}"
    if v is None:
        return "_"
    return "$" + (v if isinstance(v, bytes) else str(v).encode()).hex()


def error(mark, e):
    return mark + str(e).encode().hex()


def limit(block):
    """The socket timeout of a client whose calls block so long: longer, or none."""
    return None if block == "0" else int(block) / 1000 + 5


def commands():
    for line in sys.stdin:
        block, *words = line.split()
        yield block, [bytes.fromhex(w[1:]) for w in words]


def main():
    usual = redis.Redis(**OPTIONS)
    for block, args in commands():
        client = usual if block == "-" else redis.Redis(**OPTIONS, socket_timeout=limit(block))
        try:
            print(show(client.execute_command(*args)), flush=True)
        except redis.ResponseError as e:
            print(error("-", e), flush=True)
        except redis.RedisError as e:
            print(error("!", e), flush=True)


def main_cluster():
    nodes = [node.rsplit(":", 1) for node in os.environ["FILA_NODES"].split(",")]
    client = None
    for _, args in commands():
        try:
            if client is None:
                client = redis.cluster.RedisCluster(
                    startup_nodes=[redis.cluster.ClusterNode(host, int(port)) for host, port in nodes], socket_timeout=15)
            # The name is looked up as a text.
            print(show(client.execute_command(args[0].decode(), *args[1:])), flush=True)
        except redis.exceptions.RedisClusterException as e:
            client = None  # 4.3 does not recover from the loss of a node: it copies a lock in vain
            print(error("!", e), flush=True)
        except redis.ResponseError as e:
            print(error("-", e), flush=True)
        except redis.RedisError as e:
            print(error("!", e), flush=True)


async def main_asyncio():
    usual = redis.asyncio.Redis(**OPTIONS)
    for block, args in commands():
        client = usual if block == "-" else redis.asyncio.Redis(**OPTIONS, socket_timeout=limit(block))
        try:
            print(show(await client.execute_command(*args)), flush=True)
        except redis.ResponseError as e:
            print(error("-", e), flush=True)
        except redis.RedisError as e:
            print(error("!", e), flush=True)


print(redis.__version__, flush=True)
if sys.argv[1:] == ["asyncio"]:
    asyncio.run(main_asyncio())
elif os.environ.get("FILA_MODE") == "cluster":
    main_cluster()
else:
    main()
