// Map: order, backpressure, failures, names that go on.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { App, JobFailed, StoreError } from 'gristmill';
import { mapped } from '../dist/map.js';
import { closed, deferred, place, server } from './stores.mjs';

function application(t, store = place(t)) {
  return closed(t, new App(store, { durable: false }));
}

async function listed(results) {
  const all = [];
  for await (const one of results) all.push(one);
  return all;
}

const numbers = (count) => Array.from({ length: count }, (_, number) => number);

test('a map gives the results in the order of its items, and leaves nothing', async (t) => {
  const app = application(t);
  const told = [];
  const results = await listed(app.map(async (number) => number * number, numbers(5_000), { progress: (done) => told.push(done) }));
  assert.deepEqual(results, numbers(5_000).map((number) => number * number));
  assert.equal(told.at(-1), 5_000);
  assert.equal((await app.counts()).completed, 0);
  assert.deepEqual(await listed(app.map((number) => number, [])), []);
});

test('an asynchronous iterable is read as far as there is room, and its results do not wait for its end', async (t) => {
  const app = application(t);
  let read = 0, ended = false;
  let release;
  const gate = new Promise((resolve) => { release = resolve; });
  async function* items() {
    try {
      for (; read < 40_000; read++) {
        // Two items, and then none until the first results are there.
        if (read === 2) await gate;
        yield read;
      }
    } finally {
      ended = true;
    }
  }
  let got = 0;
  for await (const result of app.map((number) => number + 1, items())) {
    assert.equal(result, ++got);
    if (got === 2) release();
    if (got === 100) break;
  }
  assert.ok(read >= 100 && read <= 25_000, `${read} items were read`);
  assert.equal(ended, true);
  const counts = await app.counts();
  assert.deepEqual([counts.waiting, counts.running], [0, 0]);
});

test('results come as they do where their order does not matter', async (t) => {
  const app = application(t);
  let release;
  const slow = new Promise((resolve) => { release = resolve; });
  const results = [];
  for await (const one of app.map(async (number) => {
    if (number === 0) await slow;
    return number;
  }, numbers(20), { ordered: false })) {
    results.push(one);
    if (results.length === 19) release();
  }
  assert.equal(results.at(-1), 0);
  assert.deepEqual([...results].sort((left, right) => left - right), numbers(20));
});

test('a failed item ends the map with its error, or takes its place', async (t) => {
  const app = application(t);
  const odd = (number) => {
    if (number === 3) throw new RangeError('three');
    return number;
  };
  await assert.rejects(listed(app.map(odd, numbers(10))), (error) => error instanceof JobFailed && error.type === 'RangeError');
  const results = await listed(app.map(odd, numbers(5), { returnErrors: true }));
  assert.ok(results[3] instanceof JobFailed);
  assert.deepEqual([results[0], results[4]], [0, 4]);
  await assert.rejects(listed(app.map((number) => number, [1, new Date(0)])), /items\[1\] is a Date/);
  function* broken() {
    yield 1;
    throw new Error('no more');
  }
  await assert.rejects(listed(app.map((number) => number, broken())), /no more/);
});

test('a map with a name goes on where it was, and refuses other items', async (t) => {
  const store = place(t);
  const ran = [];
  const square = (number) => {
    ran.push(number);
    return number * number;
  };
  const first = application(t, store);
  let got = 0;
  for await (const _ of first.map(square, numbers(3_000), { name: 'squares' })) {
    if (++got === 500) break;
  }
  const before = new Set(ran);
  await first.close();
  ran.length = 0;
  const second = application(t, store);
  const results = await listed(second.map(square, numbers(3_000), { name: 'squares' }));
  assert.deepEqual(results, numbers(3_000).map((number) => number * number));
  // What completed before does not run again: at most those that ran when the first one ended do.
  assert.ok(ran.length <= 3_000 - 500, `${ran.length} ran again`);
  assert.ok(before.size >= 500);
  ran.length = 0;
  assert.equal((await listed(second.map(square, numbers(3_001), { name: 'squares' }))).length, 3_001);
  assert.deepEqual(ran, [3_000]);
  await assert.rejects(listed(second.map(square, [5, 6, 7], { name: 'squares' })), /are not those of the time before/);
  assert.equal(await second.forget('squares'), true);
  assert.equal(await second.forget('squares'), false);
});

test('one map of a name runs at a time', async (t) => {
  const app = application(t);
  const running = app.map((number) => number, numbers(10), { name: 'one' });
  await running.next();
  await assert.rejects(listed(app.map((number) => number, numbers(10), { name: 'one' })), /runs in another process/);
  await running.return();
});

/** Items after which no other comes. */
async function* silent(...items) {
  yield* items;
  await new Promise(() => {});
}

const LIMIT = { timeout: 120_000 };

test('a map ends while its items wait for their next one', LIMIT, async (t) => {
  const app = application(t);
  for await (const one of app.map((number) => number + 1, silent(1))) {
    assert.equal(one, 2);
    break;
  }
  const results = app.map((number) => number + 1, silent(1, 2));
  assert.deepEqual((await results.next()).value, 2);
  assert.deepEqual((await results.next()).value, 3);
  const next = results.next();
  await results.return();
  assert.equal((await next).done, true);
  const fails = () => { throw new Error('no'); };
  await assert.rejects(listed(app.map(fails, silent(1))), JobFailed);
  const counts = await app.counts();
  assert.deepEqual([counts.waiting, counts.running, counts.completed], [0, 0, 0]);
});

test('an application that is closed ends its maps before its store', LIMIT, async (t) => {
  const store = place(t);
  const app = application(t, store);
  const waiting = app.map((number) => number, silent(1));
  await waiting.next();
  const refused = assert.rejects(waiting.next(), /the application was closed before the end of the map/);
  const resting = app.map((number) => number, numbers(500));
  await resting.next();
  await app.close();
  await refused;
  await assert.rejects(resting.next(), /the application was closed before the end of the map/);
  const counts = await application(t, store).counts();
  assert.deepEqual([counts.waiting, counts.running], [0, 0]);
});

test('the results before a failed item are given first', async (t) => {
  const app = application(t);
  const got = [];
  await assert.rejects(async () => {
    const results = app.map((number) => {
      if (number === 7) throw new Error('seven');
      return number;
    }, numbers(10));
    for await (const one of results) got.push(one);
  }, /seven/);
  assert.deepEqual(got, numbers(7));
});

test('results that are too many bytes for one answer are read, in order and not', LIMIT, async (t) => {
  const app = application(t);
  const large = (number) => `${number}${'x'.repeat(1_300_000)}`;
  for (const ordered of [true, false]) {
    const results = await listed(app.map(large, numbers(30), { concurrency: 30, ordered }));
    const found = results.map((one) => parseInt(one, 10));
    assert.deepEqual(ordered ? found : found.sort((left, right) => left - right), numbers(30));
  }
});

/** A map over a store that is made of these parts. */
function scripted(parts) {
  const run = {
    jobs: async () => 0,
    feed: async () => [{ batch: 1, count: 1 }],
    finish: async () => {},
    delete: async () => {},
    release: () => {},
    ...parts.run,
  };
  const ended = deferred();
  const channel = { take: () => [], stop: () => ended.resolve({ completed: 0, failed: 0 }), ended: () => ended.promise };
  if (parts.isDrained === true) channel.stop();
  const backend = { ask: async () => '[]', beginRun: async () => run, startWorker: async () => channel, ...parts.backend };
  const spec = { kind: 'k', concurrency: 1, entry: () => 1 };
  const plan = { backend, store: 'x', kind: 'k', spec, bigints: 'error', options: parts.options ?? {} };
  return mapped(plan, [1], parts.closing ?? new AbortController().signal);
}

test('a map whose worker is drained ends with the reason', LIMIT, async () => {
  await assert.rejects(listed(scripted({ isDrained: true })), /the worker of the map was stopped before the end of the map: run it again/);
});

test('a run is released and the first error told, whatever fails at the end', LIMIT, async () => {
  let released = 0;
  const release = () => { released++; };
  const broken = { delete: async () => { throw new Error('not deleted'); }, release };
  await assert.rejects(listed(scripted({ run: { ...broken, feed: async () => { throw new Error('not fed'); } } })), /not fed/);
  await assert.rejects(listed(scripted({ run: { ...broken, feed: async () => [] } })), /not deleted/);
  assert.equal(released, 2);
});

/** Answers for a batch of 100 jobs of which three at most have room in an answer. `asked` gets the waits of those that have. */
function narrow(asked, hasEnded) {
  return async (operation, _, request) => {
    if (operation !== 'results') return '{}';
    const { positions, wait_ms: waitMs } = JSON.parse(request);
    const [first, last = first] = (positions ?? '0-99').split('-').map(Number);
    if (last - first > 2) throw new StoreError('too large: name fewer batches');
    asked.push(waitMs);
    const ended = numbers(100).slice(first, last + 1).filter(hasEnded);
    return JSON.stringify(ended.map((position) => ({ job: `1:${position}`, state: 'completed', value: position })));
  };
}

const HUNDRED = { feed: async () => [{ batch: 1, count: 100 }] };

test('results in portions are given a few portions at a time', LIMIT, async () => {
  for (const ordered of [true, false]) {
    const asked = [];
    const results = scripted({ run: HUNDRED, options: { ordered }, backend: { ask: narrow(asked, () => true) } });
    assert.equal((await results.next()).value, 0);
    assert.ok(asked.length <= 4, `${asked.length} portions`);
    assert.deepEqual(await listed(results), numbers(100).slice(1));
  }
});

test('a late result among portions is found after one wait, and the end of a worker after all portions', LIMIT, async () => {
  const asked = [];
  const ask = narrow(asked, (position) => position === 98);
  const results = scripted({ run: HUNDRED, options: { ordered: false }, backend: { ask }, isDrained: true });
  assert.equal((await results.next()).value, 98);
  assert.deepEqual([asked.length, asked.filter((waitMs) => waitMs > 0).length], [34, 1]);
  await assert.rejects(results.next(), /the worker of the map was stopped before the end of the map/);
});

test('a map that is closed while it reads does not wait for the answer', LIMIT, async () => {
  const closing = new AbortController(), asked = deferred();
  const ask = (operation, _, request, signal) => {
    if (operation !== 'results') return Promise.resolve('{}');
    if (JSON.parse(request).positions === undefined) return Promise.reject(new StoreError('too large: name fewer batches'));
    asked.resolve();
    return new Promise((_, reject) => { signal.addEventListener('abort', () => reject(signal.reason)); });
  };
  const results = scripted({ run: HUNDRED, backend: { ask }, closing: closing.signal });
  const next = results.next();
  await asked.promise;
  closing.abort(null);
  assert.equal((await next).done, true);
});

test('a map runs over HTTP', async (t) => {
  const app = closed(t, new App(await server(t, place(t))));
  assert.deepEqual(await listed(app.map(async (number) => number + 1, numbers(250))), numbers(250).map((number) => number + 1));
  await assert.rejects(listed(app.map((number) => number, [1], { name: 'x' })), /a map with a name needs a store of its own/);
});
