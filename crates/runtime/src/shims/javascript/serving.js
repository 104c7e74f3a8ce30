  // --- which jobs are to begin ---

  let frame = null;
  let at = 0;

  // Makes the next frame that was read the one whose jobs begin; false where there is none.
  const takeFrame = () => {
    const next = nextFrame();
    if (next === null) return false;
    if (next.kind !== RUN) return true;
    const first = input.readUInt32LE(next.at), flags = input.readUInt32LE(next.at + 4);
    const timeoutMs = Math.min(input.readUInt32LE(next.at + 8), TIMEOUT_MS_MAX);
    const payloadsAt = next.at + 16 + input.readUInt32LE(next.at + 12);
    // Taken back before it was read.
    if (first < Atomics.load(words, NEXT)) return true;
    const isFinalizing = (flags & FINALIZING) !== 0;
    const own = isFinalizing ? finalizeOne : main;
    const text = input.toString('utf8', payloadsAt, next.end);
    const read = (flags & (LONG | FAR)) === 0
      ? { payloads: JSON.parse(text), main: own }
      : readEach(text, own, isFinalizing ? FINALIZING_NAMES : null);
    const identity = input.toString('utf8', next.at + 16, payloadsAt);
    frame = { first, timeoutMs, identity, ...read };
    at = 0;
    return true;
  };

  // The number of the next job of the frame, which is the caller's from then on; -1 where there is none.
  const takeNumber = () => {
    if (frame === null) return -1;
    const number = frame.first + at;
    if (at < frame.payloads.length && Atomics.compareExchange(words, NEXT, number, number + 1) === number) {
      at++;
      Atomics.store(words, BEGUN, number + 1);
      stir();
      return number;
    }
    // At its end, or what is left was taken back.
    frame = null;
    return -1;
  };

  const activate = () => {
    Atomics.store(words, ACTIVE, 1);
    if (Atomics.load(words, PARKED) === 1) Atomics.notify(words, PARKED);
  };

  // --- one job at a time ---

  const isThenable = (value) => typeof value === 'object' && value !== null && typeof value.then === 'function';

  // Runs the jobs of a frame. A promise where one of them returns a promise, which is waited for before the next one begins.
  const runFrame = () => {
    let job = running = new Job(0, frame);
    let endedAt = now();
    for (let number; (number = takeNumber()) >= 0;) {
      job.number = number;
      job.saidAt = -Infinity;
      job.begunAt = endedAt;
      let value;
      try {
        value = frame.main(frame.payloads[number - frame.first]);
      } catch (error) {
        settleError(job, error);
        job = running = new Job(0, frame);
        endedAt = now();
        continue;
      }
      if (isThenable(value)) {
        readsAsync = true;
        const own = job;
        return value.then((value) => settle(own, value), (error) => settleError(own, error)).then(() => {
          // The flusher sends what is older.
          if (now() - flushedAt >= flushAfterMs) flushAll();
          return runFrame();
        });
      }
      settle(job, value);
      if (!job.isSilent) job = running = new Job(0, frame);
      // The next job begins now, unless something is sent before.
      endedAt = now();
      if (endedAt - flushedAt >= flushAfterMs) {
        flushAll();
        endedAt = flushedAt;
      }
    }
    running = null;
    return undefined;
  };

  const serveAlone = async () => {
    let yieldedAt = now();
    for (;;) {
      activate();
      flushedAt = now();
      while (takeFrame()) {
        if (frame === null) continue;
        const ended = runFrame();
        if (ended !== undefined) await ended;
      }
      Atomics.store(words, ACTIVE, 0);
      flushAll();
      if (!readsAsync && now() - yieldedAt >= hello.flush_every_ms) {
        // What a synchronous script left to its event loop gets a turn.
        await new Promise((resolve) => setImmediate(resolve));
        yieldedAt = now();
      }
      const filled = fill();
      if (!(filled === true || (filled !== false && await filled))) return;
    }
  };

  // --- asynchronous jobs ---

  // Slots that are taken, and those among them that were given up at their timeout and have not ended.
  let taken = 0;
  let givenUp = 0;
  let isExhausted = false;
  let wake = null;
  let willFlush = false;

  // A timer that is so late tells that the event loop did not turn.
  const LATE_MS = 100;

  // What else ends in this turn of the event loop leaves in the same frame.
  const flushSoon = () => {
    if (willFlush) return;
    willFlush = true;
    setImmediate(() => {
      willFlush = false;
      if (taken === 0) Atomics.store(words, ACTIVE, 0);
      flushAll();
    });
  };

  const giveUp = (job) => {
    if (job.isAnswered) return;
    const lateMs = now() - job.dueAt;
    if (lateMs > LATE_MS && job.excusedMs + lateMs <= job.frame.timeoutMs) {
      // Another job kept the event loop from turning, and so this one from ending: it gets that time.
      job.excusedMs += lateMs;
      job.dueAt = now() + lateMs;
      job.timer = setTimeout(giveUp, lateMs, job);
      return;
    }
    job.isAnswered = true;
    endOutput(job);
    const message = `still running after its timeout of ${job.frame.timeoutMs} ms; it was given up, and holds its slot until it ends`;
    fail(job, { type: 'timeout', message });
    givenUp++;
    if (givenUp * 2 >= hello.concurrency && !isExhausted) {
      isExhausted = true;
      note('exhausted');
    }
    flushSoon();
  };

  const end = (job, answer) => {
    clearTimeout(job.timer);
    if (job.isAnswered) {
      givenUp--;
    } else {
      job.isAnswered = true;
      answer();
    }
    taken--;
    flushSoon();
    if (wake) {
      wake();
      wake = null;
    }
  };

  const callInContext = (job, payload) => contexts.run(job, job.frame.main, payload);

  const begin = (number) => {
    const job = new Job(number, frame);
    job.begunAt = now();
    taken++;
    if (frame.timeoutMs > 0) {
      job.dueAt = job.begunAt + frame.timeoutMs;
      job.timer = setTimeout(giveUp, frame.timeoutMs, job);
    }
    let value;
    Atomics.store(words, CALLED, number + 1);
    try {
      // A resource of its own keeps what the job enters (`enterWith`) from those that begin after it.
      value = new AsyncResource('gristmill').runInAsyncScope(callInContext, null, job, frame.payloads[number - frame.first]);
    } catch (error) {
      end(job, () => settleError(job, error));
      return;
    } finally {
      Atomics.store(words, CALLED, 0);
    }
    if (isThenable(value)) {
      value.then(
        (value) => end(job, () => settle(job, value)),
        (error) => end(job, () => settleError(job, error)),
      );
    } else {
      end(job, () => settle(job, value));
    }
  };

  const serveAsync = async () => {
    readsAsync = true;
    flushedAt = now();
    for (;;) {
      let number = -1;
      while (taken < hello.concurrency && !isExhausted) {
        while ((number = takeNumber()) < 0 && takeFrame());
        if (number < 0) break;
        activate();
        begin(number);
        if (now() - flushedAt >= flushAfterMs) flushAll();
      }
      if (taken >= hello.concurrency || isExhausted) {
        await new Promise((resolve) => { wake = resolve; });
      } else if (!await fill()) {
        return;
      }
    }
  };

