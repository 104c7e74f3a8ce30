// Gristmill's side of a warm JavaScript process (Node 18+, Deno 2+, Bun 1.1+): imports the script once,
// then runs micro-batches. The protocol is described in protocol.rs. This is the body of a function
// with the parameters `fs` (the module node:fs) and `load` (import by URL).
return (async () => {
  const { Worker } = await load('node:worker_threads');
  const { Console } = await load('node:console');
  const { inspect, types } = await load('node:util');
  const { pathToFileURL } = await load('node:url');
  const { Buffer } = await load('node:buffer');
  const { default: process } = await load('node:process');

  const RUN = 2, READY = 17, REFUSED = 18;
  const REQUESTS_FD = 3, OUTCOMES_FD = 4, CONTROL_FD = 5, SHIM_FD = 6;
  const ERROR_MESSAGE_CHARACTERS_MAX = 4096, PROGRESS_MESSAGE_CHARACTERS_MAX = 400;
  // A job's word on how far it is, at most this often.
  const PROGRESS_EVERY_MS = 10;
  // A character of a JavaScript string has at most this many bytes in UTF-8.
  const UTF8_BYTES_MAX = 3;
  // A job that started a program ran at least this long.
  const MARK_AFTER_MS = 1;

  // --- outcomes on their way out ---
  //
  // Finished outcomes lie in memory that is shared with a second thread, the flusher, which sends them
  // on time while a job computes or blocks. This thread only appends; whoever holds the lock sends.
  // Only this thread, holding the lock, starts again from the beginning of the memory.

  const JOBS_MAX = 16384, VALUES_BYTES = 4 << 20, NOTES_BYTES = 2 << 20;
  const memory = {
    words: new Int32Array(new SharedArrayBuffer(64)),
    indexes: new Uint32Array(new SharedArrayBuffer(JOBS_MAX * 4)),
    durations: new Uint32Array(new SharedArrayBuffer(JOBS_MAX * 4)),
    // Where each value ends, its separator included.
    ends: new Uint32Array(new SharedArrayBuffer(JOBS_MAX * 4)),
    values: new Uint8Array(new SharedArrayBuffer(VALUES_BYTES)),
    notes: new Uint8Array(new SharedArrayBuffer(NOTES_BYTES)),
  };
  const { words } = memory;
  const COUNT = 1, NOTES_END = 3, BEGUN = 5, BEGUN_SENT = 6, SEQUENCE = 7, ACTIVE = 8, PARKED = 9, OPENED = 11;

  // Runs in both threads: in the flusher as the text of this function.
  function makeSender(fs, memory, nonce, fd) {
    const { words, indexes, durations, ends, values, notes } = memory;
    const LOCK = 0, COUNT = 1, SENT = 2, NOTES_END = 3, NOTES_SENT = 4, BEGUN = 5, BEGUN_SENT = 6, SEQUENCE = 7;
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
      head.setUint32(16, words[SEQUENCE], true);
      head.setUint32(20, begun, true);
      head.setUint32(24, count, true);
      head.setUint32(28, valueBytes, true);
      let at = 32;
      for (let index = from; index < from + count; index++, at += 4) head.setUint32(at, indexes[index], true);
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
    const flush = (startAnew) => {
      lock();
      // Notes are read last: a job's log is never sent after its outcome.
      const count = Atomics.load(words, COUNT), from = words[SENT];
      const notesEnd = Atomics.load(words, NOTES_END), noteFrom = words[NOTES_SENT];
      if (count > from || notesEnd > noteFrom || Atomics.load(words, BEGUN) !== words[BEGUN_SENT]) {
        sendRange(from, count - from, from === 0 ? 0 : ends[from - 1], count === 0 ? 0 : ends[count - 1], noteFrom, notesEnd);
      }
      words[SENT] = count;
      words[NOTES_SENT] = notesEnd;
      if (startAnew) {
        words[COUNT] = words[SENT] = words[NOTES_END] = words[NOTES_SENT] = 0;
      }
      unlock();
    };
    const sendJson = (kind, body) => {
      const bytes = new TextEncoder().encode(JSON.stringify(body));
      frame(kind, bytes.length, 16 + bytes.length);
      buffer.set(bytes, 16);
      write(buffer.subarray(0, 16 + bytes.length));
    };
    const exclusively = (action) => {
      lock();
      action();
      unlock();
    };
    return { flush, sendJson, exclusively };
  }

  const flusherSource = `
    const { workerData: { memory, nonce, everyMs, fd } } = require('node:worker_threads');
    const fs = require('node:fs');
    const { words } = memory;
    const ACTIVE = 8, PARKED = 9, TICK = 10, OPENED = 11, PARK_AFTER_MS = 100;
    const { flush } = (${makeSender.toString()})(fs, memory, nonce, fs.openSync('/dev/fd/' + fd, 'w'));
    Atomics.store(words, OPENED, 1);
    Atomics.notify(words, OPENED);
    for (let idleMs = 0; ; ) {
      Atomics.wait(words, TICK, 0, everyMs);
      if (Atomics.load(words, ACTIVE) === 1) {
        idleMs = 0;
        flush(false);
      } else if ((idleMs += everyMs) >= PARK_AFTER_MS) {
        Atomics.store(words, PARKED, 1);
        if (Atomics.load(words, ACTIVE) === 0) Atomics.wait(words, PARKED, 1);
        Atomics.store(words, PARKED, 0);
        idleMs = 0;
      }
    }`;

  // --- requests ---

  const requests = fs.openSync('/dev/fd/' + REQUESTS_FD, 'r');
  const control = fs.openSync('/dev/fd/' + CONTROL_FD, 'r');
  let input = Buffer.allocUnsafe(1 << 20);
  let isAsync = false;
  let nonce = null;

  const readAsync = (length, at) => new Promise((resolve, reject) => {
    fs.read(requests, input, at, length, null, (error, bytes) => (error ? reject(error) : resolve(bytes)));
  });

  // Whether `length` bytes are now at the start of `input`. While an asynchronous script waits for
  // work its own timers and sockets go on; a synchronous one is served faster by a read that blocks.
  const readExactly = async (length) => {
    if (length > input.length) input = Buffer.allocUnsafe(length * 2);
    for (let at = 0; at < length;) {
      const bytes = isAsync ? await readAsync(length - at, at) : fs.readSync(requests, input, at, length - at, null);
      if (bytes === 0) return false;
      at += bytes;
    }
    return true;
  };

  const readFrame = async () => {
    if (!(await readExactly(16))) return null;
    const length = input.readUInt32LE(0), kind = input.readUInt32LE(4);
    if (nonce !== null && input.readBigUInt64LE(8) !== nonce) {
      fs.writeSync(2, "something in the script wrote to the pipe that Gristmill's requests come from\n");
      process.exit(70);
    }
    return (await readExactly(length)) ? { kind, length } : null;
  };

  const stopWords = new Uint32Array(2);
  const isStopped = (sequence) => {
    fs.readSync(control, stopWords, 0, 8, 0);
    return stopWords[sequence & 1] === sequence;
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

  class Log {
    constructor() {
      this.index = 0;
      this.saidAt = -Infinity;
      this.parts = [];
      this.room = hello.log_bytes_max;
      this.dropped = 0;
    }

    write(chunk, encoding) {
      if (this.room === 0) {
        this.dropped += typeof chunk === 'string' ? Buffer.byteLength(chunk, encoding) : chunk.length;
        return;
      }
      const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
      const kept = bytes.subarray(0, this.room);
      this.parts.push(kept);
      this.room -= kept.length;
      this.dropped += bytes.length - kept.length;
    }

    get isEmpty() {
      return this.parts.length === 0;
    }
  }

  let log = null;
  let contexts = null;

  const captureOutput = () => {
    for (const [stream, fd] of [[process.stdout, 1], [process.stderr, 2]]) {
      stream.write = (chunk, encoding, done) => {
        const callback = typeof encoding === 'function' ? encoding : done;
        const current = contexts?.getStore() ?? log;
        if (current) {
          current.write(chunk, typeof encoding === 'string' ? encoding : 'utf8');
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

  const greeting = await readFrame();
  if (greeting === null) return;
  const hello = JSON.parse(input.toString('utf8', 0, greeting.length));
  nonce = BigInt(hello.nonce);
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

  const note = (body) => {
    const text = JSON.stringify(body) + '\n';
    if (words[NOTES_END] + text.length * UTF8_BYTES_MAX > NOTES_BYTES) flushAll();
    const end = words[NOTES_END];
    Atomics.store(words, NOTES_END, end + notes.write(text, end, 'utf8'));
  };

  const noteLog = (index, log) => {
    const text = Buffer.concat(log.parts).toString('utf8');
    note({ log: { index, text, dropped_bytes: log.dropped } });
  };

  const durationUs = (begunAt) => Math.min(Math.round((now() - begunAt) * 1000), 0xffffffff);

  const fail = (index, begunAt, error) => note({ failed: { index, duration_us: durationUs(begunAt), error } });

  const append = (index, duration, text) => {
    let count = words[COUNT];
    if (valuesEnd + text.length * UTF8_BYTES_MAX + 2 > VALUES_BYTES) {
      flushAll();
      count = 0;
    }
    valuesEnd += values.write(text, valuesEnd, 'utf8');
    values[valuesEnd++] = 0x0a;
    values[valuesEnd++] = 0x2c;
    memory.indexes[count] = index;
    memory.durations[count] = duration;
    memory.ends[count] = valuesEnd;
    Atomics.store(words, COUNT, count + 1);
  };

  // A value that the shared memory cannot hold for sure: sent at once, in a frame of its own.
  const appendLarge = (index, begunAt, text) => {
    const bytes = Buffer.byteLength(text, 'utf8');
    if (bytes > hello.value_bytes_max) {
      const message = `main returned a value of ${bytes} bytes; the limit is ${hello.value_bytes_max} ` +
        '(VALUE_BYTES_MAX): return a reference to it';
      fail(index, begunAt, { type: 'ValueTooLarge', message });
      return;
    }
    flushAll();
    const large = {
      words: new Int32Array(16),
      indexes: Uint32Array.of(index),
      durations: Uint32Array.of(durationUs(begunAt)),
      ends: Uint32Array.of(bytes + 2),
      values: Buffer.from(text + '\n,', 'utf8'),
      notes: new Uint8Array(0),
    };
    large.words[COUNT] = 1;
    large.words[SEQUENCE] = words[SEQUENCE];
    large.words[BEGUN] = words[BEGUN];
    exclusively(() => makeSender(fs, large, hello.nonce, outcomes).flush(false));
  };

  // Claims for this job what was written to descriptors 1 and 2 so far, where it may have started
  // something that writes there.
  const marker = Buffer.alloc(21);
  marker.write('\0GRST', 0, 'latin1');
  marker.writeBigUInt64LE(nonce, 5);
  const output = fs.openSync('/dev/fd/1', 'w');
  const markOutput = (index, begunAt) => {
    if (now() - begunAt < MARK_AFTER_MS) return;
    marker.writeUInt32LE(words[SEQUENCE], 13);
    marker.writeUInt32LE(index, 17);
    fs.writeSync(output, marker);
  };

  const settleSpawn = (index, begunAt, text) => {
    if (text.length * UTF8_BYTES_MAX > NOTES_BYTES / 2) {
      const message = `main spawned children and a memo of ${text.length} characters: spawn fewer at once`;
      fail(index, begunAt, { type: 'SpawnTooLarge', message });
      return;
    }
    note({ spawned: { index, duration_us: durationUs(begunAt), spawn: JSON.parse(text) } });
  };

  const settleDone = (index, begunAt, value, siblings) => {
    const length = value.length + siblings.length;
    if (length * UTF8_BYTES_MAX > NOTES_BYTES / 2) {
      const message = `main returned a value and siblings of ${length} characters: spawn fewer at once`;
      fail(index, begunAt, { type: 'SpawnTooLarge', message });
      return;
    }
    const spawned = { value: [JSON.parse(value)], siblings: JSON.parse(siblings) };
    note({ done: { index, duration_us: durationUs(begunAt), ...spawned } });
  };

  const settle = (index, begunAt, value, log) => {
    markOutput(index, begunAt);
    if (!log.isEmpty) noteLog(index, log);
    try {
      if (value instanceof Spawn) {
        settleSpawn(index, begunAt, serialise(value.body));
        return;
      }
      if (value instanceof Done) {
        if (value.siblings.length > 0) {
          settleDone(index, begunAt, serialise(value.value), serialise(value.siblings));
          return;
        }
        value = value.value;
      }
      const text = serialise(value);
      if (text.length * UTF8_BYTES_MAX + 2 > VALUES_BYTES) appendLarge(index, begunAt, text);
      else append(index, durationUs(begunAt), text);
    } catch (error) {
      fail(index, begunAt, { type: 'NotJson', message: clean(error.message) });
    }
  };

  const settleError = (index, begunAt, error, log) => {
    markOutput(index, begunAt);
    if (!log.isEmpty) noteLog(index, log);
    fail(index, begunAt, describe(error));
  };

  // Says how far the running job is: so much is done of so much, in any unit, and what it is at; or, with an object,
  // { done, total, fraction, message }. Some calls within milliseconds of others are left out, but never the first.
  const progress = (done, total, message) => {
    const current = contexts?.getStore() ?? log;
    if (!current || now() - current.saidAt < PROGRESS_EVERY_MS) return;
    const said = typeof done === 'object' && done !== null ? done : { done, total, message };
    const body = { index: current.index };
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

  const isThenable = (value) => typeof value === 'object' && value !== null && typeof value.then === 'function';

  const becomeAsync = async () => {
    const { AsyncLocalStorage } = await load('node:async_hooks');
    contexts = new AsyncLocalStorage();
    isAsync = true;
  };

  // Runs the jobs in order. Whether it was stopped before the last one.
  const run = async (sequence, careful, main, payloads) => {
    let running = 0;
    let wake = null;
    const settled = () => {
      running--;
      if (careful) flushAll();
      if (wake) {
        wake();
        wake = null;
      }
    };
    const room = (limit) => (running < limit ? null : new Promise((resolve) => { wake = resolve; }));
    const asyncJobsMax = careful ? 1 : hello.async_jobs_max;
    let stopped = isStopped(sequence);
    let jobLog = new Log();
    flushedAt = now();
    for (let index = 0; index < payloads.length && !stopped; index++) {
      const begunAt = now();
      Atomics.store(words, BEGUN, index + 1);
      const own = log = jobLog;
      own.index = index;
      own.saidAt = -Infinity;
      let value;
      let thrown = false;
      try {
        value = contexts ? contexts.run(own, main, payloads[index]) : main(payloads[index]);
      } catch (error) {
        thrown = true;
        settleError(index, begunAt, error, own);
      }
      log = null;
      if (!thrown && isThenable(value)) {
        running++;
        value.then(
          (value) => settle(index, begunAt, value, own),
          (error) => settleError(index, begunAt, error, own),
        ).then(settled);
        if (!isAsync) await becomeAsync();
        jobLog = new Log();
        while (running >= asyncJobsMax) await room(asyncJobsMax);
      } else if (!thrown) {
        settle(index, begunAt, value, own);
      }
      if (!own.isEmpty) jobLog = new Log();
      if (careful || now() - flushedAt >= flushAfterMs) {
        flushAll();
        stopped = index + 1 < payloads.length && isStopped(sequence);
      }
    }
    while (running > 0) await room(running);
    return stopped;
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

  const serve = async () => {
    let yieldedAt = now();
    for (let frame; (frame = await readFrame()) !== null;) {
      if (frame.kind !== RUN) continue;
      const sequence = input.readUInt32LE(0), flags = input.readUInt32LE(4), careful = (flags & 1) === 1;
      const payloads = JSON.parse(input.toString('utf8', 8, frame.length));
      words[SEQUENCE] = sequence;
      words[BEGUN] = words[BEGUN_SENT] = 0;
      Atomics.store(words, ACTIVE, 1);
      if (Atomics.load(words, PARKED) === 1) Atomics.notify(words, PARKED);
      const stopped = await run(sequence, careful, (flags & 2) === 2 ? finalizeOne : main, payloads);
      Atomics.store(words, ACTIVE, 0);
      if (stopped) note('stopped');
      flushAll();
      if (!isAsync && now() - yieldedAt >= hello.flush_every_ms) {
        // What a synchronous script left to its event loop gets a turn.
        await new Promise((resolve) => setImmediate(resolve));
        yieldedAt = now();
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
    if (types.isAsyncFunction(main)) await becomeAsync();
  };

  // What the script starts must not get our pipes.
  const closeInherited = () => {
    const fds = [REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, SHIM_FD];
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
    const data = { memory, nonce: hello.nonce, everyMs: hello.flush_every_ms, fd: OUTCOMES_FD };
    new Worker(flusherSource, { eval: true, workerData: data }).unref();
    Atomics.wait(words, OPENED, 0);
  };

  const runtimeName = () => {
    if (globalThis.Deno) return `Deno ${Deno.version.deno}`;
    return globalThis.Bun ? `Bun ${Bun.version}` : `Node ${process.versions.node}`;
  };

  globalThis.gristmill ??= Object.freeze({ progress, spawn, done });
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
  sendJson(READY, { runtime: runtimeName() });
  await serve();
  process.exit(0);
})();
