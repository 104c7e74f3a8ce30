// What the global object `gristmill` of a script offers. An editor and a compiler know it by the first line of a script:
//
//     /// <reference path="./gristmill.d.ts" />

declare namespace gristmill {
  /** The settings of children. By default they are the job's own. */
  interface ChildSettings {
    queue?: string;
    tags?: Record<string, string>;
    /** The options of a submit over HTTP, such as `{ priority: 5, retry: { attempts_max: 7 } }`. */
    options?: Record<string, unknown>;
  }

  interface StepOptions extends ChildSettings {
    /** In place of the name of the function or kind. */
    name?: string;
    /** Tells a step from others of its name, such as the id of what it is for. */
    key?: string;
  }

  interface Winner<Value = unknown> {
    name: string;
    value: Value;
    index: number;
  }

  /** What a flow's function gets first: its steps, and all that an instance may know of the world. */
  interface Flow {
    readonly id: string | null;
    readonly name: string;
    readonly version: string | null;
    /** Begins a job. Awaiting it gives its result; what is left of its failures is a `StepFailed`. */
    step<Result>(job: () => Result, argument?: undefined, options?: StepOptions): Promise<Awaited<Result>>;
    step<Argument, Result>(job: (argument: Argument) => Result, argument: Argument, options?: StepOptions): Promise<Awaited<Result>>;
    step<Item, Result>(job: ScriptFlow<Item, Result>, argument: Item, options?: StepOptions): Promise<Awaited<Result>>;
    step<Result = any>(kind: string, payload?: unknown, options?: StepOptions): Promise<Result>;
    /** Begins a job for each item. Awaiting it gives the results in the items' order. */
    map<Argument, Result>(
      job: ((argument: Argument) => Result) | ScriptFlow<Argument, Result>,
      items: Iterable<Argument>,
      options: StepOptions & { returnErrors: true },
    ): Promise<(Awaited<Result> | StepFailed)[]>;
    map<Argument, Result>(
      job: ((argument: Argument) => Result) | ScriptFlow<Argument, Result>,
      items: Iterable<Argument>,
      options?: StepOptions & { returnErrors?: boolean },
    ): Promise<Awaited<Result>[]>;
    map<Result = any>(kind: string, payloads: Iterable<unknown>, options?: StepOptions & { returnErrors?: boolean }): Promise<Result[]>;
    /** Waits for an event that is sent to this instance. Fails with `TimeoutError` after `timeout`, such as "2d". */
    event<Value = any>(name: string, options?: { timeout?: string }): Promise<Value>;
    /** Waits for a span such as "500ms", "30s", "1h 30m" or "2d", or up to a time. */
    sleep(until: string | Date): Promise<void>;
    /** The first of these to end. The others go on, and may be awaited; they end with the flow. */
    first<Value>(...promises: Promise<Value>[]): Promise<Winner<Value>>;
    first(...promises: Promise<any>[]): Promise<Winner<any>>;
    /** Runs a function here, in this process, and keeps its value like that of a step. */
    local<Result>(run: () => Result, argument?: undefined, options?: { name?: string; key?: string }): Promise<Awaited<Result>>;
    local<Argument, Result>(
      run: (argument: Argument) => Result,
      argument: Argument,
      options?: { name?: string; key?: string },
    ): Promise<Awaited<Result>>;
    /** The time; the same in each replay. */
    now(): Date;
    /** A number from 0 to below 1; the same in each replay. */
    random(): number;
    /** A UUID; the same in each replay. */
    uuid(): string;
    /** Begins the instance anew with this state in place of its item, and with an empty memo. The flow stops here. */
    continueWith(state?: unknown): Promise<never>;
    /** How often the instance has begun anew. */
    readonly continued: number;
    /** The steps in the memo that the code has not asked for so far. */
    unused(): string[];
  }

  /** A flow of a script: made by `flow`, exported, and a step of other flows. */
  interface ScriptFlow<Item = any, Result = any> {
    readonly name: string | null;
    readonly body: (flow: Flow, item: Item) => Result;
  }

  /** Makes a function a durable flow of each item, in place of `main`. */
  function flow<Item, Result>(body: (flow: Flow, item: Item) => Result, options?: { name?: string }): ScriptFlow<Item, Result>;

  /** A step ended without completing. */
  class StepFailed extends Error {
    readonly step: string;
    readonly key: string | null;
    readonly job: string;
    readonly state: "dead" | "cancelled" | "expired";
    /** The type of the job's error, and its message. */
    readonly type: string | null;
    readonly reason: string;
    readonly permanent: true;
  }
  /** A flow's code asks for what a flow cannot do, or does not fit what its instance has done. */
  class FlowError extends Error {}
  /** An event was not sent in time. */
  class TimeoutError extends Error {}

  interface Job {
    /** Such as "42:7"; the same on every attempt. */
    readonly id: string;
    readonly attempt: number;
    readonly key: string | null;
    readonly batch: number;
    readonly kind: string;
    readonly queue: string;
    readonly group: string | null;
    readonly tags: Readonly<Record<string, string>>;
    /** Seconds since 1970. */
    readonly deadline: number | null;
    readonly traceparent: string | null;
    /** The flow that began the job as a step; null for other jobs. Read from the store when it is used. */
    readonly flow: StepPlace | null;
    /** The outcomes of the jobs for which it waited (`--after`), at most 16 MiB. Read from the store when it is used. */
    readonly prerequisites: Outcome[];
  }
  /** How a job ended: with a value, or in another state, perhaps with an error. */
  interface Outcome {
    readonly job: string;
    readonly state: "completed" | "dead" | "cancelled" | "expired";
    readonly value?: any;
    readonly error?: { type: string; message: string; traceback?: string };
  }
  /** The place of a job in the flow that began it. */
  interface StepPlace {
    readonly id: string;
    readonly name: string;
    readonly version: string | null;
    /** The name and the key of the step. */
    readonly step: string | null;
    readonly key: string | null;
    /** The number of the job in a map. */
    readonly item: number | null;
  }

  /** Which job runs; null where none does. */
  function job(): Job | null;
  /** Says how far the running job is. */
  function progress(done: number, total?: number, message?: string): void;
  function progress(said: { done?: number; total?: number; fraction?: number; message?: string }): void;

  interface Children extends ChildSettings {
    children?: unknown[];
    kind?: string;
    memo?: unknown;
    batches?: (ChildSettings & { payloads: unknown[]; kind?: string })[];
    on_failure?: "fail" | "collect";
  }
  /** Returned by `main`: the job waits for these children, and then `finalize(payload, memo, outcomes)` is called. */
  function spawn(children: Children): object;
  /** Returned by `main` of a child: it completes with the value, and its parent waits for these siblings, too. */
  function done(value?: unknown, siblings?: ChildSettings & { siblings?: unknown[]; kind?: string; batches?: Children["batches"] }): object;
}
