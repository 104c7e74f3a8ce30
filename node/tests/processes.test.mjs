// Handlers that run in processes of their own.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

import { App, InvalidValue, JobFailed } from 'gristmill';
import { closed, place } from './stores.mjs';

const module = new URL('./modules/handlers.mjs', import.meta.url);

function application(t, options) {
  return closed(t, new App(place(t), { durable: false, ...options }));
}

/** What hangs is a failure. */
const LIMITED = { timeout: 120_000 };

/** The processes that these jobs tell. */
async function told(jobs) {
  const pids = [];
  for (const job of jobs) {
    let message;
    while ((message = (await job.details()).progress?.message) === undefined);
    pids.push(Number(message));
  }
  return pids;
}

async function failure(promise) {
  return promise.then(() => assert.fail('it completes'), (error) => error);
}

test('jobs run in a process that stays warm', LIMITED, async (t) => {
  const app = application(t);
  const double = app.job('double', { module, processes: 1 });
  const jobs = await double.submitMany(Array.from({ length: 100 }, (_, number) => number));
  await app.drain();
  const results = await jobs.results();
  assert.deepEqual(results.map(({ value }) => value), Array.from({ length: 100 }, (_, number) => 2 * number));
  const calls = results.map((result) => result.calls).sort((left, right) => left - right);
  assert.deepEqual(calls, Array.from({ length: 100 }, (_, number) => number + 1));
  assert.notEqual(results[0].pid, process.pid);
});

test('jobs run in as many processes at once as the job has', LIMITED, async (t) => {
  const app = application(t);
  const spin = app.job('spin', { module, export: 'spin', processes: 3, retries: 0 });
  const jobs = await spin.submitMany([1, 2, 3, 4]);
  const worker = await app.worker();
  const pids = await told([...jobs].slice(0, 3));
  assert.equal(new Set(pids).size, 3);
  assert.equal((await jobs.at(3).details()).progress ?? null, null);
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  const [last] = await told([jobs.at(3)]);
  process.kill(last, 'SIGKILL');
  for (const job of jobs) assert.match((await failure(job.result())).message, /the process of the handler was ended by SIGKILL/);
  await worker.stop();
});

test('a map runs in the processes of its job', LIMITED, async (t) => {
  const app = application(t);
  const double = app.job('double', { module, processes: 2 });
  const values = [];
  for await (const { value, pid } of app.map(double, [1, 2, 3])) {
    assert.notEqual(pid, process.pid);
    values.push(value);
  }
  assert.deepEqual(values, [2, 4, 6]);
});

test('the handler sees its job, and modules of CommonJS have handlers too', LIMITED, async (t) => {
  const app = application(t);
  const known = app.job('known', { module: module.href, export: 'known', processes: 1, queue: 'slow', group: 'bee' });
  const triple = app.job('triple', { module: new URL('./modules/common.cjs', import.meta.url).pathname, export: 'triple', processes: 1 });
  const handle = await known.submit(null, { tags: { hive: 7 } });
  const three = await triple.submit(1);
  await app.drain();
  assert.deepEqual(await handle.result(), { id: handle.id, attempt: 1, queue: 'slow', tags: { hive: '7' }, group: 'bee' });
  assert.equal(await three.result(), 3);
});

test('errors keep their class and trace, and say whether to try again', LIMITED, async (t) => {
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

test('a process that ends fails its own job alone, and keeps its lines', LIMITED, async (t) => {
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

test('a handler that computes for too long is ended, and its slot is free', LIMITED, async (t) => {
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

test('a cancelled job hears of it in its process', LIMITED, async (t) => {
  const app = application(t);
  const wait = app.job('wait', { module, export: 'wait', processes: 1, retries: 0 });
  const told = `${app.store}.told`;
  const handle = await wait.submit(told);
  const worker = await app.worker();
  while ((await handle.details()).progress == null);
  assert.equal(await handle.cancel(), true);
  assert.equal((await failure(handle.result())).state, 'cancelled');
  await worker.stop();
  assert.equal(readFileSync(told, 'utf8'), 'the job was cancelled');
});

test('a process that ends between jobs fails none of them', LIMITED, async (t) => {
  const app = application(t);
  const leave = app.job('leaveLater', { module, export: 'leaveLater', processes: 1, retries: 0 });
  const jobs = await leave.submitMany([3, 4, 5, 6, 7, 8]);
  assert.deepEqual(await app.drain(), { completed: 6, failed: 0 });
  assert.deepEqual(await jobs.results(), [3, 4, 5, 6, 7, 8]);
});

test('lines and messages after a job has ended are of no other job', LIMITED, async (t) => {
  const app = application(t);
  const late = app.job('late', { module, export: 'late', processes: 1, retries: 0 });
  const jobs = await late.submitMany([1, 2, 3]);
  await app.drain();
  assert.deepEqual(await jobs.results(), [1, 2, 3]);
  for (const job of jobs) assert.equal(await job.log(), null);
});

test('progress that cannot be told fails its job, and not the program', LIMITED, async (t) => {
  const app = application(t);
  const backwards = app.job('backwards', { module, export: 'backwards', processes: 1, retries: 0 });
  const double = app.job('double', { module, processes: 1 });
  const [wrong, right] = [await backwards.submit(null), await double.submit(2)];
  await app.drain();
  assert.match((await failure(wrong.result())).message, /-1/);
  assert.equal((await right.result()).value, 4);
});

test('schemas check payloads before, and results after the process', LIMITED, async (t) => {
  const schema = (accepts) => ({
    '~standard': {
      version: 1, vendor: 'test', validate: (value) => (accepts(value) ? { value } : { issues: [{ message: 'refused' }] }),
    },
  });
  const app = application(t);
  const options = { module, processes: 1, retries: 0, payload: schema((value) => value < 10), result: schema(({ value }) => value < 10) };
  const double = app.job('double', options);
  await assert.rejects(double.submit(11), /refused/);
  const [good, bad] = [await double.submit(4), await double.submit(5)];
  await app.drain();
  assert.equal((await good.result()).value, 8);
  assert.equal((await failure(bad.result())).type, 'SchemaRefused');
});

test('processes end with a program that is killed while they compute', LIMITED, async (t) => {
  const store = place(t);
  const program = `
    import { App } from 'gristmill';
    const app = new App(${JSON.stringify(store)}, { durable: false });
    const spin = app.job('spin', { module: new URL(${JSON.stringify(module.href)}), export: 'spin', processes: 1 });
    const handle = await spin.submit(null);
    await app.worker();
    let message;
    while ((message = (await handle.details()).progress?.message) === undefined);
    console.log(message);
  `;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const [pid] = await once(createInterface(child.stdout), 'line');
  process.kill(pid, 0);
  child.kill('SIGKILL');
  await ended;
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      break;
    }
  }
});

test('a module that cannot be loaded fails its jobs with the reason', LIMITED, async (t) => {
  const app = application(t);
  const options = { processes: 1, retries: 0 };
  const broken = app.job('broken', { module: new URL('./modules/broken.mjs', import.meta.url), ...options });
  const none = app.job('none', { module: new URL('./none.mjs', import.meta.url), ...options });
  const constant = app.job('constant', { module, export: 'constant', ...options });
  const jobs = [await broken.submit(1), await none.submit(1), await constant.submit(1)];
  await app.drain();
  const [first, second, third] = await Promise.all(jobs.map((job) => failure(job.result())));
  assert.match(first.message, /this module cannot be loaded/);
  assert.match(second.message, /none\.mjs/);
  assert.match(third.message, /exports no function `constant`/);
});

test('results are checked where they are made', LIMITED, async (t) => {
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
