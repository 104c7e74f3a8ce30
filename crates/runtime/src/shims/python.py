# Gristmill's side of a warm Python process: imports the script once, then runs micro-batches.
# The protocol is described in protocol.rs. Python 3.8 and newer.
import io
import json
import mmap
import os
import struct
import sys
import threading
import time

REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, SHIM_FD = 3, 4, 5, 6
HELLO, RUN, READY, REFUSED, OUTCOMES = 1, 2, 17, 18, 19
SHIM_NAME = "<gristmill>"
ERROR_MESSAGE_CHARACTERS_MAX = 4096
PROGRESS_MESSAGE_CHARACTERS_MAX = 400
PROGRESS_MAX = (1 << 63) - 1
# Bytes of finished outcomes that are sent at once, however little time has passed.
UNSENT_BYTES_MAX = 1 << 20
DURATION_US_MAX = 0xFFFFFFFF
# A job that started a program ran at least this long.
MARK_AFTER_NS = 1000000

now_ns = time.perf_counter_ns


class Log:
    """What one job prints. Keeps the first bytes and counts the rest."""

    __slots__ = ("parts", "room", "dropped", "untouched")

    def __init__(self, room):
        self.untouched = True
        self.parts = []
        self.room = room
        self.dropped = 0

    def write(self, data):
        self.untouched = False
        size = len(data)
        if size <= self.room:
            self.parts.append(bytes(data))
            self.room -= size
        else:
            self.dropped += size - self.room
            if self.room:
                self.parts.append(bytes(data[: self.room]))
                self.room = 0


class LogStream(io.RawIOBase):
    """The binary stream below sys.stdout and sys.stderr: writes to the log of the running job."""

    def __init__(self, fd, current_log):
        self._fd = fd
        self._current_log = current_log

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def write(self, data):
        view = memoryview(data).cast("B")
        log = self._current_log()
        if log is None:
            # Printed by no job: at import, or by a thread between two jobs.
            return os.write(self._fd, view)
        log.write(view)
        return len(view)


def read_exactly(fd, size):
    """`size` bytes, or None at the end of the input."""
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        got = os.readv(fd, [view[at:]])
        if got == 0:
            return None
        at += got
    return data


def read_frame(fd, nonce=None):
    header = read_exactly(fd, 16)
    if header is None:
        return None, None
    size, kind, sent_nonce = struct.unpack("<IIQ", header)
    if nonce not in (None, sent_nonce):
        os.write(2, b"something in the script wrote to the pipe that Gristmill's requests come from\n")
        os._exit(70)
    return kind, read_exactly(fd, size)


def clean(text):
    """Text that any JSON reader takes: without lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def describe_error(error, traceback_bytes_max):
    """An exception as the protocol's failure. The frames of this file are left out of its traceback."""
    import traceback

    try:
        message = str(error)
    except Exception as unprintable:
        message = "its message cannot be printed: %r" % (unprintable,)
    failure = {
        "type": type(error).__qualname__,
        "message": clean(message[:ERROR_MESSAGE_CHARACTERS_MAX]),
    }
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((SHIM_NAME, "<frozen importlib")):
        trace = trace.tb_next
    try:
        if trace is not None or isinstance(error, SyntaxError):
            lines = traceback.format_exception(type(error), error, trace)
            failure["traceback"] = clean("".join(lines)[-traceback_bytes_max:])
    except Exception:
        pass
    retry_after = getattr(error, "retry_after", None)
    if hasattr(retry_after, "total_seconds"):
        retry_after = retry_after.total_seconds()
    if type(retry_after) in (int, float) and 0 <= retry_after < float("inf"):
        failure["retry_after"] = retry_after
    if getattr(error, "permanent", False) is True:
        failure["permanent"] = True
    return failure


def refuse_type(value):
    raise TypeError(
        "a %s; return dict, list, str, int, float, bool or None, or convert it first" % type(value).__qualname__
    )


def make_encoder():
    """A function from a value to its JSON as pieces of text; raises what JSON cannot hold."""
    encoder = json.encoder
    if encoder.c_make_encoder is not None and encoder.c_encode_basestring is not None:
        # What json.dumps makes anew for every call, made once.
        make = encoder.c_make_encoder(
            None, refuse_type, encoder.c_encode_basestring, None, ":", ",", False, False, False
        )
        return lambda value: make(value, 0)
    whole = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=refuse_type)
    return lambda value: (whole.encode(value),)


def not_json(error):
    """Why a value could not be serialised, in words that help."""
    if isinstance(error, UnicodeEncodeError):
        return clean("main returned text with a lone surrogate, which is not Unicode: %s" % error)
    if isinstance(error, RecursionError):
        return "main returned a value that is nested too deeply or contains itself"
    if isinstance(error, ValueError) and "JSON compliant" in str(error):
        return "main returned NaN or an infinity, which JSON cannot hold: return None or text instead"
    return clean("main returned what JSON cannot hold: %s" % error)


class Outbox:
    """Finished outcomes on their way out. `flush` may be called by the thread that runs the jobs and
    by the flusher; the lists only grow at their ends elsewhere, so a flush takes what is whole."""

    def __init__(self, nonce):
        self.nonce = nonce
        self.lock = threading.Lock()
        self.sequence = 0
        self.begun = 0
        self.begun_sent = 0
        self.values = []
        self.durations = []
        # Appended last: an entry here says that the lists above have theirs.
        self.indexes = []
        self.notes = []
        # What jobs said last of how far they are, by index.
        self.progress = {}

    def note(self, note):
        self.notes.append(json.dumps(note).encode() + b"\n")

    def flush(self):
        with self.lock:
            # Notes first: a job's log must not come after its outcome.
            indexes = self.indexes[:]
            notes = self.notes[:]
            count = len(indexes)
            begun = self.begun
            progress = self.progress
            if count == 0 and not notes and not progress and begun == self.begun_sent:
                return
            if count:
                values = b"[" + b"\n,".join(self.values[:count]) + b"]"
                numbers = struct.pack("<%dI" % (2 * count), *indexes, *self.durations[:count])
                del self.values[:count], self.durations[:count], self.indexes[:count]
            else:
                values = numbers = b""
            notes_text = b"".join(notes)
            if progress:
                self.progress = {}
                notes_text += b"".join([json.dumps({"progress": said}).encode() + b"\n" for said in progress.values()])
            del self.notes[: len(notes)]
            self.begun_sent = begun
            size = 16 + len(numbers) + len(values) + len(notes_text)
            head = struct.pack("<IIQIIII", size, OUTCOMES, self.nonce, self.sequence, begun, count, len(values))
            self.send(b"".join((head, numbers, values, notes_text)))

    def send(self, frame):
        view = memoryview(frame)
        while view:
            view = view[os.write(OUTCOMES_FD, view) :]

    def send_json(self, kind, body):
        data = json.dumps(body).encode()
        self.send(struct.pack("<IIQ", len(data), kind, self.nonce) + data)


class Process:
    """The state of this process between micro-batches."""

    def __init__(self, hello):
        self.value_bytes_max = hello["value_bytes_max"]
        self.log_bytes_max = hello["log_bytes_max"]
        self.traceback_bytes_max = hello["traceback_bytes_max"]
        self.async_jobs_max = hello["async_jobs_max"]
        self.flush_every_ns = hello["flush_every_ms"] * 1000000
        self.outbox = Outbox(int(hello["nonce"]))
        self.words = memoryview(mmap.mmap(CONTROL_FD, 64)).cast("I")
        self.log = None
        self.log_of_task = None
        self.index_of_task = None
        self.main = None
        self.finalize = None
        self.loop = None
        self.is_async = False
        self.encode = make_encoder()
        self.active = threading.Event()
        # A descriptor of our own, whatever the script does to its standard output.
        self.output_fd = os.dup(1)

    # --- what jobs print ---

    def current_log(self):
        if self.log_of_task is not None:
            return self.log_of_task.get()
        return self.log

    def capture_output(self):
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = io.TextIOWrapper(
                LogStream(fd, self.current_log), encoding="utf-8", errors="backslashreplace", write_through=True
            )
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)

    # --- what jobs say of themselves ---

    def progress(self, done=None, total=None, message=None, fraction=None):
        """Says how far the running job is: so much is done of so much, in any unit, or a fraction from 0 to 1, and what
        it is at. May be called often: what was said last is told about once a second."""
        log = self.current_log()
        if log is None:
            return
        said = {"index": self.index_of_task.get() if self.index_of_task is not None else self.words[3]}
        for name, number in (("done", done), ("total", total)):
            if number is not None:
                said[name] = min(max(int(number), 0), PROGRESS_MAX)
        if fraction is not None:
            said["fraction"] = min(max(float(fraction), 0.0), 1.0)
            if said["fraction"] != said["fraction"]:
                raise ValueError("the fraction is not a number")
        if message is not None:
            said["message"] = clean(str(message)[:PROGRESS_MESSAGE_CHARACTERS_MAX])
        with self.outbox.lock:
            self.outbox.progress[said["index"]] = said

    def offer_module(self):
        """`import gristmill` in the script, unless it has a module of that name."""
        import importlib.util
        import types

        if "gristmill" in sys.modules or importlib.util.find_spec("gristmill") is not None:
            return
        module = types.ModuleType("gristmill", "What a job can say to Gristmill.")
        module.progress = self.progress
        module.spawn = spawn
        module.done = done
        sys.modules["gristmill"] = module

    # --- outcomes ---

    def serialise(self, value):
        """The slow way, for what did not go through: the value's bytes, or its failure."""
        try:
            data = "".join(self.encode(value)).encode()
        except Exception as error:
            return {"type": "NotJson", "message": not_json(error)}
        if len(data) <= self.value_bytes_max:
            return data
        reason = "main returned a value of %d bytes; the limit is %d (VALUE_BYTES_MAX): return a reference to it"
        return {"type": "ValueTooLarge", "message": reason % (len(data), self.value_bytes_max)}

    def conclude(self, value):
        """The same for what may be a spawn, or come with siblings."""
        if type(value) is Spawn:
            return self.spawned(Spawned(value.body), value.body, "children and a memo")
        if type(value) is not Done:
            return self.serialise(value)
        data = self.serialise(value.value)
        if type(data) is not bytes or not value.siblings:
            return data
        note = DoneNote(value=[json.loads(data)], siblings=value.siblings)
        return self.spawned(note, value.siblings, "siblings")

    def spawned(self, note, body, what):
        """The note, if what it spawns can be sent; or its failure."""
        try:
            size = len(json.dumps(body, allow_nan=False))
        except Exception as error:
            return {"type": "NotJson", "message": not_json(error)}
        if size > self.value_bytes_max:
            reason = "main spawned %s of %d bytes; the limit is %d (VALUE_BYTES_MAX): spawn fewer at once"
            return {"type": "SpawnTooLarge", "message": reason % (what, size, self.value_bytes_max)}
        return note

    def settle(self, value):
        """The same for what a plain function returned, which may be an awaitable."""
        if hasattr(value, "__await__"):
            try:
                value = self.event_loop().run_until_complete(wait_for(value))
            except BaseException as error:
                return self.describe(error)
        return self.conclude(value)

    def mark_output(self, sequence, index):
        """Claims for this job what was written to descriptors 1 and 2 so far."""
        os.write(self.output_fd, struct.pack("<5sQII", b"\0GRST", self.outbox.nonce, sequence, index))

    def describe(self, error):
        failure = describe_error(error, self.traceback_bytes_max)
        if isinstance(error, SystemExit):
            failure["message"] = "main ended the process with exit(%s)" % failure["message"]
        return failure

    def answer(self, index, start, end, outcome, log):
        """Puts one job's outcome out, its log first: bytes are a value, a dict is a failure."""
        outbox = self.outbox
        if not log.untouched:
            text = b"".join(log.parts).decode("utf-8", "replace")
            outbox.note({"log": {"index": index, "text": text, "dropped_bytes": log.dropped}})
        duration_us = min((end - start) // 1000, DURATION_US_MAX)
        if type(outcome) is bytes:
            outbox.values.append(outcome)
            outbox.durations.append(duration_us)
            outbox.indexes.append(index)
        elif type(outcome) is Spawned:
            outbox.note({"spawned": {"index": index, "duration_us": duration_us, "spawn": outcome}})
        elif type(outcome) is DoneNote:
            outbox.note({"done": dict(outcome, index=index, duration_us=duration_us)})
        else:
            outbox.note({"failed": {"index": index, "duration_us": duration_us, "error": outcome}})

    def stopped(self, sequence):
        return self.words[sequence & 1] == sequence

    # --- running ---

    def run(self, sequence, careful, finalizing, body):
        outbox = self.outbox
        text = str(memoryview(body)[8:], "utf-8")
        main = self.main
        if finalizing:
            main = self.finalize_async if self.is_async else self.finalize_one
        try:
            payloads = json.loads(text)
        except (ValueError, RecursionError):
            payloads = self.parse_each(text)
            main = self.refusing(main)
        with outbox.lock:
            outbox.sequence = sequence
            outbox.begun = outbox.begun_sent = 0
            outbox.progress = {}
        self.active.set()
        if self.is_async:
            stopped = self.loop.run_until_complete(self.run_async(sequence, careful, payloads, main))
        else:
            stopped = self.run_sync(sequence, careful, payloads, main)
        self.active.clear()
        self.words[2] = 0
        if stopped:
            outbox.notes.append(b'"stopped"\n')
        outbox.flush()

    def parse_each(self, text):
        """Items one by one, where one of them is beyond this language's JSON reader."""
        payloads = []
        for item in text[1:-1].split("\n,"):
            try:
                payloads.append(json.loads(item))
            except (ValueError, RecursionError) as error:
                payloads.append(Unreadable(error))
        return payloads

    def refusing(self, main):
        """What stands for main where payloads were read one by one. Its awaitable, if any, passes through."""

        def refuse_unreadable(payload):
            if type(payload) is Unreadable:
                raise payload.error
            return main(payload)

        return refuse_unreadable

    def finalize_one(self, item):
        """Calls the script's finalize with payload, memo and the outcomes of the children."""
        payload, memo, outcomes = item
        if self.finalize is not None:
            return self.finalize(payload, memo, outcomes)
        for outcome in outcomes:
            if outcome["state"] != "completed":
                raise ChildFailed("job %s, a child of it, ended as %s" % (outcome["job"], outcome["state"]))
        return None

    async def finalize_async(self, item):
        value = self.finalize_one(item)
        return await value if hasattr(value, "__await__") else value

    def run_sync(self, sequence, careful, payloads, main):
        """Runs one job after the other; whether it was stopped before the last one."""
        outbox, encode, words, value_bytes_max = self.outbox, self.encode, self.words, self.value_bytes_max
        values, durations, indexes = outbox.values.append, outbox.durations.append, outbox.indexes.append
        log_bytes_max = self.log_bytes_max
        log = self.log = Log(log_bytes_max)
        # Half the time, so that with the job that crosses it the whole is rarely over.
        flush_after_ns = 0 if careful else self.flush_every_ns // 2
        unsent_bytes = 0
        stop_word = sequence & 1
        words[3] = 0
        words[2] = sequence
        start = flushed = now_ns()
        for index, payload in enumerate(payloads):
            if words[stop_word] == sequence:
                self.log = None
                return True
            words[3] = index
            outbox.begun = index + 1
            outcome = None
            try:
                value = main(payload)
            except BaseException as error:
                outcome = self.describe(error)
            else:
                try:
                    # Each value is serialised before the next job can change what it refers to.
                    outcome = "".join(encode(value)).encode()
                except BaseException:
                    pass
            if outcome is None or len(outcome) > value_bytes_max:
                outcome = self.settle(value)
            end = now_ns()
            if end - start >= MARK_AFTER_NS:
                self.mark_output(sequence, index)
            if type(outcome) is bytes and log.untouched:
                # The common case of `answer`, without its cost.
                values(outcome)
                durations(min((end - start) // 1000, DURATION_US_MAX))
                indexes(index)
            else:
                self.answer(index, start, end, outcome, log)
                unsent_bytes += log_bytes_max - log.room
                log = self.log = Log(log_bytes_max)
            unsent_bytes += len(outcome)
            if end - flushed >= flush_after_ns or unsent_bytes > UNSENT_BYTES_MAX:
                outbox.flush()
                unsent_bytes = 0
                end = flushed = now_ns()
            start = end
        self.log = None
        return False

    def event_loop(self):
        if self.loop is None:
            import asyncio

            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop

    async def run_async(self, sequence, careful, payloads, main):
        """Runs up to `async_jobs_max` jobs at once; whether it was stopped before the last one."""
        import asyncio

        jobs = enumerate(payloads)
        lanes = 1 if careful else min(self.async_jobs_max, len(payloads))
        stopped = await asyncio.gather(*[self.run_lane(sequence, careful, jobs, main) for _ in range(lanes)])
        return any(stopped)

    async def run_lane(self, sequence, careful, jobs, main):
        """Takes jobs off the common iterator, one after the other. A lane is a task of its own, so
        what its job prints, directly or through tasks that it starts, is known by the context."""
        outbox = self.outbox
        for index, payload in jobs:
            if self.stopped(sequence):
                return True
            outbox.begun = index + 1
            log = Log(self.log_bytes_max)
            self.log_of_task.set(log)
            self.index_of_task.set(index)
            start = now_ns()
            try:
                value = await main(payload)
            except BaseException as error:
                outcome = self.describe(error)
            else:
                outcome = self.conclude(value)
            end = now_ns()
            if end - start >= MARK_AFTER_NS:
                self.mark_output(sequence, index)
            self.answer(index, start, end, outcome, log)
            if careful or len(outbox.indexes) >= 256:
                outbox.flush()
        return False

    def flush_now_and_then(self):
        """The flusher's thread: outcomes leave on time while a job does not end."""
        every_s = self.flush_every_ns / 1e9
        while True:
            self.active.wait()
            time.sleep(every_s)
            self.outbox.flush()

    # --- the script ---

    def import_script(self, path):
        import importlib.util
        import inspect

        folder, file_name = os.path.split(path)
        sys.argv = [path]
        if sys.path[:1] == [""]:
            sys.path[0] = folder
        else:
            sys.path.insert(0, folder)
        self.offer_module()
        name = os.path.splitext(file_name)[0].replace("-", "_").replace(".", "_")
        if name in sys.modules:
            name = "script_" + name
        loader = importlib.machinery.SourceFileLoader(name, path)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
        self.main = getattr(module, "main", None)
        finalize = getattr(module, "finalize", None)
        self.finalize = finalize if callable(finalize) else None
        if not callable(self.main):
            raise NoMain("%s has no function main; write `def main(payload):` and return the result" % file_name)
        call = getattr(self.main, "__call__", None)
        if inspect.iscoroutinefunction(self.main) or inspect.iscoroutinefunction(call):
            import contextvars

            self.is_async = True
            self.log_of_task = contextvars.ContextVar("gristmill_log", default=None)
            self.index_of_task = contextvars.ContextVar("gristmill_index", default=0)
            self.event_loop()

    def leave_in_fork(self):
        """A fork of this process must not answer for it, and what it prints goes where it went."""
        for fd in (REQUESTS_FD, OUTCOMES_FD):
            try:
                os.close(fd)
            except OSError:
                pass
        self.log = self.log_of_task = None

    def read_requests(self):
        if self.is_async:
            # Between micro-batches, tasks that the script left running go on.
            import asyncio

            readable = self.loop.create_future()
            self.loop.add_reader(REQUESTS_FD, lambda: readable.done() or readable.set_result(None))
            self.loop.run_until_complete(readable)
            self.loop.remove_reader(REQUESTS_FD)
        return read_frame(REQUESTS_FD, self.outbox.nonce)

    def serve(self):
        while True:
            kind, body = self.read_requests()
            if body is None:
                return
            if kind == RUN:
                sequence, flags = struct.unpack_from("<II", body)
                self.run(sequence, bool(flags & 1), bool(flags & 2), body)


class NoMain(Exception):
    pass


class Unreadable:
    """Stands for a payload that Python's JSON reader refuses."""

    def __init__(self, error):
        self.error = type(error)("the payload cannot be read by Python's json: %s" % error)


async def wait_for(awaitable):
    return await awaitable


def start():
    os.close(SHIM_FD)
    for fd in (REQUESTS_FD, OUTCOMES_FD, CONTROL_FD):
        os.set_inheritable(fd, False)
    _, body = read_frame(REQUESTS_FD)
    if body is None:
        return
    hello = json.loads(bytes(body))
    process = Process(hello)
    try:
        # A crash in native code leaves a traceback on file descriptor 2, and with it in the job's log.
        import faulthandler

        faulthandler.enable(file=2, all_threads=False)
    except Exception:
        pass
    process.capture_output()
    try:
        process.import_script(hello["script"])
    except BaseException as error:
        process.outbox.send_json(REFUSED, process.describe(error))
        return
    os.register_at_fork(after_in_child=process.leave_in_fork)
    # The flusher waits at most this long for a job that computes; the default of 5 ms is too long.
    sys.setswitchinterval(0.001)
    threading.Thread(target=process.flush_now_and_then, name="gristmill-flusher", daemon=True).start()
    process.outbox.send_json(READY, {"runtime": "Python " + sys.version.split()[0]})
    process.serve()


start()
