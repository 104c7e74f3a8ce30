// A process of a pool: it runs the function that a module exports, for one job after the other.

import { InvalidValue } from '../errors.js';
import { type BigInts, encode } from '../values/encode.js';
import { type JobSource, JobContext } from './context.js';
import { describe } from './describe.js';
import type { Sent, Word } from './pool.js';

interface Process {
  argv: string[];
  send(word: Word, sent: () => void): boolean;
  on(event: 'message', listener: (message: Sent) => void): unknown;
  on(event: 'disconnect' | 'SIGINT' | 'SIGTERM', listener: () => void): unknown;
  exit(status: number): never;
}

type Handler = (payload: unknown, job: JobContext) => unknown;

const { process } = globalThis as unknown as { process: Process };
const [url, name, bigints] = process.argv.slice(2) as [string, string, BigInts];

/** A parent that is gone reads no words: `disconnect` ends this process. */
const say = (word: Word): void => void process.send(word, () => {});

/** A job whose lines leave at once, so that they are there if the process ends. */
class Told extends JobContext {
  override log(line: string): void {
    say({ log: String(line) });
  }
}

async function load(): Promise<Handler> {
  const module = await import(url) as Record<string, unknown> & { default?: Record<string, unknown> };
  // The exports of a CommonJS module may be known under `default` alone.
  const handler = module[name] ?? module.default?.[name];
  if (typeof handler === 'function') return handler as Handler;
  throw new InvalidValue(`the module ${url} exports no function \`${name}\`: export one, or name another by \`export\``, 'export');
}

const loading = load();
// The job that asks first gets the failure.
loading.catch(() => {});

let current: Told | null = null;

async function run({ identity, payload }: NonNullable<Sent['run']>): Promise<void> {
  const source: JobSource = {
    identities: () => [identity],
    progress: (_, progress) => say({ progress }),
  };
  const job = new Told(source, 0);
  current = job;
  let handler: Handler;
  try {
    handler = await loading;
  } catch (error) {
    // The next process may find a mended module.
    say({ error: describe(error), isLast: true });
    return;
  }
  try {
    const value = await handler(payload, job);
    const text = value === undefined ? 'null' : encode(value, 'result', bigints);
    job.isAnswered = true;
    say({ value: text });
  } catch (error) {
    job.isAnswered = true;
    say({ error: describe(error) });
  } finally {
    if (current === job) current = null;
  }
}

process.on('message', ({ run: asked, abort }) => {
  if (asked !== undefined) void run(asked);
  if (abort !== undefined) current?.abort(Object.assign(new Error(abort.message), { name: abort.name }));
});
process.on('disconnect', () => process.exit(0));
// Ctrl-C and a service manager reach all processes. The parent lets its running jobs end.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => {});
