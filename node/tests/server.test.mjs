// The same names on a server, over HTTP.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { App, JobFailed, NotFound } from 'gristmill';
import { closed, deferred, place, server } from './stores.mjs';

test('jobs are submitted, run and asked for over HTTP', async (t) => {
  const app = closed(t, new App(await server(t, place(t))));
  const double = app.job('double', { retries: 0 }, async (number, job) => {
    if (number === 13) throw new TypeError('unlucky');
    job.log(`doubling ${number}`);
    return 2 * number;
  });
  const handle = await double.submit(21, { tags: { customer: 7 } });
  const jobs = await double.submitMany(Array.from({ length: 1_500 }, (_, number) => number + 100));
  const bad = await double.submit(13);
  assert.deepEqual(await app.drain(), { completed: 1_501, failed: 1 });
  assert.equal(await handle.result(), 42);
  assert.equal(await handle.log(), 'doubling 21\n');
  const results = await jobs.results();
  assert.deepEqual([results.length, results[0], results.at(-1)], [1_500, 200, 3_198]);
  await assert.rejects(bad.result(), (error) => error instanceof JobFailed && error.type === 'TypeError');
  await assert.rejects(app.result('99:0'), NotFound);
  assert.equal((await app.counts({ job: double })).completed, 1_501);
});

test('a worker waits for jobs over HTTP, hears of cancels, and stops', async (t) => {
  const url = await server(t, place(t));
  const app = closed(t, new App(url));
  const begun = deferred();
  const quick = app.job('quick', (number) => number + 1);
  const slow = app.job('slow', (_, job) => new Promise((_, reject) => {
    job.signal.addEventListener('abort', () => reject(job.signal.reason));
    begun.resolve();
  }));
  const worker = await app.worker();
  const job = await quick.submit(1);
  assert.equal(await job.result({ timeout: '20s' }), 2);
  const long = await slow.submit();
  await begun.promise;
  await long.cancel();
  await assert.rejects(long.result({ timeout: '20s' }), /ended as cancelled/);
  const { completed } = await worker.stop();
  assert.equal(completed, 1);
});

test('events, schedules and refusals over HTTP', async (t) => {
  const app = closed(t, new App(await server(t, place(t))));
  const double = app.job('double', (number) => 2 * number);
  const events = app.events();
  // The stream is open before the submit: the first call of `next` begins it.
  const first = events.next();
  await app.counts();
  const submits = setInterval(() => void double.submit(1).catch(() => {}), 50);
  const { value } = await first;
  clearInterval(submits);
  assert.equal(value.type, 'submitted');
  await events.return();
  await app.schedule('nightly', double, { every: '1h', payload: 1 });
  assert.equal((await app.findSchedule('nightly')).kind, 'double');
  await assert.rejects(double.submit(1, { queue: '' }), /queue/);
  assert.throws(() => new App('https://x.example/?a=1').job('x').name.y.z, TypeError);
  await assert.rejects(new App('http://gristmill.example:1', { token: 'secret' }).counts(), /refusing to send a token/);
});

test('results of a server that are too many bytes for one answer are read in portions', async (t) => {
  const app = closed(t, new App(await server(t, place(t))));
  const large = app.job('large', (number) => `${number}${'x'.repeat(1_300_000)}`);
  const jobs = await large.submitMany(Array.from({ length: 30 }, (_, number) => number));
  await app.drain();
  const results = await jobs.results({ timeout: '60s' });
  assert.deepEqual(results.map((one) => parseInt(one, 10)), Array.from({ length: 30 }, (_, number) => number));
});

test('a large integer keeps its digits over HTTP', async (t) => {
  const url = await server(t, place(t));
  for (const [bigints, seen] of [['bigint', 2n ** 60n], ['string', String(2n ** 60n)]]) {
    const app = new App(url, { bigints });
    const got = [];
    const echo = app.job(`echo-${bigints}`, (payload) => {
      got.push(payload.id);
      return payload;
    });
    const job = await echo.submit({ id: 2n ** 60n });
    await app.drain();
    assert.deepEqual([got, (await job.result()).id], [[seen], seen]);
    await app.close();
  }
  const app = new App(url);
  const echo = app.job('echo-bigint', { retries: 3 }, (payload) => payload);
  const other = new App(url, { bigints: 'bigint' });
  const job = await other.job('echo-bigint').submit({ id: 2n ** 60n });
  await app.drain();
  await assert.rejects(job.result(), /dead: InvalidValue: payload\.id is 1152921504606846976/);
  void echo;
});
