// Gristmill's side of a warm JavaScript process (Node 18+, Deno 2+, Bun 1.1+): imports the script once,
// then runs a stream of jobs. The protocol is described in protocol.rs. This is the body of a function
// with the parameters `fs` (the module node:fs) and `load` (import by URL).
return (async () => {
  const { Worker } = await load('node:worker_threads');
  const { Console } = await load('node:console');
  const { inspect, types } = await load('node:util');
  const { pathToFileURL } = await load('node:url');
  const { Buffer } = await load('node:buffer');
  const { default: process } = await load('node:process');

  const RUN = 2, READY = 17, REFUSED = 18, FINALIZING = 1;
  const REQUESTS_FD = 3, OUTCOMES_FD = 4, CONTROL_FD = 5, SHIM_FD = 6, BELL_FD = 7;
  const ERROR_MESSAGE_CHARACTERS_MAX = 4096, PROGRESS_MESSAGE_CHARACTERS_MAX = 400;
  // A job's word on how far it is, at most this often.
  const PROGRESS_EVERY_MS = 10;
  // A character of a JavaScript string has at most this many bytes in UTF-8.
  const UTF8_BYTES_MAX = 3;
  // A job that started a program ran at least this long.
  const MARK_AFTER_MS = 1;
  const TIMEOUT_MS_MAX = 0x7fffffff;
  // Records among the output, and how many bytes each holds at most.
  const ENDED = 0, PRINTED = 1, DROPPED = 2, RECORD_HEAD_BYTES = 22, RECORD_BYTES_MAX = 4096 - RECORD_HEAD_BYTES;

  // --- outcomes on their way out ---
  //
  // Finished outcomes lie in memory that is shared with a second thread, the flusher, which sends them
  // on time while a job computes or blocks. This thread only appends; whoever holds the lock sends.
  // Only this thread, holding the lock, starts again from the beginning of the memory.

  const JOBS_MAX = 16384, VALUES_BYTES = 4 << 20, NOTES_BYTES = 2 << 20;
  const memory = {
    words: new Int32Array(new SharedArrayBuffer(64)),
    numbers: new Uint32Array(new SharedArrayBuffer(JOBS_MAX * 4)),
    durations: new Uint32Array(new SharedArrayBuffer(JOBS_MAX * 4)),
    // Where each value ends, its separator included.
    ends: new Uint32Array(new SharedArrayBuffer(JOBS_MAX * 4)),
    values: new Uint8Array(new SharedArrayBuffer(VALUES_BYTES)),
    notes: new Uint8Array(new SharedArrayBuffer(NOTES_BYTES)),
  };
  const { words } = memory;
  // NEXT is the number of the job that begins next. Whoever exchanges it has what lies between: the main thread one job, the
  // flusher all up to the limit that Gristmill set.
  const COUNT = 1, NOTES_END = 3, BEGUN = 5, NEXT = 7, ACTIVE = 8, PARKED = 9, TICK = 10, OPENED = 11, QUIET = 12;

  // Runs in both threads: in the flusher as the text of this function.
  function makeSender(fs, memory, nonce, fd) {
    const { words, numbers, durations, ends, values, notes } = memory;
    const LOCK = 0, COUNT = 1, SENT = 2, NOTES_END = 3, NOTES_SENT = 4, BEGUN = 5, BEGUN_SENT = 6;
    let buffer = new Uint8Array(1 << 16);

    const lock = () => {
      while (Atomics.compareExchange(words, LOCK, 0, 1) !== 0) Atomics.wait(words, LOCK, 1, 1);
    };
    const unlock = () => {
      Atomics.store(words, LOCK, 0);
      Atomics.notify(words, LOCK, 1);
    };
    const write = (bytes) => {
      for (let at = 0; at < bytes.length;) at += fs.writeSync(fd, bytes, at, bytes.length - at);
    };
    const frame = (kind, size, total) => {
      if (buffer.length < total) buffer = new Uint8Array(total * 2);
      const head = new DataView(buffer.buffer);
      head.setUint32(0, size, true);
      head.setUint32(4, kind, true);
      head.setBigUint64(8, BigInt(nonce), true);
      return head;
    };

    // Sends one outcomes frame; `count` jobs with `valueBytes` as they lie in memory from `start`.
    const sendRange = (from, count, start, end, noteFrom, noteTo) => {
      const valueBytes = count === 0 ? 0 : end - start;
      const size = 16 + count * 8 + valueBytes + (noteTo - noteFrom);
      const head = frame(19, size, 16 + size);
      const begun = Atomics.load(words, BEGUN);
      head.setUint32(16, begun, true);
      head.setUint32(20, count, true);
      head.setUint32(24, valueBytes, true);
      head.setUint32(28, 0, true);
      let at = 32;
      for (let index = from; index < from + count; index++, at += 4) head.setUint32(at, numbers[index], true);
      for (let index = from; index < from + count; index++, at += 4) head.setUint32(at, durations[index], true);
      if (count > 0) {
        // Every value lies there with a separator of two bytes after it: the first bracket takes one
        // byte before, the last bracket one of the two.
        buffer[at] = 0x5b;
        buffer.set(values.subarray(start, end - 2), at + 1);
        at += valueBytes;
        buffer[at - 1] = 0x5d;
      }
      buffer.set(notes.subarray(noteFrom, noteTo), at);
      write(buffer.subarray(0, 16 + size));
      words[BEGUN_SENT] = begun;
    };

    // Sends what is finished; afterwards, where it may, makes all memory free again.
    // Says whether there was anything to send.
    const flush = (startAnew) => {
      lock();
      const count = Atomics.load(words, COUNT), from = words[SENT];
      const notesEnd = Atomics.load(words, NOTES_END), noteFrom = words[NOTES_SENT];
      const isNews = count > from || notesEnd > noteFrom || Atomics.load(words, BEGUN) !== words[BEGUN_SENT];
      if (isNews) {
        sendRange(from, count - from, from === 0 ? 0 : ends[from - 1], count === 0 ? 0 : ends[count - 1], noteFrom, notesEnd);
      }
      words[SENT] = count;
      words[NOTES_SENT] = notesEnd;
      if (startAnew) {
        words[COUNT] = words[SENT] = words[NOTES_END] = words[NOTES_SENT] = 0;
      }
      unlock();
      return isNews;
    };
    const sendJson = (kind, body) => {
      const bytes = new TextEncoder().encode(JSON.stringify(body));
      frame(kind, bytes.length, 16 + bytes.length);
      buffer.set(bytes, 16);
      write(buffer.subarray(0, 16 + bytes.length));
    };
    // Sends a note of its own.
    const sendNote = (note) => {
      const bytes = new TextEncoder().encode(JSON.stringify(note) + '\n');
      lock();
      const head = frame(19, 16 + bytes.length, 32 + bytes.length);
      head.setUint32(16, Atomics.load(words, BEGUN), true);
      [20, 24, 28].forEach((at) => head.setUint32(at, 0, true));
      buffer.set(bytes, 32);
      write(buffer.subarray(0, 32 + bytes.length));
      unlock();
    };
    const exclusively = (action) => {
      lock();
      action();
      unlock();
    };
    return { flush, sendJson, sendNote, exclusively };
  }

  const flusherSource = `
    const { workerData: { memory, nonce, everyMs, fd, controlFd } } = require('node:worker_threads');
    const fs = require('node:fs');
    const { words } = memory;
    const NEXT = 7, ACTIVE = 8, PARKED = 9, TICK = 10, OPENED = 11, QUIET = 12, PARK_AFTER_MS = 100;
    // Beside a job that says nothing for so many ticks, this thread looks only so often, until it is woken.
    const QUIET_AFTER_TICKS = 8, QUIET_EVERY_MS = 8;
    const control = fs.openSync('/dev/fd/' + controlFd, 'r');
    const { flush, sendNote } = (${makeSender.toString()})(fs, memory, nonce, fs.openSync('/dev/fd/' + fd, 'w'));
    const limitWord = new Uint32Array(1);
    let recalledTo = 0;
    // Takes back what has not begun, where Gristmill asks for it.
    const heedLimit = () => {
      fs.readSync(control, limitWord, 0, 4, 0);
      const to = limitWord[0];
      if (to === recalledTo) return;
      recalledTo = to;
      for (let from = Atomics.load(words, NEXT); ;) {
        const seen = from >= to ? from : Atomics.compareExchange(words, NEXT, from, to);
        if (seen === from) {
          sendNote({ recalled: { from: Math.min(from, to), to } });
          return;
        }
        from = seen;
      }
    };
    Atomics.store(words, OPENED, 1);
    Atomics.notify(words, OPENED);
    for (let idleMs = 0, quietTicks = 0; ; ) {
      const isQuiet = quietTicks >= QUIET_AFTER_TICKS;
      Atomics.store(words, QUIET, isQuiet ? 1 : 0);
      // What came before the word was set is seen here; what comes after it wakes this thread.
      if (!isQuiet || !flush(false)) Atomics.wait(words, TICK, 0, isQuiet ? QUIET_EVERY_MS : everyMs);
      if (Atomics.load(words, ACTIVE) === 1) {
        idleMs = 0;
        heedLimit();
        const wasWoken = isQuiet && Atomics.load(words, QUIET) === 0;
        quietTicks = flush(false) || wasWoken ? 0 : quietTicks + 1;
      } else if ((idleMs += everyMs) >= PARK_AFTER_MS) {
        Atomics.store(words, PARKED, 1);
        if (Atomics.load(words, ACTIVE) === 0) Atomics.wait(words, PARKED, 1);
        Atomics.store(words, PARKED, 0);
        idleMs = 0;
      }
    }`;

  // --- requests ---

  const requests = fs.openSync('/dev/fd/' + REQUESTS_FD, 'r');
  let input = Buffer.allocUnsafe(1 << 20);
  let inputBegin = 0;
  let inputEnd = 0;
  let inputNeeded = 16;
  // While an asynchronous script waits for work its own timers and sockets go on; a synchronous one is served faster by a
  // read that blocks.
  let readsAsync = false;
  let nonce = null;

  // Reads as much as there is; false at the end. A promise where `readsAsync`.
  const fill = () => {
    if (inputBegin === inputEnd) inputBegin = inputEnd = 0;
    if (inputBegin + inputNeeded > input.length) {
      const larger = inputNeeded > input.length ? Buffer.allocUnsafe(inputNeeded * 2) : input;
      input.copy(larger, 0, inputBegin, inputEnd);
      input = larger;
      inputEnd -= inputBegin;
      inputBegin = 0;
    }
    const room = input.length - inputEnd;
    if (!readsAsync) {
      const bytes = fs.readSync(requests, input, inputEnd, room, null);
      inputEnd += bytes;
      return bytes > 0;
    }
    return new Promise((resolve, reject) => {
      fs.read(requests, input, inputEnd, room, null, (error, bytes) => {
        if (error) return reject(error);
        inputEnd += bytes;
        resolve(bytes > 0);
      });
    });
  };

  // Where in `input` the body of the next frame lies, if all of it has been read.
  const nextFrame = () => {
    const have = inputEnd - inputBegin;
    inputNeeded = 16;
    if (have < 16) return null;
    const length = input.readUInt32LE(inputBegin), kind = input.readUInt32LE(inputBegin + 4);
    if (nonce !== null && input.readBigUInt64LE(inputBegin + 8) !== nonce) {
      fs.writeSync(2, "something in the script wrote to the pipe that Gristmill's requests come from\n");
      process.exit(70);
    }
    inputNeeded = 16 + length;
    if (have < inputNeeded) return null;
    const at = inputBegin + 16;
    inputBegin += inputNeeded;
    return { kind, at, end: at + length };
  };

  // --- text that others can read ---

  // Lone surrogates, which no JSON reader outside JavaScript takes, become U+FFFD.
  const clean = (text) => Buffer.from(text, 'utf8').toString('utf8');

  const describe = (error) => {
    if (!types.isNativeError(error) && !(error instanceof Error)) {
      return { type: 'Thrown', message: clean(`main threw ${inspect(error)}`.slice(0, ERROR_MESSAGE_CHARACTERS_MAX)) };
    }
    const name = error.name && error.name !== 'Error' ? error.name : error.constructor?.name || 'Error';
    const failure = {
      type: clean(String(name)),
      message: clean(String(error.message).slice(0, ERROR_MESSAGE_CHARACTERS_MAX)),
    };
    let trace = '';
    for (let cause = error, depth = 0; cause && depth < 8; cause = cause.cause, depth++) {
      trace += (depth > 0 ? '\nCaused by: ' : '') + trim(cause?.stack ?? inspect(cause));
    }
    failure.traceback = clean(trace.slice(0, hello.traceback_bytes_max / UTF8_BYTES_MAX));
    const retryAfter = error.retry_after ?? error.retryAfter;
    if (typeof retryAfter === 'number' && retryAfter >= 0 && retryAfter < Infinity) failure.retry_after = retryAfter;
    if (error.permanent === true) failure.permanent = true;
    return failure;
  };

  // A stack without the frames of this file, which is known by its name or as evaluated text.
  const trim = (stack) => String(stack).split('\n')
    .filter((line) => !/^\s+at .*(gristmill-shim|eval at |\[eval|\(<anonymous>|node:internal|ext:core|data:application)/.test(line))
    .join('\n');

  class NotJson extends Error {}

  // Children in one batch.
  const CHILDREN_MAX = 10000;

  // What a job spawns; made by gristmill.spawn.
  class Spawn {
    constructor(body) { this.body = body; }
  }

  // A value with siblings; made by gristmill.done.
  class Done {
    constructor(value, siblings) { Object.assign(this, { value, siblings }); }
  }

  // Batches of children as the protocol has them.
  const pack = (named, children, batches) => {
    const packed = [];
    for (const { payloads, ...rest } of [{ ...named, payloads: children }, ...batches]) {
      for (let first = 0; first < payloads.length; first += CHILDREN_MAX) {
        packed.push({ ...rest, payloads: payloads.slice(first, first + CHILDREN_MAX) });
      }
    }
    return packed;
  };

  // Returned by main (or finalize): the job waits for these children, and then `finalize(payload, memo, outcomes)` is
  // called. `children` are payloads, of the job's own kind where none is named; `batches` are more of them, each with
  // `payloads` and perhaps `kind`, `queue`, `tags` and `options`. `on_failure` is 'fail' or 'collect'.
  const spawn = ({ children = [], memo = null, batches = [], on_failure = 'fail', ...named } = {}) => (
    new Spawn({ children: pack(named, children, batches), memo: [memo], on_failure })
  );

  // Returned by main (or finalize) of a child: it completes with the value, and its parent waits for these siblings, too.
  // They are as the children of `spawn`.
  const done = (value = null, { siblings = [], batches = [], ...named } = {}) => (
    new Done(value, pack(named, siblings, batches))
  );

  const hasNonFinite = (value) => {
    if (typeof value === 'number') return !Number.isFinite(value);
    if (typeof value !== 'object' || value === null || typeof value.toJSON === 'function') return false;
    return Object.values(value).some(hasNonFinite);
  };

  // The JSON of what main returned; throws what JSON or UTF-8 cannot hold.
  const serialise = (value) => {
    let text;
    try {
      text = JSON.stringify(value);
    } catch (error) {
      throw new NotJson(`main returned what JSON cannot hold: ${error.message}`);
    }
    if (text === undefined) {
      if (value === undefined) return 'null';
      throw new NotJson(`main returned a ${typeof value}, which JSON cannot hold`);
    }
    // JSON.stringify makes null of what is not finite, and escapes what is not Unicode.
    if (text.includes('null') && hasNonFinite(value)) {
      throw new NotJson('main returned NaN or an infinity, which JSON cannot hold: return null or text instead');
    }
    if (text.includes('\\ud')) {
      const unescaped = text.replace(/\\\\/g, '');
      if (/\\ud[89a-f]/.test(unescaped)) {
        throw new NotJson('main returned text with a lone surrogate, which is not Unicode');
      }
    }
    return text;
  };

  // --- what jobs print ---

  // A job that runs. What it prints goes into the output pipe at once, up to its limit; the rest is counted.
  class Job {
    constructor(number, frame) {
      this.number = number;
      this.frame = frame;
      this.begunAt = 0;
      this.endedAt = 0;
      this.saidAt = -Infinity;
      this.room = hello.log_bytes_max;
      this.dropped = 0;
      this.isSilent = true;
      this.isAnswered = false;
    }

    print(chunk, encoding) {
      this.isSilent = false;
      if (this.room === 0) {
        this.dropped += typeof chunk === 'string' ? Buffer.byteLength(chunk, encoding) : chunk.length;
        return;
      }
      const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
      const kept = Math.min(bytes.length, this.room);
      for (let at = 0; at < kept; at += RECORD_BYTES_MAX) {
        writeRecord(PRINTED, this.number, bytes.subarray(at, Math.min(at + RECORD_BYTES_MAX, kept)));
      }
      this.room -= kept;
      if (bytes.length > kept) {
        this.dropped += bytes.length - kept;
        // That something is missing shows even if the job does not live to say how much.
        this.sayDropped();
      }
    }

    sayDropped() {
      const bytes = Buffer.alloc(8);
      bytes.writeBigUInt64LE(BigInt(this.dropped));
      writeRecord(DROPPED, this.number, bytes);
    }
  }

  const none = Buffer.alloc(0);
  const record = Buffer.alloc(RECORD_HEAD_BYTES + RECORD_BYTES_MAX);
  record.write('\0GRST', 0, 'latin1');
  // A description of the output pipe that is our own, whatever the script does to its standard output.
  const output = fs.openSync('/dev/fd/1', 'w');
  const writeRecord = (kind, number, bytes) => {
    record[13] = kind;
    record.writeUInt32LE(number, 14);
    record.writeUInt32LE(bytes.length, 18);
    record.set(bytes, RECORD_HEAD_BYTES);
    fs.writeSync(output, record, 0, RECORD_HEAD_BYTES + bytes.length);
  };

  let running = null;
  let contexts = null;
  const currentJob = () => contexts?.getStore() ?? running;

  const captureOutput = () => {
    for (const [stream, fd] of [[process.stdout, 1], [process.stderr, 2]]) {
      stream.write = (chunk, encoding, done) => {
        const callback = typeof encoding === 'function' ? encoding : done;
        const job = currentJob();
        if (job) {
          job.print(chunk, typeof encoding === 'string' ? encoding : 'utf8');
        } else {
          fs.writeSync(fd, chunk);
        }
        if (callback) queueMicrotask(callback);
        return true;
      };
    }
    const captured = new Console({ stdout: process.stdout, stderr: process.stderr });
    for (const method of Object.keys(captured)) {
      if (typeof captured[method] === 'function') globalThis.console[method] = captured[method].bind(captured);
    }
  };

  // --- running ---

  let greeting;
  while ((greeting = nextFrame()) === null) {
    if (!fill()) return;
  }
  const hello = JSON.parse(input.toString('utf8', greeting.at, greeting.end));
  nonce = BigInt(hello.nonce);
  record.writeBigUInt64LE(nonce, 5);
  const outcomes = fs.openSync('/dev/fd/' + OUTCOMES_FD, 'w');
  const { flush, sendJson, exclusively } = makeSender(fs, memory, hello.nonce, outcomes);
  const flushAfterMs = hello.flush_every_ms / 2;
  const values = Buffer.from(memory.values.buffer);
  const notes = Buffer.from(memory.notes.buffer);
  let main = null;
  let finalize = null;
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

  const note = (body) => {
    const text = JSON.stringify(body) + '\n';
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

  // A value that the shared memory cannot hold for sure: sent at once, in a frame of its own.
  const appendLarge = (job, text) => {
    const bytes = Buffer.byteLength(text, 'utf8');
    if (bytes > hello.value_bytes_max) {
      const message = `main returned a value of ${bytes} bytes; the limit is ${hello.value_bytes_max} ` +
        '(VALUE_BYTES_MAX): return a reference to it';
      fail(job, { type: 'ValueTooLarge', message });
      return;
    }
    flushAll();
    const large = {
      words: new Int32Array(16),
      numbers: Uint32Array.of(job.number),
      durations: Uint32Array.of(durationUs(job)),
      ends: Uint32Array.of(bytes + 2),
      values: Buffer.from(text + '\n,', 'utf8'),
      notes: new Uint8Array(0),
    };
    large.words[COUNT] = 1;
    large.words[BEGUN] = words[BEGUN];
    exclusively(() => makeSender(fs, large, hello.nonce, outcomes).flush(false));
  };

  const settleSpawn = (job, text) => {
    if (text.length * UTF8_BYTES_MAX > NOTES_BYTES / 2) {
      const message = `main spawned children and a memo of ${text.length} characters: spawn fewer at once`;
      fail(job, { type: 'SpawnTooLarge', message });
      return;
    }
    note({ spawned: { index: job.number, duration_us: durationUs(job), spawn: JSON.parse(text) } });
  };

  const settleDone = (job, value, siblings) => {
    const length = value.length + siblings.length;
    if (length * UTF8_BYTES_MAX > NOTES_BYTES / 2) {
      const message = `main returned a value and siblings of ${length} characters: spawn fewer at once`;
      fail(job, { type: 'SpawnTooLarge', message });
      return;
    }
    const spawned = { value: [JSON.parse(value)], siblings: JSON.parse(siblings) };
    note({ done: { index: job.number, duration_us: durationUs(job), ...spawned } });
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
        settleSpawn(job, serialise(value.body));
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
    for (const { batch, attempt, queue, positions, group = null, deadline = null, keys, tags = [] } of parts) {
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
        jobs.push({ id: `${batch}:${position}`, attempt, key, batch, kind, queue, group, tags: own, deadline });
      }
    }
    return jobs;
  };

  // Which job runs; null where none does. `id` (such as "42:7": the same on every attempt), `attempt` (from 1), `batch`, `kind` and
  // `queue`; `key` and `group`, null for a job without; `tags`, an object; `deadline`, the seconds since 1970 by which the job has
  // to have completed, or null.
  const identity = () => {
    const job = currentJob();
    if (!job) return null;
    const { frame } = job;
    if (typeof frame.identity === 'string') frame.identity = knownJobs(JSON.parse(frame.identity));
    const known = frame.identity[job.number - frame.first];
    return Object.freeze({ ...known, tags: Object.freeze(Object.fromEntries(known.tags)) });
  };

  // Calls the script's finalize with payload, memo and the outcomes of the children.
  const finalizeOne = ([payload, memo, outcomes]) => {
    if (finalize) return finalize(payload, memo, outcomes);
    const failed = outcomes.find((outcome) => outcome.state !== 'completed');
    if (!failed) return null;
    const error = new Error(`job ${failed.job}, a child of it, ended as ${failed.state}`);
    error.name = 'ChildFailed';
    error.permanent = true;
    throw error;
  };

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
    const payloads = JSON.parse(input.toString('utf8', payloadsAt, next.end));
    const identity = input.toString('utf8', next.at + 16, payloadsAt);
    frame = { first, payloads, timeoutMs, identity, main: (flags & FINALIZING) === 0 ? main : finalizeOne };
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
          flushAll();
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

  const end = (job, timer, answer) => {
    if (timer !== null) clearTimeout(timer);
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

  const begin = (number) => {
    const job = new Job(number, frame);
    job.begunAt = now();
    taken++;
    const timer = frame.timeoutMs > 0 ? setTimeout(giveUp, frame.timeoutMs, job) : null;
    let value;
    try {
      value = contexts.run(job, frame.main, frame.payloads[number - frame.first]);
    } catch (error) {
      end(job, timer, () => settleError(job, error));
      return;
    }
    if (isThenable(value)) {
      value.then(
        (value) => end(job, timer, () => settle(job, value)),
        (error) => end(job, timer, () => settleError(job, error)),
      );
    } else {
      end(job, timer, () => settle(job, value));
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

  // --- starting ---

  const importScript = async () => {
    const script = await load(pathToFileURL(hello.script).href);
    main = script.main ?? script.default?.main ?? script.default;
    if (typeof main !== 'function') {
      const name = hello.script.split('/').pop();
      const error = new Error(`${name} exports no function main; write \`export function main(payload) { … }\``);
      error.name = 'NoMain';
      error.stack = '';
      throw error;
    }
    const own = script.finalize ?? script.default?.finalize;
    if (typeof own === 'function') finalize = own;
    if (types.isAsyncFunction(main)) {
      const { AsyncLocalStorage } = await load('node:async_hooks');
      contexts = new AsyncLocalStorage();
    }
  };

  // What the script starts must not get our pipes.
  const closeInherited = () => {
    const fds = [REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, SHIM_FD, BELL_FD];
    if (globalThis.Deno) {
      // Deno numbers its files by itself; the descriptors can be reached only through the C library.
      try {
        const libc = Deno.dlopen('libc.so.6', { close: { parameters: ['i32'], result: 'i32' } });
        fds.forEach((fd) => libc.symbols.close(fd));
        libc.close();
      } catch {
        // Another C library: a program that the script starts could write to our pipe, and would be
        // found out by the nonce.
      }
      return;
    }
    fds.forEach((fd) => fs.closeSync(fd));
  };

  const startFlusher = () => {
    const data = { memory, nonce: hello.nonce, everyMs: hello.flush_every_ms, fd: OUTCOMES_FD, controlFd: CONTROL_FD };
    new Worker(flusherSource, { eval: true, workerData: data }).unref();
    Atomics.wait(words, OPENED, 0);
  };

  const runtimeName = () => {
    if (globalThis.Deno) return `Deno ${Deno.version.deno}`;
    return globalThis.Bun ? `Bun ${Bun.version}` : `Node ${process.versions.node}`;
  };

  globalThis.gristmill ??= Object.freeze({ progress, job: identity, spawn, done });
  captureOutput();
  startFlusher();
  closeInherited();
  process.argv = [process.argv[0], hello.script];
  try {
    await importScript();
  } catch (error) {
    sendJson(REFUSED, describe(error));
    process.exit(1);
  }
  process.on('exit', () => flush(false));
  sendJson(READY, { runtime: runtimeName(), is_async: contexts !== null });
  await (contexts === null ? serveAlone() : serveAsync());
  process.exit(0);
})();
