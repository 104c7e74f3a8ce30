  // --- the memo of a flow ---
  //
  // It is the one that flows in Python write (`python/gristmill/_flow/memo.py`): a list with a part for each suspension.

  // The limits of flows, as in `python/gristmill/_flow/`.
  const STEPS_MAX = 1_000_000, STEPS_OPEN_MAX = 250_000, GROUPS_MAX = 1_000, MEMO_BYTES_MAX = 1 << 20, EVENT_NAME_BYTES_MAX = 200;
  // Longer spans are a slip of the pen. Milliseconds.
  const SPAN_MS_MAX = 1000 * 366 * 86_400_000;
  const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const SLEEP = '@sleep', NOW = '@now';
  const FINAL_STATES = new Set(['completed', 'dead', 'cancelled', 'expired']);

  // A flow's code asks for what a flow cannot do, or does not fit what its instance has done.
  class FlowError extends BaseError {
    constructor(message) {
      super(message);
      this.name = 'FlowError';
    }
  }

  // An event was not sent in time.
  class TimeoutError extends BaseError {
    constructor(message) {
      super(message);
      this.name = 'TimeoutError';
    }
  }

  const shown = (name, key) => (key === null ? name : `${name} (key '${key}')`);

  // A step ended without completing: it would fail each retry of its flow.
  class StepFailed extends BaseError {
    constructor(step, key, job, state, error) {
      const { type = null, message = '', traceback = null } = error ?? {};
      super(`step ${shown(step, key)}, job ${job} ended as ${state}${type ? `: ${type}: ${message}` : ''}`);
      Object.assign(this, { name: 'StepFailed', step, key, job, state, type, reason: message, permanent: true });
      if (traceback) {
        this.cause = new Error(message);
        this.cause.stack = traceback.trimEnd();
      }
    }
  }

  // The milliseconds of a text such as "30s" or "1h 30m", rounded up.
  const millisecondsOf = (span, what) => {
    const part = /\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*/g;
    const isText = typeof span === 'string' && span !== '' && span.replace(part, '') === '';
    if (!isText) throw new FlowError(`${what} is ${inspect(span)}: give a span such as "500ms", "30s", "5m", "1h 30m" or "2d"`);
    let sum = 0;
    for (const [, number, unit] of span.matchAll(part)) sum += Number(number) * UNITS_MS[unit];
    if (sum > SPAN_MS_MAX) throw new FlowError(`${what} is ${span}, which is more than 1,000 years`);
    return Math.ceil(sum);
  };

  // The order of code points, which is that of bytes in UTF-8.
  const byCodePoints = (left, right) => {
    if (/[\ud800-\uffff]/.test(left) || /[\ud800-\uffff]/.test(right)) return Buffer.compare(Buffer.from(left), Buffer.from(right));
    return left < right ? -1 : Number(left > right);
  };

  const sortedJson = (value) => {
    if (Array.isArray(value)) return `[${value.map(sortedJson).join(',')}]`;
    if (typeof value === 'number' && value !== 0 && Math.abs(value) < 1e-4) {
      return value.toExponential().replace(/e-(\d)$/, 'e-0$1');
    }
    if (typeof value !== 'object' || value === null) return JSON.stringify(value);
    const members = Object.keys(value).sort(byCodePoints).map((key) => `${JSON.stringify(key)}:${sortedJson(value[key])}`);
    return `{${members.join(',')}}`;
  };

  // The JSON of a payload as Python's flows hash it: members in the order of their names, small numbers in Python's form, and whole
  // numbers without a fraction.
  const canonical = (json) => {
    let text = json;
    if (/\{|0\.0000|e-/.test(text)) {
      const prefix = mark();
      const isLong = MAY_BE_INEXACT.test(text);
      const long = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d{16,}(?![\d.eE])/g;
      if (isLong) text = text.replace(long, (token) => (token.startsWith('"') ? token : `"${prefix}${token}"`));
      text = sortedJson(JSON.parse(text));
      if (isLong) text = text.replaceAll(new RegExp(`"${prefix}(-?\\d+)"`, 'g'), '$1');
    }
    return text.replace(/(\d)\.0(?=[,\]}]|$)/g, '$1');
  };

  const CRC_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
    let value = byte;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    return value;
  });

  const crc32 = (text) => {
    let value = -1;
    for (const byte of Buffer.from(text, 'utf8')) value = (value >>> 8) ^ CRC_TABLE[(value ^ byte) & 0xff];
    return (value ^ -1) >>> 0;
  };

  // A step: one child, or the children of a map.
  class StepRecord {
    constructor(name, hash, key, count, first, next) {
      // `count` is null for a single child, `first` is negative for a step that is to be spawned, and `next` is the next step of
      // the same name and key.
      Object.assign(this, { name, hash, key, count, first, next });
      this.missing = count ?? 1;
      this.isTold = false;
      this.promise = null;
      // Makes the step's value of that of its job.
      this.convert = null;
      // Of one that is to be spawned: what the children have in common, as the beginning of a JSON object, and their payloads.
      this.head = '';
      this.payloads = '';
      // Of a map: whether failures stand in the places of values.
      this.keepsErrors = false;
    }

    entry() {
      if (this.count !== null) return [this.name, this.hash, this.key, this.count];
      return this.key === null ? [this.name, this.hash] : [this.name, this.hash, this.key];
    }
  }

  const identityOf = (name, key) => (key === null ? name : `${name}\0${key}`);

  // The JSON of the children, and the entries of the memo in their order. Children that are alike make one batch, unless steps of
  // one identity would change their order by that.
  const grouped = (fresh) => {
    const groups = new Map(), homes = new Map();
    let isAlike = true;
    fresh.forEach((step, place) => {
      // Each event is a batch of its own.
      const home = step.name.startsWith('@') ? place : step.head;
      if (!groups.has(home)) groups.set(home, []);
      groups.get(home).push(step);
      const identity = identityOf(step.name, step.key);
      if (!homes.has(identity)) homes.set(identity, home);
      isAlike &&= homes.get(identity) === home;
    });
    let batches = [...groups.values()];
    if (!isAlike) {
      batches = [];
      for (const step of fresh) {
        const before = batches.at(-1)?.[0];
        if (before && !step.name.startsWith('@') && before.head === step.head) batches.at(-1).push(step);
        else batches.push([step]);
      }
    }
    if (batches.length > GROUPS_MAX) {
      throw new FlowError(`a flow begins ${batches.length} different groups of steps at once; the limit is ${GROUPS_MAX} ` +
        '(GROUPS_MAX; each event, sleep, job and set of options makes one): await some of them first');
    }
    // The flow goes on once all jobs of a map have ended.
    const together = (batch) => (batch.length === 1 && batch[0].count !== null ? ',"together":true' : '');
    const children = batches.map((batch) => (
      `${batch[0].head}${together(batch)},"payloads":[${batch.map((step) => step.payloads).join(',')}]}`));
    return { children: children.join(','), steps: batches.flat().map((step) => step.entry()) };
  };

  // Numbers, of which those that follow on each other are [first, end].
  const runsOf = (numbers) => {
    const runs = [];
    for (const number of numbers) {
      const last = runs.at(-1);
      if (Array.isArray(last) && last[1] === number) last[1]++;
      else if (last === number - 1) runs[runs.length - 1] = [last, number + 1];
      else runs.push(number);
    }
    return runs;
  };

  const eachOf = function* (runs) {
    for (const run of runs) {
      const [first, end] = Array.isArray(run) ? run : [run, run + 1];
      for (let number = first; number < end; number++) yield number;
    }
  };

