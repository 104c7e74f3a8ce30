// A worker's ways to a server: claims and reports as JSON, as workers in any language send them.

import { AnswerTooLarge, type Channel, type Message, type Plan, type Question, type Suspended } from '../backend.js';
import { InvalidValue, NotFound, StoreError, WorkerError } from '../errors.js';
import { Unreadable, decode, farNumber, mayHaveFar } from '../values/decode.js';
import { type Identity, positionsOf } from '../work/context.js';
import type { Described } from '../work/describe.js';
import { type Connection, pause } from './connection.js';

/** The longest wait of a claim for a job. Milliseconds. */
const CLAIM_WAIT_MS = 20_000;
// Jobs of one claim and outcomes of one report at most.
const CLAIM_JOBS_MAX = 1_000, REPORT_OUTCOMES_MAX = 1_000;
/** Jobs whose children's outcomes one request asks for at most, and such requests at a time. */
const FINALIZED_JOBS_MAX = 256, CHILDREN_ASKED_MAX = 8;
/** The outcomes of the children of a job, at most, as in other stores. Those of several jobs are asked for apart where they are more. */
const FINALIZING_BYTES_MAX = 64 << 20;
/** The work that is held beyond the free slots, as the time to run it. */
const WINDOW_MS = 200;
/** The pause after a claim or a report that failed. Milliseconds. */
const AGAIN_MS = 1_000;
/** Reports that fail for this long end the worker: others have its jobs. Milliseconds. */
const REPORTS_FAIL_MS_MAX = 60_000;
/** Outcomes of one report, about: a server takes 32 MiB, and logs of 16 MiB. A character has three bytes at most. */
const REPORT_CHARACTERS_MAX = 8 << 20;

/** Whether a request may succeed later: the server was not reached, is busy, or a proxy has lost it. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof StoreError)) return true;
  return error.status === undefined || error.status === 429 || error.status >= 500;
}

/** One outcome, as JSON: the members that name its job, and those that tell its end. */
interface Outcome {
  readonly head: string;
  readonly end: string;
  /** Whether it stands for an outcome that the server refused. */
  readonly isRefusal?: boolean;
}

interface ClaimedJob {
  job: string;
  lease: number;
  attempt: number;
  kind: string;
  queue: string;
  group?: string;
  payload: unknown;
  timeout_ms?: number;
  deadline?: number;
  traceparent?: string;
  key?: string;
  tags?: Record<string, string>;
  memo?: unknown;
}

interface Claimed {
  worker: number;
  heartbeat_every_ms: number;
  jobs: ClaimedJob[];
  cancelled: string[];
}

interface Held {
  worker: number;
  job: ClaimedJob;
  /** Whether it was cancelled before the outcomes of its children had come. */
  isCancelled?: boolean;
}

/** A worker of a server. @internal */
export class RemoteChannel implements Channel {
  private messages: Message[] = [];
  private worker: number | null = null;
  private next = 0;
  /** The unanswered jobs of each micro-batch, by place. */
  private readonly microBatches = new Map<number, (Held | undefined)[]>();
  /** Where each unanswered job is, by its id. */
  private readonly places = new Map<string, { number: number; place: number }>();
  /** The outcomes of each worker that are not reported. */
  private readonly outcomes = new Map<number, Outcome[]>();
  private readonly stopping = new AbortController();
  private stirred: (() => void) | null = null;
  private failure: Error | null = null;
  private readonly totals = { completed: 0, failed: 0 };
  private readonly ending: Promise<{ completed: number; failed: number }>;
  private readonly slots: number;
  private endedLately = 0;
  private windowJobs = 0;
  private heartbeatEveryMs = 5_000;
  private isReporting = false;
  /** Requests for the outcomes of children that are under way, and those that wait for their turn. */
  private asking = 0;
  private readonly askers: (() => void)[] = [];
  /** Reports that the server has accepted. They may have made jobs claimable that a claim under way has not seen. */
  private reportsCount = 0;
  /** Whether an answer has not come that may have named cancelled jobs. The server names each of them once. */
  private hasLostNotices = false;

  constructor(private readonly connection: Connection, private readonly plan: Plan, private readonly wake: () => void) {
    this.slots = plan.kinds.reduce((sum, kind) => sum + kind.concurrency, 0);
    this.ending = this.run();
    this.ending.catch(() => {});
  }

  take(): Message[] {
    const { messages } = this;
    this.messages = [];
    return messages;
  }

  stop(): void {
    this.stopping.abort();
    for (const number of this.microBatches.keys()) this.push({ what: 'drain', number, kind: 0, count: 0 });
    this.stir();
  }

  ended(): Promise<{ completed: number; failed: number }> {
    return this.ending;
  }

  progress(): void {
    // Only a report of an outcome reaches the server in this way.
  }

  fail(_: number, reason: string): void {
    this.failure ??= new WorkerError(reason);
    this.stop();
  }

  async ask(about: Question, job: string): Promise<string> {
    const at = this.places.get(job);
    const worker = (at === undefined ? undefined : this.microBatches.get(at.number)?.[at.place]?.worker) ?? this.worker;
    if (worker === null) throw new StoreError(`the worker has lost the job ${job} to another one, and cannot ask about it`);
    const target = `/workers/${worker}/${about}`;
    const answer = await this.connection.send('POST', target, { body: JSON.stringify({ job }), isRepeatable: true });
    if (about === 'step') return JSON.stringify((JSON.parse(answer) as { step?: object }).step ?? null);
    return memberOf(answer, 'outcomes');
  }

  answer(
    number: number, places: Uint32Array, durationsUs: Uint32Array, values: string, others: string | null,
    suspended: readonly Suspended[],
  ): void {
    const texts = places.length === 0 ? [] : values.slice(1, -1).split('\n,');
    const { failed = [], released = [], returned = [], logs = [] } = (others === null ? {} : JSON.parse(others)) as {
      failed?: { position: number; error: Described; duration_us: number }[];
      released?: number[];
      returned?: number[];
      logs?: { position: number; text: string }[];
    };
    const logOf = new Map(logs.map((log) => [log.position, log.text]));
    const logged = (place: number): string => {
      const text = logOf.get(place);
      return text === undefined ? '' : `,"log":${JSON.stringify(text)}`;
    };
    places.forEach((place, at) => {
      this.put(number, place, `"value":${texts[at]},"duration_ms":${durationsUs[at]! / 1000}${logged(place)}`);
      this.totals.completed++;
    });
    for (const { position, error, duration_us: durationUs } of failed) {
      this.put(number, position, `"error":${JSON.stringify(error)},"duration_ms":${durationUs / 1000}${logged(position)}`);
      this.totals.failed++;
    }
    for (const { position, durationUs, text } of suspended) {
      this.put(number, position, `"spawned":${text},"duration_ms":${durationUs / 1000}`);
    }
    for (const place of [...released, ...returned]) this.put(number, place, '"released":true');
    this.endedLately += places.length + failed.length + suspended.length;
    void this.report();
    this.stir();
  }

  private put(number: number, place: number, outcome: string): void {
    const held = this.microBatches.get(number)?.[place];
    if (held === undefined) return;
    this.microBatches.get(number)![place] = undefined;
    const { worker, job } = held;
    this.places.delete(job.job);
    const listed = this.outcomes.get(worker) ?? [];
    listed.push({ head: `"job":"${job.job}","lease":${job.lease},"attempt":${job.attempt}`, end: outcome });
    this.outcomes.set(worker, listed);
  }

  private push(message: Message): void {
    this.messages.push(message);
    // The worker takes messages in a turn of its own.
    if (this.messages.length === 1) queueMicrotask(this.wake);
  }

  private stir(): void {
    this.stirred?.();
    this.stirred = null;
  }

  private waitForStir(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.stirred = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  // --- claims ---

  private async run(): Promise<{ completed: number; failed: number }> {
    const measuring = setInterval(() => {
      this.windowJobs = Math.ceil((this.endedLately * WINDOW_MS) / 1_000);
      this.endedLately = 0;
    }, 1_000);
    let beatAt = performance.now();
    try {
      while (!this.stopping.signal.aborted) {
        const room = this.slots + this.windowJobs - this.places.size;
        if (room > 0 && !await this.claim(Math.min(room, CLAIM_JOBS_MAX))) break;
        if (room <= 0) await this.waitForStir(this.heartbeatEveryMs);
        if (performance.now() - beatAt >= this.heartbeatEveryMs && this.places.size > 0) {
          await this.beat();
          beatAt = performance.now();
        }
      }
      while (this.places.size > 0 || this.isReporting) {
        if (this.places.size > 0 && this.hasLostNotices) await this.beat();
        await this.waitForStir(this.heartbeatEveryMs);
        if (this.places.size > 0) await this.beat();
      }
    } finally {
      clearInterval(measuring);
      if (this.worker !== null) await this.connection.send('DELETE', `/workers/${this.worker}`).catch(() => {});
    }
    if (this.failure !== null) throw this.failure;
    return this.totals;
  }

  /** Claims jobs; false where the worker ends, because there are none. */
  private async claim(jobsMax: number): Promise<boolean> {
    const isIdle = this.places.size === 0 && !this.isReporting;
    const ends = this.plan.until !== 'stopped';
    const waitMs = ends ? 0 : isIdle ? CLAIM_WAIT_MS : Math.min(CLAIM_WAIT_MS, this.heartbeatEveryMs);
    const body = JSON.stringify({
      ...this.worker === null ? { name: this.plan.name } : { worker: this.worker },
      kinds: this.plan.kinds.map((kind) => kind.kind),
      queues: this.plan.queues,
      jobs_max: jobsMax,
      wait_ms: waitMs,
    });
    let answer: string;
    const { reportsCount } = this;
    try {
      answer = await this.connection.send('POST', '/claims', { body, waitMs, signal: this.stopping.signal });
    } catch (error) {
      this.hasLostNotices = true;
      if (this.stopping.signal.aborted) return true;
      if (error instanceof NotFound || isPassing(error)) {
        // Without an answer, the worker claims as a new one. The server releases the old one's jobs when it is silent. One that is
        // busy has claimed nothing.
        const { status } = error as StoreError;
        if (status !== 429 && status !== 503) this.worker = null;
        await pause(AGAIN_MS, this.stopping.signal);
        return true;
      }
      this.failure = error as Error;
      return false;
    }
    let claimed: number;
    try {
      claimed = this.deliver(answer);
    } catch (error) {
      this.failure ??= new StoreError(`the server's answer to a claim is not of Gristmill: ${(error as Error).message}; check its address`);
      return false;
    }
    if (claimed > 0 || !ends || this.reportsCount !== reportsCount) return true;
    if (this.places.size > 0) {
      // What runs may submit more.
      await this.waitForStir(this.heartbeatEveryMs);
      return true;
    }
    if (this.isReporting || this.outcomes.size > 0) {
      await this.waitForStir(AGAIN_MS);
      return true;
    }
    return false;
  }

  /** Hands claimed jobs to the worker; how many there were. */
  private deliver(answer: string): number {
    const claimed = decode(answer, 'claim', 'bigint', true) as Claimed;
    // A number that no handler can get refuses its own job, and not the claim.
    if (mayHaveFar(answer)) {
      const plain = JSON.parse(answer) as Claimed;
      claimed.jobs.forEach((job, at) => {
        const refusal = farNumber(plain.jobs[at]!.payload, 'payload');
        if (refusal !== null) job.payload = new Unreadable(refusal);
      });
    }
    this.worker = claimed.worker;
    this.heartbeatEveryMs = Number(claimed.heartbeat_every_ms);
    this.cancel(claimed.cancelled);
    const groups = new Map<string, ClaimedJob[]>();
    for (const job of claimed.jobs) {
      // The children of the jobs of a batch are asked for together.
      const name = `${job.kind}\n${job.timeout_ms ?? ''}\n${job.memo === undefined ? '' : job.job.split(':', 1)[0]}`;
      const group = groups.get(name);
      if (group === undefined) groups.set(name, [job]);
      else group.push(job);
    }
    for (const jobs of groups.values()) this.hand(jobs, claimed.worker);
    return claimed.jobs.length;
  }

  private hand(jobs: ClaimedJob[], worker: number): void {
    const number = this.next++;
    this.microBatches.set(number, jobs.map((job) => ({ worker, job })));
    jobs.forEach((job, place) => this.places.set(job.job, { number, place }));
    for (const [earlier, held] of this.microBatches) {
      if (held.every((one) => one === undefined)) this.microBatches.delete(earlier);
    }
    if (jobs[0]!.memo === undefined) this.begin(number, jobs, jobs.map((job) => job.payload), false);
    else void this.finalize(number, jobs, worker);
  }

  private begin(number: number, jobs: readonly ClaimedJob[], values: unknown[], isFinalizing: boolean): void {
    const { kind, timeout_ms: timeoutMs = 0 } = jobs[0]!;
    this.push({
      what: 'run',
      number,
      kind: this.plan.kinds.findIndex((one) => one.kind === kind),
      count: jobs.length,
      values,
      isFinalizing,
      identities: jobs.map(identityOf),
      timeoutMs,
    });
    const held = this.microBatches.get(number) ?? [];
    const places = [...held.keys()].filter((place) => held[place]?.isCancelled === true);
    if (places.length > 0) this.push({ what: 'cancel', number, kind: 0, count: 0, places });
  }

  /** Begins jobs of one batch whose children have ended, once their outcomes are known. Without them, the jobs go back. */
  private async finalize(number: number, jobs: readonly ClaimedJob[], worker: number): Promise<void> {
    if (this.asking < CHILDREN_ASKED_MAX) this.asking++;
    else await new Promise<void>((resolve) => this.askers.push(resolve));
    try {
      const values: unknown[] = [];
      for (let at = 0; at < jobs.length; at += FINALIZED_JOBS_MAX) {
        const some = jobs.slice(at, at + FINALIZED_JOBS_MAX);
        const children = await this.childrenOf(some, worker);
        some.forEach((job, at) => {
          const outcomes = children[at];
          values.push(job.payload instanceof Unreadable || outcomes instanceof Unreadable
            ? (outcomes instanceof Unreadable ? outcomes : job.payload)
            : [job.payload, job.memo, outcomes]);
        });
      }
      if (!this.stopping.signal.aborted) {
        this.begin(number, jobs, values, true);
        return;
      }
    } catch (error) {
      if (!isPassing(error) && !(error instanceof NotFound)) this.fail(0, `outcomes of children: ${(error as Error).message}`);
    } finally {
      // The next one has the turn of this one.
      const next = this.askers.shift();
      if (next === undefined) this.asking--;
      else next();
    }
    jobs.forEach((_, place) => this.put(number, place, '"released":true'));
    void this.report();
    this.stir();
  }

  /** The outcomes of the children of each of these jobs of one batch. */
  private async childrenOf(jobs: readonly ClaimedJob[], worker: number): Promise<unknown[]> {
    const [batch] = jobs[0]!.job.split(':', 1);
    // The answer has the order of the positions.
    const positions = jobs.map(({ job }) => Number(job.slice(batch!.length + 1)));
    const sorted = [...positions].sort((left, right) => left - right);
    const body = `{"batch":${batch},"positions":"${sorted.join(',')}"}`;
    let answer: string;
    try {
      const request = { body, isRepeatable: true, answerBytesMax: FINALIZING_BYTES_MAX };
      answer = await this.connection.send('POST', `/workers/${worker}/children`, request);
    } catch (error) {
      if (!(error instanceof AnswerTooLarge)) throw error;
      if (jobs.length === 1) {
        return [new Unreadable(new InvalidValue(`the outcomes of its children are too large: ${error.message}`, 'outcomes'))];
      }
      const half = Math.ceil(jobs.length / 2);
      return [...await this.childrenOf(jobs.slice(0, half), worker), ...await this.childrenOf(jobs.slice(half), worker)];
    }
    const { children } = decode(answer, 'children', 'bigint', true) as { children: unknown[] };
    if (mayHaveFar(answer)) {
      const plain = JSON.parse(answer) as { children: unknown[] };
      plain.children.forEach((outcomes, at) => {
        const refusal = farNumber(outcomes, 'outcomes');
        if (refusal !== null) children[at] = new Unreadable(refusal);
      });
    }
    return positions.map((position) => children[sorted.indexOf(position)]);
  }

  private cancel(jobs: readonly string[]): void {
    for (const job of jobs) {
      const at = this.places.get(job);
      if (at === undefined) continue;
      // Its micro-batch may wait for the outcomes of children.
      const held = this.microBatches.get(at.number)?.[at.place];
      if (held !== undefined) held.isCancelled = true;
      this.push({ what: 'cancel', number: at.number, kind: 0, count: 0, places: [at.place] });
    }
  }

  // --- reports ---

  private async report(): Promise<void> {
    if (this.isReporting) return;
    this.isReporting = true;
    let failingSince: number | null = null, outcomesMax = REPORT_OUTCOMES_MAX;
    // Outcomes of this turn of the event loop leave together.
    await pause(0);
    for (let next; (next = this.outcomes.entries().next().value) !== undefined;) {
      const [worker, listed] = next;
      const portion = portionOf(listed, outcomesMax);
      const texts = portion.map(({ head, end }) => `{${head},${end}}`);
      const body = `{"worker":${worker},"outcomes":[${texts.join(',')}]}`;
      try {
        const answer = await this.connection.send('POST', '/reports', { body, isRepeatable: true });
        this.cancel((JSON.parse(answer) as { cancelled: string[] }).cancelled);
        this.reportsCount++;
        failingSince = null;
        outcomesMax = REPORT_OUTCOMES_MAX;
      } catch (error) {
        failingSince ??= performance.now();
        if (isPassing(error) && performance.now() - failingSince < REPORTS_FAIL_MS_MAX) {
          await pause(AGAIN_MS);
          continue;
        }
        const { status } = error as StoreError;
        if (status === 400 || status === 403 || status === 413) {
          // One outcome is to blame, which is told as the error of its job.
          if (portion.length > 1) {
            outcomesMax = Math.ceil(portion.length / 2);
            continue;
          }
          if (portion[0]!.isRefusal !== true) {
            listed[0] = refusalOf(portion[0]!, error as Error);
            const { end } = portion[0]!;
            if (end.startsWith('"value"')) this.totals.completed--;
            if (end.startsWith('"value"') || end.startsWith('"spawned"')) this.totals.failed++;
            continue;
          }
        }
        // Other workers get these jobs, or have them.
        if (!(error instanceof NotFound)) this.fail(0, `outcomes cannot be reported: ${(error as Error).message}`);
      }
      if (portion.length === listed.length) this.outcomes.delete(worker);
      else listed.splice(0, portion.length);
    }
    this.isReporting = false;
    this.stir();
  }

  private async beat(): Promise<void> {
    try {
      if (this.worker !== null) {
        const answer = await this.connection.send('POST', `/workers/${this.worker}/heartbeat`, { body: '{}', isRepeatable: true });
        const { revoked, drain } = JSON.parse(answer) as { revoked: { batch: number; positions: string }[]; drain?: boolean };
        for (const { batch, positions } of revoked) {
          for (const position of positionsOf(String(positions))) this.cancel([`${batch}:${position}`]);
        }
        if (drain === true) this.stop();
      }
      if (this.hasLostNotices) await this.askForNotices();
    } catch (error) {
      this.hasLostNotices = true;
      if (error instanceof NotFound) this.worker = null;
    }
  }

  /** Cancels the jobs that run here and have ended at the server. */
  private async askForNotices(): Promise<void> {
    this.hasLostNotices = false;
    for (const job of [...this.places.keys()]) {
      let state: unknown = null;
      try {
        ({ state } = JSON.parse(await this.connection.send('GET', `/jobs/${job}`)) as { state?: unknown });
      } catch (error) {
        if (!(error instanceof NotFound)) throw error;
      }
      if (state !== 'running') this.cancel([job]);
    }
  }
}

/** The JSON of the only member of an object, with all digits of its numbers. */
function memberOf(answer: string, name: string): string {
  const found = new RegExp(`^\\s*{\\s*"${name}"\\s*:\\s*(.*)}\\s*$`, 's').exec(answer);
  if (found === null) throw new StoreError('the server\'s answer to a question is not of Gristmill; check its address');
  return found[1]!;
}

/** The outcomes of one report: at most so many, and not too long together. */
function portionOf(listed: readonly Outcome[], outcomesMax: number): Outcome[] {
  let count = 0, characters = 0;
  while (count < Math.min(listed.length, outcomesMax)) {
    characters += listed[count]!.head.length + listed[count]!.end.length;
    if (count > 0 && characters > REPORT_CHARACTERS_MAX) break;
    count++;
  }
  return listed.slice(0, count);
}

/** Stands for an outcome that the server refused. */
function refusalOf({ head }: Outcome, error: Error): Outcome {
  const described = { type: 'outcome', message: `the outcome cannot be stored: ${error.message}`, permanent: true };
  return { head, end: `"error":${JSON.stringify(described)},"duration_ms":0`, isRefusal: true };
}

function identityOf(job: ClaimedJob): Identity {
  return {
    id: job.job,
    attempt: job.attempt,
    key: job.key ?? null,
    batch: Number(job.job.split(':', 1)[0]),
    kind: job.kind,
    queue: job.queue,
    group: job.group ?? null,
    tags: Object.freeze(job.tags ?? {}),
    deadline: job.deadline === undefined ? null : job.deadline / 1000,
    traceparent: job.traceparent ?? null,
  };
}
