// Handlers for the tests of processes.

import { writeFileSync } from 'node:fs';

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

export function fail(how) {
  if (how === 'for good') throw new Fail('no');
  if (how === 'once more') throw new Retry('later', { after: '1h' });
  throw new TypeError('it is no number');
}

/** Ends when its job is cancelled. */
export async function wait(path, job) {
  job.progress({ fraction: 0.5, message: 'waiting' });
  return new Promise((_, reject) => job.signal.addEventListener('abort', () => {
    writeFileSync(path, job.signal.reason.message);
    reject(job.signal.reason);
  }));
}

/** Tells its process, and computes for ever. */
export function spin(_, job) {
  job.progress({ message: String(process.pid) });
  for (;;);
}

/** Ends with this status after its job has ended. */
export function leaveLater(status) {
  setImmediate(() => process.exit(status));
  return status;
}

let earlier = null;

/** Keeps a line of each job for the next one to log. */
export function late(number, job) {
  earlier?.log(`a line of job ${earlier.id}`);
  earlier = job;
  process.send({ value: 'not for the pool' });
  process.send(null);
  return number;
}

export const backwards = (_, job) => job.progress({ done: -1 });

export const known = (_, job) => ({ id: job.id, attempt: job.attempt, queue: job.queue, tags: job.tags, group: job.group });

export const map = () => ({ found: new Map() });
export const large = (number) => BigInt(number) + 1n;
export const constant = 1;

/** What a job learns of its flow, and of the jobs for which it waited. */
export const asked = async (_, job) => ({ flow: await job.flow(), prerequisites: await job.prerequisites() });
