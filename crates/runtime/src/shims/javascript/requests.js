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

  // Makes room for so many bytes from the beginning of the frame that comes next.
  const makeRoom = (bytes) => {
    if (inputBegin === inputEnd) inputBegin = inputEnd = 0;
    if (inputBegin + bytes <= input.length) return;
    const larger = bytes > input.length ? Buffer.allocUnsafe(bytes * 2) : input;
    input.copy(larger, 0, inputBegin, inputEnd);
    input = larger;
    inputEnd -= inputBegin;
    inputBegin = 0;
  };

  // Where Node waits for requests. A read of the file would take one of its few threads for files, and Node's exit waits for
  // the threads: it would wait for the next request.
  let socket = null;
  const readSocket = async () => {
    let wake;
    if (socket === null) {
      socket = new Socket({ fd: requests, readable: true, writable: false });
      for (const event of ['readable', 'end', 'close', 'error']) socket.on(event, () => socket.wake());
    }
    for (;;) {
      const arrived = new Promise((resolve) => { wake = resolve; });
      socket.wake = wake;
      const chunk = socket.read();
      if (chunk !== null) {
        makeRoom(inputEnd - inputBegin + chunk.length);
        chunk.copy(input, inputEnd);
        inputEnd += chunk.length;
        return true;
      }
      if (socket.readableEnded || socket.destroyed) return false;
      await arrived;
    }
  };

  // Reads as much as there is; false at the end. A promise where `readsAsync`.
  const fill = () => {
    if (readsAsync && Socket !== null) return readSocket();
    makeRoom(inputNeeded);
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
    for (const one of causes(error)) {
      const retryAfter = one?.retry_after ?? one?.retryAfter;
      if (typeof retryAfter === 'number' && retryAfter >= 0 && retryAfter < Infinity) {
        failure.retry_after = Math.max(retryAfter, failure.retry_after ?? 0);
      }
      if (one?.permanent === true) failure.permanent = true;
    }
    return failure;
  };

  // An error, and where it is an AggregateError all that it holds.
  const causes = (error) => {
    const found = [error];
    for (let at = 0; at < found.length && found.length < CAUSES_MAX; at++) {
      if (found[at] instanceof AggregateError) found.push(...Array.from(found[at].errors).slice(0, CAUSES_MAX));
    }
    return found;
  };

  // A stack without the frames of this file, which is known by its name or as evaluated text.
  const trim = (stack) => String(stack).split('\n')
    .filter((line) => !/^\s+at .*(gristmill-shim|eval at |\[eval|\(<anonymous>|node:internal|ext:core|data:application)/.test(line))
    .join('\n');

  class NotJson extends Error {}

  // Errors of one failure that are looked at.
  const CAUSES_MAX = 1000;

  // What a job spawns; made by gristmill.spawn.
  class Spawn {
    constructor(body) { this.body = body; }
  }

  // A value with siblings; made by gristmill.done.
  class Done {
    constructor(value, siblings) { Object.assign(this, { value, siblings }); }
  }

  // What describes children, beside their payloads.
  const CHILDREN_NAMES = ['kind', 'queue', 'tags', 'options'];

  const SPAWN = { name: 'gristmill.spawn', names: ['children', 'memo', 'batches', 'on_failure'] };
  const DONE = { name: 'gristmill.done', names: ['siblings', 'batches'] };

  // Refuses a name that nothing would read.
  const checkNames = (call, given, known) => {
    const wrong = Object.keys(given).find((name) => !known.includes(name));
    if (wrong === undefined) return;
    const near = known.find((name) => name.slice(0, 3) === wrong.slice(0, 3));
    throw new TypeError(`${call.name} has no \`${wrong}\`: ${near ? `did you mean \`${near}\`? ` : ''}It has ${known.join(', ')}`);
  };

  // Batches of children as the protocol has them.
  const pack = (named, children, batches, call) => {
    const packed = [];
    checkNames(call, named, [...call.names, ...CHILDREN_NAMES]);
    for (const batch of batches) checkNames({ name: 'a batch of children' }, batch, ['payloads', ...CHILDREN_NAMES]);
    for (const { payloads = [], ...rest } of [{ ...named, payloads: children }, ...batches]) {
      if (payloads.length > 0) packed.push({ ...rest, payloads });
    }
    return packed;
  };

  // Returned by main (or finalize): the job waits for these children, and then `finalize(payload, memo, outcomes)` is
  // called. `children` are payloads, of the job's own kind where none is named; `batches` are more of them, each with
  // `payloads` and perhaps `kind`, `queue`, `tags` and `options`. `on_failure` is 'fail' or 'collect'.
  const spawn = ({ children = [], memo = null, batches = [], on_failure = 'fail', ...named } = {}) => (
    new Spawn({ children: pack(named, children, batches, SPAWN), memo: [memo], on_failure })
  );

  // Returned by main (or finalize) of a child: it completes with the value, and its parent waits for these siblings, too.
  // They are as the children of `spawn`.
  const done = (value = null, { siblings = [], batches = [], ...named } = {}) => (
    new Done(value, pack(named, siblings, batches, DONE))
  );

  const hasNonFinite = (value) => {
    if (typeof value === 'number') return !Number.isFinite(value);
    if (typeof value !== 'object' || value === null || typeof value.toJSON === 'function') return false;
    return Object.values(value).some(hasNonFinite);
  };

  // Values nest at most so deep where JSON could be made of them.
  const hasPromise = (value) => {
    if (typeof value !== 'object' || value === null) return false;
    return types.isPromise(value) || (typeof value.toJSON !== 'function' && Object.values(value).some(hasPromise));
  };

  // The JSON of a value; throws what JSON or UTF-8 cannot hold. `told` says whose value it is.
  const serialise = (value, told = 'main returned') => {
    let text;
    try {
      text = toJson(value);
    } catch (error) {
      throw new NotJson(`${told} what JSON cannot hold: ${error.message}`);
    }
    if (text === undefined) {
      if (value === undefined) return 'null';
      throw new NotJson(`${told} a ${typeof value}, which JSON cannot hold`);
    }
    // JSON.stringify makes null of what is not finite, and escapes what is not Unicode.
    if (text.includes('null') && hasNonFinite(value)) {
      throw new NotJson(`${told} NaN or an infinity, which JSON cannot hold: use null or text instead`);
    }
    if (text.includes('{}') && hasPromise(value)) throw new NotJson(`${told} a promise in the place of its value: await it first`);
    if (text.includes('\\ud')) {
      const unescaped = text.replace(/\\\\/g, '');
      if (/\\ud[89a-f]/.test(unescaped)) {
        throw new NotJson(`${told} text with a lone surrogate, which is not Unicode`);
      }
    }
    return text;
  };

