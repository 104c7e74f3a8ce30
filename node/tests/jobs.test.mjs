// Submits, results, options, operations: on a file.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { App, Fail, JobFailed, NotFound, ResultTimeout, Retry, SchemaRefused, StoreError, SubmitFailed } from 'gristmill';
import { Handles } from '../dist/handle.js';
import { Portions } from '../dist/portions.js';
import { closed, deferred, place } from './stores.mjs';

function application(t, options) {
  return closed(t, new App(place(t), { durable: false, ...options }));
}

test('a submitted job runs, and its handle has the result', async (t) => {
  const app = application(t);
  const double = app.job('double', async (number, job) => {
    job.log(`doubling ${number}`);
    return 2 * number;
  });
  const handle = await double.submit(21, { tags: { customer: 7 } });
  assert.equal(await handle.state(), 'waiting');
  assert.deepEqual(await app.drain(), { completed: 1, failed: 0 });
  assert.equal(await handle.result(), 42);
  assert.equal(await handle.log(), 'doubling 21\n');
  assert.equal((await handle.details()).tags.customer, '7');
});

test('many jobs keep their order, and each has a handle', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  async function* numbers() {
    for (let number = 0; number < 2_500; number++) yield number;
  }
  const jobs = await double.submitMany(numbers());
  assert.equal(jobs.length, 2_500);
  await app.drain();
  const results = await jobs.results();
  assert.equal(results.length, 2_500);
  assert.ok(results.every((result, number) => result === 2 * number));
  assert.equal(await jobs.at(-1).result(), 4_998);
  assert.equal(jobs.at(2_500), undefined);
  assert.equal([...jobs][1_001].id, jobs.at(1_001).id);
  assert.equal((await double.submitMany([])).length, 0);
});

test('results and prerequisites are those of the own jobs of a batch', async (t) => {
  const app = application(t);
  const double = app.job('double', { retries: 0 }, (number) => {
    if (number === 0) throw new Error('of another caller');
    return 2 * number;
  });
  const all = await double.submitMany([0, 1, 2, 3]);
  const [{ id }] = all;
  const batch = Number(id.split(':')[0]);
  const pair = new Handles(app, [{ batch, first_position: 1, count: 2 }]);
  const mixed = new Handles(app, [{ batch, first_position: 1, count: 2 }, { batch, first_position: 3, count: 1 }]);
  await app.drain();
  assert.deepEqual(await pair.results(), [2, 4]);
  assert.deepEqual(await mixed.results(), [2, 4, 6]);
  assert.deepEqual(mixed.prerequisites, [String(batch), `${batch}:3`]);
  await assert.rejects(all.results(), /of another caller/);
});

/** The bytes of a job's result, by its number, beside the number. */
const LARGE_BYTES = (number) => (number % 2 === 0 ? 10 : 600_000);

test('results that are too many bytes for one answer are read in portions', async (t) => {
  const app = application(t);
  const large = app.job('large', (number) => `${number}${'x'.repeat(LARGE_BYTES(number))}`);
  const jobs = await large.submitMany(Array.from({ length: 140 }, (_, number) => number));
  await app.drain();
  const backend = await app.backend();
  const { ask } = backend;
  const asked = [];
  backend.ask = (operation, ...rest) => {
    if (operation === 'results') asked.push(rest[1]);
    return ask.call(backend, operation, ...rest);
  };
  const results = await jobs.results({ timeout: '120s' });
  assert.deepEqual(results.map((one) => [parseInt(one, 10), one.length - `${parseInt(one, 10)}`.length]),
    Array.from({ length: 140 }, (_, number) => [number, LARGE_BYTES(number)]));
  assert.ok(asked.length < 20, `${asked.length} requests for 42 MB`);
  const [batch] = jobs.prerequisites;
  await assert.rejects(app.ask('results', { batches: batch }), /name fewer batches or `positions`/);
  const some = await app.ask('results', { batches: batch, positions: '3,138-139' });
  assert.deepEqual(some.map((line) => line.job), [`${batch}:3`, `${batch}:138`, `${batch}:139`]);
  await assert.rejects(app.ask('results', { batches: batch, positions: '139-140' }), /has 140 jobs.*0-139/s);
  await assert.rejects(app.ask('results', { batches: batch, positions: '5-3' }), /`positions`: .*as in 0-99,120/s);
  await assert.rejects(app.ask('results', { batches: `${batch},${batch}`, positions: '1' }), /name one batch/);
  await assert.rejects(app.ask('results', { run: 'none', positions: '1' }), /either `batches` or `run`/);
});

test('one failed job among results in portions is told', async (t) => {
  const app = application(t);
  const large = app.job('large', { retries: 0 }, (number) => {
    if (number === 50) throw new RangeError('fifty');
    return 'x'.repeat(600_000);
  });
  const jobs = await large.submitMany(Array.from({ length: 60 }, (_, number) => number));
  await assert.rejects(jobs.results({ timeout: '0ms' }), ResultTimeout);
  await app.drain();
  await assert.rejects(jobs.results(), /:50 ended as dead: RangeError: fifty/);
});

test('the size of a portion is measured in bytes, and one that was too large is not tried each time', async () => {
  const text = '\u8a9e'.repeat(400_000);
  for (const [jobsMax, value] of [[27, text], [10, 'x']]) {
    let refused = 0;
    const ask = async (operation, subject, request) => {
      const [first, last = first] = JSON.parse(request).positions.split('-').map(Number);
      if (last - first >= jobsMax) {
        refused++;
        throw new StoreError('too large: name fewer batches');
      }
      const line = (position) => `{"job":"1:${position}","state":"completed","value":"${value}"}`;
      return `[${Array.from({ length: last - first + 1 }, (_, index) => line(first + index)).join(',')}]`;
    };
    const portions = new Portions({ ask }, 1, 'error', 100);
    let portionsRead = 0;
    for (let left = Array.from({ length: 100 }, (_, position) => position); left.length > 0; portionsRead++) {
      const { lines, asked, bytes } = await portions.read(left, 0);
      assert.ok(bytes > asked * Buffer.byteLength(value) && lines.length === asked);
      left = left.slice(asked);
    }
    assert.ok(refused <= 4 && portionsRead <= 20, `${refused} of ${portionsRead} portions were refused for over ${jobsMax} jobs`);
  }
});

test('the time of a wait for results in portions is one, and what has ended is read after it', async (t) => {
  let nowMs = 1_000;
  t.mock.method(performance, 'now', () => nowMs);
  const waits = [];
  const handles = (hasEnded) => {
    const ask = async (operation, subject, request) => {
      const { positions, wait_ms: waitMs } = JSON.parse(request);
      waits.push(waitMs);
      nowMs += 900;
      if (positions === undefined) throw new StoreError('too large: name fewer batches');
      const [first, last = first] = positions.split('-').map(Number);
      const all = Array.from({ length: last - first + 1 }, (_, index) => first + index);
      return JSON.stringify(all.filter(hasEnded).map((position) => ({ job: `1:${position}`, state: 'completed', value: position })));
    };
    return new Handles({ bigints: 'error', backend: async () => ({ ask }) }, [{ batch: 1, first_position: 0, count: 8 }]);
  };
  assert.deepEqual(await handles(() => true).results({ timeout: '1s' }), [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(waits.splice(0), [1_000, 100, 0]);
  await assert.rejects(handles((position) => position < 4).results({ timeout: '1s' }), ResultTimeout);
  assert.deepEqual(waits.splice(0), [1_000, 100, 0]);
});

test('a submit of many that fails on its way says what is stored', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  function* numbers() {
    for (let number = 0; number < 1_500; number++) yield number;
    throw new Error('no more numbers');
  }
  await assert.rejects(double.submitMany(numbers()), (error) => {
    assert.ok(error instanceof SubmitFailed);
    assert.match(error.message, /^no more numbers; the first 1000 items are stored/);
    assert.equal(error.submitted.length, 1_000);
    assert.equal(error.cause.message, 'no more numbers');
    return true;
  });
  assert.equal((await app.counts()).waiting, 1_000);
});

test('submits of one turn share a batch, and each has its own job', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  const jobs = await Promise.all(Array.from({ length: 1_500 }, (_, number) => (
    double.submit(number, number === 7 ? { priority: 3 } : {})
  )));
  assert.equal(new Set(jobs.map((job) => job.id)).size, 1_500);
  assert.ok(new Set(jobs.map((job) => job.id.split(':')[0])).size <= 4);
  await app.drain();
  for (const number of [0, 7, 999, 1_000, 1_499]) assert.equal(await jobs[number].result(), 2 * number);
  const some = await Promise.allSettled([double.submit(1), double.submit(new Date(0)), double.submit(2)]);
  assert.deepEqual(some.map((one) => one.status), ['fulfilled', 'rejected', 'fulfilled']);
});

test('submits of a lone caller end in its own thread, and let the event loop turn', async (t) => {
  const app = application(t);
  const job = app.job('one');
  let turns = 0;
  let immediate = setImmediate(function turn() {
    turns++;
    immediate = setImmediate(turn);
  });
  t.after(() => clearImmediate(immediate));
  // The first submits find out whether the caller is alone.
  for (let number = 0; number < 20; number++) await job.submit(number);
  let atOnce = 0;
  for (let number = 0; number < 200; number++) {
    const before = turns;
    await job.submit(number);
    if (turns === before) atOnce++;
  }
  assert.ok(atOnce > 100, `only ${atOnce} of 200 submits ended in the caller's thread`);
  assert.ok(atOnce < 196, `${atOnce} of 200 submits held the event loop up`);
  assert.equal((await app.counts()).waiting, 220);
});

test('a failed job is tried again, and tells its last error', async (t) => {
  const app = application(t);
  const seen = [];
  const flaky = app.job('flaky', { retries: 2, retryDelay: '0ms', backoff: 'constant' }, (_, job) => {
    seen.push(job.attempt);
    if (job.attempt < 3) throw new TypeError('not yet');
    return 'done';
  });
  const fails = app.job('fails', { retries: 0 }, () => { throw new RangeError('never'); });
  const gone = app.job('gone', { retries: 9 }, () => { throw new Fail('gone'); });
  const busy = app.job('busy', { retries: 1, retryDelay: '1h' }, (_, job) => {
    if (job.attempt === 1) throw new Retry('busy', { after: '0ms' });
    return 'free';
  });
  const jobs = [await flaky.submit(), await fails.submit(), await gone.submit(), await busy.submit()];
  await app.drain();
  assert.deepEqual(seen, [1, 2, 3]);
  assert.equal(await jobs[0].result(), 'done');
  await assert.rejects(jobs[1].result(), (error) => {
    assert.ok(error instanceof JobFailed);
    assert.deepEqual([error.job, error.state, error.type], [jobs[1].id, 'dead', 'RangeError']);
    assert.match(error.jobStack, /jobs\.test\.mjs/);
    assert.doesNotMatch(error.jobStack, /runner\.js/);
    return true;
  });
  assert.equal((await jobs[2].details()).attempt, 1);
  assert.equal(await jobs[3].result(), 'free');
});

test('a wait ends at its timeout or its signal, and the job goes on', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  const job = await double.submit(1);
  await assert.rejects(job.result({ timeout: '1ms' }), ResultTimeout);
  const given = new AbortController();
  const waiting = job.result({ signal: given.signal });
  given.abort(new Error('enough'));
  await assert.rejects(waiting, /^Error: enough/);
  await app.drain();
  assert.equal(await job.result({ timeout: '5s' }), 2);
  await assert.rejects(app.result('99:0'), /does not exist/);
});

test('one open job has a key; a job waits for those it comes after', async (t) => {
  const app = application(t);
  const order = [];
  const step = app.job('step', (name) => { order.push(name); });
  const first = await step.submit('first', { key: 'a' });
  assert.equal((await step.submit('again', { key: 'a' })).id, first.id);
  const many = await step.submitMany(['x', 'y']);
  const last = await step.submit('last', { after: [first, many] });
  assert.equal(await last.state(), 'blocked');
  await app.drain();
  assert.equal(order.at(-1), 'last');
  await assert.rejects(step.submit('c', { onDuplicate: 'skip' }), /give `key`, too/);
});

test('a mistake in options is told with a near name', async (t) => {
  const app = application(t);
  assert.throws(() => app.job('a', { timout: '1s' }, () => 1), /no option `timout`: did you mean `timeout`\?/);
  assert.throws(() => app.job('b', { timeout: 5 }, () => 1), /`timeout` is 5: give a span such as/);
  assert.throws(() => app.job('c', { concurrency: 0 }, () => 1), /`concurrency` is 0/);
  const known = app.job('d', () => 1);
  assert.throws(() => app.job('d', () => 2), /has a job "d" already/);
  await assert.rejects(known.submit(1, { prioritiy: 1 }), /did you mean `priority`/);
  await assert.rejects(known.submit(1, { priority: 99_999 }), /`priority` is 99999/);
  await assert.rejects(app.drain({ jobs: ['other'] }), /no handler for the job "other"/);
  assert.throws(() => new App('a.db', { durabel: true }), /did you mean `durable`/);
});

test('operations: find, cancel, retry, limits, pauses, schedules', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  const jobs = await double.submitMany([1, 2, 3], { tags: { customer: '7' } });
  const found = [];
  for await (const row of app.find({ job: double, states: 'waiting', tags: { customer: '7' } })) found.push(row.job);
  assert.deepEqual(found, [...jobs].map((job) => job.id));
  assert.equal(await jobs.at(0).cancel(), true);
  assert.equal(await app.cancel({ states: ['waiting'] }), 2);
  assert.equal(await app.retry(jobs.at(0)), 1);
  await app.pause('holiday', { job: double });
  assert.deepEqual(await app.drain(), { completed: 0, failed: 0 });
  assert.equal(await app.resume('holiday', { job: double }), true);
  await app.limit({ running: 2 }, { job: double });
  await app.limit({ rate: 100, per: '1m' }, { queue: 'mail' });
  assert.equal((await app.controls()).length, 2);
  assert.equal(await app.lift({ effects: ['concurrency', 'rate'] }), 2);
  const schedule = await app.schedule('nightly', double, { cron: '30 4 * * *', timeZone: 'Europe/Berlin', payload: 21 });
  assert.deepEqual([schedule.kind, schedule.payload], ['double', 21]);
  await app.triggerSchedule('nightly');
  assert.deepEqual(await app.drain(), { completed: 2, failed: 0 });
  const names = [];
  for await (const one of app.schedules()) names.push(one.schedule);
  assert.deepEqual(names, ['nightly']);
  assert.equal(await app.deleteSchedule('nightly'), true);
  assert.equal(await app.findSchedule('nightly'), null);
  await assert.rejects(app.triggerSchedule('nightly'), NotFound);
  await assert.rejects(app.schedule('none', double, {}), /either `cron` or `every`/);
});

test('events come as an async iterator, which a signal ends', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  const stop = new AbortController();
  const events = app.events({ signal: stop.signal });
  const first = events.next();
  const before = await double.submit(0);
  const types = [];
  // The listener may have begun after the first submit.
  const reading = (async () => {
    types.push((await first).value.type);
    for await (const event of events) {
      types.push(event.type);
      if (event.type === 'completed') break;
    }
  })();
  await double.submit(1);
  await app.drain();
  await reading;
  assert.ok(types.includes('completed'), String(types));
  assert.equal(await before.result(), 0);
  stop.abort();
});

/** A schema as those of Zod are. */
const positive = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: (value) => (typeof value?.n === 'string' && Number(value.n) > 0
      ? { value: { n: Number(value.n) } }
      : { issues: [{ message: 'give a positive number', path: ['n'] }] }),
  },
};

test('a schema checks a payload at the submit, and converts it for the handler', async (t) => {
  const app = application(t);
  const half = app.job('half', { payload: positive, retries: 5 }, ({ n }) => n / 2);
  await assert.rejects(half.submit({ n: '-1' }), (error) => (
    error instanceof SchemaRefused && error.path === 'payload.n' && /payload\.n: give a positive number/.test(error.message)
  ));
  await assert.rejects(half.submitMany([{ n: '1' }, { n: 2 }]), /items\[1\]\.n: give a positive number/);
  const job = await half.submit({ n: '7' });
  // Another program submits what the schema refuses.
  const other = app.job('half');
  const wrong = await other.submit({ n: 0 });
  await app.drain();
  assert.equal(await job.result(), 3.5);
  await assert.rejects(wrong.result(), /dead: SchemaRefused: the schema refuses payload\.n/);
  assert.equal((await wrong.details()).failures.length, 1);
});

test('an application closes with `await using`, and its worker ends', async (t) => {
  const store = place(t);
  const begun = deferred(), goOn = deferred();
  const app = new App(store, { durable: false });
  const slow = app.job('slow', async () => {
    begun.resolve();
    await goOn.promise;
    return 'done';
  });
  const job = await slow.submit();
  const worker = await app.worker();
  await begun.promise;
  const closing = app[Symbol.asyncDispose]();
  goOn.resolve();
  await closing;
  assert.deepEqual(await worker.ended, { completed: 1, failed: 0 });
  // The next use opens it again.
  assert.equal(await job.result(), 'done');
  await app.close();
});

test('a wait for a job that does not exist, and a limit below none, are refused by name', async (t) => {
  const app = application(t);
  const job = app.job('one', () => null);
  await assert.rejects(app.result('99999:0'), NotFound);
  await assert.rejects(app.limit({ running: -1 }, { job }), /`running` is -1: give a whole number from 0/);
});
