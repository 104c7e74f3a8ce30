// The package's errors.

import type { Handles } from './handle.js';
import type { EventReceipt } from './operations.js';

/** The root of the package's errors. */
export class GristmillError extends Error {
  override name = 'GristmillError';
}

/** The store refused an operation or could not be reached; the message says which and why. */
export class StoreError extends GristmillError {
  override name = 'StoreError';
  /** The status of a server's answer; undefined without one. */
  readonly status: number | undefined;

  constructor(message: string, options: ErrorOptions & { status?: number } = {}) {
    super(message, options);
    this.status = options.status;
  }
}

/** The store does not have the job, schedule or batch. */
export class NotFound extends StoreError {
  override name = 'NotFound';
}

/** An option, a payload or a value that cannot be used; the message names its place and the remedy. */
export class InvalidValue extends GristmillError {
  override name = 'InvalidValue';
  /** Another attempt would meet the same value. */
  readonly permanent = true;

  constructor(message: string, /** The place, such as `payload.ids[3]`. */ readonly path: string) {
    super(message);
  }
}

/** A schema refused a payload or a result. `issues` are those of the schema. */
export class SchemaRefused extends InvalidValue {
  override name = 'SchemaRefused';

  constructor(message: string, path: string, readonly issues: readonly { readonly message: string }[]) {
    super(message, path);
  }
}

/** A `submitMany` failed on its way. `submitted` has the jobs of the first items, which are stored. */
export class SubmitFailed extends StoreError {
  override name = 'SubmitFailed';

  constructor(message: string, readonly submitted: Handles<unknown>, options?: ErrorOptions) {
    super(message, options);
  }
}

/** A `sendEvents` failed on its way. `receipts` says what became of the first events. */
export class SendFailed extends StoreError {
  override name = 'SendFailed';

  constructor(message: string, readonly receipts: readonly EventReceipt[], options?: ErrorOptions) {
    super(message, options);
  }
}

/** The job has not ended within the timeout. It continues: ask again, or cancel it. */
export class ResultTimeout extends GristmillError {
  override name = 'ResultTimeout';
}

/** A worker could not start or go on. */
export class WorkerError extends GristmillError {
  override name = 'WorkerError';
}

/** How the store describes the error of an attempt. */
export interface JobErrorDescription {
  /** The class of the error, such as "TypeError". */
  readonly type: string;
  readonly message: string;
  /** Where it was thrown. */
  readonly traceback?: string;
}

/** A job ended without completing. */
export class JobFailed extends GristmillError {
  override name = 'JobFailed';
  /** The class of its last error; null without one. */
  readonly type: string | null;
  /** Where the job threw its last error; null if that is not known. */
  readonly jobStack: string | null;

  constructor(
    /** The id of the job. */
    readonly job: string,
    /** "dead", "cancelled" or "expired". */
    readonly state: string,
    error: JobErrorDescription | null = null,
  ) {
    super(`job ${job} ended as ${state}${error === null ? '' : `: ${error.type}: ${error.message}`}`);
    this.type = error?.type ?? null;
    this.jobStack = error?.traceback ?? null;
    if (this.jobStack !== null) this.cause = new JobStack(this.jobStack);
  }
}

/** Where a job threw its error, as the cause of a `JobFailed`. */
class JobStack extends Error {
  override name = 'JobStack';

  constructor(stack: string) {
    super(stack.split('\n', 1)[0]);
    this.stack = stack;
  }
}

/** Thrown by a job: this attempt failed, and the next one begins after the span `after`, such as "5m". */
export class Retry extends GristmillError {
  override name = 'Retry';
  /** The span in seconds. */
  readonly retryAfter: number | undefined;

  constructor(message = 'the job asked to be retried', options: { after?: Span } = {}) {
    super(message);
    this.retryAfter = options.after === undefined ? undefined : milliseconds(options.after, 'the span `after` of a Retry') / 1000;
  }
}

/** Thrown by a job: it fails for good, whatever attempts are left. */
export class Fail extends GristmillError {
  override name = 'Fail';
  readonly permanent = true;
}

type Unit = 'ms' | 's' | 'm' | 'h' | 'd';

/** A span of time, such as "500ms", "30s", "5m", "1h 30m" or "2d". */
export type Span = `${number}${Unit}` | `${number}${Unit} ${string}`;

const UNITS_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
// Longer spans are a slip of the pen, and the store could not hold the moment at their end.
const SPAN_MS_MAX = 10 * 366 * 86_400_000;

/** The longest timeout of a timer. A longer one would end at once. @internal */
export const TIMER_MS_MAX = 0x7fffffff;

/** The milliseconds of a span, rounded up. `what` names it in errors. @internal */
export function milliseconds(span: Span, what: string): number {
  const part = /\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*/g;
  if (typeof span !== 'string' || (span as string) === '' || span.replace(part, '') !== '') {
    throw new InvalidValue(`${what} is ${shown(span)}: give a span such as "500ms", "30s", "5m", "1h 30m" or "2d"`, what);
  }
  let sum = 0;
  for (const [, number, unit] of span.matchAll(part)) sum += Number(number) * UNITS_MS[unit!]!;
  if (sum > SPAN_MS_MAX) throw new InvalidValue(`${what} is ${span}, which is more than ten years`, what);
  return Math.ceil(sum);
}

/** A value in an error. @internal */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return `the function ${value.name || '(anonymous)'}`;
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : `a ${nameOfClass(value)}`;
  return String(value);
}

/** The name of an object's class. @internal */
export function nameOfClass(value: object): string {
  const constructor = (Object.getPrototypeOf(value) as { constructor?: { name?: unknown } } | null)?.constructor;
  return typeof constructor?.name === 'string' && constructor.name !== '' ? constructor.name : 'object without a class';
}
