// Workers: concurrency, batches, timeouts, cancels, stops, lost slots.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { App, Retry } from 'gristmill';
import { MicroBatch } from '../dist/work/micro-batch.js';
import { closed, deferred, place } from './stores.mjs';

function application(t) {
  return closed(t, new App(place(t), { durable: false }));
}

test('jobs of a kind run at once up to its concurrency', async (t) => {
  const app = application(t);
  let running = 0, most = 0;
  const seen = new Set();
  const full = deferred();
  const job = app.job('wait', { concurrency: 3 }, async (number) => {
    seen.add(number);
    most = Math.max(most, ++running);
    if (running === 3) full.resolve();
    await full.promise;
    await new Promise((resolve) => setImmediate(resolve));
    running--;
  });
  await job.submitMany(Array.from({ length: 30 }, (_, number) => number));
  assert.deepEqual(await app.drain(), { completed: 30, failed: 0 });
  assert.equal(most, 3);
  assert.equal(seen.size, 30);
});

test('a job knows what it is', async (t) => {
  const app = application(t);
  const seen = [];
  const job = app.job('known', { queue: 'side', group: 'acme' }, (payload, job) => {
    seen.push([job.id, job.attempt, job.kind, job.queue, job.group, job.key, { ...job.tags }, job.deadline, job.signal.aborted]);
  });
  const one = await job.submit(1, { key: 'k', tags: { a: 'b' } });
  const two = await job.submit(2, { completeWithin: '1h' });
  await app.drain();
  seen.sort((left, right) => Number(left[5] === null) - Number(right[5] === null));
  assert.deepEqual(seen[0], [one.id, 1, 'known', 'side', 'acme', 'k', { a: 'b' }, null, false]);
  assert.equal(seen[1][0], two.id);
  assert.ok(seen[1][7] instanceof Date);
});

test('a batch handler answers each of its payloads, and a batch that throws is halved', async (t) => {
  const app = application(t);
  const sizes = [];
  const lengths = app.batch('lengths', { size: 8, wait: '20ms', retries: 0 }, async (texts, jobs) => {
    sizes.push(texts.length);
    assert.equal(jobs.length, texts.length);
    if (texts.includes('bomb')) throw new Error('boom');
    return texts.map((text) => (text === '' ? new RangeError('empty') : text.length));
  });
  const jobs = await lengths.submitMany(['a', 'bb', '', 'bomb', 'ccccc', 'dd', 'e', 'ff']);
  assert.deepEqual(await app.drain(), { completed: 6, failed: 2 });
  assert.equal(sizes[0], 8);
  assert.equal(await jobs.at(4).result(), 5);
  await assert.rejects(jobs.at(2).result(), /RangeError: empty/);
  await assert.rejects(jobs.at(3).result(), /Error: boom/);
});

test('a batch has payloads of one key, and a wrong number of results fails all of them', async (t) => {
  const app = application(t);
  const batches = [];
  const keyed = app.batch('keyed', { size: 10, wait: '20ms', key: ({ city }) => city }, (items) => {
    batches.push(items.map((item) => item.city));
    return items.map(() => null);
  });
  const wrong = app.batch('wrong', { size: 2 }, () => [1, 2, 3]);
  await keyed.submitMany(['Rome', 'Bonn', 'Rome', 'Bonn', 'Rome'].map((city) => ({ city })));
  const job = await wrong.submit(1);
  await app.drain();
  assert.deepEqual(batches.sort(), [['Bonn', 'Bonn'], ['Rome', 'Rome', 'Rome']]);
  await assert.rejects(job.result(), /dead: WrongResults: the batch handler returned 3 results for 1 payloads/);
});

test('an attempt that exceeds its timeout fails, and its signal aborts', async (t) => {
  const app = application(t);
  const reasons = [];
  const slow = app.job('slow', { timeout: '30ms', retries: 0 }, (_, job) => new Promise((_, reject) => {
    job.signal.addEventListener('abort', () => {
      reasons.push(job.signal.reason.name);
      reject(job.signal.reason);
    });
  }));
  const job = await slow.submit();
  assert.deepEqual(await app.drain(), { completed: 0, failed: 1 });
  await assert.rejects(job.result(), /timeout: the attempt exceeded its timeout of 30 ms/);
  assert.deepEqual(reasons, ['TimeoutError']);
});

test('a worker whose slots are all held for good ends with the reason', async (t) => {
  const app = application(t);
  const never = app.job('never', { timeout: '20ms', retries: 0, concurrency: 2 }, () => new Promise(() => {}));
  await never.submitMany([1, 2, 3]);
  const worker = await app.worker();
  await assert.rejects(worker.ended, /all 2 slots of the kind `never` are held .* heed `job\.signal`/);
});

test('a cancelled job gets a signal', async (t) => {
  const app = application(t);
  const begun = deferred();
  const slow = app.job('slow', (_, job) => new Promise((_, reject) => {
    job.signal.addEventListener('abort', () => reject(job.signal.reason));
    begun.resolve();
  }));
  const job = await slow.submit();
  const worker = await app.worker();
  await begun.promise;
  assert.equal(await job.cancel(), true);
  await assert.rejects(job.result({ timeout: '10s' }), /ended as cancelled/);
  assert.deepEqual(await worker.stop(), { completed: 0, failed: 0 });
});

test('a stopped worker ends the running jobs and gives the others back', async (t) => {
  const app = application(t);
  const begun = deferred(), goOn = deferred();
  const slow = app.job('slow', { concurrency: 1 }, async () => {
    begun.resolve();
    await goOn.promise;
  });
  await slow.submitMany(Array.from({ length: 50 }));
  const stop = new AbortController();
  const worker = await app.worker({ signal: stop.signal });
  await begun.promise;
  stop.abort();
  // The others go back while the first one runs.
  while ((await app.counts()).running > 1);
  goOn.resolve();
  const { completed, failed } = await worker.ended;
  assert.equal(failed, 0);
  const counts = await app.counts();
  assert.deepEqual([counts.completed, counts.waiting, counts.running], [completed, 50 - completed, 0]);
  assert.ok(completed < 50);
});

test('a worker gives waiters their results at once, and sees jobs that are submitted while it is idle', async (t) => {
  const app = application(t);
  const double = app.job('double', async (number) => 2 * number);
  await using_(await app.worker(), async () => {
    for (let number = 0; number < 20; number++) {
      const job = await double.submit(number);
      assert.equal(await job.result({ timeout: '10s' }), 2 * number);
    }
  });
});

async function using_(worker, task) {
  try {
    return await task();
  } finally {
    await worker[Symbol.asyncDispose]();
  }
}

test('what a handler throws is described, whatever it is', async (t) => {
  const app = application(t);
  const thrown = [
    'text', null, { odd: true }, new AggregateError([new Retry('x', { after: '1h' })], 'several'),
    new Error('outer', { cause: new Error('inner') }), new Error('half \ud800'),
  ];
  const fails = app.job('fails', { retries: 0 }, (at) => { throw thrown[at]; });
  const jobs = await fails.submitMany(thrown.map((_, at) => at));
  await app.drain();
  const errors = [];
  for (const job of jobs) errors.push((await job.details()).failures[0]);
  assert.deepEqual(errors.map((error) => error.type), ['Thrown', 'Thrown', 'Thrown', 'AggregateError', 'Error', 'Error']);
  assert.match(errors[0].message, /the handler threw "text"/);
  assert.match(errors[4].traceback, /Caused by: Error: inner/);
  assert.equal(errors[5].message, 'half \ufffd');
});

test('attempts of hours are stored with the longest duration there is', async (t) => {
  const app = application(t);
  const now = performance.now.bind(performance);
  let hours = 0;
  t.mock.method(performance, 'now', () => now() + hours * 3_600_000);
  const long = app.job('long', { retries: 0 }, (isGood) => {
    hours += 2;
    if (!isGood) throw new Error('late');
    return 'done';
  });
  const jobs = await long.submitMany([true, false]);
  assert.deepEqual(await app.drain(), { completed: 1, failed: 1 });
  assert.equal(await jobs.at(0).result(), 'done');
  await assert.rejects(jobs.at(1).result(), /Error: late/);
});

test('a log is cut at its limit, and half of a character costs nothing', async (t) => {
  const app = application(t);
  const logs = app.job('logs', (text, job) => {
    job.log(text);
    job.progress({ message: text });
    return 'done';
  });
  const jobs = await logs.submitMany(['x'.repeat(80_000), 'a']);
  const half = app.job('half', (_, job) => {
    job.log('cut 😀'.slice(0, 5));
    job.progress({ message: '\ud800' });
  });
  const one = await half.submit();
  assert.deepEqual(await app.drain(), { completed: 3, failed: 0 });
  assert.equal((await jobs.at(0).log()).length, 60_000);
  assert.equal(await one.log(), 'cut \ufffd\n');
});

test('an outcome that the store refuses fails its job, and the others of its micro-batch keep theirs', () => {
  const answers = [];
  const channel = {
    answer(number, places, durations, values, others) {
      if (others?.includes('refuse me') === true) throw new Error('no');
      answers.push([number, [...places], values, JSON.parse(others)]);
    },
  };
  const jobs = new MicroBatch(channel, { number: 5, count: 3, payloads: '[1\n,2\n,3]' }, 'error');
  jobs.complete(0, '"kept"', 1);
  jobs.fail(1, { type: 'Error', message: 'refuse me' }, 1);
  jobs.log(0, 'text');
  jobs.release(2);
  jobs.flush();
  const error = { type: 'outcome', message: 'the error of the job cannot be stored: no' };
  const others = { failed: [{ position: 1, error, duration_us: 1_000 }], released: [2], returned: [], logs: [] };
  assert.deepEqual(answers, [[5, [0], '["kept"]', others]]);
  assert.equal(jobs.hasEnded, true);
});

test('a batch handler may throw nothing, and a thenable anything', async (t) => {
  const app = application(t);
  const nothing = app.batch('nothing', { size: 2, wait: '5ms', retries: 0 }, (payloads) => {
    if (payloads.includes('bad')) throw null;
    return payloads;
  });
  const thenables = [
    { then() { throw new RangeError('at once'); } },
    { then(resolve) { resolve(1); resolve(2); throw new Error('too late'); } },
    { then(_, reject) { reject(undefined); } },
    { get then() { throw new TypeError('no then'); } },
  ];
  const odd = app.job('odd', { retries: 0 }, (at) => thenables[at]);
  const rejected = app.job('rejected', { retries: 0 }, () => Promise.any([Promise.reject()]));
  const batched = await nothing.submitMany(['good', 'bad']);
  const jobs = await odd.submitMany([0, 1, 2, 3]);
  const any = await rejected.submit();
  assert.deepEqual(await app.drain(), { completed: 2, failed: 5 });
  assert.equal(await batched.at(0).result(), 'good');
  await assert.rejects(batched.at(1).result(), /Thrown: the handler threw null/);
  await assert.rejects(jobs.at(0).result(), /RangeError: at once/);
  assert.equal(await jobs.at(1).result(), 1);
  await assert.rejects(jobs.at(2).result(), /Thrown/);
  await assert.rejects(jobs.at(3).result(), /TypeError: no then/);
  await assert.rejects(any.result(), /AggregateError/);
});

test('a result is measured in bytes, and one that is too large fails alone', async (t) => {
  const app = application(t);
  const large = app.job('large', { retries: 0 }, (count) => '語'.repeat(count));
  const jobs = await large.submitMany([6_000_000, 2]);
  assert.deepEqual(await app.drain(), { completed: 1, failed: 1 });
  await assert.rejects(jobs.at(0).result(), /RangeError: the result has 18000002 bytes/);
  assert.equal(await jobs.at(1).result(), '語語');
});

test('jobs of ten thousand no-ops and slow ones mix without a loss', async (t) => {
  const app = application(t);
  const quick = app.job('quick', () => {});
  const slow = app.job('slow', { concurrency: 5 }, () => new Promise((resolve) => { setTimeout(resolve, 1); }));
  await quick.submitMany(Array.from({ length: 10_000 }));
  await slow.submitMany(Array.from({ length: 50 }));
  assert.deepEqual(await app.drain(), { completed: 10_050, failed: 0 });
  assert.equal((await app.counts()).completed, 10_050);
});
