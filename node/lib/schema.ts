// Schemas of Zod, Valibot, ArkType and others, by their common interface: https://standardschema.dev

import { SchemaRefused } from './errors.js';
import { within } from './values/encode.js';

/** The Standard Schema interface, version 1. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a schema says of a value. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** Why a schema refuses a value. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The type of a schema's input. */
export type InputOf<S> = S extends StandardSchema<infer Input, unknown> ? Input : never;
/** The type of a schema's output. */
export type OutputOf<S> = S extends { readonly '~standard': { readonly validate: (value: unknown) => infer Result } }
  ? Extract<Awaited<Result>, { readonly value: unknown }>['value']
  : never;

/** The schema's output for a value. `what` names the value in errors. @internal */
export function validated(schema: StandardSchema, value: unknown, what: string): unknown {
  const result = schema['~standard'].validate(value);
  return result instanceof Promise ? result.then((result) => accepted(result, what)) : accepted(result, what);
}

function accepted(result: SchemaResult<unknown>, what: string): unknown {
  if (result.issues === undefined) return result.value;
  const told = result.issues.map((issue) => {
    const keys = (issue.path ?? []).map((part) => (typeof part === 'object' ? part.key : part));
    const path = keys.reduce<string>((path, key) => within(path, typeof key === 'number' ? key : String(key)), what);
    return { path, text: `${path}: ${issue.message}` };
  });
  const path = told[0]?.path ?? what;
  throw new SchemaRefused(`the schema refuses ${told.slice(0, 8).map((one) => one.text).join('; ')}`, path, result.issues);
}
