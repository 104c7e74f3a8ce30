// Jobs that came together, and their outcomes on the way back.

import type { Channel, Message, Question, Suspended } from '../backend.js';
import { type BigInts } from '../values/encode.js';
import { type What, decode, decodePacked, withRule } from '../values/decode.js';
import { type Identity, type JobContext, identitiesOf } from './context.js';
import type { Described } from './describe.js';

interface Others {
  failed: { position: number; error: Described; duration_us: number }[];
  released: number[];
  returned: number[];
  logs: { position: number; text: string }[];
}

/** The longest duration that the store holds: longer attempts have this one. */
const DURATION_US_MAX = 0xffffffff;

/** The parts of the payload of a job that finalizes. */
const OF_FINALIZING = ['payload', 'memo', 'outcomes'];

const microseconds = (durationMs: number): number => Math.min(DURATION_US_MAX, Math.round(durationMs * 1000));

/** The jobs of one message, by their places. @internal */
export class MicroBatch {
  readonly number: number;
  readonly count: number;
  readonly payloads: unknown[];
  readonly timeoutMs: number;
  /** Whether a payload is a list of the payload, the memo and the outcomes of the children, or a text that refuses the job. */
  readonly isFinalizing: boolean;
  /** The first job that has not begun. */
  next = 0;
  /** The jobs that run, by place. */
  readonly running: (JobContext<MicroBatch> | undefined)[] = [];
  /** Places of jobs that were cancelled before they began. */
  cancelled: Set<number> | null = null;
  isDirty = false;
  /** The jobs without an outcome. */
  private left: number;
  private identity: string | Identity[];
  private places: number[] = [];
  private durationsUs: number[] = [];
  private values: string[] = [];
  private isSorted = true;
  private others: Others | null = null;
  private suspended: Suspended[] = [];

  constructor(private readonly channel: Channel, message: Message, private readonly bigints: BigInts) {
    this.number = message.number;
    this.count = message.count;
    this.left = message.count;
    this.isFinalizing = message.isFinalizing ?? false;
    const what: What = this.isFinalizing ? OF_FINALIZING : 'payload';
    this.payloads = message.values === undefined
      ? decodePacked(message.payloads ?? '[]', what, bigints)
      : withRule(message.values, what, bigints);
    this.timeoutMs = message.timeoutMs ?? 0;
    this.identity = message.identities ?? message.identity ?? '';
  }

  /** Whether all jobs have an outcome. */
  get hasEnded(): boolean {
    return this.left === 0;
  }

  /** The identities of all jobs, read when the first one is asked for. */
  identities(): Identity[] {
    if (typeof this.identity === 'string') this.identity = identitiesOf(this.identity);
    return this.identity;
  }

  progress(place: number, progress: string): void {
    this.channel.progress(this.number, place, progress);
  }

  async ask(place: number, about: Question): Promise<unknown> {
    const answer = await this.channel.ask(about, this.identities()[place]!.id);
    return decode(answer, about, this.bigints);
  }

  complete(place: number, value: string, durationMs: number): void {
    this.left--;
    const { places } = this;
    if (places.length > 0 && places[places.length - 1]! > place) this.isSorted = false;
    places.push(place);
    this.durationsUs.push(microseconds(durationMs));
    this.values.push(value);
  }

  /** The job is a flow that waits. */
  suspend(place: number, text: string, durationMs: number): void {
    this.left--;
    this.suspended.push({ position: place, durationUs: microseconds(durationMs), text });
  }

  private get rest(): Others {
    this.others ??= { failed: [], released: [], returned: [], logs: [] };
    return this.others;
  }

  fail(place: number, error: Described, durationMs: number): void {
    this.left--;
    this.rest.failed.push({ position: place, error, duration_us: microseconds(durationMs) });
  }

  log(place: number, text: string): void {
    this.rest.logs.push({ position: place, text });
  }

  release(place: number): void {
    this.left--;
    this.rest.released.push(place);
  }

  /** Gives all jobs back that have not begun: to the store, or to the worker. */
  giveBack(to: 'released' | 'returned'): void {
    for (; this.next < this.count; this.next++, this.left--) this.rest[to].push(this.next);
  }

  /** Sends the outcomes since the last call. */
  flush(): void {
    this.isDirty = false;
    let { places, durationsUs, values } = this;
    const { others, suspended } = this;
    if (places.length === 0 && others === null && suspended.length === 0) return;
    if (!this.isSorted) {
      const order = places.map((_, at) => at).sort((left, right) => places[left]! - places[right]!);
      const [ofPlaces, ofDurations, ofValues] = [places, durationsUs, values];
      places = order.map((at) => ofPlaces[at]!);
      durationsUs = order.map((at) => ofDurations[at]!);
      values = order.map((at) => ofValues[at]!);
    }
    this.places = [];
    this.durationsUs = [];
    this.values = [];
    this.isSorted = true;
    this.others = null;
    this.suspended = [];
    const packed = `[${values.join('\n,')}]`;
    const answer = (others: Others | null): void => this.channel.answer(
      this.number, Uint32Array.from(places), Uint32Array.from(durationsUs), packed, others === null ? null : JSON.stringify(others),
      suspended,
    );
    try {
      answer(others);
    } catch (error) {
      // The engine refuses errors or logs. Without an answer, the jobs would run for ever.
      if (others === null) throw error;
      const refused = { type: 'outcome', message: `the error of the job cannot be stored: ${(error as Error).message}` };
      answer({ ...others, failed: others.failed.map((one) => ({ ...one, error: refused })), logs: [] });
    }
  }
}
