// Jobs that came together, and their outcomes on the way back.

import type { Channel, Message } from '../backend.js';
import { type BigInts } from '../values/encode.js';
import { decodePacked, withRule } from '../values/decode.js';
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

const microseconds = (durationMs: number): number => Math.min(DURATION_US_MAX, Math.round(durationMs * 1000));

/** The jobs of one message, by their places. @internal */
export class MicroBatch {
  readonly number: number;
  readonly count: number;
  readonly payloads: unknown[];
  readonly timeoutMs: number;
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

  constructor(private readonly channel: Channel, message: Message, bigints: BigInts) {
    this.number = message.number;
    this.count = message.count;
    this.left = message.count;
    this.payloads = message.values === undefined
      ? decodePacked(message.payloads ?? '[]', 'payload', bigints)
      : withRule(message.values, 'payload', bigints);
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

  complete(place: number, value: string, durationMs: number): void {
    this.left--;
    const { places } = this;
    if (places.length > 0 && places[places.length - 1]! > place) this.isSorted = false;
    places.push(place);
    this.durationsUs.push(microseconds(durationMs));
    this.values.push(value);
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
    const { others } = this;
    if (places.length === 0 && others === null) return;
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
    const packed = `[${values.join('\n,')}]`;
    const answer = (others: Others | null): void => this.channel.answer(
      this.number, Uint32Array.from(places), Uint32Array.from(durationsUs), packed, others === null ? null : JSON.stringify(others),
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
