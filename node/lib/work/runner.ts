// Runs the jobs of one kind in the event loop: at most so many at once, in the order in which they came.

import type { Channel, Message } from '../backend.js';
import { InvalidValue, TIMER_MS_MAX } from '../errors.js';
import { Suspension } from '../flow/engine.js';
import { Unreadable } from '../values/decode.js';
import { type BigInts, bytesOf, encodeResult, RESULT_BYTES_MAX } from '../values/encode.js';
import { JobContext } from './context.js';
import { describe } from './describe.js';
import { MicroBatch } from './micro-batch.js';

/** Runs one job: gives its value, or a promise of it. @internal */
export type Entry = (payload: unknown, job: JobContext<MicroBatch>) => unknown;

/** A value that is JSON already. @internal */
export class Encoded {
  constructor(readonly text: string) {}
}

/** How one kind runs. @internal */
export interface KindSpec {
  kind: string;
  concurrency: number;
  entry: Entry;
  /** Goes on with a job whose children have ended: with its payload, its memo and their outcomes. */
  resume?: (parts: readonly [payload: unknown, memo: unknown, outcomes: unknown], job: JobContext<MicroBatch>) => unknown;
  /**
   * Whether the handler runs in processes of its own. It tells when a job begins there, and jobs that are given up end soon, because
   * their processes are killed.
   */
  hasProcesses?: boolean;
}

// How long jobs begin, one after the other, before the event loop gets a turn, and after how long outcomes leave meanwhile.
const TURN_MS_MAX = 5, FLUSH_EVERY_MS = 2;
/** The time for which a cancelled job may go on. @internal */
export const CANCEL_GRACE_MS = 10_000;

const whenIdle: (task: () => void) => unknown = (globalThis as { setImmediate?: (task: () => void) => unknown }).setImmediate
  ?? ((task) => setTimeout(task, 0));

const isThenable = (value: unknown): value is PromiseLike<unknown> => (
  typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
);

/** The runner of one kind. @internal */
export class Runner {
  private queue: MicroBatch[] = [];
  private running = 0;
  /** Jobs that were given up and have not ended: they hold their slots. */
  private givenUp = 0;
  private dirty: MicroBatch[] = [];
  private turnEndsAt = 0;
  private flushAt = 0;
  private willFlush = false;
  private willPump = false;

  constructor(
    private readonly channel: Channel,
    private readonly number: number,
    private readonly spec: KindSpec,
    private readonly bigints: BigInts,
    private readonly onEnded: (microBatch: number) => void,
  ) {}

  // --- messages ---

  /** Takes jobs. They begin with the next `turn`. */
  add(message: Message): MicroBatch {
    const microBatch = new MicroBatch(this.channel, message, this.bigints);
    this.queue.push(microBatch);
    return microBatch;
  }

  /** Begins a turn of the event loop. */
  turn(): void {
    const now = performance.now();
    this.turnEndsAt = now + TURN_MS_MAX;
    this.flushAt = now + FLUSH_EVERY_MS;
    this.pump();
  }

  /** Returns the jobs to the worker that have not begun. */
  recall(): void {
    for (const microBatch of this.queue) {
      microBatch.giveBack('returned');
      this.note(microBatch);
    }
    this.queue = [];
    this.flush();
  }

  /** Gives the jobs of a micro-batch back to the store that have not begun. */
  drain(microBatch: MicroBatch): void {
    microBatch.giveBack('released');
    this.note(microBatch);
    this.flush();
  }

  /** Tells jobs that they were cancelled. */
  cancel(microBatch: MicroBatch, places: readonly number[]): void {
    for (const place of places) {
      if (place >= microBatch.next) {
        (microBatch.cancelled ??= new Set()).add(place);
        continue;
      }
      const job = microBatch.running[place];
      if (job === undefined) continue;
      const error = Object.assign(new Error('the job was cancelled'), { name: 'Cancelled' });
      job.abort(error);
      clearTimeout(job.timer);
      job.timer = setTimeout(() => {
        this.giveUp(job, 'cancelled', 'the job continued after its cancellation, and was abandoned');
      }, CANCEL_GRACE_MS);
    }
  }

  // --- jobs ---

  private pump(): void {
    while (this.running < this.spec.concurrency) {
      const microBatch = this.queue[0];
      if (microBatch === undefined) break;
      if (microBatch.next >= microBatch.count) {
        this.queue.shift();
        continue;
      }
      this.begin(microBatch, microBatch.next++);
      if (this.isTurnOver()) return;
    }
  }

  /** Whether the event loop is to turn before the next job. Outcomes leave on the way. */
  private isTurnOver(): boolean {
    const now = performance.now();
    if (now >= this.flushAt) {
      this.flush();
      this.flushAt = now + FLUSH_EVERY_MS;
    }
    if (now < this.turnEndsAt) return false;
    if (!this.willPump) {
      this.willPump = true;
      whenIdle(() => {
        this.willPump = false;
        this.turn();
      });
    }
    return true;
  }

  private begin(microBatch: MicroBatch, place: number): void {
    if (microBatch.cancelled?.has(place) === true) {
      microBatch.release(place);
      this.note(microBatch);
      return;
    }
    const job = new JobContext(microBatch, place);
    job.begunAt = performance.now();
    const payload = microBatch.payloads[place];
    // The job may change its payload, and what it does not need any more is free.
    microBatch.payloads[place] = undefined;
    let value: unknown, promised: Promise<unknown> | null = null;
    try {
      if (payload instanceof Unreadable) throw payload.error;
      value = microBatch.isFinalizing ? this.resume(payload, job) : this.spec.entry(payload, job);
      // A thenable of another library may throw, or settle twice.
      if (isThenable(value)) promised = Promise.resolve(value);
    } catch (error) {
      this.settleError(job, error);
      return;
    }
    if (promised === null) {
      this.settle(job, value);
      return;
    }
    this.running++;
    microBatch.running[place] = job;
    const { timeoutMs } = microBatch;
    if (timeoutMs > 0) {
      if (this.spec.hasProcesses === true) job.onBegun = () => this.limit(job, timeoutMs);
      else this.limit(job, timeoutMs);
    }
    promised.then((value) => this.end(job, value, false), (error: unknown) => this.end(job, error, true));
  }

  private resume(parts: unknown, job: JobContext<MicroBatch>): unknown {
    if (typeof parts === 'string') throw new InvalidValue(parts, 'outcomes');
    const { resume, kind } = this.spec;
    if (resume !== undefined) return resume(parts as [unknown, unknown, unknown], job);
    const reason = `the children of this job have ended, and the handler of \`${kind}\` cannot go on after them`;
    throw new InvalidValue(`${reason}: run it as a flow or a script`, 'memo');
  }

  private limit(job: JobContext<MicroBatch>, timeoutMs: number): void {
    job.timer = setTimeout(() => {
      const error = Object.assign(new Error(`the attempt exceeded its timeout of ${timeoutMs} ms`), { name: 'TimeoutError' });
      job.abort(error);
      this.giveUp(job, 'timeout', this.spec.hasProcesses === true ? error.message : `${error.message}; it holds its slot until it ends`);
    }, Math.min(timeoutMs, TIMER_MS_MAX));
  }

  /** Fails a job that goes on. It holds its slot until it ends. */
  private giveUp(job: JobContext<MicroBatch>, type: string, message: string): void {
    if (job.isAnswered) return;
    job.isAnswered = true;
    const { microBatch, place } = job;
    if (job.logged !== '') microBatch.log(place, job.logged);
    microBatch.fail(place, { type, message }, performance.now() - job.begunAt);
    this.note(microBatch);
    this.givenUp++;
    if (this.givenUp >= this.spec.concurrency && this.spec.hasProcesses !== true) {
      this.channel.fail(this.number, `all ${this.givenUp} slots of the kind \`${this.spec.kind}\` are held by jobs that went on after ` +
        'their timeout or cancellation: let the handler heed `job.signal`');
    }
  }

  private end(job: JobContext<MicroBatch>, outcome: unknown, isError: boolean): void {
    if (job.timer !== undefined) clearTimeout(job.timer);
    this.running--;
    job.microBatch.running[job.place] = undefined;
    if (job.isAnswered) this.givenUp--;
    else if (isError) this.settleError(job, outcome);
    else this.settle(job, outcome);
    if (this.queue.length > 0 && !this.willPump && !this.isTurnOver()) this.pump();
  }

  private settle(job: JobContext<MicroBatch>, value: unknown): void {
    if (value instanceof Suspension) {
      this.suspend(job, value.text);
      return;
    }
    let text: string;
    try {
      text = value instanceof Encoded ? value.text : encodeResult(value, this.bigints);
    } catch (error) {
      this.settleError(job, error);
      return;
    }
    job.isAnswered = true;
    const { microBatch, place } = job;
    if (job.logged !== '') microBatch.log(place, job.logged);
    microBatch.complete(place, text, performance.now() - job.begunAt);
    this.note(microBatch);
  }

  private suspend(job: JobContext<MicroBatch>, text: string): void {
    const bytes = bytesOf(text);
    if (bytes > RESULT_BYTES_MAX) {
      const begun = `the flow begins steps of ${bytes} bytes at once, and ${RESULT_BYTES_MAX} are the most`;
      this.settleError(job, new InvalidValue(`${begun}: await some of them first, or give references, such as paths`, 'payload'));
      return;
    }
    job.isAnswered = true;
    const { microBatch, place } = job;
    microBatch.suspend(place, text, performance.now() - job.begunAt);
    this.note(microBatch);
  }

  private settleError(job: JobContext<MicroBatch>, error: unknown): void {
    job.isAnswered = true;
    const { microBatch, place } = job;
    if (job.logged !== '') microBatch.log(place, job.logged);
    microBatch.fail(place, describe(error), performance.now() - job.begunAt);
    this.note(microBatch);
  }

  // --- outcomes ---

  /** Notes that a micro-batch has outcomes, which leave in this turn of the event loop. */
  private note(microBatch: MicroBatch): void {
    if (microBatch.isDirty) return;
    microBatch.isDirty = true;
    this.dirty.push(microBatch);
    if (this.willFlush) return;
    this.willFlush = true;
    whenIdle(() => {
      this.willFlush = false;
      this.flush();
    });
  }

  private flush(): void {
    const { dirty } = this;
    this.dirty = [];
    for (const microBatch of dirty) {
      microBatch.flush();
      if (microBatch.hasEnded) this.onEnded(microBatch.number);
    }
  }
}
