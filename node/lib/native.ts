// The native addon: the engine in this process, for stores in files and in PostgreSQL.

import type { Backend, Channel, Ended, EventSource, Message, Plan, RunPlan, Suspended } from './backend.js';
import { WAIT_MS_MAX } from './backend.js';
import type { MapRun, RunBatch } from './map.js';
import { type Process, platformOf } from './platform.js';
import { GristmillError, type JobErrorDescription, NotFound, StoreError, WorkerError } from './errors.js';

interface NativeWorker {
  stop(): void;
  ended(): Promise<{ completed: number; failed: number }>;
  take(): Message[];
  answer(
    number: number, places: Uint32Array, durationsUs: Uint32Array, values: string, others: string | null, suspended: string | null,
  ): void;
  progress(number: number, place: number, progress: string): void;
  fail(kind: number, reason: string): void;
  step(job: string): Promise<string>;
  prerequisites(job: string): Promise<string>;
}

interface NativeEvents {
  take(waitMs: number): Promise<string[]>;
}

interface NativeEngine {
  close(): Promise<void>;
  nowMs(): number;
  advance(byMs: number): Promise<void>;
  ask(operation: string, subject: string, request: string): Promise<string>;
  submit(request: string): string | Promise<string>;
  waitJob(job: string, waitMs: number): Promise<{ state: string; value?: string | null; error?: string | null } | null>;
  events(after: string | null): Promise<NativeEvents>;
  startWorker(plan: Plan, wake: () => void): Promise<NativeWorker>;
  beginRun(plan: RunPlan): Promise<MapRun>;
  deleteRun(name: string): Promise<boolean>;
}

interface Addon {
  openEngine(place: string, durable: boolean, nowMs: number | null): Promise<NativeEngine>;
  submitOver(
    request: string,
    place: string,
    nowMs: number,
    query: (sql: string, parameters: string) => string,
    insert: (sql: string, rows: string) => string,
  ): RunBatch[];
}

let addon: Addon | null = null;

function load(): Addon {
  if (addon !== null) return addon;
  const { process } = globalThis as { process?: Process };
  const remedy = 'open a server by its URL (`new App("https://…")`), which needs no addon';
  const getModule = process?.getBuiltinModule;
  if (process === undefined || getModule === undefined) {
    throw new GristmillError(`a store in a file or in PostgreSQL needs Node 20.16 or newer: ${remedy}`);
  }
  const require = getModule('node:module').createRequire(import.meta.url) as (path: string) => unknown;
  const platform = platformOf(process);
  const path = process.env.GRISTMILL_ADDON ?? `../addons/gristmill-${platform}.node`;
  try {
    addon = require(path) as Addon;
  } catch (error) {
    throw new GristmillError(`the package has no addon for ${platform}: ${remedy}`, { cause: error });
  }
  return addon;
}

/** An error of the addon as one of the package's. */
function told(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { code } = error as { code?: unknown };
  if (code === 'ObjectExpected') return new NotFound(error.message);
  return code === 'GenericFailure' ? new StoreError(error.message) : error;
}

async function telling<T>(promise: Promise<T>): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    throw told(error);
  }
}

/** Opens a store in a file or in PostgreSQL. @internal */
export async function openNative(place: string, durable: boolean): Promise<NativeBackend> {
  return new NativeBackend(await telling(load().openEngine(place, durable, null)));
}

/** Opens a store in a file, with a clock that only `advance` moves. @internal */
export async function openForTests(place: string, nowMs: number): Promise<NativeBackend> {
  return new NativeBackend(await telling(load().openEngine(place, false, nowMs)));
}

/** Submits over a connection of another library to the store's file. @internal */
export function submitOver(
  request: string,
  place: string,
  query: (sql: string, parameters: string) => string,
  insert: (sql: string, rows: string) => string,
): RunBatch[] {
  try {
    return load().submitOver(request, place, Date.now(), query, insert);
  } catch (error) {
    throw told(error);
  }
}

/** Flows that wait, as a JSON list. */
function listOf(suspended: readonly Suspended[]): string {
  const texts = suspended.map(({ position, durationUs, text }) => (
    `{"position":${position},"duration_us":${durationUs},"spawn":${text}}`
  ));
  return `[${texts.join(',')}]`;
}

/** The engine in this process. @internal */
export class NativeBackend implements Backend {
  constructor(private readonly engine: NativeEngine) {}

  nowMs(): number {
    return this.engine.nowMs();
  }

  advance(byMs: number): Promise<void> {
    return telling(this.engine.advance(byMs));
  }

  async ask(operation: string, subject: string, request: string): Promise<string> {
    try {
      return await (operation === 'submit' ? this.engine.submit(request) : this.engine.ask(operation, subject, request));
    } catch (error) {
      throw told(error);
    }
  }

  async waitJob(job: string, waitMs: number): Promise<Ended | null> {
    const ended = await telling(this.engine.waitJob(job, Math.max(0, Math.ceil(waitMs))));
    if (ended === null) return null;
    const error = ended.error == null ? null : JSON.parse(ended.error) as JobErrorDescription;
    return { state: ended.state, value: ended.value ?? null, error };
  }

  async events(after: string | null): Promise<EventSource> {
    const events = await telling(this.engine.events(after));
    return { take: () => telling(events.take(WAIT_MS_MAX)), close: () => {} };
  }

  async startWorker(plan: Plan, wake: () => void): Promise<Channel> {
    const worker = await telling(this.engine.startWorker(plan, wake));
    return {
      take: () => worker.take(),
      answer: (number, places, durationsUs, values, others, suspended) => {
        worker.answer(number, places, durationsUs, values, others, suspended.length === 0 ? null : listOf(suspended));
      },
      progress: (...args) => worker.progress(...args),
      fail: (kind, reason) => worker.fail(kind, reason),
      ask: (about, job) => telling(worker[about](job)),
      stop: () => worker.stop(),
      ended: async () => {
        try {
          return await worker.ended();
        } catch (error) {
          throw new WorkerError((error as Error).message);
        }
      },
    };
  }

  async beginRun(plan: RunPlan): Promise<MapRun> {
    const run = await telling(this.engine.beginRun(plan));
    return {
      jobs: () => run.jobs(),
      compare: (items) => run.compare(items),
      isSame: () => run.isSame(),
      retryFailed: () => telling(run.retryFailed()),
      batches: (after, limit) => telling(run.batches(after, limit)),
      feed: (items) => telling(run.feed(items)),
      finish: () => telling(run.finish()),
      delete: () => telling(run.delete()),
      release: () => run.release(),
    };
  }

  deleteRun(name: string): Promise<boolean> {
    return telling(this.engine.deleteRun(name));
  }

  close(): Promise<void> {
    return telling(this.engine.close());
  }
}
