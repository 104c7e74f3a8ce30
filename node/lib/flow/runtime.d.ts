// What `make node-modules` writes as `dist/flow/runtime.js`: the text of `memo.js` and `flow.js` in
// `crates/runtime/src/shims/javascript/`, which scripts have, too.

import type { Described } from '../work/describe.js';

/** What the text needs. */
export interface Host {
  /** The class that its errors extend. */
  BaseError: new (message?: string) => Error;
  Buffer: unknown;
  checkNames(call: { readonly name: string }, given: object, known: readonly string[]): void;
  describe(error: unknown): Described;
  digest(text: string): Uint8Array;
  inspect(value: unknown): string;
  MAY_BE_INEXACT: RegExp;
  /** A text that no payload contains. */
  mark(): string;
  /** A random number below 2^48. */
  newSeed(): number;
}

/** What the step of a job needs. */
export interface Prepared {
  /** The name of the step. */
  label: string;
  /** What its children have in common: a JSON object without its end. */
  head: string;
  payload(argument: unknown, index?: number): string;
  convert?(value: unknown): unknown;
}

/** A flow. */
export interface Program<Options = object> {
  name: string;
  version: string | null;
  /** The time of the store's clock. */
  nowMs(): number;
  function(flow: unknown, payload: unknown): unknown;
  stepOptions: readonly string[];
  prepare(job: unknown, options: Options): Prepared;
  /** `told` says whose value it is, as in "the function save returned". */
  serialise(value: unknown, told: string): string;
  parse(text: string, what: string): unknown;
}

/** What an instance answers that waits, as JSON. */
export declare class Suspension {
  readonly text: string;
}

/** Makes the classes of flows. */
export declare function makeFlows(host: Host): {
  Flow: {
    run(
      program: Program<never>, payload: unknown, memos: unknown, outcomes: unknown[], idOf: () => string,
    ): Promise<unknown>;
  };
  Suspension: typeof Suspension;
  FlowError: new (message: string) => Error;
  StepFailed: new (...given: never[]) => Error;
  TimeoutError: new (message: string) => Error;
};
