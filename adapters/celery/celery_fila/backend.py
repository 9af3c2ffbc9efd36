"""Results of Celery in Fila.

Celery asks for a result by an id that the client has chosen, changes it several times (STARTED,
RETRY, SUCCESS), and asks for it again after the message of the task is gone. So a result is a
message of its own, in a queue that is never leased from: its fairness key is the key of the
result, its time to live is result_expires, and it is delayed for as long. The newest message of a
key is its value.

A chord counts its parts in the same way, with a message for each part. Ids are given in the order
of enqueue, so exactly one part finds that it is the last.
"""

import json
from time import monotonic, sleep

import redis
from celery import states
from celery.app.task import Context
from celery.backends.base import KeyValueStoreBackend
from celery.canvas import maybe_signature
from celery.exceptions import ChordError, TimeoutError
from celery.result import GroupResult, allow_join_result
from celery.signals import worker_process_shutdown
from celery.utils.functional import _regen
from celery.utils.log import get_logger
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.utils.encoding import bytes_to_str
from kombu.utils.functional import retry_over_time
from kombu.utils.objects import cached_property

from .connections import LOST, Pipeline, no_queue
from .transport import fields

logger = get_logger(__name__)

DAY = 24 * 3600 * 1000  # milliseconds

# How long a result is delayed that never expires.
FOREVER = 3650 * DAY

# How often a client looks for results without having been told of them, in seconds. An event may be lost.
LOOK_AGAIN = 1.0

PAGE = 1000

# How often the body of a chord is sent again, once a second and after Celery's own retries.
BODY_RETRIES = 60


class FilaBackend(KeyValueStoreBackend):
    """A result backend whose store is a queue of Fila.

    Options (result_backend_transport_options): those of connections as for the transport, and
    "queue", the name of the queue.
    """

    supports_native_join = True
    supports_autoexpire = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.options = dict(self.app.conf.result_backend_transport_options or {})
        self.queue = self.options.pop("queue", "celery.results")
        self._begun = set()  # keys of tasks that run here and have told a state that is not their last

    @cached_property
    def client(self):
        return Connection(self.url, transport_options=self.options).transport.redis

    @cached_property
    def stores(self):
        """Results that are on their way."""
        stores = Pipeline(self.client.connection_pool, first=[self._create()], retried=self._retried)
        worker_process_shutdown.connect(lambda **kwargs: stores.close(), weak=False)
        return stores

    def _create(self):
        return "FILA.QUEUE", "CREATE", self.queue, "NODLQ", "DEDUPWINDOW", DAY, "IFNOTEXISTS"

    def __reduce__(self, args=(), kwargs=None):
        return super().__reduce__(args, dict(kwargs or {}, url=self.url))

    def exception_safe_to_retry(self, exc):
        return isinstance(exc, (redis.ConnectionError, redis.TimeoutError))

    def _run(self, *commands):
        """Sends commands, again for a while if the broker cannot be reached, and returns their replies."""
        return self._retried(self._run_once, *commands)

    def _retried(self, function, *args):
        """Calls a function, again for a while if the broker cannot be reached."""
        policy = self.retry_policy
        return retry_over_time(
            function, LOST, args,
            max_retries=policy["max_retries"], interval_start=policy["interval_start"],
            interval_step=policy["interval_step"], interval_max=policy["interval_max"],
        )

    def _run_once(self, *commands):
        for create in (True, False):
            pipe = self.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            replies = pipe.execute(raise_on_error=False)
            error = next((r for r in replies if isinstance(r, Exception)), None)
            if error is None:
                return replies
            if not create or not no_queue(error):
                raise error
            self.client.execute_command(*self._create())

    # The store.

    def _browse(self, key, cursor="0"):
        return "FILA.BROWSE", self.queue, "KEY", key, "CURSOR", cursor, "COUNT", PAGE

    def _enqueue(self, key, value, *options):
        if self.expires:
            ttl = max(int(self.expires * 1000), 2)
            options += ("TTL", ttl, "DELAY", ttl - 1)
        else:
            options += ("DELAY", FOREVER)
        return ("FILA.ENQUEUE", self.queue, value, "KEY", key, *options)

    def _all(self, key, reply):
        """The messages of a key, of which a reply is the first page, in the order of enqueue."""
        cursor, page = reply
        found = [fields(m) for m in page]
        while cursor != b"0":
            [(cursor, page)] = self._run(self._browse(key, cursor))
            found += [fields(m) for m in page]
        return sorted(found, key=lambda m: m[b"id"])

    def mget(self, keys):
        values = []
        for key, reply in zip(keys, self._run(*map(self._browse, keys)) if keys else ()):
            found = self._all(key, reply)
            values.append(found[-1][b"payload"] if found else None)
        return values

    def get(self, key):
        return self.mget([key])[0]

    def set(self, key, value):
        self._set_with_state(key, value, states.SUCCESS)

    def _store_result(self, task_id, result, state, traceback=None, request=None, **kwargs):
        # Without the look at the value before, which Celery's own has: _set_with_state sees the others in the same trip.
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        meta["task_id"] = bytes_to_str(task_id)
        key, value = self.get_key_for_task(task_id), self.encode(meta)
        if not self._may_be_later(request):
            self._set_with_state(key, value, state)
        elif state == states.SUCCESS and self._is_first(key, request):
            self.stores.send(*self._enqueue(key, value), replied=lambda reply: self._stored(reply, key, value, state))
            self.stores.collect_soon()
        else:
            self._set_later(key, value, state)
        (self._begun.discard if state in states.READY_STATES or state == states.RETRY else self._begun.add)(key)
        return result

    def _is_first(self, key, request):
        """Whether a task has no older value that its success would remove: it runs for the first time, and has told no state."""
        return not request.retries and not (request.delivery_info or {}).get("redelivered") and key not in self._begun

    def _may_be_later(self, request):
        """Whether a worker may go on while a result is stored. The task was acked before it ran, so that a crash of
        worker and broker loses the one or the other; and no chord counts the result next."""
        if not isinstance(request, Context) or request.called_directly or request.is_eager or request.chord or request.group or self.always_retry:
            return False
        task = self.app.tasks.get(request.task)
        return task is not None and not task.acks_late

    def _set_with_state(self, key, value, state):
        own, page = self._run(self._enqueue(key, value), self._browse(key))
        self._remove_older(key, own, page, state)

    def _set_later(self, key, value, state):
        """Does the same without waiting for it."""
        replies = []

        def replied(reply):
            replies.append(reply)
            if len(replies) == 2:
                self._stored(replies[0], key, value, state, replies[1])

        for command in (self._enqueue(key, value), self._browse(key)):
            self.stores.send(*command, replied=replied)
        self.stores.collect_soon()

    def _stored(self, own, key, value, state, page=None):
        """Takes the replies to what stores a value and, where there may be older ones, to what looks for them."""
        try:
            if isinstance(own, Exception) or isinstance(page, Exception):  # such as a queue of results that has been deleted
                self._set_with_state(key, value, state)
            elif page is not None:
                self._remove_older(key, own, page, state)
        except redis.RedisError as e:
            logger.error("the result of %s is not stored: %s", key, e)

    def _remove_older(self, key, own, page, state):
        """Removes the values of a key but the last. An end stays, whatever comes late: a task that is tried again may
        end before the process of its first attempt has stored RETRY. A success stays beside a failure, as Celery has it."""
        others = [m for m in self._all(key, page) if m[b"id"] != own]
        lasting = {states.SUCCESS} if state in states.READY_STATES else states.READY_STATES
        if state != states.SUCCESS and any(self.decode(m[b"payload"]).get("status") in lasting for m in others):
            remove = [own]
        else:
            remove = [m[b"id"] for m in others if m[b"id"] < own]
        if remove:
            self._run(("FILA.CANCEL", self.queue, *remove))

    def delete(self, key):
        self._run(("FILA.PURGE", self.queue, "KEY", key))

    # Waiting.

    def wait_for(self, task_id, timeout=None, interval=0.5, no_ack=True, on_interval=None):
        self._ensure_not_eager()
        for _, meta in self.get_many([task_id], timeout=timeout, interval=interval, on_interval=on_interval):
            return meta

    def get_many(self, task_ids, timeout=None, interval=0.5, no_ack=True, on_message=None, on_interval=None,
                 max_iterations=None, READY_STATES=states.READY_STATES):
        """Yields (task id, result) as results become known. Events of Fila tell of new ones."""
        missing = {bytes_to_str(t) for t in task_ids}
        end = monotonic() + timeout if timeout else None
        changed, events, rounds, look_at = set(missing), None, 0, 0.0
        try:
            while True:
                began = monotonic()
                for task_id, meta in self._ready(changed & missing, READY_STATES):
                    missing.discard(task_id)
                    if on_message is not None:
                        on_message(meta)
                    yield task_id, meta
                if changed >= missing:  # looking at very many takes long, and is not repeated as often
                    look_at = monotonic() + max(LOOK_AGAIN, 10 * (monotonic() - began))
                if not missing:
                    return
                if end is not None and monotonic() >= end:
                    raise TimeoutError(f"The operation timed out after {timeout} seconds")
                if events is None:  # what has come before the subscription is looked for
                    events, changed = Events(self.client, self.queue), set(missing)
                    continue
                if on_interval is not None:
                    on_interval()
                rounds += 1
                if max_iterations and rounds > max_iterations:
                    return
                pause = min(max(interval or 0, 0.05), max(look_at - monotonic(), 0))
                keys = events.wait(pause if end is None else min(pause, max(end - monotonic(), 0)))
                changed = set(missing) if keys is None or monotonic() >= look_at else {self._strip_prefix(k) for k in keys}
        finally:
            if events is not None:
                events.close()

    def _ready(self, task_ids, ready_states):
        ids = [t for t in task_ids if t not in self._cache]
        for task_id in set(task_ids).difference(ids):
            yield task_id, self._cache[task_id]
        for task_id, value in zip(ids, self.mget([self.get_key_for_task(t) for t in ids])):
            meta = None if value is None else self.decode_result(value)
            if meta is not None and meta["status"] in ready_states:
                self._cache[task_id] = meta
                yield task_id, meta

    # Chords.

    def apply_chord(self, header_result_args, body, **kwargs):
        self.ensure_chords_allowed()
        if not isinstance(header_result_args[1], _regen):  # a generator is not consumed here
            header = self.app.GroupResult(*header_result_args)
            if any(isinstance(r, GroupResult) for r in header.results):
                header.save(backend=self)  # the body gets lists in a list

    def set_chord_size(self, group_id, chord_size):
        self.set(self.get_key_for_group(group_id, ".size"), chord_size)

    def add_to_chord(self, chord_id, result):
        """Has a chord wait for one part more. The part that adds it has not ended, so the chord has not either."""
        self._run(self._enqueue(self.get_key_for_group(chord_id, ".added"), result.id))

    def on_chord_part_return(self, request, state, result, **kwargs):
        """Counts a part of a chord that has ended, and sends the body with the last one."""
        group = request.group
        if not group or not request.id:
            return
        body = maybe_signature(request.chord, app=self.app)
        part = [request.group_index, request.id, state, self.encode_result(result, state)]
        parts = self._parts(group, request.id, self.encode(part))
        if parts is None:
            return
        try:
            self._send_body(group, body, self._results(group, parts))
        except Exception as e:  # of a part, or of sending the body
            logger.exception("chord %s has failed", group)
            self.chord_error_from_stack(body, e if isinstance(e, ChordError) else ChordError(f"{e!r}"))
        finally:
            for key in (self.get_key_for_chord(group), *(self.get_key_for_group(group, k) for k in (".size", ".added", ""))):
                self.delete(key)

    def _send_body(self, group, body, results):
        """Sends the body of a chord, once: also if the broker is away for longer than Celery's own retries, or if the
        task that was its last part runs again."""
        if not body.subtask_type:  # the tasks of a canvas would share the id
            body.set(fila_dedup=f"chord:{group}")
        retry_over_time(body.delay, (OperationalError, *self.app.connection_for_write().recoverable_connection_errors), (results,),
                        max_retries=BODY_RETRIES, interval_start=0, interval_step=1, interval_max=1)

    def chord_error_from_stack(self, callback, exc=None):
        if callback.subtask_type == "group":
            for task in callback.tasks:
                self.chord_error_from_stack(task, exc)
            return
        last = callback.tasks[-1] if callback.subtask_type == "chain" else callback
        callback.options.setdefault("task_id", last.id)  # the result of a chain is that of its last task
        super().chord_error_from_stack(callback, exc)
        options = last.options
        if options.get("chord"):  # the body is a part of another chord, which waits for it
            outer = Context(id=last.id, group=options.get("group_id"), group_index=options.get("group_index"), chord=options["chord"])
            self.on_chord_part_return(outer, states.FAILURE, exc)

    def _parts(self, group, task_id, part):
        """Counts a part, once however often it ends. Returns all parts if this one completes the chord."""
        key = self.get_key_for_chord(group)
        counted, ended, added, size = self._run(
            self._enqueue(key, part, "DEDUP", f"{group}:{task_id}"),
            ("FILA.KEY", "GET", self.queue, key),
            ("FILA.KEY", "GET", self.queue, self.get_key_for_group(group, ".added")),
            self._browse(self.get_key_for_group(group, ".size")),
        )
        # The size is stored before the last part is sent, so the part that comes to be the last finds it.
        size = [int(m[b"payload"]) for m in self._all(self.get_key_for_group(group, ".size"), size)]
        if not size:
            return None
        size = size[-1] + depth(added)
        if depth(ended) < size:
            return None
        [page] = self._run(self._browse(key))
        parts = self._all(key, page)[:size]
        if len(parts) < size or parts[-1][b"id"] != counted:  # another one is the last
            return None
        return [self.decode(m[b"payload"]) for m in parts]

    def _results(self, group, parts):
        """The results of the parts of a chord, in the order of its header."""
        header = GroupResult.restore(group, backend=self)
        if header is not None:
            with allow_join_result():
                return header.join_native(timeout=self.app.conf.result_chord_join_timeout, propagate=True)
        for _, task_id, state, result in parts:
            if state in self.EXCEPTION_STATES:
                result = self.exception_to_python(result)
            if state in states.PROPAGATE_STATES:
                raise ChordError(f"Dependency {task_id} raised {result!r}")
        return [p[3] for p in sorted(parts, key=lambda p: float("inf") if p[0] is None else p[0])]


def depth(key):
    """The number of messages of a fairness key, as FILA.KEY GET replies it. All of them are delayed."""
    return fields(key)[b"depth"]


class Events:
    """The events of results that are stored."""

    def __init__(self, client, queue):
        self.pubsub = client.pubsub(ignore_subscribe_messages=False)
        self.pubsub.subscribe(f"fila:{queue}:enqueued")
        try:
            self.pubsub.get_message(timeout=5)  # the confirmation
        except redis.exceptions.NoPermissionError:
            self.close()

    def wait(self, timeout):
        """Returns the keys of new results; None if there may be some that nothing was told of."""
        if self.pubsub is None:
            sleep(timeout)
            return None
        keys = set()
        while True:
            try:
                message = self.pubsub.get_message(timeout=0 if keys else timeout)
            except (redis.ConnectionError, redis.TimeoutError):
                sleep(min(timeout, 0.1))
                return None
            if message is None:
                return keys
            if message["type"] == "message":
                keys.add(json.loads(message["data"]).get("key", ""))

    def close(self):
        if self.pubsub is not None:
            self.pubsub.close()
            self.pubsub = None
