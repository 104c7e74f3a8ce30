// JSON as JavaScript's values, without a silent change of integers that a number does not hold exactly.

import { InvalidValue } from '../errors.js';
import { type BigInts, within } from './encode.js';

// Texts that may have such numbers are read number by number; all others are read as they come.
/** @internal */
export const MAY_BE_INEXACT = /(?:^|[[,:\s-])\d{16}|\d{309}|\d[eE]\+?\d{3}/;

interface Token { readonly text: string; readonly at: number }

/** The tokens of valid JSON that its values and their places consist of. */
function* tokens(text: string): Generator<Token> {
  const token = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*|[[\]{},:]/g;
  for (let found; (found = token.exec(text)) !== null;) yield { text: found[0], at: found.index };
}

/** The name of a value in errors, or those of the parts of a list. @internal */
export type What = string | readonly string[];

/** Where in a value a number lies: the keys and the indexes. */
function pathOf(text: string, at: number): (string | number)[] {
  const path: (string | number)[] = [];
  let last = '';
  for (const token of tokens(text)) {
    if (token.at === at) break;
    const top = path[path.length - 1];
    if (token.text === '[') path.push(0);
    else if (token.text === '{') path.push('');
    else if (token.text === ']' || token.text === '}') path.pop();
    else if (token.text === ':') path[path.length - 1] = JSON.parse(last) as string;
    else if (token.text === ',' && typeof top === 'number') path[path.length - 1] = top + 1;
    last = token.text;
  }
  return path;
}

function refused(number: string, path: readonly (string | number)[], what: What, reason: string): InvalidValue {
  const [root, ...rest] = typeof what === 'string' ? [what, ...path] : [what[path[0] as number]!, ...path.slice(1)];
  const place = rest.reduce<string>(within, root as string).slice(0, 200);
  const digits = number.length > 60 ? `${number.slice(0, 60)}…` : number;
  return new InvalidValue(`${place} is ${digits}, ${reason}`, place);
}

/** Refuses an integer that a number does not hold exactly. */
function inexact(number: string, path: readonly (string | number)[], what: What): InvalidValue {
  const remedy = 'give `bigints: "bigint"` or `bigints: "string"` to the App';
  return refused(number, path, what, `which a JavaScript number does not hold exactly: ${remedy}`);
}

const MARK = `gristmill-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}:`;

const toBigInt = (_: string, part: unknown) => (
  typeof part === 'string' && part.startsWith(MARK) ? BigInt(part.slice(MARK.length)) : part
);

/** One value, whose numbers are looked at one by one. */
function decodeExactly(text: string, what: What, bigints: BigInts, hasFar: boolean): unknown {
  const marked: string[] = [];
  let from = 0;
  for (const token of tokens(text)) {
    if (!/^[-\d]/.test(token.text)) continue;
    const number = Number(token.text);
    if (!/^-?\d+$/.test(token.text)) {
      if (Number.isFinite(number)) continue;
      if (hasFar) {
        marked.push(text.slice(from, token.at), `"${token.text}"`);
        from = token.at + token.text.length;
        continue;
      }
      throw refused(token.text, pathOf(text, token.at), what, 'which is beyond the largest number of JavaScript: pass it as text');
    }
    if (Number.isSafeInteger(number)) continue;
    if (bigints === 'error') throw inexact(token.text, pathOf(text, token.at), what);
    marked.push(text.slice(from, token.at), bigints === 'bigint' ? `"${MARK}${token.text}"` : `"${token.text}"`);
    from = token.at + token.text.length;
  }
  if (from === 0) return JSON.parse(text);
  return JSON.parse(marked.join('') + text.slice(from), bigints === 'bigint' ? toBigInt : undefined);
}

/**
 * The value of a JSON text. `what` names it in errors. With `hasFar`, numbers beyond the largest one are texts instead of an error.
 * @internal
 */
export function decode(text: string, what: What, bigints: BigInts, hasFar = false): unknown {
  return MAY_BE_INEXACT.test(text) ? decodeExactly(text, what, bigints, hasFar) : JSON.parse(text);
}

/** Whether a text may have numbers that are beyond the largest one. @internal */
export const mayHaveFar = (text: string): boolean => /\d{309}|\d[eE]\+?\d{3}/.test(text);

/** The place of a number that is beyond the largest one, in a value of `JSON.parse`; null without one. */
function farIn(value: unknown, path: string): string | null {
  if (typeof value === 'number') return Number.isFinite(value) ? null : path;
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, part] of Object.entries(value)) {
    const found = farIn(part, within(path, Array.isArray(value) ? Number(key) : key));
    if (found !== null) return found;
  }
  return null;
}

/** A number of a payload that no handler can get; null without one. `value` is as `JSON.parse` reads it. @internal */
export function farNumber(value: unknown, what: string): InvalidValue | null {
  const path = farIn(value, what)?.slice(0, 200);
  return path === undefined ? null : new InvalidValue(`${path} is beyond the largest number of JavaScript: pass it as text`, path);
}

/** Stands for a payload that is refused. @internal */
export class Unreadable {
  constructor(readonly error: Error) {}
}

/** The values of a packed array, in which each item is on a line. @internal */
export function decodePacked(text: string, what: What, bigints: BigInts): unknown[] {
  if (!MAY_BE_INEXACT.test(text)) return JSON.parse(text) as unknown[];
  return text.slice(1, -1).split('\n,').map((item) => {
    try {
      return decode(item, what, bigints);
    } catch (error) {
      return new Unreadable(error as Error);
    }
  });
}

/** Values that were read with BigInts, as an application wants them. @internal */
export function withRule(values: unknown[], what: What, bigints: BigInts): unknown[] {
  if (bigints === 'bigint') return values;
  return values.map((value) => {
    if (value instanceof Unreadable) return value;
    try {
      return ruled(value, [], what, bigints);
    } catch (error) {
      return new Unreadable(error as Error);
    }
  });
}

/** A part of a value whose BigInts become what the rule says. `path` is where it lies. */
function ruled(value: unknown, path: (string | number)[], what: What, bigints: BigInts): unknown {
  if (typeof value === 'bigint') {
    if (bigints === 'string') return String(value);
    throw inexact(String(value), path, what);
  }
  if (typeof value !== 'object' || value === null) return value;
  const parts = value as Record<string | number, unknown>;
  for (const key of Array.isArray(value) ? value.keys() : Object.keys(value)) {
    const part = parts[key];
    if (typeof part !== 'bigint' && (typeof part !== 'object' || part === null)) continue;
    path.push(key);
    parts[key] = ruled(part, path, what, bigints);
    path.pop();
  }
  return value;
}
