// Map: items are submitted in order and run by a worker of this process, and their results come as they are on disk.

import { type Backend, type ResultLine, type Submitted, isTooLarge } from './backend.js';
import { InvalidValue, JobFailed, WorkerError } from './errors.js';
import { Portions } from './portions.js';
import { decode } from './values/decode.js';
import { type BigInts, encodeAll } from './values/encode.js';
import type { KindSpec } from './work/runner.js';
import { Worker } from './work/worker.js';

/** Options of a map. */
export interface MapOptions {
  /** Items that completed under this name do not run again: a later call goes on. Without a name, the rows are removed at the end. */
  name?: string;
  /** False: results come as they do, and not in the items' order. */
  ordered?: boolean;
  /** Items at once; 100 by default. */
  concurrency?: number;
  /** Attempts of an item after the first one; none by default. */
  retries?: number;
  /** A failed item is its `JobFailed` among the results, instead of an end of the map. */
  returnErrors?: boolean;
  /** Is told how many results there are; `true` shows them on standard error. */
  progress?: boolean | ((done: number) => void);
}

/** A batch of a map. @internal */
export interface RunBatch {
  batch: number;
  count: number;
  /** The position of its first job; 0 by default. A batch of a server may have jobs of others. */
  first?: number;
}

/** The run of a map in a store. @internal */
export interface MapRun {
  jobs(): Promise<number>;
  compare(items: string): void;
  isSame(): Promise<boolean>;
  retryFailed(): Promise<number>;
  batches(after: number | null, limit: number): Promise<RunBatch[]>;
  feed(items: string): Promise<RunBatch[]>;
  finish(): Promise<void>;
  delete(): Promise<void>;
  release(): void;
}

/** What a map needs. @internal */
export interface MapPlan {
  backend: Backend;
  store: string;
  kind: string;
  spec: KindSpec;
  bigints: BigInts;
  options: MapOptions;
}

// Items that are fed and not yet yielded; items that are fed at once; how long a slow iterable is waited for. Milliseconds.
const ITEMS_MAX = 16_000, CHUNK_ITEMS_MAX = 4_000, CHUNK_MS = 5;
/** Bytes of payloads that are fed at once, about. */
const CHUNK_CHARACTERS = 1 << 20;
// The first wait for results, and the longest. Milliseconds.
const WAIT_MS_FIRST = 10, WAIT_MS_MAX = 1_000;
/** Batches that are asked for together, and of an earlier process that are listed at once. */
const BATCHES_ASKED_MAX = 64;
/** Portions of batches with results of many bytes that are read together, and their bytes, about. */
const PORTIONS_TOGETHER_MAX = 4, PORTIONS_BYTES_MAX = 32 << 20;

/** A batch whose results are not all yielded. */
interface Open {
  readonly batch: number;
  readonly first: number;
  readonly end: number;
  /** In order, the first position that is not yielded. */
  next: number;
  /** Out of order, the positions that are. */
  readonly yielded: Set<number> | null;
  /** The number of results that are not yielded. */
  left: number;
  /** Where its results are too many bytes for one answer. */
  portions: Portions | null;
}

/** The positions of the results that are not yielded. */
function positionsLeft({ next, first, end, yielded }: Open): number[] {
  const from = yielded === null ? next : first;
  const all = Array.from({ length: end - from }, (_, index) => from + index);
  return yielded === null ? all : all.filter((position) => !yielded.has(position));
}

const stopped = (): WorkerError => new WorkerError('the worker of the map was stopped before the end of the map: run it again');

/** Takes items of an iterable: as many as there are now, at most so many. */
class Items<P> {
  private readonly iterator: Iterator<P> | AsyncIterator<P>;
  private readonly isAsync: boolean;
  private pending: Promise<IteratorResult<P>> | null = null;
  private giveUp: (() => void) | null = null;
  isOver = false;

  constructor(items: Iterable<P> | AsyncIterable<P>) {
    const ofAsync = (items as Partial<AsyncIterable<P>> | undefined)?.[Symbol.asyncIterator];
    const ofSync = (items as Partial<Iterable<P>> | undefined)?.[Symbol.iterator];
    if ((ofAsync === undefined && ofSync === undefined) || typeof items === 'string') {
      throw new InvalidValue('the items of a map are no iterable: give a list', 'items');
    }
    this.isAsync = ofAsync !== undefined;
    this.iterator = ofAsync !== undefined ? ofAsync.call(items as AsyncIterable<P>) : ofSync!.call(items as Iterable<P>);
  }

  async take(itemsMax: number): Promise<P[]> {
    const taken: P[] = [];
    if (!this.isAsync) {
      while (taken.length < itemsMax) {
        const next = (this.iterator as Iterator<P>).next();
        if (next.done === true) {
          this.isOver = true;
          break;
        }
        taken.push(next.value);
      }
      return taken;
    }
    const until = performance.now() + CHUNK_MS;
    while (taken.length < itemsMax && !this.isOver) {
      this.pending ??= Promise.resolve((this.iterator as AsyncIterator<P>).next());
      // The first item is waited for.
      const next = await this.soon(this.pending, taken.length === 0 ? null : until - performance.now());
      if (next === null) break;
      this.pending = null;
      if (next.done === true) this.isOver = true;
      else taken.push(next.value);
    }
    return taken;
  }

  /** The next item; null where none has come in this time, or where the items are closed. */
  private soon(pending: Promise<IteratorResult<P>>, limitMs: number | null): Promise<IteratorResult<P> | null> {
    return new Promise((resolve, reject) => {
      const timer = limitMs === null ? undefined : setTimeout(resolve, Math.max(0, limitMs), null);
      this.giveUp = () => {
        clearTimeout(timer);
        resolve(null);
      };
      pending.finally(() => clearTimeout(timer)).then(resolve, reject);
    });
  }

  async close(): Promise<void> {
    if (this.isOver) return;
    this.isOver = true;
    this.giveUp?.();
    // A generator that waits for its next item ends when that has come.
    const ended = this.iterator.return?.();
    if (this.pending === null) await ended;
    else Promise.resolve(ended).catch(() => {});
  }
}

/** The results of a map. `closing` ends it: without an error by `null`. @internal */
export async function* mapped<P>(
  plan: MapPlan, items: Iterable<P> | AsyncIterable<P>, closing: AbortSignal,
): AsyncGenerator<unknown, void, undefined> {
  const { backend, options } = plan;
  const input = new Items(items);
  const name = options.name ?? `map-${crypto.randomUUID()}`;
  const isKept = options.name !== undefined;
  const queue = `run:${name}`;
  const description = JSON.stringify(isKept ? { map: plan.kind } : { map: plan.kind, is_unnamed: true });
  const jobOptions = JSON.stringify({ retry: { attempts_max: (options.retries ?? 0) + 1 } });
  const run = await backend.beginRun({ store: plan.store, name, description, kind: plan.kind, queue, options: jobOptions });
  let mapping: Mapping<P> | null = null, worker: Worker | null = null, hasThrown = false;
  try {
    mapping = new Mapping(plan, run, input, closing);
    await mapping.resume(name);
    worker = await Worker.start(backend, { queues: [queue], name: queue, until: 'stopped' }, [plan.spec], plan.bigints);
    yield* mapping.results(worker);
  } catch (error) {
    hasThrown = true;
    throw error;
  } finally {
    try {
      await mapping?.stop();
      const isWhole = mapping?.isWhole === true;
      if (!isKept && !isWhole) await backend.ask('cancel', '', JSON.stringify({ filter: { queue } })).catch(() => {});
      await worker?.stop().catch(() => {});
      if (isKept && isWhole) await run.finish();
      if (!isKept) await run.delete();
    } catch (error) {
      // The first error tells more.
      if (!hasThrown) throw error;
    } finally {
      run.release();
    }
  }
}

class Mapping<P> {
  isWhole = false;
  private readonly open: Open[] = [];
  private inFlight = 0;
  private askedMax = BATCHES_ASKED_MAX;
  /** Of the batches that are read in portions, the jobs that are still to be asked for once. */
  private round: [open: Open, left: number[]][] = [];
  private fedItems = 0;
  private resumed: RunBatch[] = [];
  private isFed = false;
  private isStopped = false;
  private hasWorkerEnded = false;
  private failure: unknown = null;
  private feeding: Promise<void> = Promise.resolve();
  private stirred: (() => void)[] = [];
  private done = 0;
  private shownAt = 0;

  constructor(
    private readonly plan: MapPlan,
    private readonly run: MapRun,
    private readonly input: Items<P>,
    private readonly closing: AbortSignal,
  ) {
    closing.addEventListener('abort', () => {
      this.stir();
      void this.input.close().catch(() => {});
    }, { once: true });
  }

  /** Skips the items that an earlier process has submitted, and takes their batches over. */
  async resume(name: string): Promise<void> {
    const submitted = await this.run.jobs();
    if (submitted === 0) return;
    while (this.fedItems < submitted && !this.input.isOver) {
      const taken = await this.input.take(Math.min(submitted - this.fedItems, CHUNK_ITEMS_MAX));
      if (taken.length > 0) this.run.compare(encodeAll(taken, this.fedItems, this.plan.bigints));
      this.fedItems += taken.length;
    }
    if (this.closing.aborted) return;
    if (this.fedItems < submitted || !await this.run.isSame()) {
      throw new InvalidValue(`the first ${submitted} items of the map ${JSON.stringify(name)} are not those of the time before: give ` +
        'the same items, choose another name, or call `app.forget`', 'items');
    }
    await this.run.retryFailed();
    for (let after: number | null = null; ;) {
      const page: RunBatch[] = await this.run.batches(after, BATCHES_ASKED_MAX);
      this.resumed.push(...page);
      if (page.length < BATCHES_ASKED_MAX) return;
      after = page.at(-1)!.batch;
    }
  }

  private stir(): void {
    for (const resolve of this.stirred.splice(0)) resolve();
  }

  private stirs(): Promise<void> {
    return new Promise((resolve) => {
      this.stirred.push(resolve);
    });
  }

  private announce(batches: readonly RunBatch[]): void {
    for (const { batch, count, first = 0 } of batches) {
      const yielded = this.plan.options.ordered === false ? new Set<number>() : null;
      this.open.push({ batch, first, end: first + count, next: first, yielded, left: count, portions: null });
      this.inFlight += count;
    }
    this.stir();
  }

  /** Feeds items while there is room. */
  private async feed(): Promise<void> {
    for (const batch of this.resumed) {
      while (this.inFlight >= ITEMS_MAX && !this.isStopped) await this.stirs();
      if (this.isStopped) return;
      this.announce([batch]);
    }
    // Few items at first, so that the first results come soon.
    let chunkItems = Math.max(1, this.plan.spec.concurrency);
    while (!this.isStopped && !this.input.isOver) {
      while (this.inFlight >= ITEMS_MAX && !this.isStopped) await this.stirs();
      if (this.isStopped) return;
      const taken: unknown[] = await this.input.take(Math.min(chunkItems, CHUNK_ITEMS_MAX));
      if (taken.length === 0) continue;
      const text = encodeAll(taken, this.fedItems, this.plan.bigints);
      this.fedItems += taken.length;
      this.announce(await this.run.feed(text));
      chunkItems = Math.max(1, Math.min(2 * chunkItems, Math.floor((CHUNK_CHARACTERS * taken.length) / text.length)));
    }
  }

  async *results(worker: Worker): AsyncGenerator<unknown, void, undefined> {
    this.feeding = this.feed().catch((error: unknown) => {
      this.failure = error;
    }).finally(() => {
      this.isFed = true;
      this.stir();
    });
    worker.ended.then(() => {
      this.hasWorkerEnded = true;
    }, (error: unknown) => {
      this.failure ??= error;
    }).finally(() => this.stir());
    let waitMs = WAIT_MS_FIRST, hadWorkerEnded = false, foundInRound = 0;
    for (;;) {
      if (this.closing.aborted) {
        if (this.closing.reason === null) return;
        throw this.closing.reason;
      }
      if (this.failure !== null) throw this.failure;
      if (this.round.length === 0) {
        hadWorkerEnded = this.hasWorkerEnded;
        foundInRound = 0;
      }
      if (this.open.length === 0) {
        if (this.isFed) break;
        if (this.hasWorkerEnded) throw stopped();
        await this.stirs();
        continue;
      }
      let values: unknown[], found = 0;
      try {
        values = await this.read(waitMs);
      } catch (error) {
        // The reason for the end is told above.
        if (this.closing.aborted) continue;
        throw error;
      }
      for (const value of values) {
        found++;
        this.inFlight--;
        yield value;
      }
      foundInRound += found;
      if (foundInRound === 0 && hadWorkerEnded && this.round.length === 0 && this.failure === null) throw stopped();
      this.show(found);
      if (found > 0) this.stir();
      if (found > 0) waitMs = WAIT_MS_FIRST;
      else if (this.round.length === 0) waitMs = Math.min(2 * waitMs, WAIT_MS_MAX);
    }
    if (this.failure !== null) throw this.failure;
    this.isWhole = true;
    this.show(0, true);
  }

  /** The results that are new: of the first batch, or of several where their order does not matter. */
  private async read(waitMs: number): Promise<unknown[]> {
    const asked = this.plan.options.ordered === false ? this.open.slice(0, this.askedMax) : [this.open[0]!];
    const together = asked.filter((one) => one.portions === null);
    const lines = await this.readPortions(asked.filter((one) => one.portions !== null), together.length === 0 ? waitMs : 0);
    if (together.length > 0) {
      const isWaiting = lines.length === 0 && this.round.length === 0;
      const request = { batches: together.map((one) => one.batch).join(','), wait_ms: isWaiting ? waitMs : 0 };
      try {
        const answer = await this.plan.backend.ask('results', '', JSON.stringify(request), this.closing);
        lines.push(...decode(answer, 'results', this.plan.bigints) as ResultLine[]);
      } catch (error) {
        if (!isTooLarge(error)) throw error;
        if (together.length === 1) {
          const [one] = together as [Open];
          one.portions = new Portions(this.plan.backend, one.batch, this.plan.bigints, one.left);
        }
        this.askedMax = Math.max(1, together.length >> 1);
        // Lines that are there are given first.
        if (lines.length === 0) return this.read(waitMs);
      }
    }
    const known = new Map(asked.map((one) => [one.batch, one]));
    const values: unknown[] = [];
    for (const line of lines) {
      const [batch, position] = line.job.split(':').map(Number) as [number, number];
      const open = known.get(batch)!;
      if (position < open.first || position >= open.end) continue;
      if (open.yielded === null) {
        if (position < open.next) continue;
        // In order, a gap holds the results behind it back.
        if (position > open.next) break;
      } else if (open.yielded.has(position)) {
        continue;
      }
      open.yielded?.add(position);
      open.next++;
      open.left--;
      const value = this.valueOf(line);
      // The results before it are given first.
      if (this.failure !== null) break;
      values.push(value);
    }
    for (const one of asked) if (one.left === 0) this.open.splice(this.open.indexOf(one), 1);
    return values;
  }

  /**
   * The next results of batches that have too many bytes for one answer. A round asks once for each of their jobs, and waits only at its
   * beginning. One call reads a part of it, so that results are given soon, and are not too many at once.
   */
  private async readPortions(large: readonly Open[], waitMs: number): Promise<ResultLine[]> {
    let turnMs = 0;
    this.round = this.round.filter(([open]) => large.includes(open));
    if (this.round.length === 0) {
      this.round = large.map((open) => [open, positionsLeft(open)]);
      turnMs = waitMs;
    }
    const lines: ResultLine[] = [];
    let bytes = 0;
    for (let portions = 0; portions < PORTIONS_TOGETHER_MAX && bytes < PORTIONS_BYTES_MAX && this.round.length > 0; portions++) {
      const [[open, left], ...others] = this.round as [[Open, number[]], ...[Open, number[]][]];
      const portion = await open.portions!.read(left, turnMs, this.closing);
      turnMs = 0;
      for (const line of portion.lines) lines.push(line);
      bytes += portion.bytes;
      const rest = left.slice(portion.asked);
      // In order, those behind a gap are of no use yet.
      const isOver = rest.length === 0 || (open.yielded === null && portion.lines.length < portion.asked);
      this.round = isOver ? others : [[open, rest], ...others];
    }
    return lines;
  }

  private valueOf(line: ResultLine): unknown {
    if (line.state === 'completed') return line.value;
    const failed = new JobFailed(line.job, line.state, line.error ?? null);
    if (this.plan.options.returnErrors === true) return failed;
    this.failure ??= failed;
    return null;
  }

  private show(found: number, isLast = false): void {
    const { progress } = this.plan.options;
    this.done += found;
    if (typeof progress === 'function' && (found > 0 || isLast)) progress(this.done);
    if (progress !== true) return;
    const now = performance.now();
    if (now - this.shownAt < 100 && !isLast) return;
    this.shownAt = now;
    const { process } = globalThis as { process?: { stderr?: { write(text: string): unknown } } };
    process?.stderr?.write(`\r${this.done} results${isLast ? '\n' : ''}`);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    this.stir();
    await this.input.close().catch(() => {});
    await this.feeding;
  }
}

/** The run of a map on a server: it has no name there, and no other process can go on with it. @internal */
export class RemoteRun implements MapRun {
  constructor(
    private readonly backend: Pick<Backend, 'ask'>,
    private readonly plan: { kind: string; queue: string; options: string },
  ) {}

  async feed(items: string): Promise<RunBatch[]> {
    const { kind, queue, options } = this.plan;
    const head = JSON.stringify({ ...JSON.parse(options) as object, kind, queue }).slice(0, -1);
    const { batches } = JSON.parse(await this.backend.ask('submit', '', `${head},"payloads":${items}}`)) as Submitted;
    return batches.map(({ batch, count, first_position: first }) => ({ batch, count, first }));
  }

  async jobs(): Promise<number> {
    return 0;
  }

  compare(): void {}

  async isSame(): Promise<boolean> {
    return true;
  }

  async retryFailed(): Promise<number> {
    return 0;
  }

  async batches(): Promise<RunBatch[]> {
    return [];
  }

  async finish(): Promise<void> {}

  async delete(): Promise<void> {}

  release(): void {}
}
