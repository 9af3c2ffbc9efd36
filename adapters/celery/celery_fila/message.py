"""What a message of kombu is in Fila, and the other way round."""

import datetime

from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

# The header by which the bindings of a topic exchange select messages.
ROUTING_KEY = "routing_key"

# Options of FILA.ENQUEUE that a message names as fila_key, fila_throttle and so on, among its
# headers or its properties. THROTTLE and BUDGET may be lists.
OPTIONS = ("key", "weight", "cost", "throttle", "budget", "charge", "dedup", "ttl")

# Headers of Celery that are long, and in the body anyway.
LONG = ("argsrepr", "kwargsrepr")

HEADERS_MAX = 60  # of the 64 that a message may have
HEADER_BYTES_MAX = 8192
NAME_BYTES_MAX = 512


def flat(options):
    """Options as arguments of a command: {"TTL": 5, "NODLQ": True} is TTL 5 NODLQ."""
    args = []
    for name, value in options.items():
        if value is True:
            args.append(name)
        elif value is not None and value is not False:
            args += [name, value]
    return args


def glob(routing_key):
    """The pattern of Fila for a routing key with wildcards: both * and # match any text."""
    out = []
    for word in (routing_key or "").split("."):
        out.append("*" if word in ("*", "#") else "".join("\\" + c if c in "*?[]\\" else c for c in word))
    return ".".join(out)


def topic(kind, exchange, routing_key):
    """The topic of an exchange."""
    return f"{exchange}/{routing_key or ''}" if kind == "direct" else exchange


def is_task(message):
    return "task" in (message.get("headers") or {})


def enqueue(message):
    """The payload and the options of FILA.ENQUEUE or FILA.PUBLISH for a message."""
    headers, properties = message.get("headers") or {}, message["properties"]
    args = ["PRIORITY", min(max(int(properties.get("priority") or 0), 0), 9)]
    for name, value in options(headers, properties).items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            args += [name.upper(), one if isinstance(one, (int, float)) else str(one)]
    due = at(headers.get("eta"))
    if due is not None:
        properties["fila_at"] = due
        args += ["AT", due]
    if "expiration" in properties and not is_task(message):  # a worker revokes a task that has expired
        args += ["TTL", max(int(properties["expiration"]), 1)]
    return [dumps(message), *args, *plain(headers)]


def options(headers, properties):
    """The options of Fila that a message names, or that it inherits from the task that sends it."""
    named = {}
    for source in (headers, properties):
        named.update({o: source["fila_" + o] for o in OPTIONS if source.get("fila_" + o) not in (None, "")})
    request = current_request()
    if request is None:
        return named
    # What a task sends belongs to the same tenant, so it has its fairness key. A retry is the task
    # itself. What is inherited is noted in the message, for the next one.
    inherited = OPTIONS if headers.get("id") == request.id else ("key",)
    for option in inherited:
        name = "fila_" + option
        value = request.get(name) or (request.get("properties") or {}).get(name)
        if option not in named and option != "dedup" and value is not None:
            named[option] = properties[name] = value
    return named


def current_request():
    """The request of the task of Celery that runs now, or None."""
    from celery import current_task  # here, since kombu imports this package before there is a Celery

    return current_task.request if current_task else None


def at(eta):
    """Unix milliseconds of an eta of Celery; None where it does not name a time zone: the worker judges it."""
    try:
        due = datetime.datetime.fromisoformat(eta.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return None
    return None if due.tzinfo is None else max(int(due.timestamp() * 1000), 0)


def plain(headers):
    """The headers that scripts, searches and traces of Fila can use, as options."""
    args = []
    for name, value in headers.items():
        if name in LONG or name.startswith("fila_") or isinstance(value, bool) or not isinstance(value, (str, int, float)):
            continue
        text = str(value)
        if text and len(text.encode()) <= HEADER_BYTES_MAX and len(name.encode()) <= NAME_BYTES_MAX and len(args) < 3 * HEADERS_MAX:
            args += ["HEADER", name, text]
    return args


def delivered(leased):
    """The message of kombu in a message that was leased.

    One that no producer of kombu has sent is a task by its headers "task" and "id", and its payload
    is the body of one: [args, kwargs, {}] in JSON.
    """
    receipt, payload, headers, key, attempt, deliveries = leased[:6]
    try:
        message = loads(bytes_to_str(payload))
        message["properties"]["delivery_info"]
    except (ValueError, TypeError, KeyError, IndexError):
        message = foreign(receipt, payload, headers)
    properties = message["properties"]
    properties["delivery_tag"] = bytes_to_str(receipt)
    properties["delivery_info"]["redelivered"] = deliveries > 1
    if "fila_at" in properties:  # the broker has waited for the eta, the worker need not
        message["headers"]["eta"] = None
    return message


def foreign(receipt, payload, headers):
    pairs = iter(h.decode(errors="replace") for h in headers)
    named = dict(zip(pairs, pairs))
    named.setdefault("id", bytes_to_str(receipt).partition(":")[0])
    return {
        "body": payload,
        "content-type": named.pop("content-type", "application/json"),
        "content-encoding": named.pop("content-encoding", "utf-8"),
        "headers": named,
        "properties": {"delivery_info": {"exchange": "", "routing_key": ""}, "correlation_id": named["id"]},
    }
