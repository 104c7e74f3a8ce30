// A job as its handler sees it.

import type { Question } from '../backend.js';
import { encode } from '../values/encode.js';
import { clean } from './describe.js';

/** How far a job is. */
export interface Progress {
  /** The finished work, in any unit. */
  done?: number;
  /** The total work, in the same unit. */
  total?: number;
  /** From 0 to 1; without it, `done` of `total` counts. */
  fraction?: number;
  message?: string;
}

/** A job's word on how far it is, at most this often. */
const PROGRESS_EVERY_MS = 10;
/** The longest log of one job. A longer one is cut. @internal */
export const LOG_CHARACTERS_MAX = 60_000;

/** Where a job came from. */
export interface JobSource {
  /** @internal */
  identities(): readonly Identity[];
  /** @internal */
  progress(place: number, progress: string): void;
  /** @internal */
  ask(place: number, about: Question): Promise<unknown>;
}

/** The place of a job in the flow that began it. */
export interface StepPlace {
  /** The id of the flow, its name and its version. */
  readonly id: string;
  readonly name: string;
  readonly version: string | null;
  /** The name of the step, and its key. */
  readonly step: string | null;
  readonly key: string | null;
  /** The number of the job in a map. */
  readonly item: number | null;
}

/** How a job ended: with a value, or in another state, perhaps with an error. */
export interface Outcome<Value = unknown> {
  readonly job: string;
  readonly state: 'completed' | 'dead' | 'cancelled' | 'expired';
  readonly value?: Value;
  readonly error?: { readonly type: string; readonly message: string; readonly traceback?: string };
}

/** The job that runs. */
export class JobContext<Source extends JobSource = JobSource> {
  /** @internal */
  isAnswered = false;
  /** @internal */
  begunAt = 0;
  /** @internal */
  timer: ReturnType<typeof setTimeout> | undefined = undefined;
  /** Called when a process of the handler begins the job. @internal */
  onBegun: (() => void) | null = null;
  /** @internal */
  logged = '';
  private controller: AbortController | undefined = undefined;
  private saidAt = -Infinity;

  /** @internal */
  constructor(
    /** @internal */
    readonly microBatch: Source,
    /** @internal */
    readonly place: number,
  ) {}

  /** The id of the job, such as "42:7": the same on every attempt. */
  get id(): string {
    return this.identity.id;
  }

  /** The number of this attempt, from 1. */
  get attempt(): number {
    return this.identity.attempt;
  }

  /** The batch of the job. */
  get batch(): number {
    return this.identity.batch;
  }

  /** The kind of the job. */
  get kind(): string {
    return this.identity.kind;
  }

  /** The queue of the job. */
  get queue(): string {
    return this.identity.queue;
  }

  /** The deduplication key; null for a job without. */
  get key(): string | null {
    return this.identity.key;
  }

  /** The tenant; null for a job without. */
  get group(): string | null {
    return this.identity.group;
  }

  /** The tags of the job. */
  get tags(): Readonly<Record<string, string>> {
    return this.identity.tags;
  }

  /** The time by which the job has to have completed; null without one. */
  get deadline(): Date | null {
    return this.identity.deadline === null ? null : new Date(this.identity.deadline * 1000);
  }

  /** The trace context of the job; null without one. */
  get traceparent(): string | null {
    return this.identity.traceparent;
  }

  /** Aborts when the attempt exceeds its timeout, or when the job is cancelled. */
  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    return this.controller.signal;
  }

  /** The flow that began the job as a step; null for other jobs. It is read from the store. */
  async flow(): Promise<StepPlace | null> {
    const known = await this.microBatch.ask(this.place, 'step') as Partial<StepPlace> | null;
    return known === null ? null : Object.freeze({ version: null, step: null, key: null, item: null, ...known } as StepPlace);
  }

  /** The outcomes of the jobs for which the job waited (`after`), at most 16 MiB. They are read from the store. */
  async prerequisites(): Promise<Outcome[]> {
    return await this.microBatch.ask(this.place, 'prerequisites') as Outcome[];
  }

  /** Tells how far the job is. It may be called as often as the job likes. */
  progress(progress: Progress): void {
    const now = performance.now();
    if (this.isAnswered || now - this.saidAt < PROGRESS_EVERY_MS) return;
    this.saidAt = now;
    const { message } = progress;
    const told = typeof message === 'string' ? { ...progress, message: clean(message) } : progress;
    this.microBatch.progress(this.place, encode(told, 'progress', 'error'));
  }

  /** Adds a line to the log of this attempt, which the store keeps with the outcome. */
  log(line: string): void {
    const left = LOG_CHARACTERS_MAX - this.logged.length;
    if (left > 0) this.logged += clean(`${line}\n`.slice(0, left));
  }

  /** Why the job is to end; null while it is not. @internal */
  get reason(): Error | null {
    return this.controller?.signal.aborted === true ? this.controller.signal.reason as Error : null;
  }

  /** @internal */
  abort(reason: Error): void {
    this.controller ??= new AbortController();
    this.controller.abort(reason);
  }

  /** @internal */
  get identity(): Identity {
    return this.microBatch.identities()[this.place]!;
  }
}

/** What a worker knows of a job. @internal */
export interface Identity {
  id: string;
  attempt: number;
  key: string | null;
  batch: number;
  kind: string;
  queue: string;
  group: string | null;
  tags: Readonly<Record<string, string>>;
  deadline: number | null;
  traceparent: string | null;
}

interface Part {
  batch: number;
  attempt: number;
  queue: string;
  positions: string;
  group?: string;
  deadline?: number;
  traceparent?: string;
  keys?: (string | null)[];
  tags?: [name: string, value: string, positions: string | null][];
}

/** The positions of a text such as 0-3,7. @internal */
export function* positionsOf(positions: string): Generator<number, void, undefined> {
  for (const run of positions.split(',')) {
    const [first, last = first] = run.split('-').map(Number) as [number, number?];
    for (let position = first; position <= last; position++) yield position;
  }
}

/** The identities of the jobs of a micro-batch, in the order of their places. @internal */
export function identitiesOf(json: string): Identity[] {
  const { kind, parts } = JSON.parse(json) as { kind: string; parts: Part[] };
  const found: Identity[] = [];
  for (const { batch, attempt, queue, positions, group = null, deadline = null, traceparent = null, keys, tags = [] } of parts) {
    // Entries, not properties: a tag may have any name.
    const ofAll: [string, string][] = [], ofSome = new Map<number, [string, string][]>();
    for (const [name, value, having] of tags) {
      if (having === null) {
        ofAll.push([name, value]);
        continue;
      }
      for (const position of positionsOf(having)) {
        const own = ofSome.get(position);
        if (own === undefined) ofSome.set(position, [[name, value]]);
        else own.push([name, value]);
      }
    }
    let place = 0;
    for (const position of positionsOf(positions)) {
      const key = keys?.[place++] ?? null;
      const own = Object.freeze(Object.fromEntries([...ofAll, ...ofSome.get(position) ?? []]));
      found.push({ id: `${batch}:${position}`, attempt, key, batch, kind, queue, group, tags: own, deadline, traceparent });
    }
  }
  return found;
}
