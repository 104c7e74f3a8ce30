// Flows as jobs.

import { InvalidValue, shown } from '../errors.js';
import { Job, type JobOptions, type JobOwner, type Schemas } from '../job.js';
import { type Members, checkNames, membersOf } from '../options.js';
import { validated } from '../schema.js';
import { decode } from '../values/decode.js';
import { encode } from '../values/encode.js';
import type { KindSpec } from '../work/runner.js';
import { Suspension, flowError, runInstance } from './engine.js';
import type { FlowBody, StepOptions } from './flow.js';
import type { Prepared, Program } from './runtime.js';

/** Options of a flow. */
export interface FlowOptions extends JobOptions {
  /** Instances go on with the version that began them. */
  version?: string;
  /** Older versions whose instances go on with this code. */
  upgrades?: readonly string[];
}

/** What flows need of their application. @internal */
export interface FlowOwner extends JobOwner {
  readonly jobs: ReadonlyMap<string, Job<never, never>>;
  nowMs(): number;
}

/** The UTF-8 of a version, at most. */
const VERSION_BYTES_MAX = 100;

/** What the options of a step may have beside its name and key. */
const STEP_OPTIONS = [
  'retries', 'retryDelay', 'backoff', 'timeout', 'completeWithin', 'priority', 'group', 'cached', 'queue', 'tags',
] as const;

type OfChildren = Omit<StepOptions, 'name' | 'key'>;

/** What a schema has said, which a flow cannot await: its replay would not go the same way each time. */
function atOnce(output: unknown, of: string): unknown {
  if (!(output instanceof Promise)) return output;
  output.catch(() => {});
  throw flowError(`the schema of ${of} answers by a promise: a flow needs one that answers at once`);
}

/** The kind of a flow's instances. */
function kindOf(name: string, version: string | undefined): string {
  if (version === undefined) return name;
  const isShort = typeof version === 'string' && version !== '' && new TextEncoder().encode(version).length <= VERSION_BYTES_MAX;
  if (isShort && !version.includes('@')) return `${name}@${version}`;
  throw new InvalidValue(`the version of the flow ${shown(name)} is ${shown(version)}: give a short text without @`, 'version');
}

/** The older versions that a flow names. @internal */
export function upgradesOf(name: string, { version, upgrades = [] }: FlowOptions): readonly string[] {
  if (!Array.isArray(upgrades)) throw new InvalidValue(`\`upgrades\` is ${shown(upgrades)}: give a list of versions`, 'upgrades');
  if (upgrades.length > 0 && (version === undefined || upgrades.includes(version))) {
    throw new InvalidValue(`the flow ${shown(name)} has \`upgrades\`: give it a \`version\` that is none of them`, 'upgrades');
  }
  return upgrades as readonly string[];
}

/** A flow: a job that awaits others, events and times without a process, and survives the end of any. */
export class FlowJob<P = unknown, R = unknown> extends Job<P, R> {
  /** Its version; null without one. */
  readonly version: string | null;
  /** What the steps of known jobs need, if they have no options of their own. */
  private readonly prepared = new Map<Job<never, never>, Prepared>();

  /** @internal */
  constructor(
    private readonly application: FlowOwner,
    /** Its name without the version. */
    readonly flowName: string,
    options: FlowOptions & Schemas,
    private readonly body: FlowBody<unknown, unknown> | null,
  ) {
    const { version, upgrades: _, ...others } = options;
    super(application, kindOf(flowName, version), others, body === null ? null : () => undefined);
    this.version = version ?? null;
  }

  /** @internal */
  override get label(): string {
    return this.flowName;
  }

  /** @internal */
  override spec(concurrencyMax?: number): KindSpec {
    const program = this.program();
    const { result } = this.schemas;
    const run = async (payload: unknown, memos: unknown, outcomes: unknown[], idOf: () => string): Promise<unknown> => {
      const value = await runInstance(program, payload, memos, outcomes, idOf);
      if (result !== undefined && !(value instanceof Suspension)) await validated(result, value, 'result');
      return value;
    };
    return {
      ...super.spec(concurrencyMax),
      entry: (payload, job) => run(payload, [], [], () => job.id),
      resume: ([payload, memos, outcomes], job) => run(payload, memos, outcomes as unknown[], () => job.id),
    };
  }

  private program(): Program<OfChildren> {
    const { bigints } = this.application;
    const { payload: schema } = this.schemas;
    return {
      name: this.flowName,
      version: this.version,
      nowMs: () => this.application.nowMs(),
      function: (flow, payload) => {
        const of = `the payloads of ${this.flowName}`;
        return this.body!(flow as never, schema === undefined ? payload : atOnce(validated(schema, payload, 'payload'), of));
      },
      stepOptions: STEP_OPTIONS,
      prepare: (target, options) => this.prepare(target, options),
      serialise: (value, told) => {
        try {
          return encode(value, 'value', bigints);
        } catch (error) {
          if (!(error instanceof InvalidValue)) throw error;
          throw new InvalidValue(`${told} a value that cannot be kept: ${error.message}`, error.path);
        }
      },
      parse: (text, what) => decode(text, what, bigints),
    };
  }

  private prepare(target: unknown, options: OfChildren): Prepared {
    const job = typeof target === 'string' ? this.application.jobs.get(target) : target;
    if (job === undefined && typeof target === 'string') return this.preparedFor(target, null, options);
    if (!(job instanceof Job)) {
      throw flowError(`a step was given ${shown(target)}: give a job, a batch or a flow of the application, or the name of a kind; ` +
        'flow.local runs a function');
    }
    if (Object.keys(options).length > 0) return this.preparedFor(job.name, job, options);
    let prepared = this.prepared.get(job);
    if (prepared === undefined) {
      prepared = this.preparedFor(job.name, job, {});
      this.prepared.set(job, prepared);
    }
    return prepared;
  }

  private preparedFor(kind: string, job: Job<never, never> | null, options: OfChildren): Prepared {
    const { bigints } = this.application;
    const call = `a step of ${shown(kind)}`;
    checkNames(call, options, STEP_OPTIONS);
    const own = Object.fromEntries(Object.entries(job?.options ?? {}).filter(([name]) => STEP_OPTIONS.includes(name as never)));
    const { queue = job === null ? undefined : 'default', tags, ...members }: Members = membersOf(
      call, { ...own, ...options }, false, () => 0,
    );
    // A kind that is not known here has the retries of its queue's jobs, unless the step has options.
    const hasOptions = job !== null || Object.keys(options).some((name) => name !== 'queue' && name !== 'tags');
    const result = job?.resultSchema;
    const label = job?.label ?? kind;
    // The names of events and sleeps begin with @.
    if (label === '' || label.startsWith('@') || label.includes('\0')) {
      throw flowError(`the name of a step is ${shown(label)}: give text that does not begin with @`);
    }
    return {
      label,
      head: JSON.stringify({ kind, queue, tags, ...hasOptions ? { options: members } : {} }).slice(0, -1),
      payload: (argument, index) => encode(argument, index === undefined ? 'payload' : `items[${index}]`, bigints),
      ...result === undefined ? {} : {
        convert: (value) => atOnce(validated(result, value, 'result'), `the results of ${label}`),
      },
    };
  }
}
