// An application for tests: its clock moves by hand.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';

import { TestApp } from 'gristmill/testing';

test('the clock of a test moves by hand, and schedules and delays follow it', async () => {
  const app = new TestApp({ now: new Date('2026-11-27T00:00:00Z') });
  const seen = [];
  const note = app.job('note', (text) => { seen.push(text); });
  await note.submit('later', { delay: '1h' });
  await note.submit('too late', { expires: '30m', delay: '25m', queue: 'nobody' });
  await app.schedule('daily', note, { cron: '0 12 * * *', payload: 'noon' });
  assert.deepEqual(await app.drain(), { completed: 0, failed: 0 });
  await app.advance('1h');
  await app.drain();
  assert.deepEqual(seen, ['later']);
  assert.equal((await app.counts({ queue: 'nobody' })).expired, 1);
  await app.advance('11h 1m');
  await app.drain();
  assert.deepEqual(seen, ['later', 'noon']);
  assert.equal((await app.time()).toISOString(), '2026-11-27T12:01:00.000Z');
  const { store } = app;
  assert.ok(existsSync(store));
  await app.close();
  assert.ok(!existsSync(store));
});
