// A process of a pool: it runs the function that a module exports, for one job after the other.

import type { Question } from '../backend.js';
import { InvalidValue, StoreError } from '../errors.js';
import type { Builtins } from '../platform.js';
import { type BigInts, encodeResult } from '../values/encode.js';
import { type JobSource, JobContext, LOG_CHARACTERS_MAX } from './context.js';
import { describe } from './describe.js';
import type { FromProcess, ToProcess } from './pool.js';

interface Process {
  argv: string[];
  getBuiltinModule<Name extends keyof Builtins>(name: Name): Builtins[Name];
  send(message: FromProcess, sent: () => void): boolean;
  on(event: 'message', listener: (message: ToProcess) => void): unknown;
  on(event: 'disconnect' | 'SIGINT' | 'SIGTERM', listener: () => void): unknown;
  exit(status: number): never;
}

type Handler = (payload: unknown, job: JobContext) => unknown;

const { process } = globalThis as unknown as { process: Process };
const [url, name, bigints, parent] = process.argv.slice(2) as [string, string, BigInts, string];

// Ctrl-C and a service manager reach all processes. The parent lets its running jobs end.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => {});

/** How soon a process ends whose parent has ended. */
const WATCH_EVERY_MS = 1_000;

// A handler that computes gets no message, so that a thread watches the parent.
const { Worker } = process.getBuiltinModule('node:worker_threads');
new Worker(`
  const { workerData } = require('node:worker_threads');
  setInterval(() => {
    if (process.ppid !== workerData.parent) process.kill(process.pid, 'SIGKILL');
  }, workerData.everyMs);
`, { eval: true, workerData: { parent: Number(parent), everyMs: WATCH_EVERY_MS } }).unref();

/** A job whose lines leave at once, so that they are there if the process ends. */
class ProcessJob extends JobContext {
  private charactersLeft = LOG_CHARACTERS_MAX;

  constructor(readonly number: number, source: JobSource) {
    super(source, 0);
  }

  override log(line: string): void {
    const text = String(line).slice(0, this.charactersLeft);
    if (this.isAnswered || this.charactersLeft <= 0) return;
    this.charactersLeft -= text.length + 1;
    tell(this.number, { log: text });
  }
}

/** Tells the parent about a job. A parent that is gone reads nothing: `disconnect` ends this process. */
function tell(number: number, message: Omit<FromProcess, 'gristmill'>): void {
  process.send({ gristmill: number, ...message }, () => {});
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

let current: ProcessJob | null = null;

/** Questions that are not answered. */
const asked = new Map<number, (answer: NonNullable<ToProcess['answer']>) => void>();
let questions = 0;

async function ask(number: number, about: Question): Promise<unknown> {
  const question = ++questions;
  const answered = new Promise<NonNullable<ToProcess['answer']>>((resolve) => asked.set(question, resolve));
  tell(number, { question: { number: question, about } });
  const { value, problem } = await answered;
  if (problem !== undefined) throw new StoreError(problem);
  return value;
}

async function run({ number, identity, payload }: NonNullable<ToProcess['run']>): Promise<void> {
  const source: JobSource = {
    identities: () => [identity],
    progress: (_, progress) => tell(number, { progress }),
    ask: (_, about) => ask(number, about),
  };
  const job = new ProcessJob(number, source);
  current = job;
  let handler: Handler;
  try {
    handler = await loading;
  } catch (error) {
    // The next process may find a mended module.
    tell(number, { error: describe(error), isLast: true });
    return;
  }
  try {
    // A job that was cancelled meanwhile does not begin.
    if (job.reason !== null) throw job.reason;
    tell(number, { hasBegun: true });
    const value = encodeResult(await handler(payload, job), bigints);
    job.isAnswered = true;
    tell(number, { value });
  } catch (error) {
    job.isAnswered = true;
    tell(number, { error: describe(error) });
  } finally {
    if (current === job) current = null;
  }
}

process.on('message', ({ run: job, abort, answer }) => {
  if (job !== undefined) void run(job);
  if (answer !== undefined) {
    asked.get(answer.question)?.(answer);
    asked.delete(answer.question);
  }
  if (abort !== undefined) current?.abort(Object.assign(new Error(abort.message), { name: abort.name }));
});
process.on('disconnect', () => process.exit(0));
