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
  const isNode = !globalThis.Deno && !globalThis.Bun;
  const { Socket } = isNode ? await load('node:net') : { Socket: null };

  const RUN = 2, READY = 17, REFUSED = 18, FINALIZING = 1, LONG = 2, FAR = 4;
  // The parts of the payload of a job that finalizes.
  const FINALIZING_NAMES = ['payload', 'memo', 'outcomes'];
  const REQUESTS_FD = 3, OUTCOMES_FD = 4, CONTROL_FD = 5, SHIM_FD = 6, BELL_FD = 7, QUESTIONS_FD = 9, ANSWERS_FD = 10;
  const ERROR_MESSAGE_CHARACTERS_MAX = 4096, PROGRESS_MESSAGE_CHARACTERS_MAX = 400;
  // A job's word on how far it is, at most this often.
  const PROGRESS_EVERY_MS = 10;
  // A character of a JavaScript string has at most this many bytes in UTF-8.
  const UTF8_BYTES_MAX = 3;
  // A job that started a program ran at least this long.
  const MARK_AFTER_MS = 1;
  const TIMEOUT_MS_MAX = 0x7fffffff;
  // Records among the output, and how many bytes each holds at most.
  const ENDED = 0, PRINTED = 1, DROPPED = 2, PRINTED_TO_ERROR = 3;
  const RECORD_HEAD_BYTES = 22, RECORD_BYTES_MAX = 4096 - RECORD_HEAD_BYTES;

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
  // Whether the event loop has turned since the flusher asked; and one more than the number of the asynchronous job whose call of
  // main has not returned yet.
  const TURNED = 13, CALLED = 14;

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
    const { parentPort, workerData: { memory, nonce, everyMs, fd, controlFd } } = require('node:worker_threads');
    const fs = require('node:fs');
    const { words } = memory;
    const NEXT = 7, ACTIVE = 8, PARKED = 9, TICK = 10, OPENED = 11, QUIET = 12, TURNED = 13, CALLED = 14;
    const PARK_AFTER_MS = 100;
    // Beside a job that says nothing for so many ticks, this thread looks only so often, until it is woken.
    const QUIET_AFTER_TICKS = 8, QUIET_EVERY_MS = 8;
    const control = fs.openSync('/dev/fd/' + controlFd, 'r');
    const { flush, sendNote } = (${makeSender.toString()})(fs, memory, nonce, fs.openSync('/dev/fd/' + fd, 'w'));
    // The event loop turns where it hears a message within this time.
    const TURN_MS_MAX = 100;
    const page = new Uint32Array(2);
    let recalledTo = 0, answered = 0, askedAt = 0;
    // Takes back what has not begun, where Gristmill asks for it.
    const heedLimit = (to) => {
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
    // Says which job keeps others beyond their timeouts: nobody while the event loop turns. It says nothing where that is unknown.
    const heedQuestion = (question) => {
      if (question === answered) return;
      if (askedAt === 0) {
        askedAt = performance.now();
        Atomics.store(words, TURNED, 0);
        parentPort.postMessage(null);
      }
      const turns = Atomics.load(words, TURNED) === 1;
      if (!turns && performance.now() - askedAt < TURN_MS_MAX) return;
      answered = question;
      askedAt = 0;
      const called = Atomics.load(words, CALLED);
      if (turns || called > 0) sendNote({ culprit: { index: turns ? null : called - 1 } });
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
        fs.readSync(control, page, 0, 8, 0);
        heedLimit(page[0]);
        heedQuestion(page[1]);
        const wasWoken = isQuiet && Atomics.load(words, QUIET) === 0;
        quietTicks = flush(false) || wasWoken ? 0 : quietTicks + 1;
      } else if ((idleMs += everyMs) >= PARK_AFTER_MS) {
        Atomics.store(words, PARKED, 1);
        if (Atomics.load(words, ACTIVE) === 0) Atomics.wait(words, PARKED, 1);
        Atomics.store(words, PARKED, 0);
        idleMs = 0;
      }
    }`;

