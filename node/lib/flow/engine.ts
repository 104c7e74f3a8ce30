// The runtime of flows that scripts have, too, with what it needs of this package.

import { GristmillError, InvalidValue, shown } from '../errors.js';
import { checkNames } from '../options.js';
import { type Builtins, builtinModule } from '../platform.js';
import { MAY_BE_INEXACT } from '../values/decode.js';
import { describe } from '../work/describe.js';
import { type Program, makeFlows } from './runtime.js';

const MARK = `gristmill-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}:`;

function crypto(): Builtins['node:crypto'] {
  const found = builtinModule('node:crypto');
  if (found === undefined) throw flowError('chance in a flow needs Node 20.16, Deno or Bun: let the worker run there');
  return found;
}

const runtime = makeFlows({
  BaseError: GristmillError,
  // Where there is none, such as in a browser, flows are started and not run.
  Buffer: (globalThis as { Buffer?: unknown }).Buffer ?? builtinModule('node:buffer')?.Buffer,
  checkNames: (call, given, known) => checkNames(call.name, given, known),
  describe,
  digest: (text) => crypto().createHash('sha256').update(text).digest(),
  inspect: shown,
  MAY_BE_INEXACT,
  mark: () => MARK,
  newSeed: () => crypto().randomBytes(6).readUIntBE(0, 6),
});

/** What an instance answers that waits. @internal */
export const { Suspension } = runtime;

interface ErrorClass<E extends Error> {
  readonly prototype: E;
  new (...given: never[]): E;
}

/** A step of a flow ended without completing. Its retries are used up. */
export interface StepFailed extends GristmillError {
  /** The name of the step, and its key. */
  readonly step: string;
  readonly key: string | null;
  /** The id of its job. */
  readonly job: string;
  readonly state: 'dead' | 'cancelled' | 'expired';
  /** The class of the job's error, and its message. */
  readonly type: string | null;
  readonly reason: string;
  /** The step would fail each retry of its flow. */
  readonly permanent: true;
}
export const StepFailed = runtime.StepFailed as unknown as ErrorClass<StepFailed>;

/** The code of a flow asks for what a flow cannot do, or does not fit what its instance has done. */
export interface FlowError extends GristmillError {}
export const FlowError = runtime.FlowError as unknown as ErrorClass<FlowError>;

/** An event was not sent to a flow in time. */
export interface TimeoutError extends GristmillError {}
export const TimeoutError = runtime.TimeoutError as unknown as ErrorClass<TimeoutError>;

/** An error of the runtime. @internal */
export const flowError = (message: string): Error => new runtime.FlowError(message);

// --- running instances ---

/** An instance whose code runs, with the errors of its code that nothing has handled so far. */
interface Running {
  readonly unhandled: Map<unknown, unknown>;
}

interface Rejections {
  on?(event: 'unhandledRejection' | 'rejectionHandled', listener: (...given: never[]) => void): unknown;
  off?(event: 'unhandledRejection' | 'rejectionHandled', listener: (...given: never[]) => void): unknown;
  listenerCount?(event: 'unhandledRejection'): number;
}

const process = (globalThis as { process?: Rejections }).process;
// A test may replace the global one.
const { setTimeout } = globalThis;
/** Tells the instance to whose code a promise belongs. */
const Storage = builtinModule('node:async_hooks')?.AsyncLocalStorage;
const storage = Storage === undefined ? undefined : new Storage<Running>();
const ownerOf = new WeakMap<object, Running>();
let instancesRunning = 0;

const isOfFlows = (reason: unknown): boolean => (
  reason instanceof AggregateError
    ? reason.errors.length > 0 && reason.errors.every(isOfFlows)
    : [runtime.StepFailed, runtime.TimeoutError, runtime.FlowError, InvalidValue].some((one) => reason instanceof one)
);

/**
 * A branch of a flow may fail before the flow awaits what it has made of it, as by Promise.all: the flow learns of that when it does.
 * Other errors that nobody handles end the program, as they do without this listener.
 */
function heed(reason: unknown, promise: object): void {
  const running = storage?.getStore();
  if (running !== undefined) {
    running.unhandled.set(promise, reason);
    ownerOf.set(promise, running);
    return;
  }
  if (!isOfFlows(reason) && process?.listenerCount?.('unhandledRejection') === 1) throw reason;
}

function forget(promise: object): void {
  ownerOf.get(promise)?.unhandled.delete(promise);
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

/** Runs an instance up to its end or its next wait: gives its value, or its `Suspension`. @internal */
export async function runInstance(
  program: Program<never>, payload: unknown, memos: unknown, outcomes: unknown[], idOf: () => string,
): Promise<unknown> {
  if (instancesRunning++ === 0) {
    process?.on?.('unhandledRejection', heed);
    process?.on?.('rejectionHandled', forget);
  }
  const running: Running = { unhandled: new Map() };
  const run = (): Promise<unknown> => runtime.Flow.run(program, payload, memos, outcomes, idOf);
  try {
    const value = await (storage === undefined ? run() : storage.run(running, run));
    if (value instanceof Suspension) return value;
    // The flow has ended, and never awaited this branch.
    for (const reason of running.unhandled.values()) if (!isOfFlows(reason)) throw reason;
    return value;
  } finally {
    // What nobody handled is told after this turn of the event loop.
    void turn().then(() => {
      if (--instancesRunning > 0) return;
      process?.off?.('unhandledRejection', heed);
      process?.off?.('rejectionHandled', forget);
    });
  }
}
