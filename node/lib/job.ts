// Jobs as functions.

import type { Backend, Submitted } from './backend.js';
import { InvalidValue, StoreError, SubmitFailed, shown } from './errors.js';
import { Handle, type HandleOwner, Handles } from './handle.js';
import { type CommonOptions, type Members, OF_JOBS, type SubmitOneOptions, type SubmitOptions, checkNames, membersOf } from './options.js';
import { type StandardSchema, validated } from './schema.js';
import { type SqliteTransaction, isSqlite, submitWithinFile } from './sqlite.js';
import { type SqlTransaction, submitWithin } from './transaction.js';
import { decode } from './values/decode.js';
import { type BigInts, encode, encodeAll } from './values/encode.js';
import { type ModuleOptions, Pool } from './work/pool.js';
import { Encoded, type Entry, type KindSpec } from './work/runner.js';

/** What becomes of a result: one that is undefined is stored as null. */
export type Stored<R> = [R] extends [void] ? null : undefined extends R ? Exclude<R, undefined> | null : R;

/** The arguments of a submit. A payload that may be undefined may be left out; it is null then. */
export type SubmitArguments<P> = undefined extends P
  ? [payload?: P, options?: SubmitOneOptions]
  : [payload: P, options?: SubmitOneOptions];

/** Options of a job. */
export interface JobOptions extends CommonOptions {
  /** The queue of its jobs; "default" by default. */
  queue?: string;
  /** Its jobs at once in a worker; 100 by default. */
  concurrency?: number;
}

/** What jobs need of their application. @internal */
export interface JobOwner extends HandleOwner {
  readonly store: string;
  /** Whether this process has the store open. */
  readonly isOpen: boolean;
}

/** The jobs at once of one kind, by default and at most. */
const CONCURRENCY_DEFAULT = 100;
/** @internal */
export const CONCURRENCY_MAX = 10_000;

/** Options that are about handlers, not about jobs. */
const OF_HANDLERS = ['size', 'wait', 'key', 'module', 'export', 'processes'];

/** The schemas of a job. @internal */
export interface Schemas {
  payload?: StandardSchema | undefined;
  result?: StandardSchema | undefined;
}

// Submits that are stored together at most, and the characters of one that is.
const GATHERED_MAX = 1_000, GATHERED_CHARACTERS_MAX = 1 << 16;

/** One submit of several. */
interface Gathered {
  readonly text: string;
  readonly resolve: (id: string) => void;
  readonly reject: (error: unknown) => void;
}

/** Items of one SQL statement. */
const STATEMENT_ITEMS_MAX = 10_000;
// Items and bytes of one portion of a submit of many.
const PORTION_ITEMS_FIRST = 1_000, PORTION_ITEMS_MAX = 50_000, PORTION_CHARACTERS = 4 << 20;
/** A longer portion is halved: a request has 32 MiB at most, and a character three bytes. */
const PORTION_CHARACTERS_MAX = 8 << 20;

/** A job: submits payloads for workers of its kind. */
export class Job<P = unknown, R = unknown> {
  /** @internal */
  readonly options: JobOptions;

  /** @internal */
  constructor(
    private readonly owner: JobOwner,
    /** The kind of its jobs. */
    readonly name: string,
    options: JobOptions & Partial<ModuleOptions> & Schemas,
    private readonly handler: Entry | Pool | null,
  ) {
    if (typeof name !== 'string' || name === '') throw new InvalidValue(`the name of a job is ${shown(name)}: give text`, 'name');
    checkNames(`app.job(${shown(name)}, …)`, options, [...OF_JOBS, ...OF_HANDLERS]);
    const { payload, result, ...others } = options;
    this.options = others;
    this.schemas = { payload, result };
    // A mistake in the options is told now, and not at the first submit.
    this.members({}, true, () => 0);
  }

  /** @internal */
  protected readonly schemas: Schemas;
  /** Payloads that are submitted in this turn of the event loop, by their options. */
  private readonly gathering = new Map<string, Gathered[]>();

  /** Submits one job. It is on disk when the promise resolves. Submits of one turn of the event loop are stored as one batch. */
  async submit(...[payload, options = {}]: SubmitArguments<P>): Promise<Handle<Stored<R>>> {
    const checked = await this.checked(payload, 'payload');
    const text = encode(checked, 'payload', this.owner.bigints);
    const backend = await this.owner.backend();
    const members = this.members(options, true, () => backend.nowMs());
    const isAlone = members.key !== undefined || members.on_success !== undefined || members.on_failure !== undefined;
    if (!isAlone && text.length <= GATHERED_CHARACTERS_MAX) {
      return new Handle(this.owner, await this.gather(backend, members, text), this.convert());
    }
    const submitted = await this.store(backend, members, `"payload":${text}`);
    return new Handle(this.owner, submitted.ids?.[0] ?? submitted.first!, this.convert());
  }

  /** Stores a payload together with those of equal options that are submitted in the same turn; the id of its job. */
  private gather(backend: Backend, members: Members, text: string): Promise<string> {
    const name = JSON.stringify(members);
    return new Promise((resolve, reject) => {
      let gathered = this.gathering.get(name);
      if (gathered === undefined) {
        gathered = [];
        this.gathering.set(name, gathered);
        queueMicrotask(() => void this.storeGathered(backend, members, name));
      }
      gathered.push({ text, resolve, reject });
      if (gathered.length >= GATHERED_MAX) void this.storeGathered(backend, members, name);
    });
  }

  private async storeGathered(backend: Backend, members: Members, name: string): Promise<void> {
    const gathered = this.gathering.get(name);
    if (gathered === undefined) return;
    this.gathering.delete(name);
    const texts = gathered.map((one) => one.text);
    try {
      const payloads = texts.length === 1 ? `"payload":${texts[0]}` : `"payloads":[${texts.join(',')}]`;
      const { batches } = await this.store(backend, members, payloads);
      let at = 0;
      for (const { batch, first_position: first, count } of batches) {
        for (let position = first; position < first + count; position++) gathered[at++]!.resolve(`${batch}:${position}`);
      }
    } catch (error) {
      for (const one of gathered) one.reject(error);
    }
  }

  /**
   * Submits a job for each item, in batches, in their order, in portions. If it fails on the way, the first items are stored, and
   * the error is a `SubmitFailed` with their handles.
   */
  async submitMany(payloads: Iterable<P> | AsyncIterable<P>, options: SubmitOptions = {}): Promise<Handles<Stored<R>>> {
    const backend = await this.owner.backend();
    const members = this.members(options, false, () => backend.nowMs());
    const stored: Submitted['batches'] = [];
    let underWay: Promise<Submitted> | null = null;
    const settle = async () => {
      const settled = underWay;
      underWay = null;
      if (settled !== null) stored.push(...(await settled).batches);
    };
    try {
      for await (const portion of this.portionsOf(payloads)) {
        // A portion is packed while the one before it is stored.
        await settle();
        underWay = this.store(backend, members, `"payloads":${portion}`);
        underWay.catch(() => {});
      }
      await settle();
    } catch (error) {
      await settle().catch(() => {});
      if (stored.length === 0) throw error;
      const submitted = new Handles<unknown>(this.owner, stored);
      throw new SubmitFailed(`${(error as Error).message}; the first ${submitted.length} items are stored: submit the items behind them ` +
        'again; `submitted` of this error has the jobs', submitted, { cause: error });
    }
    return new Handles(this.owner, stored, this.convert());
  }

  /**
   * Submits one job within a transaction of the caller's on the store's database or file. The job exists once it commits; after a
   * rollback it never existed. The application need not have the store open, and must not have a file open.
   */
  async submitWithin(
    transaction: SqlTransaction | SqliteTransaction, ...[payload, options = {}]: SubmitArguments<P>
  ): Promise<Handle<Stored<R>>> {
    const text = encode(await this.checked(payload, 'payload'), 'payload', this.owner.bigints);
    const members = this.members(options, true, () => Date.now());
    if (isSqlite(transaction)) {
      const [part] = this.storeWithin(transaction, members, `"payload":${text}`);
      return new Handle(this.owner, `${part!.batch}:0`, this.convert());
    }
    const [id] = await submitWithin(transaction, this.name, members, text);
    return new Handle(this.owner, id!, this.convert());
  }

  /** Submits a job for each item within a transaction of the caller's, as `submitWithin` does. */
  async submitManyWithin(
    transaction: SqlTransaction | SqliteTransaction, payloads: Iterable<P> | AsyncIterable<P>, options: SubmitOptions = {},
  ): Promise<Handles<Stored<R>>> {
    const members = this.members(options, false, () => Date.now());
    const stored: Submitted['batches'] = [];
    let texts: string[] = [], number = 0;
    const flush = async () => {
      if (texts.length === 0) return;
      stored.push(...isSqlite(transaction)
        ? this.storeWithin(transaction, members, `"payloads":[${texts.join(',')}]`)
        : partsOf(await submitWithin(transaction, this.name, members, texts)));
      texts = [];
    };
    for await (const payload of payloads) {
      const what = `items[${number++}]`;
      texts.push(encode(await this.checked(payload, what), what, this.owner.bigints));
      if (texts.length >= STATEMENT_ITEMS_MAX) await flush();
    }
    await flush();
    return new Handles(this.owner, stored, this.convert());
  }

  /** The payloads as JSON lists of about four MiB. */
  private async *portionsOf(payloads: Iterable<P> | AsyncIterable<P>): AsyncGenerator<string, void, undefined> {
    let items: unknown[] = [], first = 0, itemsMax = PORTION_ITEMS_FIRST;
    const pack = () => {
      const texts = packed(items, first, this.owner.bigints);
      const charactersEach = texts.reduce((sum, text) => sum + text.length, 0) / items.length;
      itemsMax = Math.max(1, Math.min(PORTION_ITEMS_MAX, Math.floor(PORTION_CHARACTERS / charactersEach)));
      first += items.length;
      items = [];
      return texts;
    };
    const schema = this.schemas.payload;
    if (schema === undefined && typeof (payloads as Iterable<P>)[Symbol.iterator] === 'function') {
      if (typeof payloads === 'string') throw new InvalidValue(`the items are ${shown(payloads)}: give a list`, 'items');
      for (const payload of payloads as Iterable<P>) {
        items.push(payload);
        if (items.length >= itemsMax) yield* pack();
      }
    } else if (typeof (payloads as AsyncIterable<P>)?.[Symbol.asyncIterator] === 'function' || schema !== undefined) {
      for await (const payload of payloads) {
        items.push(await this.checked(payload, `items[${first + items.length}]`));
        if (items.length >= itemsMax) yield* pack();
      }
    } else {
      throw new InvalidValue(`the items are ${shown(payloads)}: give a list, or another iterable`, 'items');
    }
    if (items.length > 0) yield* pack();
  }

  /** The payload, which the schema accepts. It is stored as it was given: the schema converts it for the handler. */
  private checked(payload: unknown, what: string): unknown {
    const { payload: schema } = this.schemas;
    if (schema === undefined) return payload;
    const output = validated(schema, payload, what);
    return output instanceof Promise ? output.then(() => payload) : payload;
  }

  private convert(): ((value: unknown) => unknown) | null {
    const { result: schema } = this.schemas;
    return schema === undefined ? null : (value) => validated(schema, value, 'result');
  }

  private async store(backend: Backend, members: Members, payloads: string): Promise<Submitted> {
    const answer = await backend.ask('submit', '', this.request(members, payloads));
    let submitted: Partial<Submitted> | null = null;
    try {
      submitted = JSON.parse(answer) as Partial<Submitted> | null;
    } catch {
      // It is refused below.
    }
    if (!Array.isArray(submitted?.batches)) {
      throw new StoreError(`the server's answer to a submit is not of Gristmill: ${shown(answer)}; check its address`);
    }
    return submitted as Submitted;
  }

  private storeWithin(transaction: SqliteTransaction, members: Members, payloads: string): Submitted['batches'] {
    if (this.owner.isOpen) {
      throw new InvalidValue('this application has the file open, and two libraries of SQLite in one process must not: submit within ' +
        'transactions from an application that runs and asks for nothing, or close it before', 'transaction');
    }
    return submitWithinFile(transaction, this.owner.store, this.request(members, payloads));
  }

  /** A request to submit payloads, which are the JSON of one or several with their member. */
  private request(members: Members, payloads: string): string {
    return `${JSON.stringify({ ...members, kind: this.name }).slice(0, -1)},${payloads}}`;
  }

  /** The members of a request to submit jobs. @internal */
  members(options: SubmitOneOptions, isOne: boolean, nowMs: () => number): Members {
    const { concurrency: _, ...own } = this.options;
    const ofJob = Object.fromEntries(Object.entries(own).filter(([name]) => !OF_HANDLERS.includes(name)));
    return membersOf(`a submit of \`${this.name}\``, { ...ofJob, ...options }, isOne, nowMs);
  }

  /** The payload of a schedule: its JSON. @internal */
  async scheduled(payload: unknown): Promise<string> {
    return encode(await this.checked(payload, 'payload'), 'payload', this.owner.bigints);
  }

  /** What a step of a flow is named by. @internal */
  get label(): string {
    return this.name;
  }

  /** @internal */
  get resultSchema(): StandardSchema | undefined {
    return this.schemas.result;
  }

  /** Whether a handler of this process runs it. @internal */
  get hasHandler(): boolean {
    return this.handler !== null;
  }

  /** How a worker runs it; at most `concurrencyMax` jobs at once. @internal */
  spec(concurrencyMax = CONCURRENCY_MAX): KindSpec {
    const { payload, result } = this.schemas;
    const handler = this.handler!;
    const entry: Entry = handler instanceof Pool ? (given, job) => handler.run(given, job) : handler;
    let checked: Entry = entry;
    if (payload !== undefined) {
      checked = (given, job) => {
        const output = validated(payload, given, 'payload');
        return output instanceof Promise ? output.then((output) => entry(output, job)) : entry(output, job);
      };
    }
    const concurrency = handler instanceof Pool ? handler.processesMax : this.options.concurrency ?? CONCURRENCY_DEFAULT;
    return {
      kind: this.name,
      concurrency: Math.min(concurrency, concurrencyMax),
      hasProcesses: handler instanceof Pool,
      entry: result === undefined ? checked : async (given, job) => {
        const value = await checked(given, job);
        await validated(result, value instanceof Encoded ? decode(value.text, 'result', this.owner.bigints) : value, 'result');
        return value;
      },
    };
  }
}

/** Items as JSON lists, none of which is too long for a request. `first` is the number of the first item among all. */
function packed(items: unknown[], first: number, bigints: BigInts): string[] {
  let text: string | null = null;
  try {
    text = encodeAll(items, first, bigints);
  } catch (error) {
    // No text may be that long.
    if (!(error instanceof RangeError) || items.length === 1) throw error;
  }
  if (text !== null && (text.length <= PORTION_CHARACTERS_MAX || items.length === 1)) return [text];
  const half = items.length >> 1;
  return [...packed(items.slice(0, half), first, bigints), ...packed(items.slice(half), first + half, bigints)];
}

/** The batches of jobs, by their ids in order. */
function partsOf(ids: readonly string[]): Submitted['batches'] {
  const parts: Submitted['batches'] = [];
  for (const id of ids) {
    const [batch, position] = id.split(':').map(Number) as [number, number];
    const last = parts.at(-1);
    if (last?.batch === batch && last.first_position + last.count === position) last.count++;
    else parts.push({ batch, first_position: position, count: 1 });
  }
  return parts;
}
