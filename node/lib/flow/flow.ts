// What a flow's function gets.

import type { Job, Stored } from '../job.js';
import type { CommonOptions } from '../options.js';
import type { Span } from '../errors.js';
import type { StepFailed } from './engine.js';

/** Options of a step: those of its job, which they change for this step. */
export interface StepOptions extends Omit<CommonOptions, 'expires' | 'onSuccess' | 'onFailure'> {
  /** The name of the step, in place of that of its job. */
  name?: string;
  /** Tells a step from others of its name, such as the id of what it is for. */
  key?: string;
  /** The queue; the job's by default. A kind that the application does not know has the flow's. */
  queue?: string;
  /** Names and values to find its jobs by, beside the flow's. */
  tags?: Readonly<Record<string, string | number | boolean>>;
}

/** Options of a map. */
export interface MapStepOptions extends StepOptions {
  /** Gives a failure in the place of a value, in place of throwing the first one. */
  returnErrors?: boolean;
}

/** The arguments of a step. A payload that may be undefined may be left out; it is null then. */
export type StepArguments<P> = undefined extends P
  ? [payload?: P, options?: StepOptions]
  : [payload: P, options?: StepOptions];

/** The first of several promises to end. */
export interface Winner<Value = unknown> {
  /** The name of its step, event or function; "sleep" for a sleep. */
  readonly name: string;
  readonly value: Value;
  /** Its place among the arguments. */
  readonly index: number;
}

/** One instance of a flow: its steps, and all that it may know of the world. */
export interface Flow<State = unknown> {
  /** The id of its job. */
  readonly id: string;
  readonly name: string;
  /** The version that began it. */
  readonly version: string | null;
  /** How often it has begun anew. */
  readonly continued: number;
  /** Begins a job of the application, a batch or another flow. Awaiting it gives the result, or throws `StepFailed`. */
  step<P, R>(job: Job<P, R>, ...given: StepArguments<P>): Promise<Stored<R>>;
  /** Begins a job of a kind, which workers of another program may run. */
  step<R = unknown>(kind: string, payload?: unknown, options?: StepOptions): Promise<R>;
  /** Begins a job for each item. Awaiting it gives the results in the items' order, once all have ended. */
  map<P, R>(job: Job<P, R>, items: Iterable<P>, options: MapStepOptions & { returnErrors: true }): Promise<(Stored<R> | StepFailed)[]>;
  map<P, R>(job: Job<P, R>, items: Iterable<P>, options?: MapStepOptions & { returnErrors?: false }): Promise<Stored<R>[]>;
  map<R = unknown>(
    kind: string, items: Iterable<unknown>, options: MapStepOptions & { returnErrors: true },
  ): Promise<(R | StepFailed)[]>;
  map<R = unknown>(kind: string, items: Iterable<unknown>, options?: MapStepOptions & { returnErrors?: false }): Promise<R[]>;
  /** Waits for an event that is sent to this instance: gives its value. Throws a `TimeoutError` after `timeout`. */
  event<Value = unknown>(name: string, options?: { timeout?: Span }): Promise<Value>;
  /** Waits for a span, or up to a time. */
  sleep(until: Span | Date): Promise<void>;
  /** The first of these to end. The others go on, and may be awaited; they end with the flow. */
  first<Promises extends readonly PromiseLike<unknown>[]>(...promises: Promises): Promise<Winner<Awaited<Promises[number]>>>;
  /** Runs a function here, in this process, and keeps its value like that of a step. One without a name takes `{ name }`. */
  local<R>(run: () => R, payload?: undefined, options?: { name?: string; key?: string }): Promise<Stored<Awaited<R>>>;
  local<P, R>(run: (payload: P) => R, payload: P, options?: { name?: string; key?: string }): Promise<Stored<Awaited<R>>>;
  /** The time; the same in each replay. */
  now(): Date;
  /** A number from 0 to below 1; the same in each replay. */
  random(): number;
  /** A UUID; the same in each replay. */
  uuid(): string;
  /** Begins the instance anew with this state in place of its payload, and with an empty memo. The flow stops here. */
  continueWith(...state: undefined extends State ? [state?: State] : [state: State]): Promise<never>;
  /** The steps that the instance has taken and that the code has not asked for so far. */
  unused(): string[];
}

/** The function of a flow. Where a schema converts payloads, `State` is what the schema takes. */
export type FlowBody<P, R, State = P> = (flow: Flow<State>, payload: P) => R | PromiseLike<R>;
