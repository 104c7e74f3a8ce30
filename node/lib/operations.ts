// The operations of an application on its store beside submitting and running jobs.

import type { Backend } from './backend.js';
import { closable } from './closable.js';
import { InvalidValue, NotFound, SendFailed, type Span, StoreError, milliseconds, shown } from './errors.js';
import type { ForkOptions } from './handle.js';
import { checkNames, momentMs, wholeNumber } from './options.js';
import { decode } from './values/decode.js';
import { type BigInts, encode } from './values/encode.js';

/** A job, or the name of its kind. */
export type KindOf = string | { readonly name: string };

/** Conditions on jobs. An omitted one matches all. */
export interface Conditions {
  states?: string | readonly string[];
  job?: KindOf;
  queue?: string;
  group?: string;
  batch?: number;
  /** Names and values of tags; null stands for any value. */
  tags?: Readonly<Record<string, string | null>>;
  /** The submit. */
  since?: Date;
  until?: Date;
  key?: string;
  keyPrefix?: string;
  parent?: string | { readonly id: string };
}

/** One job of a listing, as `GET /jobs` has it. */
export interface JobRow {
  readonly job: string;
  readonly kind: string;
  readonly queue: string;
  readonly state: string;
  readonly attempt: number;
  readonly priority: number;
  readonly [member: string]: unknown;
}

/** One failed attempt. */
export interface JobFailure {
  readonly attempt: number;
  /** The class of the error, such as "TypeError". */
  readonly type: string;
  readonly message: string;
  readonly traceback?: string;
  readonly log?: string;
  readonly [member: string]: unknown;
}

/** Everything that is known of one job, as `GET /jobs/{job}` has it. */
export interface JobDetails extends JobRow {
  readonly payload: unknown;
  readonly value?: unknown;
  readonly log?: string;
  readonly failures: readonly JobFailure[];
}

/** An event of the store, as `GET /events` has it. */
export interface JobEvent {
  readonly cursor: string;
  readonly type: string;
  readonly [member: string]: unknown;
}

/** A schedule, as `GET /schedules/{schedule}` has it. */
export interface Schedule {
  readonly schedule: string;
  readonly kind: string;
  readonly queue: string;
  readonly payload: unknown;
  readonly rule: unknown;
  readonly [member: string]: unknown;
}

/** What pauses, limits and shares apply to; all jobs without any member. */
export interface Scope {
  queue?: string;
  job?: KindOf;
  group?: string;
  /** Each group has a limit of its own. */
  eachGroup?: boolean;
}

/** How many jobs run, or begin in a time. */
export type Limit =
  | { running: number; rate?: undefined }
  | { running?: undefined; rate: number; per?: Span; burst?: number };

/** A pause, limit or share, as `GET /controls` has it. */
export interface Control {
  readonly [member: string]: unknown;
}

/** The name of a kind. @internal */
export function kindOf(job: KindOf | undefined): string | undefined {
  return typeof job === 'object' || typeof job === 'function' ? job.name : job;
}

function conditionsOf(conditions: Conditions): Record<string, unknown> {
  const { states, job, queue, group, batch, tags, since, until, key, keyPrefix, parent, ...others } = conditions;
  checkNames('a condition', others, [
    'states', 'job', 'queue', 'group', 'batch', 'tags', 'since', 'until', 'key', 'keyPrefix', 'parent',
  ]);
  return {
    states: typeof states === 'string' ? [states] : states,
    kind: kindOf(job),
    queue,
    group,
    batch,
    tags: tags && Object.entries(tags).map(([name, value]) => (value === null ? name : `${name}=${value}`)),
    since: momentMs(since, 'since'),
    until: momentMs(until, 'until'),
    key,
    key_prefix: keyPrefix,
    parent: typeof parent === 'object' ? parent.id : parent,
  };
}

function scopeOf(scope: Scope): Record<string, unknown> {
  const { queue, job, group, eachGroup, ...others } = scope;
  checkNames('a scope', others, ['queue', 'job', 'group', 'eachGroup']);
  return { queue, kind: kindOf(job), group, ...eachGroup === true ? { each_group: true } : {} };
}

/** Lists as parameters: separated by commas. */
function asQuery(conditions: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(conditions).map(([name, value]) => {
    if (!Array.isArray(value)) return [name, value];
    const comma = (value as string[]).find((one) => one.includes(','));
    if (comma !== undefined) throw new InvalidValue(`\`${name}\` with a comma cannot be asked for: ${comma}`, name);
    return [name, value.join(',')];
  }));
}

const isJobs = (what: readonly unknown[]): what is readonly (string | { readonly id: string })[] => (
  what.every((one) => typeof one === 'string' || (typeof one === 'object' && one !== null && 'id' in one))
);

/** Rows of one page of a listing, and flows with what they wait for. */
const PAGE_ROWS = 1_000, PAGE_FLOWS = 200;
/** Events of one request, which are one transaction. */
const EVENTS_PER_REQUEST = 1_000;
/** The characters of the events of one request, about. A request has 32 MiB at most, and a character three bytes. */
const EVENTS_CHARACTERS = 4 << 20;

const idOf = (job: string | { readonly id: string }): string => (typeof job === 'string' ? job : job.id);

/** A flow in a listing, as `GET /flows` has it. */
export interface FlowRow extends JobRow {
  /** The name of the flow, and its version. */
  readonly name: string;
  readonly version?: string;
}

/** The flows of one name, version and queue, as `GET /flows/kinds` has them. */
export interface FlowCounts {
  readonly name: string;
  readonly version?: string;
  readonly kind: string;
  readonly queue: string;
  /** Whether a worker serves them. */
  readonly has_worker: boolean;
  readonly [member: string]: unknown;
}

/** A step of a flow, as `GET /jobs/{job}/steps` has it. */
export interface FlowStep {
  readonly number: number;
  readonly name: string;
  readonly state: string;
  readonly [member: string]: unknown;
}

/** A flow and its fork, or the reason why there is none. */
export interface ForkedFlow {
  readonly flow: string;
  readonly fork?: string;
  readonly error?: string;
}

/** An event for one flow, which is named by its job (a handle or an id) or by its deduplication key. */
export type FlowEvent = { name: string; value?: unknown } & (
  | { flow: string | { readonly id: string }; key?: undefined }
  | { flow?: undefined; key: string }
);

/** What became of an event: a flow had awaited it, it is kept until the flow does, or it was not sent. */
export type EventReceipt = 'delivered' | 'kept' | 'ended' | 'unknown' | 'full';

/** Jobs, by id or handle, or conditions that they match. */
export type Selected = readonly (string | { readonly id: string })[] | [Conditions];

const selectionOf = (jobs: Selected): object => (isJobs(jobs) ? { jobs: jobs.map(idOf) } : { filter: conditionsOf(jobs[0]!) });

/** The operations of an application on its store. On a server, the token's role decides. */
export abstract class Operations {
  /** What becomes of integers that a number may not hold. */
  abstract readonly bigints: BigInts;

  /** @internal */
  abstract backend(): Promise<Backend>;

  /** @internal */
  async ask<T>(operation: string, request: object = {}, subject = ''): Promise<T> {
    const backend = await this.backend();
    const answer = await backend.ask(operation, subject, encode(request, operation, 'bigint'));
    // A listing shows what a handler would refuse.
    return decode(answer, operation, this.bigints === 'error' ? 'string' : this.bigints, true) as T;
  }

  private async askMaybe<T>(operation: string, subject: string, found?: true): Promise<T | true | null> {
    try {
      const answer = await this.ask<T>(operation, {}, subject);
      return found ?? answer;
    } catch (error) {
      if (error instanceof NotFound) return null;
      throw error;
    }
  }

  // --- jobs ---

  /**
   * The jobs that match, by id, read a page at a time; with `newest`, the latest `limit`, the latest first; with `next`, the
   * waiting jobs that workers would get next, in the order of claims, up to `limit`, whatever the size of their payloads.
   */
  async *find(
    conditions: Conditions & { newest?: boolean; next?: boolean; limit?: number } = {},
  ): AsyncGenerator<JobRow, void, undefined> {
    const { newest, next, ...rest } = conditions, isOnePage = newest === true || next === true;
    const { limit = isOnePage ? 100 : Infinity, ...others } = rest;
    const query = asQuery(conditionsOf(others));
    let left = limit, after: string | undefined;
    do {
      const page = await this.ask<{ jobs: JobRow[]; next?: string }>('jobs', {
        ...query, ...newest === true ? { newest } : {}, ...next === true ? { next } : {}, after,
        // One page is all there is, so a number that is too large is refused.
        limit: isOnePage && limit !== Infinity ? limit : Math.min(left, PAGE_ROWS),
      });
      yield* page.jobs;
      left -= page.jobs.length;
      after = page.next ?? undefined;
    } while (left > 0 && after !== undefined && !isOnePage);
  }

  /** Everything that is known of one job; null where there is no such job. */
  details(job: string | { readonly id: string }): Promise<JobDetails | null> {
    return this.askMaybe<JobDetails>('job', idOf(job)) as Promise<JobDetails | null>;
  }

  /** The numbers of jobs by state. */
  async counts(conditions: Conditions = {}): Promise<Record<string, number>> {
    return (await this.ask<{ states: Record<string, number> }>('count_jobs', asQuery(conditionsOf(conditions)))).states;
  }

  /** Cancels jobs that have not ended: these, or those that match. How many that were. */
  cancel(...jobs: Selected): Promise<number> {
    return this.change('cancel', jobs);
  }

  /** Lets dead, cancelled or expired jobs run again, with all their attempts. How many that were. */
  retry(...jobs: Selected): Promise<number> {
    return this.change('retry', jobs);
  }

  /** Ends dead jobs as cancelled: they no longer count as dead. How many that were. */
  discard(...jobs: Selected): Promise<number> {
    return this.change('discard', jobs);
  }

  /** Gives jobs that have not ended another priority. How many that were. */
  prioritise(priority: number, ...jobs: Selected): Promise<number> {
    return this.change('prioritise', jobs, { priority });
  }

  /** Pauses jobs that have not ended, until they are resumed by the same reason. How many that were. */
  pauseJobs(reason: string, ...jobs: Selected): Promise<number> {
    return this.change('pause_jobs', jobs, { reason });
  }

  /** Ends the jobs' pauses of this reason. How many jobs that were. */
  resumeJobs(reason: string, ...jobs: Selected): Promise<number> {
    return this.change('resume_jobs', jobs, { reason });
  }

  private async change(what: string, jobs: Selected, members: object = {}): Promise<number> {
    return (await this.ask<{ changed: number }>(what, { ...members, ...selectionOf(jobs) })).changed;
  }

  // --- flows ---

  /**
   * Sends an event to a flow, which awaits it by `flow.event`; whether the flow had not ended. One that it does not await yet is kept
   * for it.
   */
  async sendEvent(flow: string | { readonly id: string }, name: string, value?: unknown): Promise<boolean> {
    const [receipt] = await this.sendEvents([{ flow, name, value }]);
    if (receipt === 'unknown') throw new NotFound(`job ${idOf(flow)} does not exist, or was pruned`);
    if (receipt === 'full') {
      throw new StoreError(`the event ${shown(name)} is not sent: flow ${idOf(flow)} has 1,000 events that it has not awaited`);
    }
    return receipt !== 'ended';
  }

  /**
   * Sends events to flows: what became of each. A thousand are one transaction, fewer if they are large. `job` says of which kind a
   * flow is that is named by its key, where several open jobs have this key. If it fails on the way, the first events are sent, and
   * the error is a `SendFailed` with their receipts.
   */
  async sendEvents(events: Iterable<FlowEvent>, options: { job?: KindOf } = {}): Promise<EventReceipt[]> {
    checkNames('app.sendEvents(…)', options, ['job']);
    const kind = kindOf(options.job), backend = await this.backend();
    const texts: string[] = [], receipts: EventReceipt[] = [];
    let characters = 0;
    const send = async (): Promise<void> => {
      if (texts.length === 0) return;
      const answer = await backend.ask('send_events', '', `{"events":[${texts.join(',')}]}`);
      texts.length = characters = 0;
      receipts.push(...(JSON.parse(answer) as { events: { receipt: EventReceipt }[] }).events.map((event) => event.receipt));
    };
    try {
      for (const { flow, key, name, value, ...others } of events) {
        checkNames('an event', others, ['flow', 'key', 'name', 'value']);
        const address = flow === undefined ? { key, kind } : { job: idOf(flow), key };
        const text = `${JSON.stringify({ ...address, name }).slice(0, -1)},"value":${encode(value, 'value', this.bigints)}}`;
        if (characters + text.length > EVENTS_CHARACTERS) await send();
        texts.push(text);
        characters += text.length;
        if (texts.length === EVENTS_PER_REQUEST) await send();
      }
      await send();
    } catch (error) {
      if (receipts.length === 0) throw error;
      throw new SendFailed(`${(error as Error).message}; the first ${receipts.length} events are sent: send the events behind them ` +
        'again; `receipts` of this error says what became of the first ones', receipts, { cause: error });
    }
    return receipts;
  }

  /** The flows of a name or a kind ("document", "document@3"), by id, read a page at a time, each with what it waits for. */
  async *flows(options: {
    flow?: string; states?: string | readonly string[]; queue?: string; noWorker?: boolean;
  } = {}): AsyncGenerator<FlowRow, void, undefined> {
    const { flow, states, queue, noWorker, ...others } = options;
    checkNames('app.flows(…)', others, ['flow', 'states', 'queue', 'noWorker']);
    const query = { ...asQuery(conditionsOf({ states, queue })), flow, no_worker: noWorker };
    let after: string | undefined;
    do {
      const page: { flows: FlowRow[]; next?: string } = await this.ask('flows', { ...query, after, limit: PAGE_FLOWS });
      yield* page.flows;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  /** The numbers of flows by name, version, queue and state. A kind is listed once one of its jobs has waited. */
  async flowKinds(options: { flow?: string; queue?: string; noWorker?: boolean } = {}): Promise<FlowCounts[]> {
    const { flow, queue, noWorker, ...others } = options;
    checkNames('app.flowKinds(…)', others, ['flow', 'queue', 'noWorker']);
    return (await this.ask<{ kinds: FlowCounts[] }>('flow_kinds', { flow, queue, no_worker: noWorker })).kinds;
  }

  /** The steps of a flow, in the order in which it asked for them, read a page at a time. A map is one step. */
  async *steps(flow: string | { readonly id: string }): AsyncGenerator<FlowStep, void, undefined> {
    let from: number | undefined;
    do {
      const page: { steps: FlowStep[]; next?: number } = await this.ask('steps', { from, limit: PAGE_ROWS }, idOf(flow));
      yield* page.steps;
      from = page.next ?? undefined;
    } while (from !== undefined);
  }

  /**
   * Forks flows that have ended: these, or those that match, at most 10,000. A fork is a new instance with the outcomes of all steps
   * that the flow began before the step `from`, by its name or its number in `steps`; this step and what follows run again. Each flow
   * with its fork, or with the reason why there is none.
   */
  async forkFlows(
    from: string | number, options: ForkOptions, ...flows: Selected
  ): Promise<ForkedFlow[]> {
    const { stepKey, version, ...others } = options;
    checkNames('app.forkFlows(…)', others, ['stepKey', 'version']);
    return (await this.ask<{ flows: ForkedFlow[] }>('fork_flows', { from, step_key: stepKey, version, ...selectionOf(flows) })).flows;
  }

  // --- schedules ---

  /** All schedules, by name. */
  async *schedules(): AsyncGenerator<Schedule, void, undefined> {
    for (let after: string | undefined; ;) {
      const page = (await this.ask<{ schedules: Schedule[] }>('schedules', { after, limit: PAGE_ROWS })).schedules;
      yield* page;
      if (page.length < PAGE_ROWS) return;
      after = page.at(-1)!.schedule;
    }
  }

  /** The schedule of this name; null where there is none. */
  findSchedule(name: string): Promise<Schedule | null> {
    return this.askMaybe<Schedule>('schedule', name) as Promise<Schedule | null>;
  }

  /** Lets a schedule submit nothing, until it is resumed or that moment has come. */
  pauseSchedule(name: string, options: { until?: Date } = {}): Promise<Schedule> {
    return this.ask('pause_schedule', { until: momentMs(options.until, 'until') }, name);
  }

  /** Ends the pause of a schedule. Moments that passed meanwhile are skipped. */
  resumeSchedule(name: string): Promise<Schedule> {
    return this.ask('resume_schedule', {}, name);
  }

  /** Submits the job of a schedule now. */
  triggerSchedule(name: string): Promise<Schedule> {
    return this.ask('trigger_schedule', {}, name);
  }

  /** Deletes a schedule; whether there was one. Its jobs stay. */
  async deleteSchedule(name: string): Promise<boolean> {
    return await this.askMaybe<null>('delete_schedule', name, true) !== null;
  }

  // --- pauses, limits, shares ---

  /** Lets workers claim no jobs of a scope. Pauses of several reasons stack. Running jobs go on. */
  async pause(reason: string, options: Scope & { until?: Date } = {}): Promise<void> {
    const { until, ...scope } = options;
    await this.putControl({ pause: { reason, until: momentMs(until, 'until') } }, scope);
  }

  /** Ends the pause of this reason and exactly this scope; whether there was one. */
  async resume(reason: string, scope: Scope = {}): Promise<boolean> {
    return await this.liftControls({ effects: ['pause'], reason, scope: scopeOf(scope) }) > 0;
  }

  /** Limits how many jobs of a scope run at once, or how many begin in a time. */
  async limit(limit: Limit, scope: Scope = {}): Promise<void> {
    const { running, ...rate } = limit;
    if (running !== undefined) wholeNumber('running', running, 0, RUNNING_MAX);
    const effect = running !== undefined ? { concurrency: { jobs_max: running } } : { rate: rateOf(rate as Limit & { rate: number }) };
    await this.putControl(effect, scope);
  }

  /** Gives a queue or a group a share of the claims; while fewer than `minimum` of its jobs run, it comes first. */
  async share(share: { weight?: number; minimum?: number }, scope: Scope): Promise<void> {
    await this.putControl({ share: { weight: share.weight ?? 1, jobs_min: share.minimum ?? 0 } }, scope);
  }

  /**
   * Lifts limits, pauses and shares: those of these effects ("pause", "concurrency", "rate", "share", "aging"), of this reason and
   * of exactly this scope. How many that were.
   */
  lift(options: { effects?: readonly string[]; reason?: string; scope?: Scope }): Promise<number> {
    const { scope, ...others } = options;
    return this.liftControls({ ...others, scope: scope && scopeOf(scope) });
  }

  /** All pauses, limits, shares and agings, by age. */
  async controls(): Promise<Control[]> {
    return (await this.ask<{ controls: Control[] }>('controls')).controls;
  }

  private async putControl(effect: object, scope: Scope): Promise<void> {
    await this.ask('put_controls', { controls: [{ scope: scopeOf(scope), effect }] });
  }

  private async liftControls(request: object): Promise<number> {
    return (await this.ask<{ lifted: number }>('lift_controls', request)).lifted;
  }

  // --- watching ---

  /**
   * Events of all processes that use the store, in commit order: from now on, or after the cursor of an event. They are kept for
   * an hour after the last listener. The iterator listens from the call on; `break` ends it.
   */
  events(options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<JobEvent, void, undefined> {
    const listening = this.backend().then((backend) => backend.events(options.after ?? null));
    listening.catch(() => {});
    const state = { isClosed: false };
    return closable(eventsOf(listening, state, options.signal), () => {
      state.isClosed = true;
      listening.then((source) => source.close()).catch(() => {});
    });
  }

  /** How many jobs ended, how, and how long they took: of all time, or of each hour or day, the latest first. */
  async history(options: { job?: KindOf; queue?: string; since?: Date; until?: Date; by?: 'all' | 'hour' | 'day' } = {}): Promise<
    readonly Record<string, unknown>[]
  > {
    const { job, queue, since, until, by = 'all' } = options;
    const query = { kind: kindOf(job), queue, since: momentMs(since, 'since'), until: momentMs(until, 'until'), by };
    return (await this.ask<{ rows: Record<string, unknown>[] }>('history', query)).rows;
  }

  /** The work that is left for workers, as `GET /backlog` has it. */
  backlog(options: { job?: KindOf; queue?: string } = {}): Promise<Record<string, number>> {
    return this.ask('backlog', { kind: kindOf(options.job), queue: options.queue });
  }

  /** Totals of the store, as `GET /stats` has them. */
  stats(): Promise<Record<string, unknown>> {
    return this.ask('stats');
  }
}

/** The highest limit of running jobs that a store keeps. */
const RUNNING_MAX = 2 ** 32 - 1;

function rateOf({ rate, per = '1s', burst = rate }: { rate: number; per?: Span; burst?: number }): object {
  return { jobs: rate, period_ms: milliseconds(per, '`per`'), burst };
}

async function* eventsOf(
  listening: Promise<{ take(signal?: AbortSignal): Promise<string[]>; close(): void }>,
  state: { readonly isClosed: boolean },
  signal: AbortSignal | undefined,
): AsyncGenerator<JobEvent, void, undefined> {
  const source = await listening;
  try {
    const isOver = (): boolean => state.isClosed || signal?.aborted === true;
    while (!isOver()) {
      for (const event of await source.take(signal)) {
        if (isOver()) return;
        yield JSON.parse(event) as JobEvent;
      }
    }
  } finally {
    source.close();
  }
}
