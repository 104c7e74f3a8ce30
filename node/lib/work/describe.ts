// What a handler threw, as the store keeps it.

import { shown } from '../errors.js';

/** The error of an attempt. @internal */
export interface Described {
  type: string;
  message: string;
  traceback?: string;
  permanent?: boolean;
  retry_after_ms?: number;
}

const MESSAGE_CHARACTERS_MAX = 4_096, TRACEBACK_CHARACTERS_MAX = 20_000, CAUSES_MAX = 8;
const HERE = new URL('..', import.meta.url).href.replace('file://', '');

/** The text without halves of pairs of code units, which UTF-8 cannot hold. @internal */
export const clean = (text: string): string => text.replace(
  /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd',
);

/** A stack without the frames of this package. */
const trimmed = (stack: string) => stack.split('\n').filter((line) => !line.includes(HERE)).join('\n');

/** An error, what caused it, and all that an AggregateError holds. */
function causesOf(error: unknown): unknown[] {
  const found = [error];
  for (let at = 0; at < found.length && found.length < CAUSES_MAX; at++) {
    const one = found[at];
    if (one instanceof AggregateError && Array.isArray(one.errors)) found.push(...(one.errors as unknown[]).slice(0, CAUSES_MAX));
  }
  return found;
}

/** An error that another process has described. @internal */
export class DescribedError extends Error {
  constructor(readonly described: Described) {
    super(described.message);
  }
}

/** Describes what a handler threw. @internal */
export function describe(error: unknown): Described {
  if (error instanceof DescribedError) return error.described;
  try {
    return described(error);
  } catch {
    // Its own members throw.
    return { type: 'Thrown', message: 'the handler threw an error that cannot be read' };
  }
}

function described(error: unknown): Described {
  if (!(error instanceof Error) && Object.prototype.toString.call(error) !== '[object Error]') {
    return { type: 'Thrown', message: clean(`the handler threw ${shown(error)}`.slice(0, MESSAGE_CHARACTERS_MAX)) };
  }
  const thrown = error as Error;
  const name = thrown.name !== 'Error' && thrown.name !== '' ? thrown.name : thrown.constructor?.name ?? 'Error';
  const found: Described = { type: clean(String(name)), message: clean(String(thrown.message).slice(0, MESSAGE_CHARACTERS_MAX)) };
  let trace = '';
  let cause: unknown = thrown;
  for (let depth = 0; cause != null && depth < CAUSES_MAX; depth++) {
    const { stack, cause: before } = cause as { stack?: unknown; cause?: unknown };
    trace += `${depth > 0 ? '\nCaused by: ' : ''}${typeof stack === 'string' ? trimmed(stack) : shown(cause)}`;
    cause = before;
  }
  found.traceback = clean(trace.slice(0, TRACEBACK_CHARACTERS_MAX));
  for (const one of causesOf(error) as ({ retryAfter?: unknown; permanent?: unknown } | null | undefined)[]) {
    if (typeof one?.retryAfter === 'number' && one.retryAfter >= 0 && one.retryAfter < Infinity) {
      found.retry_after_ms = Math.max(Math.ceil(one.retryAfter * 1000), found.retry_after_ms ?? 0);
    }
    if (one?.permanent === true) found.permanent = true;
  }
  return found;
}
