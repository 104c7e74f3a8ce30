# The jobs of a frame, and what they print.


class Job:
    """A job that runs, and what it has printed: the first bytes go into the output pipe at once, the rest is counted. One that
    runs beside others in an event loop has its task, the end of its time, and how much of it others took."""

    __slots__ = ("number", "frame", "room", "dropped", "is_silent", "timed_out", "task", "due", "timer", "excused_s")

    def __init__(self, number, frame, room):
        self.number = number
        self.frame = frame
        self.room = room
        self.dropped = 0
        self.is_silent = True
        self.timed_out = False
        self.task = self.due = self.timer = None
        self.excused_s = 0.0


class LogStream(io.RawIOBase):
    """The binary stream below sys.stdout and sys.stderr: writes to the log of the running job."""

    def __init__(self, fd, process):
        self._fd = fd
        self._process = process

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def write(self, data):
        view = memoryview(data).cast("B")
        job = self._process.current_job()
        if job is None:
            # Printed by no job: at import, or by a thread between two jobs.
            return os.write(self._fd, view)
        self._process.print_to(job, PRINTED if self._fd == 1 else PRINTED_TO_ERROR, view)
        return len(view)


class Frame:
    """The jobs of one run frame. Whoever gets a job from `jobs` owns it: those who run jobs, or the thread that takes back
    what has not begun. One call of this iterator is one operation under the interpreter's lock."""

    __slots__ = ("first", "end", "jobs", "main", "timeout_s", "identity", "ids", "known", "prerequisites")

    def __init__(self, first, payloads, main, timeout_ms, identity):
        self.first = first
        self.end = first + len(payloads)
        self.jobs = enumerate(payloads, first) if HAS_LOCK else Locked(enumerate(payloads, first))
        self.main = main
        self.timeout_s = timeout_ms / 1000 if timeout_ms else None
        # JSON. The first question for `ids` or `known` reads it.
        self.identity = identity
        self.ids = self.known = None
        # The batch of the job that asked last for its prerequisites, and their outcomes as JSON, for the jobs of that batch.
        self.prerequisites = (None, None)


class QuestionPipes:
    """Asks what running jobs want to know about themselves, one question at a time."""

    def __init__(self, nonce):
        self.nonce = nonce
        self.process_id = os.getpid()
        self.lock = threading.Lock()
        self.mark = 0
        # The bytes of answers that have arrived, also to questions that were given up.
        self.arrived = bytearray()

    def ask(self, number, about):
        """The answer, as JSON."""
        check_process(self.process_id)
        with self.lock:
            self.mark += 1
            os.write(QUESTIONS_FD, struct.pack("<QIIQ", self.nonce, number, about, self.mark))
            is_failure, text = self.answer()
        if is_failure:
            raise RuntimeError(text)
        return text

    def answer(self):
        arrived = self.arrived
        while True:
            size, is_failure, mark = struct.unpack_from("<IIQ", arrived) if len(arrived) >= 16 else (0, 0, None)
            if mark is not None and len(arrived) >= 16 + size:
                text = str(arrived[16 : 16 + size], "utf-8")
                del arrived[: 16 + size]
                if mark == self.mark:
                    return is_failure, text
                continue
            got = os.read(ANSWERS_FD, ANSWER_BYTES_READ)
            if not got:
                raise RuntimeError("the worker is gone")
            arrived += got


# `types.SimpleNamespace`, without an import.
Namespace = type(sys.implementation)


class RunningJob(Namespace):
    """What a job knows of itself."""

    __slots__ = ("asks",)

    @property
    def flow(self):
        """The flow that began the job as a step: `id`, `name`, `version`, `step` (its name), `key` and `item`, the number of the
        job in a map; None for a job that is no step."""
        question_pipes, number, _ = self.asks
        known = json.loads(question_pipes.ask(number, ABOUT_FLOW))
        return known and Namespace(**dict(dict.fromkeys(("version", "step", "key", "item")), **known))

    @property
    def prerequisites(self):
        """The outcomes of the jobs for which the job waited, as dicts of `job`, `state`, and `value` or `error`."""
        question_pipes, number, frame = self.asks
        batch, text = frame.prerequisites
        if batch != self.batch:
            text = question_pipes.ask(number, ABOUT_PREREQUISITES)
            frame.prerequisites = (self.batch, text)
        return json.loads(text, parse_float=finite)


def each(positions):
    """The positions of a text such as 0-3,7."""
    for run in positions.split(","):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


def known_jobs(identity):
    """What `gristmill.job()` says of each job of a frame, and its tags. Made for a whole frame when the first of its jobs asks."""
    jobs = []
    for part in identity["parts"]:
        of_all, of_some = {}, {}
        for name, value, positions in part.get("tags", ()):
            if positions is None:
                of_all[name] = value
            else:
                for position in each(positions):
                    of_some.setdefault(position, {})[name] = value
        same = {"kind": identity["kind"]}
        for name in ("attempt", "batch", "queue", "group", "deadline", "traceparent"):
            same[name] = part.get(name)
        keys = part.get("keys")
        for place, position in enumerate(each(part["positions"])):
            known = dict(same, id="%d:%d" % (part["batch"], position), key=keys[place] if keys else None)
            own = of_some.get(position)
            jobs.append((known, dict(of_all, **own) if own else of_all))
    return jobs


def ids_of(identity):
    """The ids of the jobs of a frame."""
    return ["%d:%d" % (part["batch"], position) for part in identity["parts"] for position in each(part["positions"])]


# Builds of Python without a global lock need one here.
HAS_LOCK = getattr(sys, "_is_gil_enabled", lambda: True)()


class Locked:
    """An iterator for several threads."""

    def __init__(self, items):
        self.items = items
        self.lock = threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            return next(self.items)


