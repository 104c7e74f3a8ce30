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

/** The characters of the values and of the flows of one answer, about. A text of V8 has 512 Mi at most. */
const ANSWER_CHARACTERS_MAX = 64 << 20;

/** The end of the portion of texts that begins at `from`: one at least, and not too many characters. */
function endOfPortion(lengths: readonly number[], from: number): number {
  let end = from, characters = 0;
  while (end < lengths.length) {
    characters += lengths[end]!;
    if (end > from && characters > ANSWER_CHARACTERS_MAX) break;
    end++;
  }
  return end;
}

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
    const [ofValues, ofFlows] = [values.map((text) => text.length), suspended.map(({ text }) => text.length)];
    let value = 0, flow = 0, rest = others;
    do {
      const [valueEnd, flowEnd] = [endOfPortion(ofValues, value), endOfPortion(ofFlows, flow)];
      const [some, someUs] = [places.slice(value, valueEnd), durationsUs.slice(value, valueEnd)];
      this.answer(some, someUs, values.slice(value, valueEnd), rest, suspended.slice(flow, flowEnd));
      [value, flow, rest] = [valueEnd, flowEnd, null];
    } while (value < values.length || flow < suspended.length);
  }

  /** Sends some outcomes. Without an answer, their jobs would run for ever, so what the engine refuses fails its job. */
  private answer(places: number[], durationsUs: number[], values: string[], others: Others | null, suspended: Suspended[]): void {
    const packed = `[${values.join('\n,')}]`;
    const send = (others: Others | null, suspended: Suspended[], hasValues: boolean): void => this.channel.answer(
      this.number, Uint32Array.from(hasValues ? places : []), Uint32Array.from(hasValues ? durationsUs : []), hasValues ? packed : '[]',
      others === null ? null : JSON.stringify(others), suspended,
    );
    const refusal = (what: string, error: unknown): Described => (
      { type: 'outcome', message: `${what} cannot be stored: ${(error as Error).message}` }
    );
    try {
      send(others, suspended, true);
      return;
    } catch (error) {
      if (others === null && suspended.length === 0) throw error;
      const refused = refusal('the error of the job', error);
      if (others !== null) others = { ...others, failed: others.failed.map((one) => ({ ...one, error: refused })), logs: [] };
    }
    if (others !== null || places.length > 0) send(others, [], true);
    for (const one of suspended) {
      try {
        send(null, [one], false);
      } catch (error) {
        const { position, durationUs } = one;
        const failed = [{ position, error: refusal('what the flow waits for', error), duration_us: durationUs }];
        send({ failed, released: [], returned: [], logs: [] }, [], false);
      }
    }
  }
}
