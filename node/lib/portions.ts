// Reads results whose bytes are too many for one answer, in portions.

import { type Backend, type ResultLine, isTooLarge } from './backend.js';
import { decode } from './values/decode.js';
import type { BigInts } from './values/encode.js';

/** The bytes of one portion, about: half of what an answer may have. */
const PORTION_BYTES = 16 << 20;
/** The jobs of one portion. A request names them. @internal */
export const PORTION_JOBS_MAX = 1_000;
/** Portions of a size after which a larger one is tried again, since a larger one was too large. */
const PORTIONS_BEFORE_LARGER = 8;

/** What is known of the jobs of one portion. @internal */
export interface Portion {
  /** The jobs that have ended. */
  lines: ResultLine[];
  /** The first positions of those that were given: the ones that were asked for. */
  asked: number;
  /** Of the answer, in UTF-8. */
  bytes: number;
}

const bytesIn = (text: string): number => new TextEncoder().encode(text).length;

/** Ascending positions as ranges, as in 0-99,120. */
function rangesOf(positions: readonly number[]): string {
  const ranges: string[] = [];
  for (let at = 0; at < positions.length;) {
    let end = at + 1;
    while (end < positions.length && positions[end] === positions[end - 1]! + 1) end++;
    ranges.push(end - at === 1 ? String(positions[at]) : `${positions[at]}-${positions[end - 1]}`);
    at = end;
  }
  return ranges.join(',');
}

/** The results of one batch, of as many jobs at once as one answer has room for. @internal */
export class Portions {
  private jobsMax: number;
  /** No portion has more jobs: twice as many were too large for one answer. */
  private ceiling: number;
  private portionsAtCeiling = 0;

  /** `jobs` are too many for one answer. */
  constructor(
    private readonly backend: Backend,
    private readonly batch: number,
    private readonly bigints: BigInts,
    jobs: number,
  ) {
    this.ceiling = this.jobsMax = Math.min(PORTION_JOBS_MAX, Math.max(1, jobs >> 1));
  }

  /** Reads the first of these jobs, whose positions ascend. Waits for them for a moment. */
  async read(positions: readonly number[], waitMs: number, signal?: AbortSignal): Promise<Portion> {
    for (;;) {
      const asked = positions.slice(0, this.jobsMax);
      try {
        const request = JSON.stringify({ batches: String(this.batch), positions: rangesOf(asked), wait_ms: Math.ceil(waitMs) });
        const answer = await this.backend.ask('results', '', request, signal);
        const lines = decode(answer, 'results', this.bigints) as ResultLine[];
        const bytes = bytesIn(answer);
        this.fitted(asked.length, lines.length, bytes);
        return { lines, asked: asked.length, bytes };
      } catch (error) {
        if (!isTooLarge(error)) throw error;
        if (asked.length === 1) return this.readOne(asked[0]!, waitMs, signal);
        this.ceiling = this.jobsMax = asked.length >> 1;
        this.portionsAtCeiling = 0;
      }
    }
  }

  /** Chooses the jobs of the next portion, by a portion that had room. The next jobs may have larger results than these. */
  private fitted(asked: number, found: number, bytes: number): void {
    if (asked >= this.ceiling && ++this.portionsAtCeiling === PORTIONS_BEFORE_LARGER) {
      this.ceiling = Math.min(PORTION_JOBS_MAX, 2 * this.ceiling);
      this.portionsAtCeiling = 0;
    }
    if (found === 0) return;
    const most = Math.floor(PORTION_BYTES / (bytes / found));
    this.jobsMax = Math.max(1, Math.min(this.ceiling, most));
  }

  /** A single job's outcome has room in an answer of its own, however large it is. */
  private async readOne(position: number, waitMs: number, signal?: AbortSignal): Promise<Portion> {
    const job = `${this.batch}:${position}`;
    const ended = await this.backend.waitJob(job, waitMs, signal);
    if (ended === null) return { lines: [], asked: 1, bytes: 0 };
    const { state, value, error } = ended;
    const line = { job, state, value: decode(value ?? 'null', 'results', this.bigints), ...error === null ? {} : { error } };
    return { lines: [line], asked: 1, bytes: bytesIn(value ?? '') };
  }
}
