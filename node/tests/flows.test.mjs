// Flows: steps, maps, events, sleeps, failures, versions, restarts; on files, PostgreSQL and a server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { App, FlowError, JobFailed, NotFound, StepFailed, StoreError, TimeoutError } from 'gristmill';
import { TestApp } from 'gristmill/testing';
import { MicroBatch } from '../dist/work/micro-batch.js';
import { closed, place, server } from './stores.mjs';

const run = promisify(execFile);

/** An application on a store of its own, whose clock moves by hand. */
const application = (t, options) => closed(t, new TestApp(options));

/** The payload through a flow on an application whose clock moves by hand: its result. */
async function ran(app, flow, payload) {
  const handle = await flow.submit(payload);
  await app.drain();
  return handle.result({ timeout: '20s' });
}

/** A flow with a step, a map of a batch, a race of an event, a function that runs here, and a child. */
function document(app) {
  const fetchText = app.job('fetchText', async (url) => `The text of ${url}. It has two sentences`);
  const embed = app.batch('embed', { size: 100 }, (sentences) => sentences.map((sentence) => [sentence.length]));
  const sum = app.flow('sum', async (flow, numbers) => numbers.reduce((left, right) => left + right, 0));
  return app.flow('document', { version: '1' }, async (flow, url) => {
    const text = await flow.step(fetchText, url);
    const vectors = await flow.map(embed, text.split('. '));
    const first = await flow.first(flow.event('approve'), flow.sleep('2d'));
    if (first.name !== 'approve') return { state: 'ignored' };
    const lengths = await flow.local((listed) => listed.flat(), vectors, { name: 'flatten' });
    return { state: 'saved', by: first.value, total: await flow.step(sum, lengths), version: flow.version };
  });
}

const STORES = {
  'a file': async (t) => place(t),
  PostgreSQL: async () => process.env.NODE_STORE ?? assert.fail('NODE_STORE is not set: run `make test-node`'),
  'a server': async (t) => server(t, place(t)),
};

for (const [name, open] of Object.entries(STORES)) {
  test(`flows run, wait for events and are listed on ${name}`, { timeout: 120_000 }, async (t) => {
    const app = closed(t, new App(await open(t)));
    const flow = document(app);
    const worker = await app.worker();
    const key = `key of ${name} at ${process.pid}`;
    const one = await flow.submit('a.html', { key });
    const many = await flow.submitMany(Array.from({ length: 50 }, (_, number) => `${number}.html`));
    const sent = await app.sendEvents([
      { key, name: 'approve', value: 'Ada' }, ...[...many].map((handle) => ({ flow: handle, name: 'approve', value: null })),
      { flow: '999999:0', name: 'approve' },
    ], { job: flow });
    assert.ok(sent.slice(0, -1).every((receipt) => receipt === 'kept' || receipt === 'delivered'), sent.join());
    assert.equal(sent.at(-1), 'unknown');
    assert.deepEqual(await one.result({ timeout: '60s' }), { state: 'saved', by: 'Ada', total: 38, version: '1' });
    const results = await many.results({ timeout: '60s' });
    assert.deepEqual(results[7], { state: 'saved', by: null, total: 38, version: '1' });
    assert.equal(await one.sendEvent('approve'), false);
    await assert.rejects(app.sendEvent('999999:0', 'approve'), NotFound);
    const steps = [];
    for await (const step of app.steps(one)) steps.push([step.name, step.state]);
    assert.deepEqual(steps, [
      ['fetchText', 'completed'], ['embed', 'completed'], ['@approve', 'completed'], ['@sleep', 'cancelled'], ['sum', 'completed'],
    ]);
    const kinds = await app.flowKinds({ flow: 'document' });
    assert.deepEqual([kinds[0].name, kinds[0].version, kinds[0].has_worker], ['document', '1', true]);
    const fork = await one.fork('sum');
    assert.deepEqual(await fork.result({ timeout: '60s' }), await one.result());
    await assert.rejects(one.fork('no such step'), (error) => error instanceof StoreError && /is not forked/.test(error.message));
    const forks = await app.forkFlows(0, { version: '1' }, one, '999999:0');
    assert.deepEqual(forks.map((one) => [one.flow, typeof one.fork, typeof one.error]), [
      [one.id, 'string', 'undefined'], ['999999:0', 'undefined', 'string'],
    ]);
    assert.equal(await app.sendEvent(forks[0].fork, 'approve', 'Bob'), true);
    assert.equal((await app.result(forks[0].fork, { timeout: '60s' })).by, 'Bob');
    const left = await flow.submit('c.html');
    const listed = [];
    for await (const row of app.flows({ flow: 'document@1', states: ['waiting', 'running', 'blocked'] })) listed.push(row.job);
    assert.deepEqual(listed, [left.id]);
    assert.equal(await left.cancel(), true);
    await assert.rejects(left.result({ timeout: '20s' }), /cancelled/);
    await worker.stop();
  });
}

test('a race with a sleep ends at its time, and an event with a timeout throws', async (t) => {
  const app = application(t);
  const flow = document(app);
  const late = app.flow('late', async (flow) => {
    try {
      return await flow.event('go', { timeout: '1h' });
    } catch (error) {
      assert.ok(error instanceof TimeoutError);
      return error.message;
    }
  });
  const [one, other] = [await flow.submit('a.html'), await late.submit()];
  await app.drain();
  assert.equal(await one.state(), 'blocked');
  await app.advance('1h');
  await app.drain();
  assert.equal(await other.result(), "the event 'go' was not sent in time");
  await app.advance('47h');
  await app.drain();
  assert.deepEqual(await one.result(), { state: 'ignored' });
});

test('a step that fails is caught, and what it fails with leaves the flow otherwise', async (t) => {
  const app = application(t);
  const charge = app.job('charge', { retries: 0 }, (customer) => { throw new RangeError(`${customer} has no card`); });
  const release = app.job('release', (reservation) => `${reservation} is released`);
  const book = app.flow('book', async (flow, customer) => {
    try {
      return await flow.step(charge, customer, { key: 'once' });
    } catch (error) {
      assert.ok(error instanceof StepFailed);
      const released = await flow.step(release, 'seat 7');
      return [error.step, error.key, error.state, error.type, error.reason, released];
    }
  });
  assert.deepEqual(await ran(app, book, 'Ada'), ['charge', 'once', 'dead', 'RangeError', 'Ada has no card', 'seat 7 is released']);
  const careless = app.flow('careless', async (flow, customer) => flow.step(charge, customer));
  await assert.rejects(ran(app, careless, 'Bob'), (error) => {
    assert.ok(error instanceof JobFailed);
    assert.equal(error.type, 'StepFailed');
    assert.match(error.message, /step charge, job \d+:\d+ ended as dead: RangeError: Bob has no card/);
    assert.match(error.jobStack, /flows\.test\.mjs/);
    assert.doesNotMatch(error.jobStack, /dist\//);
    return true;
  });
  const half = app.job('half', { retries: 0 }, (number) => {
    if (number % 2 === 1) throw new TypeError(`${number} is odd`);
    return number / 2;
  });
  const halves = app.flow('halves', async (flow, numbers) => {
    const all = await flow.map(half, numbers, { returnErrors: true });
    return all.map((one) => (one instanceof StepFailed ? one.reason : one));
  });
  assert.deepEqual(await ran(app, halves, [2, 3, 4]), [1, '3 is odd', 2]);
  const local = app.flow('local', { retries: 0 }, async (flow) => {
    try {
      return await flow.local(() => { throw new SyntaxError('no'); }, null, { name: 'save' });
    } catch (error) {
      return [error.name, error.step, error.type, await flow.step(release, 'it')];
    }
  });
  assert.deepEqual(await ran(app, local, null), ['StepFailed', 'save', 'SyntaxError', 'it is released']);
});

test('a flow goes on in another process of its application, and what it has taken is the same', async (t) => {
  const store = place(t);
  const calls = [];
  const define = (app) => {
    const double = app.job('double', (number) => {
      calls.push(number);
      return 2 * number;
    });
    return app.flow('quadruple', { version: '2' }, async (flow, number) => {
      const told = [flow.now().getTime(), flow.random(), flow.uuid(), await flow.local(() => Math.random(), null, { name: 'chance' })];
      const doubled = await flow.step(double, number);
      const answer = await flow.event('go');
      return { result: await flow.step(double, doubled), answer, told, again: [flow.id, flow.continued] };
    });
  };
  const before = new App(store, { durable: false });
  const handle = await define(before).submit(3);
  await before.drain();
  assert.equal(await handle.state(), 'blocked');
  const kept = await before.ask('flow_memos', { jobs: [handle.id] });
  const [{ values, seed }] = kept.flows[0].memos;
  await before.close();
  const after = closed(t, new App(store, { durable: false }));
  define(after);
  const { id } = handle;
  assert.equal(await after.sendEvent(id, 'go', { by: 'Ada' }), true);
  await after.drain();
  const { result, answer, told, again } = await after.result(id, { timeout: '20s' });
  assert.deepEqual([result, answer, again, calls], [12, { by: 'Ada' }, [id, 0], [3, 6]]);
  assert.deepEqual(values, [['@now', told[0]], ['chance', told[3]]]);
  assert.equal(typeof seed, 'number');
  assert.match(told[2], /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test('instances keep the version that began them, unless new code takes them on', async (t) => {
  const app = application(t);
  const greet = app.flow('greet', { version: '1' }, async (flow, name) => `Hello ${name}${await flow.event('sign')}`);
  assert.deepEqual([greet.name, greet.flowName, greet.version], ['greet@1', 'greet', '1']);
  const handle = await greet.submit('Ada');
  await app.drain();
  const other = closed(t, new App(app.store));
  const next = other.flow('greet', { version: '2', upgrades: ['1'] }, async (flow, name) => (
    `Bye ${name}${await flow.event('sign')} ${flow.version}`
  ));
  const fresh = await next.submit('Bob');
  await other.sendEvents([handle, fresh].map((flow) => ({ flow, name: 'sign', value: '!' })));
  await other.drain();
  assert.deepEqual([await handle.result(), await fresh.result()], ['Bye Ada! 1', 'Bye Bob! 2']);
  assert.throws(() => app.flow('greet', { version: 'a@b' }, async () => 1), /version.*give a short text without @/);
  assert.throws(() => app.flow('old', { upgrades: ['1'] }, async () => 1), /give it a `version` that is none of them/);
  assert.throws(() => app.flow('old', { verison: '1' }, async () => 1), /app\.flow\("old", …\) has no option `verison`: did you mean/);
});

test('a cancelled flow cancels its open steps, and an ended one those that it left open', async (t) => {
  const app = application(t);
  const never = app.job('never');
  const wait = app.flow('wait', async (flow) => flow.step(never, 1));
  const race = app.flow('race', async (flow) => (await flow.first(flow.step(never, 2), flow.event('go'))).index);
  const [one, other] = [await wait.submit(), await race.submit()];
  await app.drain();
  assert.equal((await app.counts({ job: never })).waiting, 2);
  assert.equal(await one.cancel(), true);
  await other.sendEvent('go');
  await app.drain();
  assert.equal(await other.result(), 1);
  assert.equal((await app.counts({ job: never })).cancelled, 2);
});

test('the same step of many instances runs in batches', async (t) => {
  const app = application(t);
  const sizes = [];
  const embed = app.batch('embed', { size: 1_000, wait: '50ms' }, (texts) => {
    sizes.push(texts.length);
    return texts.map((text) => text.length);
  });
  const flow = app.flow('page', { concurrency: 1_000 }, async (flow, number) => {
    const length = await flow.step(embed, 'x'.repeat(number % 7));
    return await flow.step(embed, 'x'.repeat(length)) + number;
  });
  const COUNT = 2_000;
  const handles = await flow.submitMany(Array.from({ length: COUNT }, (_, number) => number));
  await app.drain();
  const results = await handles.results({ timeout: '60s' });
  assert.ok(results.every((result, number) => result === number + (number % 7)));
  assert.equal(sizes.reduce((left, right) => left + right, 0), 2 * COUNT);
  assert.ok(sizes.length <= 60, `${sizes.length} calls of batches of ${sizes.join()}`);
});

test('a flow begins anew with a state, and leaves its memo', async (t) => {
  const app = application(t);
  const remind = app.job('remind', (days) => `${days} days left`);
  const countdown = app.flow('countdown', async (flow, days) => {
    if (days === 0) return flow.continued;
    await flow.step(remind, days);
    await flow.sleep('1d');
    return flow.continueWith(days - 1);
  });
  const handle = await countdown.submit(3);
  for (let day = 0; day < 3; day++) {
    await app.drain();
    await app.advance('1d');
  }
  await app.drain();
  assert.equal(await handle.result(), 3);
});

test('steps have options, and are kinds by name of other programs', async (t) => {
  const app = application(t);
  const seen = [];
  const work = app.job('work', { queue: 'slow', retries: 0 }, (payload, job) => {
    seen.push([payload, job.queue, job.tags.customer ?? null, job.attempt]);
    if (job.attempt < 2) throw new Error('once more');
    return payload;
  });
  const flow = app.flow('options', async (flow) => {
    await flow.step(work, 'a', { queue: 'fast', retries: 1, retryDelay: '0ms', backoff: 'constant', tags: { customer: 7 } });
    const failed = await flow.step('work', 'b').catch((error) => error.type);
    return [failed, await flow.step('resize', { path: 'a.png' }, { name: 'thumbnail' })];
  });
  const handle = await flow.submit();
  await app.drain({ queues: ['default', 'slow', 'fast'] });
  assert.deepEqual(seen, [['a', 'fast', '7', 1], ['a', 'fast', '7', 2], ['b', 'slow', null, 1]]);
  const other = closed(t, new App(app.store));
  other.job('resize', ({ path }) => `small ${path}`);
  await other.drain();
  await app.drain();
  assert.deepEqual(await handle.result(), ['Error', 'small a.png']);
  const steps = [];
  for await (const step of app.steps(handle)) steps.push(step.name);
  assert.deepEqual(steps, ['work', 'work', 'thumbnail']);
});

test('a mistake of a flow is told, and nothing else begins', async (t) => {
  const app = application(t);
  const nothing = app.job('nothing', () => 1);
  const cases = {
    'a function as a step': [async (flow) => flow.step(() => 1), /a step was given the function \(anonymous\).*flow\.local runs/],
    'an unknown option': [async (flow) => flow.step(nothing, null, { kye: 'a' }), /a step has no option `kye`: did you mean `key`\?/],
    'an option that is wrong': [async (flow) => flow.step(nothing, null, { timeout: 5 }), /`timeout` is 5: give a span/],
    'a name with @': [async (flow) => flow.step('@sleep'), /the name of a step is "@sleep"/],
    'a payload that JSON cannot hold': [async (flow) => flow.step(nothing, { at: [new Date(0)] }), /payload\.at\[0\] is a Date/],
    'an item that JSON cannot hold': [async (flow) => flow.map(nothing, [1, new Map()]), /items\[1\] is a Map/],
    'a value that JSON cannot hold': [
      async (flow) => flow.local(() => ({ at: new Date(0) }), null, { name: 'save' }),
      /step save, .*the function save returned a value that cannot be kept: value\.at is a Date/,
    ],
    'a step that nothing awaits': [async (flow) => { void flow.step(nothing); }, /nothing awaited its step nothing/],
    'a promise of something else': [(flow) => new Promise(() => {}), /awaits what is no promise of its flow/],
    'a rounded integer': [async (flow) => flow.local(() => 2 ** 53, null, { name: 'id' }), /value is 9007199254740992/],
  };
  for (const [name, [body, problem]] of Object.entries(cases)) {
    const flow = app.flow(name, { retries: 0 }, body);
    await assert.rejects(ran(app, flow, null), problem, name);
  }
  assert.throws(() => app.map(app.flow('mapped', async () => 1), [1]), /is a flow: use its `submitMany`/);
});

test('code that differs from what an instance has begun is refused', async (t) => {
  const app = application(t);
  const double = app.job('double', (number) => 2 * number);
  let by = 1;
  const flow = app.flow('changed', { retries: 0 }, async (flow, number) => {
    await flow.step(double, number * by);
    return flow.event('go');
  });
  const handle = await flow.submit(3);
  await app.drain();
  by = 2;
  await handle.sendEvent('go');
  await app.drain();
  await assert.rejects(handle.result(), (error) => {
    assert.equal(error.type, 'FlowError');
    assert.match(error.message, /step double, number 1 of its name, of flow changed had arguments of the hash/);
    return true;
  });
  assert.equal(new FlowError('a').name, 'FlowError');
});

test('integers of any size pass through steps, local values and payloads as they are', async (t) => {
  const app = application(t, { bigints: 'bigint' });
  const next = app.job('next', (id) => id + 1n);
  const flow = app.flow('ids', async (flow, id) => {
    const here = await flow.local((given) => given * 2n, id, { name: 'twice' });
    const stepped = await flow.step(next, here);
    return [here, stepped, ...await flow.map(next, [id, stepped])];
  });
  const id = 9007199254740993n;
  assert.deepEqual(await ran(app, flow, id), [id * 2n, id * 2n + 1n, id + 1n, id * 2n + 2n]);
});

test('an asynchronous schema checks the result of a flow, and one of payloads is refused by name', async (t) => {
  const app = application(t);
  const slow = {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: (value) => new Promise((resolve) => {
        setTimeout(resolve, 5, typeof value === 'string' ? { value } : { issues: [{ message: 'give text' }] });
      }),
    },
  };
  const flow = app.flow('slow', { result: slow, retries: 0 }, async (_, value) => value);
  assert.equal(await ran(app, flow, 'a'), 'a');
  await assert.rejects(ran(app, flow, 7), /the schema refuses result: give text/);
  const given = app.flow('given', { payload: slow, retries: 0 }, async (_, value) => value);
  await assert.rejects(ran(app, given, 'a'), /the schema of the payloads of given answers by a promise: a flow needs one that answers at/);
});

test('a flow has the time of the store', async (t) => {
  const app = application(t);
  const flow = app.flow('clock', async (flow) => {
    const before = flow.now();
    await flow.sleep('1h');
    return [before, flow.now()].map((time) => time.getTime());
  });
  const handle = await flow.submit();
  const before = (await app.time()).getTime();
  await app.drain();
  await app.advance('1h');
  await app.drain();
  assert.deepEqual(await handle.result(), [before, before + 3_600_000]);
});

test('the flows and the values of one turn leave in portions, and one that is refused fails alone', () => {
  const answers = [];
  const channel = {
    answer: (number, places, durationsUs, values, others, suspended) => {
      if (suspended.some((one) => one.position === 1)) throw new RangeError('no such text');
      answers.push({ places: [...places], others: JSON.parse(others), flows: suspended.map((one) => one.position) });
    },
  };
  const COUNT = 10;
  const microBatch = new MicroBatch(channel, { what: 'run', number: 0, kind: 0, count: 2 * COUNT, values: [] }, 'error');
  const large = 'x'.repeat(16 << 20);
  for (let place = 0; place < COUNT; place++) {
    microBatch.suspend(place, large, 1);
    microBatch.complete(COUNT + place, large, 1);
  }
  microBatch.flush();
  assert.ok(microBatch.hasEnded);
  assert.ok(answers.every(({ places, flows }) => places.length <= 4 && flows.length <= 4));
  assert.deepEqual(answers.flatMap((one) => one.places), Array.from({ length: COUNT }, (_, at) => COUNT + at));
  assert.deepEqual(answers.flatMap((one) => one.flows), [0, 2, 3, 4, 5, 6, 7, 8, 9]);
  const failed = answers.flatMap((one) => one.others?.failed ?? []);
  assert.deepEqual(failed.map(({ position, error }) => [position, error.message]), [
    [1, 'what the flow waits for cannot be stored: no such text'],
  ]);
});

test('a schema converts the payload of a flow, its state, and the results of its steps', async (t) => {
  const app = application(t);
  const dates = {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: (value) => (typeof value === 'string' ? { value: new Date(value) } : { issues: [{ message: 'give text' }] }),
    },
  };
  const tomorrow = app.job('tomorrow', { payload: dates, result: dates }, (day) => new Date(day.getTime() + 86_400_000).toISOString());
  const flow = app.flow('days', { payload: dates }, async (flow, day) => {
    const next = await flow.step(tomorrow, day.toISOString());
    if (flow.continued < 1) return flow.continueWith(next.toISOString());
    return next.toISOString();
  });
  assert.equal(await ran(app, flow, '2026-11-27'), '2026-11-29T00:00:00.000Z');
  await assert.rejects(flow.submit(7), /the schema refuses payload: give text/);
  const wrong = app.flow('wrong', async (flow) => flow.step(tomorrow, 7));
  await assert.rejects(ran(app, wrong, null), /the schema refuses payload: give text/);
});

const PATIENT = `
import { TestApp } from ${JSON.stringify(new URL('../dist/testing.js', import.meta.url).href)};
const app = new TestApp();
const fail = app.job('fail', { retries: 0 }, () => { throw new Error('no'); });
const issues = [{ message: 'give text' }];
let looks = 0;
// The job's own check passes.
const once = { '~standard': { version: 1, vendor: 'test', validate: (value) => (looks++ === 0 ? { value } : { issues }) } };
const fussy = app.job('fussy', { result: once }, (number) => number);
let begun;
new Promise((resolve) => { begun = resolve; }).then(() => {
  if (process.argv[1] === 'other') throw new Error('of something else');
});
const flow = app.flow('patient', { retries: 0 }, async (flow) => {
  const both = Promise.all([flow.step(fail, 1), flow.step(fail, 2)]);
  const branch = async () => {
    try {
      await flow.step(fail, 3);
    } catch {
      throw new RangeError('of a branch');
    }
  };
  const refused = Promise.all([flow.step(fussy, 4)]);
  const branched = Promise.all([branch()]);
  begun();
  await flow.event('go');
  if (process.argv[1] === 'forgotten') return 1;
  return Promise.all([both, refused, branched].map((one) => one.catch((error) => error.step ?? error.name)));
});
const handle = await flow.submit();
await app.drain();
await handle.sendEvent('go');
await app.drain();
console.log(await handle.result().catch((error) => error.message), process.listenerCount('unhandledRejection'));
await app.close();
`;

test('a step may fail before its flow awaits what it has made of it; other errors end the program as always', async () => {
  const running = (word) => run(process.execPath, ['--input-type=module', '--eval', PATIENT, word], { timeout: 60_000 });
  assert.equal((await running('this')).stdout, "[ 'fail', 'SchemaRefused', 'RangeError' ] 0\n");
  assert.match((await running('forgotten')).stdout, /ended as dead: RangeError: of a branch 0\n$/);
  await assert.rejects(running('other'), (error) => error.code === 1 && /Error: of something else/.test(error.stderr));
});

test('a job that spawned children elsewhere needs a flow or a script', async (t) => {
  const store = place(t);
  const before = new App(store, { durable: false });
  const flow = before.flow('once', { retries: 0 }, async (flow) => flow.event('go'));
  const handle = await flow.submit();
  await before.drain();
  await before.close();
  const app = closed(t, new App(store, { durable: false }));
  app.job('once', () => 1);
  await app.sendEvent(handle.id, 'go');
  await app.drain();
  await assert.rejects(app.result(handle.id), /the handler of `once` cannot go on after them: run it as a flow or a script/);
});

for (const [name, open] of Object.entries(STORES)) {
  test(`a job knows its flow, and the outcomes of the jobs for which it waited, on ${name}`, { timeout: 120_000 }, async (t) => {
    const app = closed(t, new App(await open(t), { bigints: 'bigint' }));
    const suffix = String(process.pid);
    const here = app.job(`here${suffix}`, async (_, job) => ({ flow: await job.flow(), prerequisites: await job.prerequisites() }));
    const module = new URL('./modules/handlers.mjs', import.meta.url);
    const apart = app.job(`apart${suffix}`, { module, export: 'asked', processes: 1 });
    const id = app.job(`id${suffix}`, { retries: 0 }, (number) => {
      if (number === 0) throw new RangeError('no id');
      return 9007199254740992n + BigInt(number);
    });
    const flow = app.flow(`places${suffix}`, { version: '3' }, async (flow) => {
      const [one] = await Promise.all([flow.step(here, 1, { name: 'one', key: 'a' }), flow.sleep('1ms')]);
      return [one, (await flow.map(apart, [1, 2]))[1]];
    });
    const worker = await app.worker();
    const ids = await id.submitMany([1, 0]);
    const plain = [await here.submit(1, { after: [ids], afterFailure: 'ignore' }), await apart.submit(1, { after: [ids.at(0)] })];
    const handle = await flow.submit();
    const [one, two] = await handle.result({ timeout: '60s' });
    const ofFlow = { id: handle.id, name: `places${suffix}`, version: '3' };
    assert.deepEqual(one, { flow: { ...ofFlow, step: 'one', key: 'a', item: null }, prerequisites: [] });
    assert.deepEqual(two, { flow: { ...ofFlow, step: `apart${suffix}`, key: null, item: 1 }, prerequisites: [] });
    const [both, single] = [await plain[0].result({ timeout: '60s' }), await plain[1].result({ timeout: '60s' })];
    assert.equal(both.flow, null);
    assert.deepEqual(both.prerequisites.map((one) => [one.state, one.value ?? null, one.error?.type ?? null]), [
      ['completed', 9007199254740993n, null], ['dead', null, 'RangeError'],
    ]);
    assert.deepEqual(single.prerequisites.map((one) => [one.job, one.value]), [[ids.at(0).id, 9007199254740993n]]);
    await worker.stop();
  });
}
