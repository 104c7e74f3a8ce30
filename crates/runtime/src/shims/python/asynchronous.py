# Asynchronous jobs, in one event loop over the life of the process.

# A timer that is so late tells that the loop did not turn. Seconds.
LATE_S = 0.1
# What the loop runs for so long keeps it from turning. Seconds.
BLOCKED_S = 0.05


class Asynchronous:
    """Runs up to `concurrency` jobs at once. Each has a task, and so a context of its own: what it sets there is seen by no other
    job, and what it prints, directly or through tasks that it starts, is known as its own."""

    def __init__(self, process):
        import asyncio
        import contextvars

        self.process = process
        self.outbox = process.outbox
        self.loop = process.loop
        self.job = contextvars.ContextVar("gristmill_job", default=None)
        # What the script has set at its import, and no job.
        self.context = contextvars.copy_context()
        # Those that run, by number.
        self.jobs = {}
        self.is_reading = self.will_flush = False
        self.ended = self.loop.create_future()
        self.thread_id = threading.get_ident()
        self.step = asyncio.events.Handle._run.__code__

    def serve(self):
        self.process.words[MANNER] = BEGUN_TO
        self.read_again()
        try:
            self.loop.run_until_complete(self.ended)
        except BaseException as error:
            if self.process.forked:
                is_end = isinstance(error, (SystemExit, KeyboardInterrupt))
                leave_fork(error if is_end else RuntimeError("a fork of an asynchronous job waited: its event loop is its parent's"))
            raise

    # --- which jobs begin ---

    def read_again(self):
        if not self.is_reading:
            self.is_reading = True
            self.loop.add_reader(REQUESTS_FD, self.read_requests)

    def read_requests(self):
        if not self.process.requests.fill():
            self.loop.remove_reader(REQUESTS_FD)
            if not self.ended.done():
                self.ended.set_result(None)
            return
        self.begin_jobs()

    def begin_jobs(self):
        process = self.process
        while len(self.jobs) < process.concurrency:
            frame, item = self.take_job()
            if frame is None:
                return
            number, payload = item
            job = self.jobs[number] = Job(number, frame, process.log_bytes_max)
            job.task = self.context.copy().run(self.loop.create_task, self.run(job, payload))
        if self.is_reading and process.frame is not None and process.frame.end > process.words[BEGUN]:
            # There is no room: what is in the pipe stays there.
            self.is_reading = False
            self.loop.remove_reader(REQUESTS_FD)

    def take_job(self):
        process = self.process
        while True:
            frame = process.frame
            item = next(frame.jobs, None) if frame is not None else None
            if item is not None:
                process.words[BEGUN] = item[0] + 1
                if self.outbox.is_parked:
                    self.outbox.ring()
                return frame, item
            if not process.take_frame():
                self.read_again()
                return None, None

    # --- a job ---

    async def run(self, job, payload):
        """One job, which is its task's."""
        process, outbox, frame = self.process, self.outbox, job.frame
        self.job.set(job)
        if frame.timeout_s is not None:
            job.due = self.loop.time() + frame.timeout_s
            job.timer = self.loop.call_later(frame.timeout_s, self.time_out, job)
        start = now_ns()
        try:
            value = await frame.main(payload)
        except BaseException as error:
            if process.forked:
                leave_fork(error)
            outcome = None if job.timed_out else process.describe(error)
        else:
            if process.forked:
                leave_fork(None)
            outcome = None if job.timed_out else process.conclude(value)
        end = now_ns()
        if job.timer is not None:
            job.timer.cancel()
        if job.timed_out:
            message = "still running after its timeout of %d ms; it was cancelled" % round(frame.timeout_s * 1000)
            outcome = {"type": "timeout", "message": message}
        process.answer(job, start, end, outcome)
        del self.jobs[job.number]
        if len(outbox.numbers) >= UNSENT_JOBS_MAX:
            outbox.flush()
        elif not self.will_flush:
            # What else ends in this turn of the loop leaves in the same frame, and so does what ends shortly after a frame.
            self.will_flush = True
            wait_ns = outbox.flushed_ns + process.flush_every_ns // 2 - end
            if wait_ns > 0:
                self.loop.call_later(wait_ns / 1000000000, self.flush_turn)
            else:
                self.loop.call_soon(self.flush_turn)
        self.begin_jobs()

    def flush_turn(self):
        self.will_flush = False
        self.outbox.flush()

    def time_out(self, job):
        late_s = self.loop.time() - job.due
        if late_s > LATE_S and job.excused_s + late_s <= job.frame.timeout_s:
            # Another job kept the loop from turning, and so this one from ending: it gets that time.
            job.excused_s += late_s
            job.due = self.loop.time() + late_s
            job.timer = self.loop.call_later(late_s, self.time_out, job)
            return
        job.timed_out = True
        job.task.cancel()

    # --- who keeps the loop from turning: asked by another thread ---

    def culprit(self, overdue):
        """The number of the job that keeps an overdue one from ending, if there is one."""
        step, blocking = self.running_step()
        if step is not None and blocking is not None:
            time.sleep(BLOCKED_S)
            if self.running_step()[0] is step:
                return blocking.number
        job = self.jobs.get(overdue)
        # One that was cancelled, and goes on.
        return overdue if job is not None and job.timed_out else None

    def running_step(self):
        """What the loop runs at the moment, which is the same object as long as it does, and the job whose code it is."""
        frame = sys._current_frames().get(self.thread_id)
        while frame is not None and frame.f_code is not self.step:
            frame = frame.f_back
        if frame is not None:
            handle = frame.f_locals["self"]
            return handle, handle._context.get(self.job)
        import asyncio

        # Another loop than asyncio's own.
        task = asyncio.current_task(self.loop)
        return task, next((job for job in list(self.jobs.values()) if job.task is task), None)


