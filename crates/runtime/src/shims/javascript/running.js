  // --- running ---

  let greeting;
  while ((greeting = nextFrame()) === null) {
    if (!fill()) return;
  }
  const hello = JSON.parse(input.toString('utf8', greeting.at, greeting.end));
  nonce = BigInt(hello.nonce);
  record.writeBigUInt64LE(nonce, 5);
  const outcomes = fs.openSync('/dev/fd/' + OUTCOMES_FD, 'w');
  const questions = fs.openSync('/dev/fd/' + QUESTIONS_FD, 'w');
  const answers = fs.openSync('/dev/fd/' + ANSWERS_FD, 'r');
  const { flush, sendJson, exclusively } = makeSender(fs, memory, hello.nonce, outcomes);
  const flushAfterMs = hello.flush_every_ms / 2;
  const values = Buffer.from(memory.values.buffer);
  const notes = Buffer.from(memory.notes.buffer);
  let main = null;
  let finalize = null;
  let crypto = null;
  let AsyncResource = null;
  let valuesEnd = 0;
  let flushedAt = 0;

  const now = () => performance.now();

  const flushAll = () => {
    flush(true);
    valuesEnd = 0;
    flushedAt = now();
  };

  // Wakes the flusher's thread where it looks rarely.
  const stir = () => {
    if (words[QUIET] === 1 && Atomics.exchange(words, QUIET, 0) === 1) Atomics.notify(words, TICK);
  };

  const note = (body) => noteText(JSON.stringify(body));

  // The JSON of a note, which may hold what no JavaScript value does.
  const noteText = (json) => {
    const text = json + '\n';
    if (words[NOTES_END] + text.length * UTF8_BYTES_MAX > NOTES_BYTES) flushAll();
    const end = words[NOTES_END];
    Atomics.store(words, NOTES_END, end + notes.write(text, end, 'utf8'));
    stir();
  };

  const durationUs = (job) => Math.min(Math.round((job.endedAt - job.begunAt) * 1000), 0xffffffff);

  const fail = (job, error) => note({ failed: { index: job.number, duration_us: durationUs(job), error } });

  const append = (number, duration, text) => {
    let count = words[COUNT];
    if (valuesEnd + text.length * UTF8_BYTES_MAX + 2 > VALUES_BYTES) {
      flushAll();
      count = 0;
    }
    valuesEnd += values.write(text, valuesEnd, 'utf8');
    values[valuesEnd++] = 0x0a;
    values[valuesEnd++] = 0x2c;
    memory.numbers[count] = number;
    memory.durations[count] = duration;
    memory.ends[count] = valuesEnd;
    Atomics.store(words, COUNT, count + 1);
    stir();
  };

  // Sends what the shared memory cannot hold for sure: at once, in a frame of its own.
  const sendLarge = (count, parts) => {
    flushAll();
    const nothing = new Uint32Array(0);
    const large = { words: new Int32Array(16), numbers: nothing, durations: nothing, ends: nothing, values: none, notes: none, ...parts };
    large.words[COUNT] = count;
    large.words[NOTES_END] = large.notes.length;
    large.words[BEGUN] = words[BEGUN];
    exclusively(() => makeSender(fs, large, hello.nonce, outcomes).flush(false));
  };

  const appendLarge = (job, text) => {
    const bytes = Buffer.byteLength(text, 'utf8');
    if (bytes > hello.value_bytes_max) {
      const message = `main returned a value of ${bytes} bytes; the limit is ${hello.value_bytes_max} ` +
        '(VALUE_BYTES_MAX): return a reference to it';
      fail(job, { type: 'ValueTooLarge', message });
      return;
    }
    sendLarge(1, {
      numbers: Uint32Array.of(job.number),
      durations: Uint32Array.of(durationUs(job)),
      ends: Uint32Array.of(bytes + 2),
      values: Buffer.from(text + '\n,', 'utf8'),
    });
  };

  // The note of a job that spawns. `told` says what it holds.
  const noteSpawned = (job, text, told) => {
    if (text.length * UTF8_BYTES_MAX <= NOTES_BYTES / 2) {
      noteText(text);
      return;
    }
    const note = Buffer.from(text + '\n', 'utf8');
    if (note.length > hello.value_bytes_max) {
      const message = `main spawned ${told} of ${note.length} bytes; the limit is ${hello.value_bytes_max} (VALUE_BYTES_MAX): ` +
        'spawn fewer at once';
      fail(job, { type: 'SpawnTooLarge', message });
      return;
    }
    sendLarge(0, { notes: note });
  };

  const settleSpawn = (job, text, told) => {
    noteSpawned(job, `{"spawned":{"index":${job.number},"duration_us":${durationUs(job)},"spawn":${text}}}`, told);
  };

  const settleDone = (job, value, siblings) => {
    const known = `"index":${job.number},"duration_us":${durationUs(job)}`;
    noteSpawned(job, `{"done":{${known},"value":[${value}],"siblings":${siblings}}}`, 'siblings');
  };

  // What is said of a job before its outcome: that the raw output so far is its own, where it may have started something that
  // writes there, and how much of what it printed is missing.
  const endOutput = (job) => {
    job.endedAt = now();
    if (job.endedAt - job.begunAt >= MARK_AFTER_MS) writeRecord(ENDED, job.number, none);
    if (job.dropped > 0) job.sayDropped();
  };

  const settle = (job, value) => {
    endOutput(job);
    try {
      if (value instanceof Spawn) {
        settleSpawn(job, serialise(value.body), 'children and a memo');
        return;
      }
      if (value instanceof Suspension) {
        settleSpawn(job, value.text, 'steps and a memo');
        return;
      }
      if (value instanceof Done) {
        if (value.siblings.length > 0) {
          settleDone(job, serialise(value.value), serialise(value.siblings));
          return;
        }
        value = value.value;
      }
      const text = serialise(value);
      if (text.length * UTF8_BYTES_MAX + 2 > VALUES_BYTES) appendLarge(job, text);
      else append(job.number, durationUs(job), text);
    } catch (error) {
      fail(job, { type: 'NotJson', message: clean(error.message) });
    }
  };

  const settleError = (job, error) => {
    endOutput(job);
    fail(job, describe(error));
  };

  // Says how far the running job is: so much is done of so much, in any unit, and what it is at; or, with an object,
  // { done, total, fraction, message }. Some calls within milliseconds of others are left out, but never the first.
  const progress = (done, total, message) => {
    const current = currentJob();
    if (!current || now() - current.saidAt < PROGRESS_EVERY_MS) return;
    const said = typeof done === 'object' && done !== null ? done : { done, total, message };
    const body = { index: current.number };
    for (const name of ['done', 'total']) {
      if (Number.isFinite(said[name])) body[name] = Math.min(Math.max(Math.trunc(said[name]), 0), Number.MAX_SAFE_INTEGER);
    }
    if (Number.isFinite(said.fraction)) body.fraction = Math.min(Math.max(said.fraction, 0), 1);
    if (said.message !== undefined && said.message !== null) {
      body.message = clean(String(said.message).slice(0, PROGRESS_MESSAGE_CHARACTERS_MAX));
    }
    current.saidAt = now();
    note({ progress: body });
  };

  // The positions of a text such as 0-3,7.
  const each = function* (positions) {
    for (const run of positions.split(',')) {
      const [first, last = first] = run.split('-').map(Number);
      for (let position = first; position <= last; position++) yield position;
    }
  };

  // What gristmill.job() says of each job of a frame. Made for a whole frame when the first of its jobs asks.
  const knownJobs = ({ kind, parts }) => {
    const jobs = [];
    for (const { batch, attempt, queue, positions, group = null, deadline = null, traceparent = null, keys, tags = [] } of parts) {
      // Entries, not properties: a tag may have any name.
      const ofAll = [], ofSome = new Map();
      for (const [name, value, having] of tags) {
        if (having === null) {
          ofAll.push([name, value]);
          continue;
        }
        for (const position of each(having)) {
          const own = ofSome.get(position);
          if (own) own.push([name, value]);
          else ofSome.set(position, [[name, value]]);
        }
      }
      let place = 0;
      for (const position of each(positions)) {
        const key = keys ? keys[place++] : null;
        const own = [...ofAll, ...ofSome.get(position) ?? []];
        jobs.push({ id: `${batch}:${position}`, attempt, key, batch, kind, queue, group, tags: own, deadline, traceparent });
      }
    }
    return jobs;
  };

  const ABOUT_FLOW = 1, ABOUT_PREREQUISITES = 2;
  const ANSWER_BYTES_READ = 1 << 16;
  // The answer to what a job asks about itself, as JSON. It is there in milliseconds; nothing else runs meanwhile.
  const question = Buffer.alloc(24);
  let questionsCount = 0n;
  // The part of an answer that is read now, how far it has come, and the head before a body. A read that fails leaves the rest to the
  // next question, which passes over the answer: it has the number of another one.
  const ANSWER_HEAD_BYTES = 16;
  const arriving = { part: Buffer.allocUnsafe(ANSWER_HEAD_BYTES), end: 0, head: null };
  const readPart = () => {
    const { part } = arriving;
    while (arriving.end < part.length) {
      const got = fs.readSync(answers, part, arriving.end, Math.min(part.length - arriving.end, ANSWER_BYTES_READ), null);
      if (got === 0) throw new Error('the worker is gone');
      arriving.end += got;
    }
    return part;
  };
  const readAnswer = () => {
    if (arriving.head === null) {
      const head = readPart();
      Object.assign(arriving, { part: Buffer.allocUnsafe(head.readUInt32LE(0)), end: 0, head });
    }
    const { head } = arriving;
    const answer = { isFailure: head.readUInt32LE(4) !== 0, mark: head.readBigUInt64LE(8), text: readPart().toString('utf8') };
    Object.assign(arriving, { part: Buffer.allocUnsafe(ANSWER_HEAD_BYTES), end: 0, head: null });
    return answer;
  };
  const ask = (number, about) => {
    question.writeBigUInt64LE(nonce, 0);
    question.writeUInt32LE(number, 8);
    question.writeUInt32LE(about, 12);
    question.writeBigUInt64LE(++questionsCount, 16);
    fs.writeSync(questions, question);
    let answer = readAnswer();
    while (answer.mark !== questionsCount) answer = readAnswer();
    if (answer.isFailure) throw new Error(answer.text);
    return answer.text;
  };

  // The flow that began a job as a step: `id`, `name`, `version`, `step` (its name), `key` and `item`, the number of the job in a
  // map; null for a job that is no step.
  const flowOfJob = (number) => {
    const known = JSON.parse(ask(number, ABOUT_FLOW));
    return known && Object.freeze({ version: null, step: null, key: null, item: null, ...known });
  };

  // The outcomes of the jobs for which a job waited. They are asked for once for the jobs of a batch in a frame.
  const prerequisitesOf = (number, batch, frame) => {
    if (frame.prerequisites?.batch !== batch) {
      frame.prerequisites = { batch, text: ask(number, ABOUT_PREREQUISITES) };
    }
    const outcomes = readPayload(frame.prerequisites.text, null);
    if (outcomes instanceof Unreadable) throw outcomes.error;
    return outcomes;
  };

  // Which job runs; null where none does. `id` (such as "42:7": the same on every attempt), `attempt` (from 1), `batch`, `kind` and
  // `queue`; `key` and `group`, null for a job without; `tags`, an object; `deadline`, the seconds since 1970 by which the job has
  // to have completed, or null; `traceparent`, the trace context of the job, or null; and `flow` and `prerequisites`, which are
  // asked for when they are used.
  const identity = () => {
    const job = currentJob();
    if (!job) return null;
    const { frame } = job;
    if (typeof frame.identity === 'string') frame.identity = knownJobs(JSON.parse(frame.identity));
    const { number } = job;
    const known = frame.identity[number - frame.first];
    const told = { ...known, tags: Object.freeze(Object.fromEntries(known.tags)) };
    Object.defineProperties(told, {
      flow: { get: () => flowOfJob(number) },
      prerequisites: { get: () => prerequisitesOf(number, known.batch, frame) },
    });
    return Object.freeze(told);
  };

  // Calls the script's finalize with payload, memo and the outcomes of the children.
  const finalizeOne = ([payload, memo, outcomes]) => (
    finalize ? finalize(payload, memo, outcomes) : withoutFinalize(outcomes)
  );

  // A failed child fails its parent.
  const withoutFinalize = (outcomes) => {
    const failed = outcomes.find((outcome) => outcome.state !== 'completed');
    if (!failed) return null;
    const error = new Error(`job ${failed.job}, a child of it, ended as ${failed.state}`);
    error.name = 'ChildFailed';
    error.permanent = true;
    throw error;
  };

