# The state of a process, and how it runs its jobs.


class Process:
    """The state of this process."""

    def __init__(self, hello, requests):
        self.value_bytes_max = hello["value_bytes_max"]
        self.log_bytes_max = hello["log_bytes_max"]
        self.traceback_bytes_max = hello["traceback_bytes_max"]
        self.concurrency = hello["concurrency"]
        self.threads = hello["threads"]
        self.flush_every_ns = hello["flush_every_ms"] * 1000000
        self.requests = requests
        requests.nonce = int(hello["nonce"])
        page = mmap.mmap(CONTROL_FD, 64)
        # A fork of this process does not have the page: one that was made past the hook below ends as it writes there.
        page.madvise(mmap.MADV_DONTFORK)
        self.words = memoryview(page).cast("I")
        self.outbox = Outbox(requests.nonce, self.words)
        self.question_pipes = QuestionPipes(requests.nonce)
        # Not empty in a fork of this process.
        self.forked = []
        # The frame whose jobs are to begin. Whoever changes it holds the lock.
        self.frame = None
        self.frames_lock = threading.Lock()
        # The end of the frames that were read.
        self.read_to = 0
        # No job below this number begins any more.
        self.recalled_to = 0
        # Questions of Gristmill that are answered.
        self.answered = 0
        self.job = None
        # How the running job is found, where several run at once: a context variable or a thread's own variable.
        self.find_job = None
        self.main = None
        self.finalize = None
        self.loop = None
        self.loops = threading.local()
        self.is_async = False
        self.asynchronous = None
        self.end_ms_max = hello["end_ms_max"]
        self.encode = make_encoder()
        # A description of the output pipe that is our own, whatever the script does to its standard output.
        try:
            self.output_fd = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self.output_fd = os.dup(1)

    # --- what jobs print ---

    def current_job(self):
        return self.job if self.find_job is None else self.find_job()

    def number_of(self, job):
        # Where one job runs at a time, one object serves many.
        return job.number if job.number is not None else self.words[BEGUN] - 1

    def print_to(self, job, kind, view):
        job.is_silent = False
        kept = view[: job.room]
        number = self.number_of(job)
        for at in range(0, len(kept), RECORD_BYTES_MAX):
            self.record(kind, number, kept[at : at + RECORD_BYTES_MAX])
        job.room -= len(kept)
        if len(view) > len(kept):
            is_first = job.dropped == 0
            job.dropped += len(view) - len(kept)
            if is_first:
                # That something is missing shows even if the job does not live to say how much.
                self.record(DROPPED, number, struct.pack("<Q", job.dropped))

    def record(self, kind, number, body=b""):
        head = struct.pack("<5sQBII", b"\0GRST", self.outbox.nonce, kind, number, len(body))
        os.write(self.output_fd, head + bytes(body))

    def capture_output(self):
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = io.TextIOWrapper(
                LogStream(fd, self), encoding="utf-8", errors="backslashreplace", write_through=True
            )
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)

    # --- what jobs say and learn of themselves ---

    def progress(self, done=None, total=None, message=None, fraction=None):
        """Says how far the running job is: so much is done of so much, in any unit, or a fraction from 0 to 1, and what
        it is at. May be called often: what was said last is told about once a second."""
        job = self.current_job()
        if job is None:
            return
        said = {"index": self.number_of(job)}
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
        if self.outbox.is_parked:
            self.outbox.ring()

    def identity(self):
        """Which job runs; None where none does. It has the attributes `id` (such as "42:7": the same on every attempt), `attempt`
        (from 1), `batch`, `kind` and `queue`; `key` and `group`, which are None for a job without; `tags`, a dict; `deadline`,
        the time.time() by which the job has to have completed, or None; `traceparent`, the trace context of the job, or None; and
        `flow` and `prerequisites`, which are asked for at their first use."""
        job = self.current_job()
        if job is None:
            return None
        frame = job.frame or self.frame
        if frame.known is None:
            frame.known = known_jobs(json.loads(frame.identity))
        number = self.number_of(job)
        known, tags = frame.known[number - frame.first]
        running = RunningJob(tags=dict(tags), **known)
        running.asks = (self.question_pipes, number, frame)
        return running

    def job_id(self):
        """The id of the running job alone."""
        job = self.current_job()
        frame = job.frame or self.frame
        if frame.ids is None:
            frame.ids = ids_of(json.loads(frame.identity))
        return frame.ids[self.number_of(job) - frame.first]

    def offer_module(self):
        """`import gristmill` in the script, unless it has a module of that name. The Python package of that name finds the same
        as `_gristmill_process`, and may set its `to_plain` there."""
        import importlib.util
        import types

        module = types.ModuleType("gristmill", "What a job can say to Gristmill.")
        module.progress = self.progress
        module.job = self.identity
        module.job_id = self.job_id
        module.spawn = spawn
        module.suspended = Suspension
        module.flow = flow
        module.__getattr__ = flow_exception
        module.done = done
        module.to_plain = None
        sys.modules["_gristmill_process"] = module
        if "gristmill" not in sys.modules and importlib.util.find_spec("gristmill") is None:
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
        if type(value) is Suspension:
            return self.suspended(value.text)
        if type(value) is Spawn:
            return self.spawned(Spawned(value.body), value.body, "children and a memo")
        if type(value) is not Done:
            return self.serialise(value)
        data = self.serialise(value.value)
        if type(data) is not bytes or not value.siblings:
            return data
        note = DoneNote(value=[json.loads(data)], siblings=value.siblings)
        return self.spawned(note, value.siblings, "siblings")

    def suspended(self, text):
        """What an instance of a flow spawns, or its failure."""
        try:
            data = SuspensionNote(text.encode())
        except UnicodeEncodeError as error:
            return {"type": "NotJson", "message": not_json(error)}
        return data if len(data) <= self.value_bytes_max else self.too_large("steps and a memo", len(data))

    def too_large(self, what, size):
        reason = "main spawned %s of %d bytes; the limit is %d (VALUE_BYTES_MAX): spawn fewer at once"
        return {"type": "SpawnTooLarge", "message": reason % (what, size, self.value_bytes_max)}

    def spawned(self, note, body, what):
        """The note, if what it spawns can be sent; or its failure."""
        try:
            size = len(json.dumps(body, allow_nan=False))
        except Exception as error:
            return {"type": "NotJson", "message": not_json(error)}
        return note if size <= self.value_bytes_max else self.too_large(what, size)

    def settle(self, value):
        """The same for what a plain function returned, which may be an awaitable."""
        if hasattr(value, "__await__"):
            try:
                value = self.event_loop().run_until_complete(wait_for(value))
            except BaseException as error:
                if self.forked:
                    leave_fork(error)
                return self.describe(error)
            if self.forked:
                leave_fork(None)
        return self.conclude(value)

    def describe(self, error):
        failure = describe_error(error, self.traceback_bytes_max)
        if isinstance(error, SystemExit):
            failure["message"] = "main ended the process with exit(%s)" % failure["message"]
        return failure

    def answer(self, job, start, end, outcome):
        """Puts one job's outcome out: bytes are a value, a dict is a failure."""
        outbox = self.outbox
        number = self.number_of(job)
        duration_ns = end - start
        if duration_ns >= MARK_AFTER_NS:
            self.record(ENDED, number)
        if job.dropped:
            self.record(DROPPED, number, struct.pack("<Q", job.dropped))
        duration_us = min(duration_ns // 1000, DURATION_US_MAX)
        if type(outcome) is bytes:
            # One thread at a time, so that the three lists stay in step.
            with outbox.lock:
                outbox.values.append(outcome)
                outbox.durations.append(duration_us)
                outbox.numbers.append(number)
        elif type(outcome) is SuspensionNote:
            outbox.notes.append(outcome.note(number, duration_us))
        elif type(outcome) is Spawned:
            outbox.note({"spawned": {"index": number, "duration_us": duration_us, "spawn": outcome}})
        elif type(outcome) is DoneNote:
            outbox.note({"done": dict(outcome, index=number, duration_us=duration_us)})
        else:
            outbox.note({"failed": {"index": number, "duration_us": duration_us, "error": outcome}})

    # --- which jobs are to begin ---

    def take_frame(self):
        """Makes the next frame that was read the one whose jobs begin; whether there was one."""
        request = self.requests.next()
        if request is None:
            return False
        kind, body = request
        if kind != RUN:
            return True
        first, flags, timeout_ms, identity_bytes = struct.unpack_from("<IIII", body)
        identity = bytes(body[16 : 16 + identity_bytes])
        text = str(body[16 + identity_bytes :], "utf-8")
        main = self.main
        if flags & FINALIZING:
            main = self.finalize_async if self.is_async else self.finalize_one
        try:
            payloads = None if flags & FAR else json.loads(text)
        except (ValueError, RecursionError):
            payloads = None
        if payloads is None:
            payloads = self.parse_each(text)
            main = self.refusing(main)
        frame = Frame(first, payloads, main, timeout_ms, identity)
        with self.frames_lock:
            # Limits lie between frames: what is taken back is taken back whole.
            if first >= self.recalled_to:
                self.frame = frame
                self.read_to = frame.end
        return True

    def heed_limit(self):
        """Takes back what has not begun, where Gristmill asks for it."""
        limit = self.words[LIMIT]
        if limit == self.recalled_to:
            return
        with self.frames_lock:
            first = self.read_to
            # A limit that is heeded late concerns no frame that came after it.
            if self.frame is not None and self.frame.first < limit:
                # Each job that is got here is got by nobody else.
                for number, _ in self.frame.jobs:
                    first = min(first, number)
            self.recalled_to = limit
            self.read_to = max(self.read_to, limit)
            self.outbox.note({"recalled": {"from": min(first, limit), "to": limit}})
        self.outbox.flush()

    def heed_question(self):
        """Says which job keeps one beyond its timeout, where Gristmill asks."""
        question = self.words[QUESTIONS]
        if question == self.answered:
            return
        self.answered = question
        overdue = self.words[OVERDUE]
        # A job in a thread of its own is kept by nobody else.
        culprit = overdue if self.asynchronous is None else self.asynchronous.culprit(overdue)
        self.outbox.note({"culprit": {"index": culprit}})
        self.outbox.flush()

    def parse_each(self, text):
        """Items one by one, where one of them is beyond this language's JSON reader."""
        payloads = []
        for item in text[1:-1].split("\n,"):
            try:
                payloads.append(json.loads(item, parse_float=finite))
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

    # --- one job at a time ---

    def serve_alone(self):
        """Runs one job after the other."""
        self.words[MANNER] = BEGUN_LAST
        begun = None
        while True:
            while begun is not None or self.take_frame():
                if self.frame is not None:
                    begun = self.run_frame(self.frame, begun)
            self.outbox.flush()
            if not self.requests.fill():
                return

    def run_frame(self, frame, begun):
        """Runs the jobs of the frame in hand, and before them the one that has begun, if any. Ends early where outcomes are due:
        returns the job that has begun then, which may be of the next frame."""
        jobs = frame.jobs if begun is None else itertools.chain((begun,), frame.jobs)
        outbox, encode, words, value_bytes_max = self.outbox, self.encode, self.words, self.value_bytes_max
        values, durations, numbers = outbox.values.append, outbox.durations.append, outbox.numbers.append
        log_bytes_max = self.log_bytes_max
        forked = self.forked
        main = frame.main
        job = self.job = Job(None, None, log_bytes_max)
        flush_every_ns = self.flush_every_ns
        unsent_bytes = 0
        start = now_ns()
        for number, payload in jobs:
            words[BEGUN] = number + 1
            if outbox.is_parked and outbox.has_unsent():
                outbox.ring()
            outcome = None
            try:
                value = main(payload)
            except BaseException as error:
                if forked:
                    leave_fork(error)
                outcome = self.describe(error)
            else:
                if forked:
                    leave_fork(None)
                if type(value) is Suspension:
                    outcome = self.suspended(value.text)
                else:
                    try:
                        # Each value is serialised before the next job can change what it refers to.
                        outcome = "".join(encode(value)).encode()
                    except BaseException:
                        pass
            if outcome is None or len(outcome) > value_bytes_max:
                outcome = self.settle(value)
            end = now_ns()
            if type(outcome) is bytes and job.is_silent and end - start < MARK_AFTER_NS:
                # The common case of `answer`, without its cost.
                values(outcome)
                durations((end - start) // 1000)
                numbers(number)
            elif type(outcome) is SuspensionNote and job.is_silent and end - start < MARK_AFTER_NS:
                outbox.notes.append(outcome.note(number, (end - start) // 1000))
            else:
                self.answer(job, start, end, outcome)
                job = self.job = Job(None, None, log_bytes_max)
            unsent_bytes += len(outcome)
            # Another job as long as this one would end too late.
            if end + end - start - outbox.flushed_ns >= flush_every_ns or unsent_bytes > UNSENT_BYTES_MAX:
                begun = self.arrived_job()
                if begun is not None:
                    # The same frame says that it has begun. Otherwise the flusher would wake up to say so.
                    words[BEGUN] = begun[0] + 1
                outbox.flush()
                self.job = None
                return begun
            start = end
        self.job = None
        return None

    def arrived_job(self):
        """The next job, if it has arrived. Its frame is the one in hand."""
        while True:
            job = next(self.frame.jobs, None)
            if job is not None:
                return job
            if not self.take_frame() and not (self.requests.has_arrived() and self.requests.fill()):
                return None

    # --- threads ---

    def serve_in_threads(self):
        """Runs jobs in several threads. Each takes the next job; whoever finds none reads the next frame."""
        self.words[MANNER] = BEGUN_TO
        own = threading.local()
        self.find_job = lambda: getattr(own, "job", None)
        self.read_lock = threading.Lock()
        self.begun_lock = threading.Lock()
        for number in range(1, self.threads):
            name = "gristmill-job-%d" % number
            threading.Thread(target=self.run_thread, args=(own,), name=name, daemon=True).start()
        self.run_thread(own)

    def run_thread(self, own):
        while True:
            frame, item = self.next_job()
            if frame is None:
                frame = self.frame
                with self.read_lock:
                    if self.frame is frame and not self.read_frame():
                        return
                continue
            number, payload = item
            job = own.job = Job(number, frame, self.log_bytes_max)
            start = now_ns()
            try:
                value = frame.main(payload)
            except BaseException as error:
                if self.forked:
                    leave_fork(error)
                outcome = self.describe(error)
            else:
                if self.forked:
                    leave_fork(None)
                outcome = self.settle(value)
            end = now_ns()
            own.job = None
            self.answer(job, start, end, outcome)
            if end + end - start - self.outbox.flushed_ns >= self.flush_every_ns:
                self.outbox.flush()
            elif self.outbox.is_parked:
                self.outbox.ring()

    def read_frame(self):
        """Waits for the next frame; whether there is one."""
        while not self.take_frame():
            self.outbox.flush()
            if not self.requests.fill():
                return False
        return True

    def next_job(self):
        """The next job of the frame in hand."""
        # Jobs begin in their order, and nobody sees a later one begun before an earlier one.
        with self.begun_lock:
            frame = self.frame
            item = next(frame.jobs, None) if frame is not None else None
            if item is None:
                return None, None
            self.words[BEGUN] = item[0] + 1
        if self.outbox.is_parked:
            self.outbox.ring()
        return frame, item

    def event_loop(self):
        loop = getattr(self.loops, "loop", None)
        if loop is None:
            import asyncio

            loop = self.loops.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        return loop

    # --- the flusher ---

    def flush_now_and_then(self):
        """The flusher's thread: outcomes leave on time while a job does not end, and what has not begun is taken back. Sleeps
        while nothing is to be sent."""
        outbox = self.outbox
        bell = select.poll()
        bell.register(BELL_FD, select.POLLIN)
        while True:
            # From here on whoever leaves something rings the bell; what was left before is seen here.
            outbox.is_parked = True
            if not outbox.has_unsent() and self.words[LIMIT] == self.recalled_to and self.words[QUESTIONS] == self.answered:
                bell.poll()
            outbox.is_parked = False
            due_ns = now_ns() + self.flush_every_ns
            while True:
                self.heed_limit()
                self.heed_question()
                wait_ns = due_ns - now_ns()
                if wait_ns > 0:
                    if bell.poll(wait_ns / 1000000):
                        os.read(BELL_FD, 8)
                    continue
                # The thread that runs the jobs flushes, too: what it has sent is not due again so soon.
                due_ns = outbox.flushed_ns + self.flush_every_ns
                if due_ns <= now_ns():
                    if not outbox.flush():
                        break
                    due_ns = outbox.flushed_ns + self.flush_every_ns

    # --- the end ---

    def say_unended(self, problem):
        self.outbox.note({"unended": clean(str(problem)[:ERROR_MESSAGE_CHARACTERS_MAX])})

    def end(self, is_forked):
        """Ends what the script left, as the interpreter would. One that was forked is not freed: that would copy what it shares."""
        ending = Ending(self.end_ms_max, self.say_unended)
        self.main = self.finalize = self.frame = self.job = None
        steps = [self.end_loop, run_exit_handlers, lambda: flush_files(self.say_unended), free_modules]
        ending.run(*steps, *([flush_native_files] if is_forked else []))
        self.outbox.flush()
        if is_forked or ending.is_late:
            os._exit(0)

    def end_loop(self):
        """Ends the tasks, generators and threads of an event loop, as `asyncio.run` does."""
        loop = self.loop or getattr(self.loops, "loop", None)
        if loop is None:
            return
        import asyncio

        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        if hasattr(loop, "shutdown_default_executor"):
            loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

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
        name = os.path.splitext(file_name)[0]
        if name in sys.modules or not name.isidentifier():
            # Nobody can import it by its name. The processes of multiprocessing load it by its path, and call it so.
            name = "__mp_main__"
            sys.modules["__main__"].__file__ = path
        loader = importlib.machinery.SourceFileLoader(name, path)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
        self.main = getattr(module, "main", None)
        finalize = getattr(module, "finalize", None)
        flow = flow_of(module, file_name)
        if flow is not None:
            self.main, finalize = flow.entries(vars(module))
        self.finalize = finalize if callable(finalize) else None
        if not callable(self.main):
            raise NoMain("%s has no function main; write `def main(payload):` and return the result" % file_name)
        if not takes_one_argument(self.main):
            raise NoMain(
                "%s: main must take one argument: write `def main(payload):`, or put @gristmill.flow before a flow" % file_name
            )
        call = getattr(self.main, "__call__", None)
        if inspect.iscoroutinefunction(self.main) or inspect.iscoroutinefunction(call):
            self.is_async = True
            self.loop = self.event_loop()
            self.asynchronous = Asynchronous(self)
            self.find_job = self.asynchronous.job.get

    def leave_in_fork(self):
        """A fork of this process must not answer for it, and what it prints goes where it went."""
        if self.forked:
            # A fork of a fork: the numbers below may be those of its own files.
            return
        # The page, which is not mapped here: freed, it would take with it what came to lie there.
        self.forked.append(self.words)
        self.words = self.outbox.words = memoryview(bytearray(64)).cast("I")
        for fd in (REQUESTS_FD, OUTCOMES_FD, BELL_FD, CONTROL_FD, QUESTIONS_FD, ANSWERS_FD):
            try:
                os.close(fd)
            except OSError:
                pass
        self.job = None
        self.find_job = None
        loop = self.loop or getattr(self.loops, "loop", None)
        if loop is not None:
            # Its selector is the parent's. Nothing but the code that forked goes on here, up to its next wait.
            loop.stop()
            for queue in ("_ready", "_scheduled"):
                getattr(loop, queue, []).clear()

    def serve(self):
        if self.is_async:
            self.asynchronous.serve()
        elif self.threads > 1:
            self.serve_in_threads()
        else:
            self.serve_alone()


class NoMain(Exception):
    pass


def takes_one_argument(function):
    """Whether a function in Python can be called with one argument. Other callables tell that when they are called."""
    if not isinstance(function, type(takes_one_argument)):
        return True
    code = function.__code__
    takes_any = code.co_flags & 0x04  # CO_VARARGS
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    needs = code.co_argcount - len(function.__defaults__ or ())
    return (code.co_argcount > 0 or takes_any) and needs <= 1 and set(named) <= set(function.__kwdefaults__ or ())


class Unreadable:
    """Stands for a payload that Python's JSON reader refuses."""

    def __init__(self, error):
        self.error = type(error)("the payload cannot be read by Python's json: %s" % error)


def finite(text):
    """A float that is no infinity, which `float` makes of a number beyond the largest."""
    value = float(text)
    if value - value != 0:
        shown = text if len(text) <= 60 else text[:60] + "…"
        raise ValueError("%s is beyond the largest float; pass it as text" % shown)
    return value


async def wait_for(awaitable):
    return await awaitable


