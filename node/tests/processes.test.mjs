// Handlers that run in processes of their own.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { App, InvalidValue, JobFailed } from 'gristmill';
import { closed, place } from './stores.mjs';

const module = new URL('./handlers.mjs', import.meta.url);

function application(t, options) {
  return closed(t, new App(place(t), { durable: false, ...options }));
}

async function failure(promise) {
  return promise.then(() => assert.fail('it completes'), (error) => error);
}

test('jobs run in as many processes as the job has, which stay warm', async (t) => {
  const app = application(t);
  const double = app.job('double', { module, processes: 2 });
  const jobs = await double.submitMany(Array.from({ length: 100 }, (_, number) => number));
  await app.drain();
  const results = await jobs.results();
  assert.deepEqual(results.map(({ value }) => value), Array.from({ length: 100 }, (_, number) => 2 * number));
  const pids = new Set(results.map(({ pid }) => pid));
  assert.ok(pids.size <= 2 && !pids.has(process.pid), [...pids].join());
  assert.equal(Math.max(...results.map(({ calls }) => calls)) >= 50, true);
});

test('a map runs in the processes of its job', async (t) => {
  const app = application(t);
  const double = app.job('double', { module, processes: 2 });
  const values = [];
  for await (const { value, pid } of app.map(double, [1, 2, 3])) {
    assert.notEqual(pid, process.pid);
    values.push(value);
  }
  assert.deepEqual(values, [2, 4, 6]);
});

test('the handler sees its job, and modules of CommonJS have handlers too', async (t) => {
  const app = application(t);
  const known = app.job('known', { module: module.href, export: 'known', processes: 1, queue: 'slow', group: 'bee' });
  const triple = app.job('triple', { module: new URL('./common.cjs', import.meta.url).pathname, export: 'triple', processes: 1 });
  const handle = await known.submit(null, { tags: { hive: 7 } });
  const three = await triple.submit(1);
  await app.drain();
  assert.deepEqual(await handle.result(), { id: handle.id, attempt: 1, queue: 'slow', tags: { hive: '7' }, group: 'bee' });
  assert.equal(await three.result(), 3);
});

test('errors keep their class and trace, and say whether to try again', async (t) => {
  const app = application(t);
  const fail = app.job('fail', { module, export: 'fail', processes: 1, retries: 1, retryDelay: '1h' });
  const [plain, forGood, later] = [await fail.submit('plainly'), await fail.submit('for good'), await fail.submit('once more')];
  await app.drain();
  assert.equal(await plain.state(), 'scheduled');
  const details = await plain.details();
  assert.equal(details.failures[0].type, 'TypeError');
  assert.match(details.failures[0].traceback, /handlers\.mjs:\d+/);
  assert.equal((await failure(forGood.result())).type, 'Fail');
  assert.equal(await later.state(), 'scheduled');
});

test('a process that ends fails its own job alone, and keeps its lines', async (t) => {
  const app = application(t);
  const leave = app.job('leave', { module, export: 'leave', processes: 1, retries: 0 });
  const double = app.job('double', { module, processes: 1 });
  const [left, others] = [await leave.submitMany([3, 4]), await double.submitMany([1, 2])];
  await app.drain();
  const error = await failure(left.at(0).result());
  assert.ok(error instanceof JobFailed);
  assert.equal(error.type, 'ProcessEnded');
  assert.match(error.message, /the process of the handler ended with status 3/);
  assert.match((await failure(left.at(1).result())).message, /ended with status 4/);
  assert.equal(await left.at(0).log(), 'leaving\n');
  assert.equal((await others.results()).length, 2);
});

test('a handler that computes for too long is ended, and its slot is free', async (t) => {
  const app = application(t);
  const spin = app.job('spin', { module, export: 'spin', processes: 1, retries: 0, timeout: '200ms' });
  const jobs = await spin.submitMany([1, 2, 3]);
  assert.deepEqual(await app.drain(), { completed: 0, failed: 3 });
  for (const job of jobs) {
    const error = await failure(job.result());
    assert.equal(error.type, 'timeout');
    assert.match(error.message, /exceeded its timeout of 200 ms$/);
  }
});

test('a cancelled job hears of it in its process', async (t) => {
  const app = application(t);
  const wait = app.job('wait', { module, export: 'wait', processes: 1, retries: 0 });
  const handle = await wait.submit(null);
  const worker = await app.worker();
  const until = performance.now() + 60_000;
  while ((await handle.details()).progress == null) assert.ok(performance.now() < until, 'it tells its progress');
  assert.equal(await handle.cancel(), true);
  assert.equal((await failure(handle.result())).state, 'cancelled');
  await worker.stop();
});

test('a module that cannot be loaded fails its jobs with the reason', async (t) => {
  const app = application(t);
  const options = { processes: 1, retries: 0 };
  const broken = app.job('broken', { module: new URL('./broken.mjs', import.meta.url), ...options });
  const none = app.job('none', { module: new URL('./none.mjs', import.meta.url), ...options });
  const constant = app.job('constant', { module, export: 'constant', ...options });
  const jobs = [await broken.submit(1), await none.submit(1), await constant.submit(1)];
  await app.drain();
  const [first, second, third] = await Promise.all(jobs.map((job) => failure(job.result())));
  assert.match(first.message, /this module cannot be loaded/);
  assert.match(second.message, /none\.mjs/);
  assert.match(third.message, /exports no function `constant`/);
});

test('results are checked where they are made', async (t) => {
  const app = application(t, { bigints: 'bigint' });
  const map = app.job('map', { module, export: 'map', processes: 1, retries: 0 });
  const large = app.job('large', { module, export: 'large', processes: 1 });
  const [refused, given] = [await map.submit(1), await large.submit(9007199254740993n)];
  await app.drain();
  assert.match((await failure(refused.result())).message, /found/);
  assert.equal(await given.result(), 9007199254740994n);
});

test('wrong options are refused with a remedy', (t) => {
  const app = application(t);
  const refuses = (define, pattern) => assert.throws(define, (error) => error instanceof InvalidValue && pattern.test(error.message));
  refuses(() => app.job('a', { module: './handlers.mjs' }), /import\.meta\.url/);
  refuses(() => app.job('b', { module }, () => 1), /give one of them/);
  refuses(() => app.job('c', { module, concurrency: 2 }), /give `processes`/);
  refuses(() => app.job('d', { module, processes: 0 }), /from 1 to/);
  refuses(() => app.job('e', { processes: 2 }), /give `module`/);
  refuses(() => app.job('f', { module, export: '' }), /name of a function/);
  refuses(() => app.batch('g', { module }, () => []), /run in this process/);
});

test('idle processes keep no program alive', (t) => {
  const program = `
    import { App } from 'gristmill';
    const app = new App(${JSON.stringify(place(t))}, { durable: false });
    const double = app.job('double', { module: new URL(${JSON.stringify(module.href)}), processes: 1 });
    const handle = await double.submit(4);
    await app.drain();
    console.log((await handle.result()).value);
  `;
  const run = spawnSync(process.execPath, ['--input-type=module', '--eval', program], { encoding: 'utf8', timeout: 60_000 });
  assert.deepEqual([run.status, run.stdout, run.stderr], [0, '8\n', '']);
});
