// What JSON cannot hold is refused with its place, and no integer changes without a word.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import vm from 'node:vm';

import { App, InvalidValue } from 'gristmill';
import { closed, place } from './stores.mjs';

const BEYOND = '9007199254740993';

/** An application with a job that returns its payload. */
function echoing(t, options) {
  const app = closed(t, new App(place(t), { durable: false, ...options }));
  return { app, echo: app.job('echo', { retries: 0 }, (payload) => payload) };
}

test('a value that JSON would change is refused with its place and a remedy', async (t) => {
  const { app, echo } = echoing(t);
  class Picture {}
  const itself = {};
  itself.again = itself;
  for (const [payload, says] of [
    [{ when: new Date(0) }, /^payload\.when is a Date, .*toISOString/],
    [[1, new Map()], /^payload\[1\] is a Map, .*Object\.fromEntries/],
    [{ 'a b': [new Set()] }, /^payload\["a b"\]\[0\] is a Set/],
    [new Uint8Array(2), /^payload is a Uint8Array, .*base64/],
    [Buffer.from('x'), /^payload is a Buffer/],
    [{ picture: new Picture() }, /^payload\.picture is a Picture, .*plain object/],
    [[undefined], /^payload\[0\] is undefined/],
    [{ call: () => 1 }, /^payload\.call is the function call/],
    [NaN, /^payload is NaN/],
    [{ n: -Infinity }, /^payload\.n is -Infinity/],
    [5n, /^payload is the BigInt 5n/],
    [{ id: 2 ** 60 }, /^payload\.id is 1152921504606847000, an integer that a number does not hold exactly/],
    [itself, /more than 128 levels deep/],
  ]) {
    await assert.rejects(echo.submit(payload), (error) => error instanceof InvalidValue && says.test(error.message) && error.path !== '');
  }
  await assert.rejects(echo.submitMany([1, { at: new Date(0) }]), /^InvalidValue: items\[1\]\.at is a Date/);
  assert.equal((await app.counts()).waiting, 0);
});

test('values go through as they were; members that are undefined are left out', async (t) => {
  const { app, echo } = echoing(t);
  const ofOtherRealm = vm.runInNewContext('({ a: [1, { b: null }] })');
  const payloads = [
    null, true, 'é\u2028"\n', 1.5, -0.1, 1e300, Number.MAX_SAFE_INTEGER, [], {}, [[]], { __proto__: null, x: 1 }, ofOtherRealm,
    { a: undefined, b: 1 },
  ];
  const jobs = await echo.submitMany(payloads);
  await app.drain();
  const expected = payloads.map((payload) => JSON.parse(JSON.stringify(payload)));
  assert.deepEqual(await jobs.results(), expected);
  const empty = await echo.submit();
  await app.drain();
  assert.equal(await empty.result(), null);
});

test('an integer beyond 2^53 is refused with its place, or arrives as the option says', async (t) => {
  const store = place(t);
  const payload = `{"ids":[1,${BEYOND}],"text":"${BEYOND}"}`;
  const submit = async (app) => {
    const backend = await app.backend();
    const { first } = JSON.parse(await backend.ask('submit', '', `{"kind":"echo","retry":{"attempts_max":3},"payload":${payload}}`));
    return first;
  };
  const seen = [];
  const run = async (options) => {
    const app = new App(store, { durable: false, ...options });
    app.job('echo', (payload) => {
      seen.push(payload.ids[1]);
      return payload;
    });
    const job = await submit(app);
    await app.drain();
    const details = await app.details(job);
    const shown = (_, part) => (typeof part === 'bigint' ? `${part}n` : part);
    const value = details.state === 'completed' ? JSON.stringify(await app.result(job), shown) : null;
    const raw = await (await app.backend()).ask('job', job, '{}');
    await app.close();
    return { details, value, raw };
  };
  const refused = await run({});
  assert.equal(refused.details.state, 'dead');
  assert.equal(refused.details.failures.length, 1);
  assert.match(refused.details.failures[0].message, /^payload\.ids\[1\] is 9007199254740993, .*bigints: "bigint"/);
  assert.deepEqual(seen, []);
  const bigint = await run({ bigints: 'bigint' });
  assert.match(bigint.raw, /"value":\{"ids":\[1,9007199254740993\]/);
  assert.equal(bigint.value, `{"ids":[1,"${BEYOND}n"],"text":"${BEYOND}"}`);
  const string = await run({ bigints: 'string' });
  assert.equal(string.value, `{"ids":[1,"${BEYOND}"],"text":"${BEYOND}"}`);
  assert.deepEqual(seen, [BigInt(BEYOND), BEYOND]);
});

test('a BigInt is written with all digits, and a far number is refused', async (t) => {
  const { app, echo } = echoing(t, { bigints: 'bigint' });
  const job = await echo.submit({ id: 2n ** 70n, small: 5n });
  await app.drain();
  assert.deepEqual(await job.result(), { id: 2n ** 70n, small: 5 });
  const { first } = JSON.parse(await (await app.backend()).ask('submit', '', '{"kind":"echo","payload":{"n":[1e400]}}'));
  await app.drain();
  assert.match((await app.details(first)).failures[0].message, /^payload\.n\[0\] is 1e400, which is beyond the largest number/);
});

test('a result that JSON cannot hold fails its job for good', async (t) => {
  const app = closed(t, new App(place(t), { durable: false }));
  const make = app.job('make', () => ({ at: [new Date(0)] }));
  const job = await make.submit();
  await app.drain();
  await assert.rejects(job.result(), /ended as dead: InvalidValue: result\.at\[0\] is a Date/);
});
