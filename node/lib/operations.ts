// The operations of an application on its store beside submitting and running jobs.

import type { Backend } from './backend.js';
import { closable } from './closable.js';
import { InvalidValue, NotFound, type Span, milliseconds } from './errors.js';
import { checkNames, momentMs } from './options.js';
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

/** Rows of one page of a listing. */
const PAGE_ROWS = 1_000;

/** Jobs, by id or handle, or conditions that they match. */
export type Selected = readonly (string | { readonly id: string })[] | [Conditions];

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
    return this.askMaybe<JobDetails>('job', typeof job === 'string' ? job : job.id) as Promise<JobDetails | null>;
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
    const selection = isJobs(jobs)
      ? { jobs: jobs.map((job) => (typeof job === 'string' ? job : job.id)) }
      : { filter: conditionsOf(jobs[0]!) };
    return (await this.ask<{ changed: number }>(what, { ...members, ...selection })).changed;
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
