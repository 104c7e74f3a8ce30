// Gathers the payloads of jobs, and calls a handler of many at once.

import { GristmillError, InvalidValue, shown } from '../errors.js';
import type { JobContext } from './context.js';

/** The handler of many jobs at once: gives one result, or one error, for each. */
export type BatchHandler<P, R> = (payloads: P[], jobs: readonly JobContext[]) => Iterable<R | Error> | PromiseLike<Iterable<R | Error>>;

interface Gathered {
  readonly payload: unknown;
  readonly job: JobContext;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** A batch handler returned another number of results than it got payloads. */
class WrongResults extends GristmillError {
  override name = 'WrongResults';
  readonly permanent = true;
}

/** Gathers jobs up to `size`, or those that there are after `waitMs`. With `keyOf`, each batch has one key. @internal */
export class Batcher {
  private readonly gathering = new Map<unknown, { items: Gathered[]; timer: ReturnType<typeof setTimeout> }>();

  constructor(
    private readonly call: BatchHandler<unknown, unknown>,
    private readonly size: number,
    private readonly waitMs: number,
    private readonly keyOf: ((payload: unknown) => unknown) | null,
  ) {}

  /** Runs one job: resolves when its batch has run. */
  main(payload: unknown, job: JobContext): Promise<unknown> {
    const key = this.keyOf === null ? null : this.keyOf(payload);
    return new Promise((resolve, reject) => {
      let gathered = this.gathering.get(key);
      if (gathered === undefined) {
        gathered = { items: [], timer: setTimeout(() => this.begin(key), this.waitMs) };
        this.gathering.set(key, gathered);
      }
      gathered.items.push({ payload, job, resolve, reject });
      if (gathered.items.length >= this.size) this.begin(key);
    });
  }

  private begin(key: unknown): void {
    const gathered = this.gathering.get(key);
    if (gathered === undefined) return;
    this.gathering.delete(key);
    clearTimeout(gathered.timer);
    this.run(gathered.items).catch((error: unknown) => {
      for (const item of gathered.items) item.reject(error);
    });
  }

  /** Runs a batch. One that throws is halved until the culprit is alone. */
  private async run(items: Gathered[]): Promise<void> {
    // Jobs that were cancelled or timed out meanwhile are not run.
    const portions = [items.filter((item) => !item.job.isAnswered)];
    for (let portion; (portion = portions.shift()) !== undefined;) {
      if (portion.length === 0) continue;
      try {
        const results = await this.resultsOf(portion);
        portion.forEach((item, at) => {
          const result = results[at];
          if (result instanceof Error) item.reject(result);
          else item.resolve(result);
        });
      } catch (error) {
        const { retryAfter } = (error ?? {}) as { retryAfter?: unknown };
        if (portion.length === 1 || error instanceof WrongResults || retryAfter !== undefined) {
          for (const item of portion) item.reject(error);
          continue;
        }
        const half = Math.ceil(portion.length / 2);
        portions.unshift(portion.slice(0, half), portion.slice(half));
      }
    }
  }

  private async resultsOf(portion: readonly Gathered[]): Promise<unknown[]> {
    const results = await this.call(portion.map((item) => item.payload), portion.map((item) => item.job));
    if (typeof (results as Iterable<unknown> | undefined)?.[Symbol.iterator] !== 'function') {
      const returned = `the batch handler returned ${shown(results)} for ${portion.length} payloads`;
      throw new WrongResults(`${returned}: return a list with a result for each`);
    }
    const listed = [...results];
    if (listed.length !== portion.length) {
      throw new WrongResults(`the batch handler returned ${listed.length} results for ${portion.length} payloads: return one for each`);
    }
    return listed;
  }
}

/** @internal */
export function checkedKey(key: unknown): ((payload: unknown) => unknown) | null {
  if (key === undefined) return null;
  if (typeof key !== 'function') throw new InvalidValue(`\`key\` is ${shown(key)}: give a function of a payload`, 'key');
  return key as (payload: unknown) => unknown;
}
