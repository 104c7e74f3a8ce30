// Handlers for the tests of processes.

import { Fail, Retry } from 'gristmill';

let calls = 0;

export default function double(number) {
  calls++;
  return { value: 2 * number, pid: process.pid, calls };
}

/** Ends its process at once. */
export function leave(status, job) {
  job.log('leaving');
  // The line is on its way before the process ends.
  return new Promise(() => setImmediate(() => process.exit(status)));
}

export function spin() {
  for (;;);
}

export function fail(how) {
  if (how === 'for good') throw new Fail('no');
  if (how === 'once more') throw new Retry('later', { after: '1h' });
  throw new TypeError('it is no number');
}

/** Ends when its job is cancelled. */
export async function wait(_, job) {
  job.progress({ fraction: 0.5, message: 'waiting' });
  return new Promise((_, reject) => job.signal.addEventListener('abort', () => reject(job.signal.reason)));
}

export const known = (_, job) => ({ id: job.id, attempt: job.attempt, queue: job.queue, tags: job.tags, group: job.group });

export const map = () => ({ found: new Map() });
export const large = (number) => BigInt(number) + 1n;
export const constant = 1;
