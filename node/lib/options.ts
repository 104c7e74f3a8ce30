// The options of jobs and of submits, in the form of the API's requests.

import { InvalidValue, type Span, milliseconds, shown } from './errors.js';

/** What happens to a job whose deduplication key an open job has. */
export type OnDuplicate = 'skip' | 'replace' | 'rerun' | 'reject';

/** Options of a job, which a submit may change for its own jobs. */
export interface CommonOptions {
  /** Attempts after the first one; 2 by default. */
  retries?: number;
  /** The delay before a retry; "1s" by default. */
  retryDelay?: Span;
  /** How delays grow; "jitter" by default. */
  backoff?: 'jitter' | 'constant' | 'linear' | 'exponential';
  /** The time limit of one attempt. */
  timeout?: Span;
  /** The time limit of all attempts, from the start of the first. */
  completeWithin?: Span;
  /** Jobs of a higher priority run first: -32768 to 32767. */
  priority?: number;
  /** A job that has not started by then, after its submit, expires. */
  expires?: Span;
  /** The tenant that owns the job. */
  group?: string;
  /** The value of an equal payload within this time stands for a new run. */
  cached?: Span;
  /** The kind of a job, or the URL, that gets a summary when all jobs of the submit have completed. */
  onSuccess?: string;
  /** The same, when all have ended and one has not completed. */
  onFailure?: string;
}

/** Options of one submit. */
export interface SubmitOptions extends CommonOptions {
  /** The queue; the job's by default. */
  queue?: string;
  /** How long after now the jobs may start. */
  delay?: Span;
  /** When the jobs may start. */
  runAt?: Date;
  /** Names and values to find the jobs by. */
  tags?: Readonly<Record<string, string | number | boolean>>;
  /** Jobs or batches that have to end before: handles or ids such as "42:7". */
  after?: Iterable<{ readonly prerequisites: readonly string[] } | string>;
  /** What happens when one of them ends without completing; "cancel" by default. */
  afterFailure?: 'cancel' | 'fail' | 'ignore';
}

/** Options of the submit of one job. */
export interface SubmitOneOptions extends SubmitOptions {
  /** The deduplication key: at most one open job has it. */
  key?: string;
  /** What happens to a job whose key an open job has; "skip" by default. */
  onDuplicate?: OnDuplicate;
  /** How long the key is taken, also when its job has ended. */
  uniqueFor?: Span;
}

const COMMON = [
  'retries', 'retryDelay', 'backoff', 'timeout', 'completeWithin', 'priority', 'expires', 'group', 'cached', 'onSuccess', 'onFailure',
];
const OF_SUBMITS = [...COMMON, 'queue', 'delay', 'runAt', 'tags', 'after', 'afterFailure'];
const OF_ONE = [...OF_SUBMITS, 'key', 'onDuplicate', 'uniqueFor'];

/** The names of a job's options. @internal */
export const OF_JOBS = [...COMMON, 'queue', 'concurrency', 'payload', 'result'];

/** How many letters have to change to make one word the other, up to a limit. */
function distance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, at) => at);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      next[j] = Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + Number(left[i - 1] !== right[j - 1]));
    }
    row = next;
  }
  return row[right.length]!;
}

/** Refuses unknown options of a call. @internal */
export function checkNames(call: string, options: object, known: readonly string[]): void {
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue;
    const near = known.find((one) => distance(one, name) <= 2);
    const remedy = near === undefined ? `it has ${known.join(', ')}` : `did you mean \`${near}\`?`;
    throw new InvalidValue(`${call} has no option \`${name}\`: ${remedy}`, name);
  }
}

/** A whole number of an option, within its limits. @internal */
export function wholeNumber(name: string, value: unknown, least: number, most: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new InvalidValue(`\`${name}\` is ${shown(value)}: give a whole number from ${least} to ${most}`, name);
}

const RETRIES_DEFAULT = 2, RETRIES_MAX = 999, DELAY_MS_MAX_DEFAULT = 300_000;

/** The members of a request. @internal */
export type Members = Record<string, unknown>;

function retryOf(options: CommonOptions, retries: number): Members {
  const delayMs = milliseconds(options.retryDelay ?? '1s', '`retryDelay`');
  return {
    attempts_max: wholeNumber('retries', options.retries ?? retries, 0, RETRIES_MAX) + 1,
    backoff: options.backoff ?? 'jitter',
    delay_ms: delayMs,
    delay_ms_max: Math.max(delayMs, DELAY_MS_MAX_DEFAULT),
  };
}

const SPANS = [['timeout', 'timeout_ms'], ['completeWithin', 'complete_within_ms'], ['cached', 'cached_ms']] as const;

/** The members of a submit's request for these options. `nowMs` is the store's time. @internal */
export function membersOf(
  call: string,
  options: SubmitOneOptions,
  isOne: boolean,
  nowMs: () => number,
  retries = RETRIES_DEFAULT,
): Members {
  checkNames(call, options, isOne ? OF_ONE : OF_SUBMITS);
  const members: Members = { retry: retryOf(options, retries) };
  for (const [name, member] of SPANS) {
    const span = options[name];
    if (span !== undefined) members[member] = milliseconds(span, `\`${name}\``);
  }
  if (options.priority !== undefined) members.priority = wholeNumber('priority', options.priority, -32_768, 32_767);
  if (options.group !== undefined) members.group = options.group;
  if (options.queue !== undefined) members.queue = options.queue;
  if (options.onSuccess !== undefined) members.on_success = options.onSuccess;
  if (options.onFailure !== undefined) members.on_failure = options.onFailure;
  if (options.expires !== undefined) members.expires_at = nowMs() + milliseconds(options.expires, '`expires`');
  if (options.delay !== undefined) members.delay_ms = milliseconds(options.delay, '`delay`');
  if (options.runAt !== undefined) members.run_at = momentMs(options.runAt, 'runAt');
  if (options.tags !== undefined) {
    members.tags = Object.fromEntries(Object.entries(options.tags).map(([name, value]) => [name, String(value)]));
  }
  if (options.after !== undefined) {
    members.after = [...options.after].flatMap((one) => (typeof one === 'string' ? [one] : one.prerequisites));
  }
  if (options.afterFailure !== undefined) members.after_failure = options.afterFailure;
  if (options.key !== undefined) {
    members.key = options.key;
    members.unique = {
      on_duplicate: options.onDuplicate ?? 'skip',
      ...options.uniqueFor === undefined ? {} : { period_ms: milliseconds(options.uniqueFor, '`uniqueFor`') },
    };
  } else if (options.onDuplicate !== undefined || options.uniqueFor !== undefined) {
    throw new InvalidValue('`onDuplicate` and `uniqueFor` are about jobs of the same key: give `key`, too', 'key');
  }
  return members;
}

/** Milliseconds since 1970 of a moment. @internal */
export function momentMs(moment: Date | undefined, name: string): number | undefined {
  if (moment === undefined) return undefined;
  const ms = moment instanceof Date ? moment.getTime() : NaN;
  if (Number.isNaN(ms)) throw new InvalidValue(`\`${name}\` is ${shown(moment)}: give a valid Date`, name);
  return ms;
}
