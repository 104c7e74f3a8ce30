// A server's store, over HTTP. Runs in Node, Deno and Bun, and wherever there is `fetch`.

import type { Backend, Channel, Ended, EventSource, Plan, RunPlan } from '../backend.js';
import { type JobErrorDescription, NotFound, StoreError } from '../errors.js';
import { type MapRun, RemoteRun } from '../map.js';
import { decode } from '../values/decode.js';
import { encode } from '../values/encode.js';
import { RemoteChannel } from './channel.js';
import { Connection } from './connection.js';
import { RemoteEvents } from './events.js';

/** The method and path of each operation; {} stands for what it is about. */
const OPERATIONS: Record<string, readonly [method: string, path: string]> = {
  submit: ['POST', '/jobs'],
  jobs: ['GET', '/jobs'],
  count_jobs: ['GET', '/jobs/count'],
  job: ['GET', '/jobs/{}'],
  tag_values: ['GET', '/tags/{}'],
  cancel: ['POST', '/jobs/cancel'],
  retry: ['POST', '/jobs/retry'],
  discard: ['POST', '/jobs/discard'],
  prioritise: ['POST', '/jobs/prioritise'],
  pause_jobs: ['POST', '/jobs/pause'],
  resume_jobs: ['POST', '/jobs/resume'],
  send_events: ['POST', '/jobs/events'],
  flows: ['GET', '/flows'],
  flow_kinds: ['GET', '/flows/kinds'],
  steps: ['GET', '/jobs/{}/steps'],
  fork_flows: ['POST', '/jobs/fork'],
  results: ['GET', '/results'],
  schedules: ['GET', '/schedules'],
  schedule: ['GET', '/schedules/{}'],
  put_schedule: ['PUT', '/schedules/{}'],
  pause_schedule: ['POST', '/schedules/{}/pause'],
  resume_schedule: ['POST', '/schedules/{}/resume'],
  trigger_schedule: ['POST', '/schedules/{}/trigger'],
  delete_schedule: ['DELETE', '/schedules/{}'],
  controls: ['GET', '/controls'],
  put_controls: ['PUT', '/controls'],
  lift_controls: ['POST', '/controls/lift'],
  history: ['GET', '/history'],
  backlog: ['GET', '/backlog'],
  stats: ['GET', '/stats'],
};

/** Results are read in portions where one answer would have more. Bytes. */
const RESULT_BYTES_MAX = 32 << 20;
const FINAL = ['completed', 'dead', 'cancelled', 'expired'];
/** The first wait for the end of a job; each further one is twice as long. Its batch may have jobs of others. */
const WAIT_MS_FIRST = 100;

interface JobView {
  state: string;
  value?: unknown;
  failures?: JobErrorDescription[];
}

const closed = (): StoreError => new StoreError('the events ended: the application was closed');

/** A server. @internal */
class RemoteBackend implements Backend {
  private readonly listeners = new Set<RemoteEvents>();
  private isClosed = false;

  constructor(private readonly connection: Connection) {}

  nowMs(): number {
    return Date.now();
  }

  async ask(operation: string, subject: string, request: string, signal?: AbortSignal): Promise<string> {
    const found = OPERATIONS[operation];
    if (found === undefined) throw this.needsStore(`\`${operation}\``);
    const [method, path] = found;
    let target = path.replace('{}', encodeURIComponent(subject));
    let waitMs = 0;
    if (method === 'GET') {
      const given = JSON.parse(request) as Record<string, string | number | boolean>;
      const words = new URLSearchParams(Object.entries(given).map(([name, value]) => [name, String(value)]));
      waitMs = Number(given.wait_ms ?? 0);
      if (words.size > 0) target += `?${words}`;
    }
    const hasBody = method === 'POST' || method === 'PUT';
    const limit = operation === 'results' ? { answerBytesMax: RESULT_BYTES_MAX } : {};
    const answer = await this.connection.send(method, target, { ...hasBody ? { body: request } : {}, ...limit, waitMs, signal });
    if (operation === 'results') return `[${answer.trimEnd().split('\n').join(',')}]`;
    return answer === '' ? '{}' : answer;
  }

  async waitJob(job: string, waitMs: number, signal?: AbortSignal): Promise<Ended | null> {
    const untilMs = performance.now() + waitMs;
    for (let turnMs = WAIT_MS_FIRST; ; turnMs *= 2) {
      const ended = await this.endOf(job, signal);
      if (ended !== null) return ended;
      const leftMs = Math.min(turnMs, untilMs - performance.now());
      if (leftMs < 1) return null;
      const target = `/results?batches=${job.split(':', 1)[0]}&wait_ms=${Math.ceil(leftMs)}`;
      // The answer to HEAD has none of the values.
      await this.connection.send('HEAD', target, { waitMs: leftMs, signal });
    }
  }

  private async endOf(job: string, signal?: AbortSignal): Promise<Ended | null> {
    let answer: string;
    try {
      answer = await this.ask('job', job, '{}', signal);
    } catch (error) {
      if (error instanceof NotFound) throw new NotFound(`job ${job} does not exist, or was pruned`);
      throw error;
    }
    const view = decode(answer, 'job', 'bigint', true) as JobView;
    if (!FINAL.includes(view.state)) return null;
    const isCompleted = view.state === 'completed';
    return {
      state: view.state,
      value: isCompleted ? encode(view.value, 'result', 'bigint') : null,
      error: isCompleted ? null : view.failures?.at(-1) ?? null,
    };
  }

  async events(after: string | null): Promise<EventSource> {
    const events = await RemoteEvents.listen(this.connection, after, () => this.listeners.delete(events));
    this.listeners.add(events);
    if (this.isClosed) events.close(closed());
    return events;
  }

  async startWorker(plan: Plan, wake: () => void): Promise<Channel> {
    return new RemoteChannel(this.connection, plan, wake);
  }

  async beginRun(plan: RunPlan): Promise<MapRun> {
    if (!(JSON.parse(plan.description) as { is_unnamed?: boolean }).is_unnamed) throw this.needsStore('a map with a name');
    return new RemoteRun(this, plan);
  }

  async deleteRun(): Promise<boolean> {
    throw this.needsStore('`forget`');
  }

  private needsStore(what: string): StoreError {
    return new StoreError(`${what} needs a store of its own: the HTTP API of ${this.connection.baseUrl} does not have it`);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    for (const events of this.listeners) events.close(closed());
    // The runtime ends idle connections by itself.
  }
}

/** The store of a server. @internal */
export function openRemote(url: string, token: string | undefined): Backend {
  return new RemoteBackend(new Connection(url, token));
}
