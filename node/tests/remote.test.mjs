// What a server or a proxy before it may answer, and what becomes of the jobs.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { App, ResultTimeout, SendFailed } from 'gristmill';
import { closed, deferred, scripted } from './stores.mjs';

const SLOW = { timeout: 60_000 };

/** A server with these jobs for one worker. `reported` has the accepted outcomes; `refuse` may refuse a report. */
async function withJobs(t, payloads, refuse = () => undefined) {
  const seen = { reported: [], deleted: 0, claims: 0 };
  const jobs = payloads.map((payload, position) => (
    `{"job":"1:${position}","lease":1,"attempt":1,"kind":"work","queue":"default","payload":${payload}}`
  ));
  seen.url = await scripted(t, (method, path, body) => {
    const refusal = refuse(method, path, body);
    if (refusal !== undefined) return refusal;
    if (path === '/claims') {
      const claimed = seen.claims++ === 0 ? jobs : [];
      return { body: `{"worker":7,"heartbeat_every_ms":5000,"cancelled":[],"jobs":[${claimed.join(',')}]}` };
    }
    if (path === '/reports') {
      seen.reported.push(...JSON.parse(body).outcomes);
      return { body: { cancelled: [] } };
    }
    if (method === 'DELETE') seen.deleted++;
    return { body: { revoked: [] } };
  });
  return seen;
}

test('a redirection is refused, and a submit is not taken for stored', async (t) => {
  const url = await scripted(t, (method) => (
    method === 'POST' ? { status: 302, headers: { Location: 'https://jobs.example/login' } } : { body: { jobs: [] } }
  ));
  const app = closed(t, new App(url));
  const job = app.job('mail');
  await assert.rejects(job.submit(1, { key: 'k' }), /redirects to https:\/\/jobs\.example\/login, and nothing was done/);
  await assert.rejects(job.submit(1), (error) => error.status === 302);
});

test('an answer to a submit that has no batches is refused', async (t) => {
  for (const body of [{ jobs: [] }, '<html>', 'null']) {
    const app = closed(t, new App(await scripted(t, () => ({ body }))));
    await assert.rejects(app.job('mail').submit(1), /answer to a submit is not of Gristmill.*check its address/);
  }
});

test('the password of an address stays out of its error', async () => {
  await assert.rejects(new App('https://me:secret@:x:y').counts(), (error) => (
    /is not the address of a server/.test(error.message) && !/secret|me:/.test(error.message)
  ));
});

test('a wait for a result ends in time where the server is silent', SLOW, async (t) => {
  const app = closed(t, new App(await scripted(t, () => undefined)));
  await assert.rejects(app.result('1:0', { timeout: '10ms' }), ResultTimeout);
});

test('a wait for a result lasts until the job has ended', SLOW, async (t) => {
  let looks = 0;
  const waited = [];
  const app = closed(t, new App(await scripted(t, (method, path) => {
    if (method === 'HEAD') waited.push(Number(new URLSearchParams(path.split('?')[1]).get('wait_ms')));
    if (method !== 'GET') return { body: '' };
    return { body: ++looks < 8 ? { job: '1:0', state: 'waiting' } : { job: '1:0', state: 'completed', value: 7 } };
  })));
  assert.equal(await app.result('1:0', { timeout: '30s' }), 7);
  assert.ok(waited.some((ms) => ms > 0 && ms % 100 !== 0), `waits of ${waited.join()} ms: none is the rest of a turn`);
});

test('a drain asks again after a report that came while a claim was under way', SLOW, async (t) => {
  const claimed = (jobs) => `{"worker":7,"heartbeat_every_ms":5000,"cancelled":[],"jobs":[${jobs}]}`;
  const job = (number) => `{"job":"1:${number}","lease":1,"attempt":1,"kind":"work","queue":"default","payload":${number}}`;
  const isHeld = deferred();
  let claims = 0, held = null;
  const url = await scripted(t, (_, path, __, response) => {
    if (path === '/reports' && held !== null) {
      const late = held;
      held = null;
      // The worker has read the answer to its report by then.
      const turn = (left) => (left === 0 ? late.end(claimed('')) : setImmediate(turn, left - 1));
      response.on('finish', () => turn(1_000));
    }
    if (path !== '/claims') return { body: { cancelled: [], revoked: [] } };
    claims++;
    if (claims !== 2) return { body: claimed(claims <= 3 ? job(claims) : '') };
    held = response;
    isHeld.resolve();
    return undefined;
  });
  const app = closed(t, new App(url));
  app.job('work', async () => isHeld.promise);
  assert.deepEqual(await app.drain(), { completed: 2, failed: 0 });
});

test('a worker goes on after answers of a proxy', SLOW, async (t) => {
  const failed = new Set();
  const seen = await withJobs(t, ['1', '2'], (_, path) => {
    if (failed.has(path) || !['/claims', '/reports'].includes(path)) return undefined;
    failed.add(path);
    return { status: 502, body: '<html>Bad Gateway</html>' };
  });
  const app = closed(t, new App(seen.url));
  app.job('work', (number) => number + 1);
  assert.deepEqual(await app.drain(), { completed: 2, failed: 0 });
  assert.deepEqual(seen.reported.map(({ job, value }) => [job, value]), [['1:0', 2], ['1:1', 3]]);
  assert.deepEqual([...failed], ['/claims', '/reports']);
});

test('one outcome that a server refuses costs no other', async (t) => {
  const refuse = (_, path, body) => {
    if (path !== '/reports') return undefined;
    const { outcomes } = JSON.parse(body);
    if (outcomes.length > 4) return { status: 413, body: { error: 'too large', remedy: 'send less' } };
    return outcomes.some((one) => one.value === 'bad') ? { status: 400, body: { error: 'bad', remedy: 'mend it' } } : undefined;
  };
  const seen = await withJobs(t, Array.from({ length: 20 }, (_, number) => String(number)), refuse);
  const app = closed(t, new App(seen.url));
  app.job('work', (number) => (number === 13 ? 'bad' : number));
  assert.deepEqual(await app.drain(), { completed: 19, failed: 1 });
  assert.equal(seen.reported.length, 20);
  const errors = seen.reported.filter((one) => one.error !== undefined);
  assert.deepEqual(errors.map(({ job, error }) => [job, error.type, error.permanent]), [['1:13', 'outcome', true]]);
  assert.match(errors[0].error.message, /the outcome cannot be stored: bad: mend it/);
});

test('a worker whose reports are refused ends with the reason', async (t) => {
  const refusal = { status: 401, body: { error: 'no', remedy: 'x' } };
  const seen = await withJobs(t, ['1'], (_, path) => (path === '/reports' ? refusal : undefined));
  const app = closed(t, new App(seen.url));
  app.job('work', (number) => number);
  const worker = await app.worker();
  await assert.rejects(worker.ended, /outcomes cannot be reported: no: x/);
  assert.equal(seen.deleted, 1);
});

test('a payload that no handler can get fails alone', async (t) => {
  const seen = await withJobs(t, ['{"a":[1,1e400]}', '"1e400"', '9007199254740993']);
  const app = closed(t, new App(seen.url, { bigints: 'string' }));
  app.job('work', (payload) => payload);
  assert.deepEqual(await app.drain(), { completed: 2, failed: 1 });
  const [refused, ...others] = seen.reported.sort((left, right) => (left.job < right.job ? -1 : 1));
  assert.match(refused.error.message, /^payload\.a\[1\] is beyond the largest number/);
  assert.deepEqual(others.map((one) => one.value), ['1e400', '9007199254740993']);
  assert.equal(seen.deleted, 1);
});

test('events that are not wanted any more close their connection, also before the first one', SLOW, async (t) => {
  const opened = [deferred(), deferred()], ended = [deferred(), deferred()];
  let number = 0;
  const url = await scripted(t, (_, path, body, response) => {
    if (!path.startsWith('/events')) return {};
    const at = number++;
    response.once('close', () => ended[at].resolve());
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write(': here\n\n');
    opened[at].resolve();
    return undefined;
  });
  const app = closed(t, new App(url));
  const unread = app.events();
  await opened[0].promise;
  await unread.return();
  await ended[0].promise;
  const waiting = app.events();
  const next = waiting.next();
  await opened[1].promise;
  await app.close();
  await assert.rejects(next, /the events ended: the application was closed/);
  await ended[1].promise;
});

test('a submit of many large items asks in portions that a server takes', async (t) => {
  const sizes = [];
  let batch = 0;
  const url = await scripted(t, (_, path, body) => {
    sizes.push(body.length);
    return { body: { jobs: 1, batches: [{ batch: ++batch, first_position: 0, count: JSON.parse(body).payloads.length }] } };
  });
  const app = closed(t, new App(url));
  const text = 'x'.repeat(1 << 20);
  const jobs = await app.job('large').submitMany(Array.from({ length: 24 }, () => text));
  assert.equal(jobs.length, 24);
  assert.ok(sizes.every((size) => size < 9 << 20), String(sizes));
});

test('a worker that stops hears of a cancellation although the answer was lost that told it', SLOW, async (t) => {
  const hasClaimedAgain = deferred(), begun = deferred();
  let claims = 0;
  const url = await scripted(t, (method, path) => {
    if (path === '/claims' && claims++ > 0) {
      hasClaimedAgain.resolve();
      return undefined;
    }
    if (path === '/claims') {
      const job = '{"job":"1:0","lease":1,"attempt":1,"kind":"work","queue":"default","payload":1}';
      return { body: `{"worker":7,"heartbeat_every_ms":50000,"cancelled":[],"jobs":[${job}]}` };
    }
    if (path === '/jobs/1:0') return { body: { state: 'cancelled' } };
    return { body: path === '/reports' ? { cancelled: [] } : { revoked: [] } };
  });
  const app = closed(t, new App(url));
  app.job('work', (_, job) => new Promise((_, reject) => {
    job.signal.addEventListener('abort', () => reject(job.signal.reason));
    begun.resolve();
  }));
  const worker = await app.worker();
  await Promise.all([begun.promise, hasClaimedAgain.promise]);
  assert.deepEqual(await worker.stop(), { completed: 0, failed: 1 });
});

/** A server with flows whose children have ended. `answer` gives the outcomes of the children at these positions, as text. */
async function withFlows(t, count, answer, given = '0,"memo":[{"steps":[["work",0]]}]') {
  const seen = { reported: [], claims: 0 };
  const jobs = Array.from({ length: count }, (_, position) => (
    `{"job":"1:${position}","lease":1,"attempt":1,"kind":"flow","queue":"default","payload":${given}}`
  ));
  seen.url = await scripted(t, (method, path, body, response) => {
    if (path === '/claims') {
      const claimed = seen.claims++ === 0 ? jobs : [];
      return { body: `{"worker":7,"heartbeat_every_ms":5000,"cancelled":[],"jobs":[${claimed.join(',')}]}` };
    }
    if (path === '/workers/7/children') return answer(JSON.parse(body).positions.split(',').map(Number), response);
    if (path !== '/reports') return { body: { revoked: [] } };
    seen.reported.push(...JSON.parse(body).outcomes);
    return { body: { cancelled: [] } };
  });
  return seen;
}

const completed = (value) => `[{"job":"2:0","state":"completed","value":${value}}]`;

test('a flow whose step a server forbids fails alone', SLOW, async (t) => {
  const seen = await withJobs(t, ['0', '1', '2'], (_, path, body) => {
    if (path !== '/reports') return undefined;
    const isForbidden = JSON.parse(body).outcomes.some((one) => one.spawned?.children[0].queue === 'slow');
    return isForbidden ? { status: 403, body: { error: 'the children of job 1:1 are refused', remedy: 'x' } } : undefined;
  });
  const app = closed(t, new App(seen.url));
  app.flow('work', async (flow, number) => (number === 1 ? flow.step('other', 1, { queue: 'slow' }) : number));
  assert.deepEqual(await app.drain(), { completed: 2, failed: 1 });
  const errors = seen.reported.filter((one) => one.error !== undefined);
  assert.deepEqual(errors.map(({ job, error }) => [job, error.permanent]), [['1:1', true]]);
  assert.match(errors[0].error.message, /the children of job 1:1 are refused/);
});

test('outcomes of children that are too many are asked for apart, and those of one job that are too large refuse it', SLOW, async (t) => {
  const asked = [];
  const seen = await withFlows(t, 3, (positions) => {
    asked.push(positions);
    if (positions.includes(1)) return { body: ' '.repeat((64 << 20) + 1) };
    return { body: `{"children":[${positions.map((position) => completed(position)).join(',')}]}` };
  });
  const app = closed(t, new App(seen.url));
  app.flow('flow', { retries: 0 }, async (flow) => flow.step('work'));
  assert.deepEqual(await app.drain(), { completed: 0, failed: 3 });
  assert.deepEqual(asked, [[0, 1, 2], [0, 1], [0], [1], [2]]);
  const refused = seen.reported.find((one) => one.job === '1:1');
  assert.match(refused.error.message, /^the outcomes of its children are too large: they have over 67108864 bytes/);
});

test('a job that was cancelled while the outcomes of its children came does not run', SLOW, async (t) => {
  let ran = 0;
  const url = await scripted(t, (_, path, __, response) => {
    if (path === '/claims') {
      const job = (kind, position, memo) => (
        `{"job":"1:${position}","lease":1,"attempt":1,"kind":"${kind}","queue":"default","payload":1${memo}}`
      );
      const claimed = ran === 0 ? [job('flow', 0, ',"memo":[{}]'), job('plain', 1, '')] : [];
      return { body: `{"worker":7,"heartbeat_every_ms":5000,"cancelled":[],"jobs":[${claimed.join(',')}]}` };
    }
    if (path === '/workers/7/children') {
      answered = response;
      return undefined;
    }
    if (path === '/reports') {
      // The report of the other job says that the flow is cancelled.
      const late = answered;
      answered = null;
      response.on('finish', () => late?.end('{"children":[[]]}'));
      return { body: { cancelled: late === null ? [] : ['1:0'] } };
    }
    return { body: { revoked: [] } };
  });
  let answered = null, isRun = false;
  const app = closed(t, new App(url));
  app.job('plain', async () => {
    ran++;
    while (answered === null) await new Promise((resolve) => setImmediate(resolve));
  });
  app.flow('flow', async () => { isRun = true; });
  assert.deepEqual(await app.drain(), { completed: 1, failed: 0 });
  assert.equal(isRun, false);
});

test('large events are sent in portions, and an error tells what became of the first ones', async (t) => {
  const sizes = [];
  const url = await scripted(t, (_, path, body) => {
    if (sizes.length === 2) return { status: 400, body: { error: 'no', remedy: 'x' } };
    sizes.push(body.length);
    return { body: { events: JSON.parse(body).events.map(() => ({ receipt: 'kept' })) } };
  });
  const app = closed(t, new App(url));
  const events = Array.from({ length: 9 }, (_, number) => ({ flow: `1:${number}`, name: 'go', value: 'x'.repeat(1 << 20) }));
  await assert.rejects(app.sendEvents(events), (error) => {
    assert.ok(error instanceof SendFailed);
    assert.match(error.message, /no: x; the first 6 events are sent/);
    assert.deepEqual(error.receipts, Array(6).fill('kept'));
    return true;
  });
  assert.ok(sizes.every((size) => size < 5 << 20), String(sizes));
});

test('floats of a server are what they are in a file, and a deep payload passes', SLOW, async (t) => {
  const deep = '['.repeat(127) + ']'.repeat(127);
  // The hash of the step's payload, null.
  const memo = '"memo":[{"steps":[["work",634125391]]}]';
  const seen = await withFlows(t, 1, () => ({ body: `{"children":[${completed('[1e16,2.5]')}]}` }), `${deep},${memo}`);
  const app = closed(t, new App(seen.url));
  app.flow('flow', { retries: 0 }, async (flow, payload) => [JSON.stringify(payload), ...await flow.step('work')].map(String));
  assert.deepEqual(await app.drain(), { completed: 1, failed: 0 });
  assert.deepEqual(seen.reported.map((one) => one.value), [[deep, '10000000000000000', '2.5']]);
});

test('an integer in the outcomes of children is refused with its place, or arrives as the application wants it', SLOW, async (t) => {
  const memo = '0,"memo":[{"steps":[["work",634125391]]}]';
  for (const [bigints, says] of [['error', /^outcomes\[0\]\.value\.id is 9007199254740993, which a JavaScript number/], ['string', null]]) {
    const seen = await withFlows(t, 1, () => ({ body: `{"children":[${completed('{"id":9007199254740993}')}]}` }), memo);
    const app = closed(t, new App(seen.url, { bigints }));
    app.flow('flow', { retries: 0 }, async (flow) => flow.step('work'));
    await app.drain();
    const [{ value, error }] = seen.reported;
    if (says === null) assert.deepEqual(value, { id: '9007199254740993' });
    else assert.match(error.message, says);
  }
});
