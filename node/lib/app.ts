// Applications: a store, and the functions whose jobs it keeps.

import type { Backend } from './backend.js';
import { closable } from './closable.js';
import { GristmillError, InvalidValue, type Span, milliseconds, shown } from './errors.js';
import type { FlowBody } from './flow/flow.js';
import { FlowJob, type FlowOptions, upgradesOf } from './flow/job.js';
import { Handle, type WaitOptions } from './handle.js';
import { CONCURRENCY_MAX, Job, type JobOptions, type Schemas, type Stored } from './job.js';
import { type MapOptions, mapped } from './map.js';
import { openNative } from './native.js';
import { Operations, type Schedule } from './operations.js';
import { OF_JOBS, checkNames, wholeNumber } from './options.js';
import { openRemote } from './remote/backend.js';
import type { InputOf, OutputOf, StandardSchema } from './schema.js';
import type { BigInts } from './values/encode.js';
import { Batcher, type BatchHandler, checkedKey } from './work/batcher.js';
import type { JobContext } from './work/context.js';
import { type ModuleOptions, Pool } from './work/pool.js';
import type { Entry, KindSpec } from './work/runner.js';
import { type Summary, Worker } from './work/worker.js';

/** Options of an application. */
export interface AppOptions {
  /** False: jobs in a file survive the end of the process, but not a loss of power. True by default. */
  durable?: boolean;
  /** The token of a server; that of the environment's GRISTMILL_TOKEN by default. */
  token?: string;
  /** What becomes of integers that a number does not hold exactly; "error" by default. */
  bigints?: BigInts;
}

/** The function of a job. */
export type Handler<P, R> = (payload: P, job: JobContext) => R | PromiseLike<R>;

/** Options of a batch handler. */
export interface BatchOptions<P = unknown> extends JobOptions {
  /** It is called with at most so many payloads; 100 by default. */
  size?: number;
  /** It is called with the payloads that there are after this time; "10ms" by default. */
  wait?: Span;
  /** Only payloads of equal keys are in one batch. */
  key?: (payload: P) => unknown;
}

/** Options of a worker. */
export interface WorkOptions {
  /** The jobs to run; all jobs of the application by default. */
  jobs?: Iterable<Job<never, never> | string>;
  /** The queues to claim from; those of the jobs and "default" by default. */
  queues?: Iterable<string>;
  /** The jobs of one kind at once, at most; those of the jobs' own options by default. */
  concurrency?: number;
  /** The name of the worker, for people. */
  name?: string;
  /** Stops the worker. */
  signal?: AbortSignal;
}

/** The rule of a schedule. */
export interface ScheduleRule<P> {
  /** A cron expression such as "30 4 * * mon-fri" or "@daily". */
  cron?: string;
  /** The time zone of the expression; "UTC" by default. */
  timeZone?: string;
  /** A fixed interval. */
  every?: Span;
  payload?: P;
  /** What happens for moments that passed while no process ran: "one" job for all, "all" or "skip". */
  catchUp?: 'one' | 'all' | 'skip';
  /** What happens while the last job has not ended; "allow" by default. */
  overlap?: 'allow' | 'skip' | 'replace';
  tags?: Readonly<Record<string, string | number | boolean>>;
}

const SIZE_DEFAULT = 100, WAIT_DEFAULT: Span = '10ms';
/** The items of a map at once. */
const MAP_CONCURRENCY = 100;
/** Batches that are gathered while others run. */
const BATCHES_HELD = 2;

/**
 * An application: a store, and jobs as functions. `store` is the path of a SQLite file, which is made where there is none, a
 * PostgreSQL URL or a server's. It is opened at the first use.
 */
export class App extends Operations implements AsyncDisposable {
  readonly bigints: BigInts;
  /** The jobs by name. @internal */
  readonly jobs = new Map<string, Job<never, never>>();
  private readonly workers = new Set<Worker>();
  private readonly pools = new Set<Pool>();
  /** Ends the maps that run. */
  private readonly maps = new Set<(reason: Error) => Promise<unknown>>();
  private opened: Promise<Backend> | null = null;

  constructor(
    /** The store. */
    readonly store: string = 'gristmill.db',
    private readonly options: AppOptions = {},
  ) {
    super();
    if (typeof store !== 'string' || store === '') {
      throw new InvalidValue(`the store is ${shown(store)}: give a path, a PostgreSQL URL or a server's URL`, 'store');
    }
    checkNames('new App(…)', options, ['durable', 'token', 'bigints']);
    this.bigints = options.bigints ?? 'error';
    if (!['error', 'string', 'bigint'].includes(this.bigints)) {
      throw new InvalidValue(`\`bigints\` is ${shown(this.bigints)}: give "error", "string" or "bigint"`, 'bigints');
    }
  }

  /** Whether the store is that of a server, which is asked over HTTP. */
  get isServer(): boolean {
    return /^https?:\/\//.test(this.store);
  }

  /** @internal */
  backend(): Promise<Backend> {
    this.opened ??= this.open().catch((error: unknown) => {
      this.opened = null;
      throw error;
    });
    return this.opened;
  }

  /** @internal */
  protected async open(): Promise<Backend> {
    const { token, durable = true } = this.options;
    return this.isServer ? openRemote(this.store, token) : openNative(this.store, durable);
  }

  /** The time of the store's clock, for flows. @internal */
  nowMs(): number {
    return Date.now();
  }

  /** Whether the store was opened and not closed. */
  get isOpen(): boolean {
    return this.opened !== null;
  }

  /** Ends the application's maps, stops its workers and closes the store. The next use opens it again. */
  async close(): Promise<void> {
    const reason = new GristmillError('the application was closed before the end of the map');
    await Promise.allSettled([...this.maps].map((end) => end(reason)));
    await Promise.allSettled([...this.workers].map((worker) => worker.stop()));
    for (const pool of this.pools) pool.close();
    const { opened } = this;
    this.opened = null;
    const backend = await opened?.catch(() => null);
    await backend?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // --- defining jobs ---

  /** A job of another program: it can be submitted here, and not run. */
  job<P = unknown, R = unknown>(name: string): Job<P, R>;
  /** Makes a function a job. Its payload and its result are JSON. */
  job<P, R>(name: string, handler: Handler<P, R>): Job<P, R>;
  /** Makes a function a job whose schema checks payloads, at the submit and before the handler gets them converted. */
  job<S extends StandardSchema<any, any>, R>(
    name: string, options: JobOptions & { payload: S; result?: StandardSchema<any, any> }, handler: Handler<OutputOf<S>, R>,
  ): Job<InputOf<S>, R>;
  /** Makes a function a job with options. */
  job<P, R>(name: string, options: JobOptions & { result?: StandardSchema<any, any> }, handler: Handler<P, R>): Job<P, R>;
  /** A job whose handler is exported by a module, and runs in processes of its own: for work that computes for long. */
  job<P, R>(name: string, options: JobOptions & ModuleOptions & { result?: StandardSchema<any, any> }): Job<P, R>;
  /** A job whose handler is exported by a module, and whose schema checks payloads. */
  job<S extends StandardSchema<any, any>, R>(
    name: string, options: JobOptions & ModuleOptions & { payload: S; result?: StandardSchema<any, any> },
  ): Job<InputOf<S>, R>;
  /** A job of another program, with options for its submits. */
  job<P = unknown, R = unknown>(name: string, options: JobOptions): Job<P, R>;
  job(name: string, ...more: unknown[]): Job<never, never> {
    const [options, handler] = optionsAndHandler<JobOptions & Partial<ModuleOptions> & Schemas>(`app.job(${shown(name)}, …)`, more);
    if (options.concurrency !== undefined) wholeNumber('concurrency', options.concurrency, 1, CONCURRENCY_MAX);
    return this.add(new Job<never, never>(this, name, options, this.poolOf(name, options, handler) ?? handler as Entry | null));
  }

  /**
   * Makes a function of many payloads a job. It gives one result, or one `Error`, for each. If it throws, the batch is halved
   * until the culprit is alone.
   */
  batch<P, R>(name: string, handler: BatchHandler<P, R>): Job<P, R>;
  batch<P, R>(name: string, options: BatchOptions<P>, handler: BatchHandler<P, R>): Job<P, R>;
  batch(name: string, ...more: unknown[]): Job<never, never> {
    const call = `app.batch(${shown(name)}, …)`;
    const [options, handler] = optionsAndHandler<BatchOptions & Schemas>(call, more);
    if (handler === null) throw new InvalidValue(`${call} has no handler: give a function of a list of payloads`, 'handler');
    const ofModules = ['module', 'export', 'processes'].find((one) => one in options);
    if (ofModules !== undefined) {
      throw new InvalidValue(`${call} has no option \`${ofModules}\`: batch handlers run in this process`, ofModules);
    }
    const size = wholeNumber('size', options.size ?? SIZE_DEFAULT, 1, CONCURRENCY_MAX);
    const waitMs = milliseconds(options.wait ?? WAIT_DEFAULT, '`wait`');
    const batcher = new Batcher(handler as BatchHandler<unknown, unknown>, size, waitMs, checkedKey(options.key));
    const concurrency = Math.min(size * BATCHES_HELD, CONCURRENCY_MAX);
    return this.add(new Job<never, never>(this, name, { concurrency, ...options }, (payload, job) => batcher.main(payload, job)));
  }

  /**
   * Makes a function a durable flow: it awaits jobs, events and times, and goes on where it was after any crash. What it awaits is
   * kept; it runs again from its beginning when something has ended, and goes the same way.
   */
  flow<P, R>(name: string, body: FlowBody<P, R>): FlowJob<P, R>;
  /** Makes a function a flow whose schema checks payloads, at the start and before the function gets them converted. */
  flow<S extends StandardSchema<any, any>, R>(
    name: string, options: FlowOptions & { payload: S; result?: StandardSchema<any, any> }, body: FlowBody<OutputOf<S>, R, InputOf<S>>,
  ): FlowJob<InputOf<S>, R>;
  /** Makes a function a flow with options. */
  flow<P, R>(name: string, options: FlowOptions & { result?: StandardSchema<any, any> }, body: FlowBody<P, R>): FlowJob<P, R>;
  /** A flow of another program: it can be started here, and be a step. */
  flow<P = unknown, R = unknown>(name: string, options?: FlowOptions): FlowJob<P, R>;
  flow(name: string, ...more: unknown[]): FlowJob<never, never> {
    const call = `app.flow(${shown(name)}, …)`;
    const [options, body] = optionsAndHandler<FlowOptions & Schemas>(call, more);
    checkNames(call, options, [...OF_JOBS, 'version', 'upgrades']);
    if (options.concurrency !== undefined) wholeNumber('concurrency', options.concurrency, 1, CONCURRENCY_MAX);
    const flows = [options.version, ...upgradesOf(name, options)].map((version) => (
      new FlowJob<never, never>(this, name, { ...options, version }, body as FlowBody<unknown, unknown> | null)
    ));
    for (const flow of flows) this.add(flow);
    return flows[0]!;
  }

  /** The processes of a job whose handler is exported by a module. */
  private poolOf(name: string, options: JobOptions & Partial<ModuleOptions>, handler: unknown): Pool | null {
    const { module, export: exported, processes } = options;
    const call = `app.job(${shown(name)}, …)`;
    if (module === undefined) {
      if (exported === undefined && processes === undefined) return null;
      throw new InvalidValue(`${call}: \`export\` and \`processes\` are about handlers of modules: give \`module\`, too`, 'module');
    }
    if (handler !== null) throw new InvalidValue(`${call} has a function and a \`module\`: give one of them`, 'module');
    if (options.concurrency !== undefined) {
      throw new InvalidValue(`${call}: each process runs one job at a time: give \`processes\` for \`concurrency\``, 'concurrency');
    }
    const pool = new Pool({ module, export: exported, processes }, this.bigints);
    this.pools.add(pool);
    return pool;
  }

  private add(job: Job<never, never>): Job<never, never> {
    const before = this.jobs.get(job.name);
    if (before?.hasHandler === true && job.hasHandler) {
      throw new InvalidValue(`this application has a job ${shown(job.name)} already: give one of them another name`, 'name');
    }
    if (before === undefined || job.hasHandler) this.jobs.set(job.name, job);
    return job;
  }

  /** The handle of a job by its id, such as "42:7". */
  handle<R = unknown>(id: string): Handle<R> {
    return new Handle<R>(this, id);
  }

  /** Waits for the result of the job with this id. */
  result<R = unknown>(id: string, options: WaitOptions = {}): Promise<R> {
    return this.handle<R>(id).result(options);
  }

  // --- map ---

  /**
   * Runs a function, or the handler of a job, over many items in this event loop, and gives the results in the items' order. At
   * most 16,000 items are read ahead. A map with a name goes on after a crash: what completed does not run again. A failed item
   * throws its `JobFailed`.
   */
  map<P, R>(
    work: Handler<P, R> | Job<P, R>, items: Iterable<P> | AsyncIterable<P>, options: MapOptions = {},
  ): AsyncGenerator<Stored<Awaited<R>>, void, undefined> {
    checkNames('app.map(…)', options, ['name', 'ordered', 'concurrency', 'retries', 'returnErrors', 'progress']);
    const concurrency = wholeNumber('concurrency', options.concurrency ?? MAP_CONCURRENCY, 1, CONCURRENCY_MAX);
    const kind = work.name === '' ? 'map' : work.name;
    if (work instanceof FlowJob) {
      throw new InvalidValue(`the items of a map go to a job, and ${shown(kind)} is a flow: use its \`submitMany\``, 'work');
    }
    const job = work instanceof Job ? work : new Job<P, R>(this, kind, { concurrency }, work as Entry);
    if (!job.hasHandler) throw new InvalidValue(`the job ${shown(kind)} has no handler in this program`, 'work');
    const spec = job.spec(concurrency);
    return this.mapping(kind, spec, items, options) as AsyncGenerator<Stored<Awaited<R>>, void, undefined>;
  }

  private mapping<P>(
    kind: string, spec: KindSpec, items: Iterable<P> | AsyncIterable<P>, options: MapOptions,
  ): AsyncGenerator<unknown, void, undefined> {
    const closing = new AbortController();
    let refusal: Error | null = null;
    const end = (reason: Error): Promise<unknown> => {
      refusal = reason;
      closing.abort(reason);
      return results.return();
    };
    const { maps, store, bigints } = this;
    const opened = () => this.backend();
    async function* run(): AsyncGenerator<unknown, void, undefined> {
      maps.add(end);
      try {
        yield* mapped({ backend: await opened(), store, kind, spec, bigints, options }, items, closing.signal);
      } finally {
        maps.delete(end);
      }
    }
    const results = run();
    return closable(results, () => closing.abort(null), () => refusal);
  }

  /** Deletes the map with this name, its items and results; whether there was one. */
  async forget(name: string): Promise<boolean> {
    return (await this.backend()).deleteRun(name);
  }

  // --- schedules ---

  /**
   * Submits the job by a cron expression or at a fixed interval, from now on, while any process has the store open. Put again
   * under the same name, a schedule is changed.
   */
  async schedule<P>(name: string, job: Job<P, any>, rule: ScheduleRule<P>): Promise<Schedule> {
    const { cron, timeZone, every, payload, catchUp = 'one', overlap = 'allow', tags, ...others } = rule;
    checkNames('app.schedule(…)', others, ['cron', 'timeZone', 'every', 'payload', 'catchUp', 'overlap', 'tags']);
    if ((cron === undefined) === (every === undefined)) {
      throw new InvalidValue(`schedule ${shown(name)}: give either \`cron\` or \`every\``, 'rule');
    }
    if (every !== undefined && timeZone !== undefined) {
      const remedy = 'for each day of the calendar, give `cron: "@daily"`';
      throw new InvalidValue(`schedule ${shown(name)}: \`every\` is elapsed time and takes no \`timeZone\`; ${remedy}`, 'timeZone');
    }
    const { expires_at: expiresAfter, ...members } = job.members({ ...tags === undefined ? {} : { tags } }, false, () => 0);
    const body = {
      ...members,
      ...expiresAfter === undefined ? {} : { expires_after_ms: expiresAfter },
      kind: job.name,
      rule: every === undefined
        ? { cron: { expression: cron, time_zone: timeZone ?? 'UTC' } }
        : { every: { interval_ms: milliseconds(every, '`every`') } },
      catch_up: catchUp,
      overlap,
    };
    const backend = await this.backend();
    const request = `${JSON.stringify(body).slice(0, -1)},"payload":${await job.scheduled(payload)}}`;
    return JSON.parse(await backend.ask('put_schedule', name, request)) as Schedule;
  }

  // --- running ---

  /** Starts a worker in the background, in this event loop. */
  async worker(options: WorkOptions = {}): Promise<Worker> {
    return this.start(options, 'stopped');
  }

  /** Runs jobs until the signal, Ctrl-C or SIGTERM; running jobs end before. */
  async work(options: WorkOptions = {}): Promise<Summary> {
    const worker = await this.start(options, 'stopped');
    const process = (globalThis as { process?: Signals }).process;
    const stop = (): void => {
      void worker.stop();
    };
    const names = ['SIGINT', 'SIGTERM'] as const;
    for (const name of names) process?.once?.(name, stop);
    try {
      return await worker.ended;
    } finally {
      for (const name of names) process?.off?.(name, stop);
    }
  }

  /** Runs the jobs that can be claimed now, and those that they submit; resolves when none is left. */
  async drain(options: WorkOptions = {}): Promise<Summary> {
    const worker = await this.start(options, 'idle');
    return worker.ended;
  }

  private async start(options: WorkOptions, until: 'stopped' | 'idle'): Promise<Worker> {
    checkNames('a worker', options, ['jobs', 'queues', 'concurrency', 'name', 'signal']);
    const jobs = this.chosen(options.jobs);
    const concurrency = wholeNumber('concurrency', options.concurrency ?? CONCURRENCY_MAX, 1, CONCURRENCY_MAX);
    const queues = options.queues === undefined
      ? new Set(['default', ...jobs.map((job) => job.options.queue ?? 'default')])
      : new Set(options.queues);
    options.signal?.throwIfAborted();
    const backend = await this.backend();
    const plan = { queues: [...queues], name: options.name ?? `node-${processId()}`, until };
    const worker = await Worker.start(backend, plan, jobs.map((job) => job.spec(concurrency)), this.bigints);
    this.workers.add(worker);
    const stop = (): void => {
      void worker.stop();
    };
    options.signal?.addEventListener('abort', stop, { once: true });
    if (options.signal?.aborted === true) stop();
    const forget = (): void => {
      this.workers.delete(worker);
      options.signal?.removeEventListener('abort', stop);
    };
    worker.ended.then(forget, forget);
    return worker;
  }

  /** The jobs of a worker, which have handlers. */
  private chosen(wanted: WorkOptions['jobs']): Job<never, never>[] {
    if (wanted === undefined) {
      const all = [...this.jobs.values()].filter((job) => job.hasHandler);
      if (all.length > 0) return all;
      throw new InvalidValue('this application has no job with a handler: define one by `app.job(name, handler)`', 'jobs');
    }
    return [...wanted].map((one) => {
      const name = typeof one === 'string' ? one : one.name;
      const job = this.jobs.get(name);
      if (job?.hasHandler !== true) throw new InvalidValue(`this application has no handler for the job ${shown(name)}`, 'jobs');
      return job;
    });
  }
}

interface Signals {
  pid?: number;
  once?(name: string, listener: () => void): unknown;
  off?(name: string, listener: () => void): unknown;
}

const processId = (): number => (globalThis as { process?: Signals }).process?.pid ?? 0;

/** The options and the handler of a definition, either of which may be left out. */
function optionsAndHandler<O extends object>(call: string, more: unknown[]): [O, ((...args: never[]) => unknown) | null] {
  const [first, second] = more;
  if (typeof first === 'function' && second === undefined) return [{} as O, first as () => unknown];
  if (first !== undefined && (typeof first !== 'object' || first === null)) {
    throw new InvalidValue(`${call} was given ${shown(first)}: give options and a function, or a function`, 'options');
  }
  if (second !== undefined && typeof second !== 'function') {
    throw new InvalidValue(`${call} was given ${shown(second)} as its handler: give a function`, 'handler');
  }
  return [(first ?? {}) as O, (second ?? null) as (() => unknown) | null];
}
