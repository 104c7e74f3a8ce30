// Handles of submitted jobs.

import type { Backend, Ended, ResultLine, Submitted } from './backend.js';
import { WAIT_MS_MAX, isTooLarge } from './backend.js';
import { JobFailed, NotFound, ResultTimeout, type Span, StoreError, TIMER_MS_MAX, milliseconds } from './errors.js';
import type { ForkedFlow, JobDetails } from './operations.js';
import { PORTION_JOBS_MAX, Portions } from './portions.js';
import { decode } from './values/decode.js';
import type { BigInts } from './values/encode.js';

/** How to wait for a result. */
export interface WaitOptions {
  /** How long the jobs may take to end; without a limit by default. */
  timeout?: Span;
  /** Gives the wait up. The job goes on. */
  signal?: AbortSignal;
}

/** What handles need of their application. @internal */
export interface HandleOwner {
  readonly bigints: BigInts;
  backend(): Promise<Backend>;
  details(job: string): Promise<JobDetails | null>;
  cancel(...jobs: string[]): Promise<number>;
  sendEvent(flow: string, name: string, value?: unknown): Promise<boolean>;
  forkFlows(from: string | number, options: ForkOptions, flow: string): Promise<ForkedFlow[]>;
}

/** Options of a fork. */
export interface ForkOptions {
  /** The key of the step. */
  stepKey?: string;
  /** The version of the new instance; that of the flow by default. */
  version?: string;
}

/** Converts the value of a job, by its schema. @internal */
export type Convert = (value: unknown) => unknown;

/** How long an answer may take beyond the end of a wait. Milliseconds. */
const ANSWER_MS_MAX = 1_000;

type Turn<T> = (waitMs: number, signal: AbortSignal) => Promise<T | null>;

/** Waits in turns that are short enough for a process to end soon after the wait was given up. */
async function waiting<T>(options: WaitOptions, what: string, turn: Turn<T>): Promise<T> {
  const untilMs = endOf(options);
  const limitMs = untilMs - performance.now();
  const { signal } = options;
  signal?.throwIfAborted();
  const ending = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const giveUp = (): void => ending.abort(signal!.reason);
  const givenUp = new Promise<never>((_, reject) => {
    ending.signal.addEventListener('abort', () => reject(ending.signal.reason as Error), { once: true });
  });
  givenUp.catch(() => {});
  signal?.addEventListener('abort', giveUp, { once: true });
  if (limitMs + ANSWER_MS_MAX <= TIMER_MS_MAX) {
    timer = setTimeout(() => {
      ending.abort(new ResultTimeout(`the store has not answered whether ${what} ended after ${options.timeout}`));
    }, limitMs + ANSWER_MS_MAX);
  }
  try {
    for (;;) {
      const leftMs = untilMs - performance.now();
      const found = await Promise.race([turn(Math.max(0, Math.min(leftMs, WAIT_MS_MAX)), ending.signal), givenUp]);
      if (found !== null) return found;
      if (leftMs <= 0) {
        throw new ResultTimeout(`${what} not ended after ${options.timeout}; a worker that runs the kind continues`);
      }
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', giveUp);
  }
}

/** The time at which a wait that begins now ends. */
function endOf({ timeout }: WaitOptions): number {
  return timeout === undefined ? Infinity : performance.now() + milliseconds(timeout, '`timeout`');
}

/** The options of a wait that ends at this time. */
function within(options: WaitOptions, untilMs: number): WaitOptions {
  return untilMs === Infinity ? options : { ...options, timeout: `${Math.max(0, Math.ceil(untilMs - performance.now()))}ms` };
}

/** A submitted job. */
export class Handle<R = unknown> {
  /** @internal */
  constructor(
    private readonly owner: HandleOwner,
    /** The job's id, such as "42:7", as the command line shows it. */
    readonly id: string,
    private readonly convert: Convert | null = null,
  ) {}

  /** Waits for the job's end, and returns its result. Throws `JobFailed` where it ended otherwise. */
  async result(options: WaitOptions = {}): Promise<R> {
    const backend = await this.owner.backend();
    const ended = await waiting(options, `job ${this.id} has`, (waitMs, signal) => (
      backend.waitJob(this.id, waitMs, signal)
    ));
    return await this.concluded(ended) as R;
  }

  /** @internal */
  concluded(ended: Ended): unknown {
    if (ended.state !== 'completed') throw new JobFailed(this.id, ended.state, ended.error);
    const value = decode(ended.value ?? 'null', 'result', this.owner.bigints);
    return this.convert === null ? value : this.convert(value);
  }

  /** The job's state, such as "waiting" or "completed". */
  async state(): Promise<string> {
    return (await this.known()).state;
  }

  /** What the job logged in its last attempt; null where it logged nothing. */
  async log(): Promise<string | null> {
    const details = await this.known();
    return details.log ?? details.failures.at(-1)?.log ?? null;
  }

  /** Everything that is known of the job; null where it was pruned. */
  details(): Promise<JobDetails | null> {
    return this.owner.details(this.id);
  }

  private async known(): Promise<JobDetails> {
    const details = await this.details();
    if (details === null) throw new NotFound(`job ${this.id} does not exist, or was pruned`);
    return details;
  }

  /** Cancels the job; whether it had not ended. */
  async cancel(): Promise<boolean> {
    return await this.owner.cancel(this.id) > 0;
  }

  /** Sends an event to the flow; whether it had not ended. One that the flow does not await yet is kept for it. */
  sendEvent(name: string, value?: unknown): Promise<boolean> {
    return this.owner.sendEvent(this.id, name, value);
  }

  /**
   * Begins a new instance of the flow, which has ended, with the outcomes of all steps that it began before the step `from`, by its
   * name or its number. This step and what follows run again.
   */
  async fork(from: string | number, options: ForkOptions = {}): Promise<Handle<R>> {
    const [forked] = await this.owner.forkFlows(from, options, this.id);
    if (forked?.fork !== undefined) return new Handle<R>(this.owner, forked.fork, this.convert);
    throw new StoreError(`flow ${this.id} is not forked: ${forked?.error}`);
  }

  /** The job, in the form for `after`. */
  get prerequisites(): readonly string[] {
    return [this.id];
  }

  toString(): string {
    return this.id;
  }
}

/** Jobs of one batch. */
interface Part {
  readonly batch: number;
  readonly first: number;
  readonly count: number;
}

/** The jobs of one `submitMany`, in the order of the items. Handles are made when they are asked for. */
export class Handles<R = unknown> implements Iterable<Handle<R>> {
  private readonly parts: Part[];

  /** @internal */
  constructor(
    private readonly owner: HandleOwner,
    batches: Submitted['batches'],
    private readonly convert: Convert | null = null,
  ) {
    this.parts = batches.map(({ batch, first_position: first, count }) => ({ batch, first, count }));
  }

  /** The number of jobs. */
  get length(): number {
    return this.parts.reduce((sum, part) => sum + part.count, 0);
  }

  /** The handle of the item with this number; the last one's for -1. */
  at(index: number): Handle<R> | undefined {
    let place = index < 0 ? index + this.length : index;
    if (place < 0) return undefined;
    for (const { batch, first, count } of this.parts) {
      if (place < count) return new Handle<R>(this.owner, `${batch}:${first + place}`, this.convert);
      place -= count;
    }
    return undefined;
  }

  *[Symbol.iterator](): Iterator<Handle<R>> {
    for (const { batch, first, count } of this.parts) {
      for (let position = first; position < first + count; position++) {
        yield new Handle<R>(this.owner, `${batch}:${position}`, this.convert);
      }
    }
  }

  /** Waits for the end of all jobs, and returns their results in order. Throws the `JobFailed` of the first that failed. */
  async results(options: WaitOptions = {}): Promise<R[]> {
    const results: R[] = [];
    const untilMs = endOf(options);
    for (const part of this.parts) {
      for (const value of await this.resultsOf(part, within(options, untilMs))) results.push(value as R);
    }
    return results;
  }

  private async resultsOf({ batch, first, count }: Part, options: WaitOptions): Promise<unknown[]> {
    // The batch of a single job may have jobs of others.
    if (count === 1) return [await new Handle(this.owner, `${batch}:${first}`, this.convert).result(options)];
    const backend = await this.owner.backend();
    const what = `jobs of batch ${batch} have`;
    const untilMs = endOf(options);
    let lines: ResultLine[];
    try {
      lines = await waiting(options, what, async (waitMs, signal) => {
        const request = JSON.stringify({ batches: String(batch), wait_ms: Math.ceil(waitMs) });
        const answer = await backend.ask('results', '', request, signal);
        const lines = (decode(answer, 'results', this.owner.bigints) as ResultLine[]).filter(({ job }) => {
          const position = Number(job.slice(job.indexOf(':') + 1));
          return position >= first && position < first + count;
        });
        return lines.length < count ? null : lines;
      });
    } catch (error) {
      if (!isTooLarge(error)) throw error;
      lines = [];
      const portions = new Portions(backend, batch, this.owner.bigints, count);
      while (lines.length < count) {
        const jobs = Math.min(PORTION_JOBS_MAX, count - lines.length);
        const left = Array.from({ length: jobs }, (_, index) => first + lines.length + index);
        // The time is for the jobs to end: those that have are read when it is over, too.
        const whole = await waiting(within(options, untilMs), what, async (waitMs, signal) => {
          const { lines: found, asked } = await portions.read(left, waitMs, signal);
          // A portion is of use where it is whole: so the order is that of the jobs.
          return found.length < asked ? null : found;
        });
        for (const line of whole) lines.push(line);
      }
    }
    const failed = lines.find((line) => line.state !== 'completed');
    if (failed !== undefined) throw new JobFailed(failed.job, failed.state, failed.error ?? null);
    const values = lines.map((line) => line.value);
    return this.convert === null ? values : Promise.all(values.map(this.convert));
  }

  /** Cancels the jobs that have not ended; how many that were. */
  async cancel(): Promise<number> {
    let cancelled = 0;
    const all = [...this].map((handle) => handle.id);
    const PORTION = 10_000;
    for (let at = 0; at < all.length; at += PORTION) cancelled += await this.owner.cancel(...all.slice(at, at + PORTION));
    return cancelled;
  }

  /** The batches, in the form for `after`. */
  get prerequisites(): readonly string[] {
    return this.parts.map(({ batch, first, count }) => (count === 1 ? `${batch}:${first}` : String(batch)));
  }
}
