// What an application needs of its store: the native engine has it for a file or a database, and a server over HTTP.

import { type JobErrorDescription, StoreError } from './errors.js';
import type { MapRun } from './map.js';
import type { Identity } from './work/context.js';

/** The stored jobs of a submit. @internal */
export interface Submitted {
  jobs: number;
  first?: string;
  batches: { batch: number; first_position: number; count: number }[];
  ids?: string[];
}

/** The end of a job: its value as JSON. @internal */
export interface Ended {
  state: string;
  value: string | null;
  error: JobErrorDescription | null;
}

/** A listener to events. @internal */
export interface EventSource {
  /** The next events as JSON; none after a moment without one. */
  take(signal?: AbortSignal): Promise<string[]>;
  close(): void;
}

/** A message to the handlers of a worker: jobs, or what has changed for some. @internal */
export interface Message {
  what: 'run' | 'recall' | 'drain' | 'cancel';
  /** The number of the micro-batch; of a recall, the number of the kind. */
  number: number;
  kind: number;
  count: number;
  payloads?: string | null;
  /** Whether the children of the jobs have ended: a payload is a list of the payload, the memo and the children's outcomes. */
  isFinalizing?: boolean;
  /** Of a server: the payloads as values, with large integers as BigInt. */
  values?: unknown[];
  identities?: Identity[];
  identity?: string | null;
  timeoutMs?: number | null;
  places?: number[] | null;
}

/** A flow that waits: its steps and memo as JSON, by the place of its job. @internal */
export interface Suspended {
  position: number;
  durationUs: number;
  text: string;
}

/** A worker's ways to its store. @internal */
export interface Channel {
  take(): Message[];
  answer(
    number: number, places: Uint32Array, durationsUs: Uint32Array, values: string, others: string | null,
    suspended: readonly Suspended[],
  ): void;
  progress(number: number, place: number, progress: string): void;
  fail(kind: number, reason: string): void;
  /** The flow that began a job as a step, or the outcomes of the jobs for which it waited: as JSON. */
  ask(about: Question, job: string): Promise<string>;
  stop(): void;
  ended(): Promise<{ completed: number; failed: number }>;
}

/** What a running job asks about itself. @internal */
export type Question = 'step' | 'prerequisites';

/** The task of a worker. @internal */
export interface Plan {
  kinds: { kind: string; concurrency: number }[];
  queues: string[];
  name: string;
  until: 'stopped' | 'idle' | 'empty';
}

/** The run of a map. @internal */
export interface RunPlan {
  store: string;
  name: string;
  description: string;
  kind: string;
  queue: string;
  options: string;
}

/** A store. @internal */
export interface Backend {
  /** The time of its clock. */
  nowMs(): number;
  /** Carries out an operation of the HTTP API by its `operationId`: its answer as JSON. */
  ask(operation: string, subject: string, request: string, signal?: AbortSignal): Promise<string>;
  /** Waits for the end of a job for a moment; null where it has not ended by then. */
  waitJob(job: string, waitMs: number, signal?: AbortSignal): Promise<Ended | null>;
  events(after: string | null): Promise<EventSource>;
  startWorker(plan: Plan, wake: () => void): Promise<Channel>;
  /** Begins the run of a map, or finds it. */
  beginRun(plan: RunPlan): Promise<MapRun>;
  /** Deletes the run with this name; whether there was one. */
  deleteRun(name: string): Promise<boolean>;
  close(): Promise<void>;
}

/** The outcome of one job in an answer of results. @internal */
export interface ResultLine {
  job: string;
  state: string;
  value?: unknown;
  error?: JobErrorDescription;
}

/** An answer has more bytes than its request takes. @internal */
export class AnswerTooLarge extends StoreError {}

/** Whether the results of the batches are too many bytes for one answer. @internal */
export const isTooLarge = (error: unknown): boolean => (
  error instanceof AnswerTooLarge || (error instanceof StoreError && error.message.includes('name fewer batches'))
);

/** The longest wait of one call of a store. Milliseconds. @internal */
export const WAIT_MS_MAX = 1_000;
