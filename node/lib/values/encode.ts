// JavaScript's values as JSON that other readers get back as they were.
//
// JSON.stringify changes many values without a word: a Date becomes text, a Map an empty object, NaN null. Such a value is refused
// here with its place. Plain objects, arrays, texts, booleans, null and numbers pass. A member that is undefined is left out.

import { InvalidValue, nameOfClass, shown } from '../errors.js';

/**
 * What becomes of integers that a JavaScript number may not hold exactly: "error" refuses them with their place, "string" gives
 * them as text, "bigint" as BigInt. With the last two, BigInts are written with all of their digits.
 */
export type BigInts = 'error' | 'string' | 'bigint';

/** Lists and objects within each other at most; the engine has the same limit. */
const DEPTH_MAX = 128;

// How a value can be written: by JSON.stringify, with all digits of its integers, or not at all.
const PLAIN = 0, EXACT = 1, REFUSED = 2;

// From here on, JavaScript writes integers with an exponent, and readers take them as floating-point numbers.
const EXPONENT_FROM = 1e21;

const isLong = (value: number) => Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < EXPONENT_FROM;

/** Whether an object is a record, of any realm: Jest runs tests in one of their own. */
function isRecord(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

function look(value: unknown, isExact: boolean, depth: number): number {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return PLAIN;
    case 'number':
      if (Number.isSafeInteger(value)) return PLAIN;
      if (!Number.isFinite(value)) return REFUSED;
      return isLong(value) ? (isExact ? EXACT : REFUSED) : PLAIN;
    case 'bigint':
      return isExact ? EXACT : REFUSED;
    case 'object': {
      if (value === null) return PLAIN;
      if (depth >= DEPTH_MAX) return REFUSED;
      let found = PLAIN;
      if (Array.isArray(value)) {
        for (let at = 0; at < value.length; at++) {
          const one = look(value[at], isExact, depth + 1);
          if (one === REFUSED) return REFUSED;
          found |= one;
        }
        return found;
      }
      if (!isRecord(value)) return REFUSED;
      for (const key in value) {
        const member: unknown = (value as Record<string, unknown>)[key];
        if (member === undefined) continue;
        const one = look(member, isExact, depth + 1);
        if (one === REFUSED) return REFUSED;
        found |= one;
      }
      return found;
    }
    default:
      return REFUSED;
  }
}

/** The UTF-8 of a result, at most. @internal */
export const RESULT_BYTES_MAX = 16 << 20;

/** The bytes of UTF-8. A text that is too short for the limit is not measured. @internal */
export const bytesOf = (text: string): number => (
  3 * text.length <= RESULT_BYTES_MAX ? text.length : new TextEncoder().encode(text).length
);

/** The JSON of a handler's result. @internal */
export function encodeResult(value: unknown, bigints: BigInts): string {
  const text = value === undefined ? 'null' : encode(value, 'result', bigints);
  const bytes = bytesOf(text);
  if (bytes <= RESULT_BYTES_MAX) return text;
  throw new RangeError(`the result has ${bytes} bytes, and ${RESULT_BYTES_MAX} are the most: give a reference to it, such as a path`);
}

/** The place of a member. @internal */
export function within(path: string, key: string | number): string {
  if (typeof key === 'number') return `${path}[${key}]`;
  return /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}

const REMEDIES: Record<string, string> = {
  Date: 'give its text, as by toISOString()',
  Map: 'give an object, as by Object.fromEntries(map)',
  Set: 'give a list, as by [...set]',
  RegExp: 'give its source as text',
  URL: 'give its text, as by String(url)',
};

function remedyOf(value: object): string {
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return 'give text, as by Buffer.from(bytes).toString("base64")';
  return REMEDIES[nameOfClass(value)] ?? 'give a plain object of its members';
}

/** The first value that cannot be written: its place, and why. */
function explain(value: unknown, path: string, isExact: boolean, depth: number): InvalidValue | null {
  if (look(value, isExact, depth) !== REFUSED) return null;
  const refused = (reason: string) => new InvalidValue(`${path.slice(0, 200)} is ${reason}`, path);
  if (typeof value === 'object' && value !== null) {
    if (depth >= DEPTH_MAX) return refused(`more than ${DEPTH_MAX} levels deep, or contains itself`);
    if (Array.isArray(value)) {
      for (let at = 0; at < value.length; at++) {
        const found = explain(value[at], within(path, at), isExact, depth + 1);
        if (found !== null) return found;
      }
    }
    if (!isRecord(value)) return refused(`a ${nameOfClass(value)}, which JSON cannot hold: ${remedyOf(value)}`);
    for (const key in value) {
      const member: unknown = (value as Record<string, unknown>)[key];
      if (member === undefined) continue;
      const found = explain(member, within(path, key), isExact, depth + 1);
      if (found !== null) return found;
    }
  }
  if (typeof value === 'bigint') {
    const remedy = 'give `bigints: "bigint"` to the App to write such integers with all digits, or pass text';
    return refused(`the BigInt ${shown(value)}: ${remedy}`);
  }
  if (typeof value === 'number' && Number.isFinite(value)) {
    return refused(`${value}, an integer that a number does not hold exactly: pass a BigInt with \`bigints: "bigint"\`, or text`);
  }
  return refused(`${shown(value)}, which JSON cannot hold`);
}

// A text that no payload and no value contains.
const MARK = `gristmill-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}:`;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, 'g');

/** The JSON of a value with all digits of its integers. */
function exactJson(value: unknown): string {
  const text = JSON.stringify(value, (_, part: unknown) => (
    typeof part === 'bigint' || (typeof part === 'number' && isLong(part)) ? MARK + BigInt(part) : part
  ));
  return text.replace(MARKED, '$1');
}

/** The JSON of one value. `what` names it in errors, such as "payload". `undefined` is null. @internal */
export function encode(value: unknown, what: string, bigints: BigInts): string {
  if (value === undefined) return 'null';
  const isExact = bigints !== 'error';
  const found = look(value, isExact, 0);
  if (found === PLAIN) return JSON.stringify(value);
  if (found === EXACT) return exactJson(value);
  throw explain(value, what, isExact, 0)!;
}

/** The JSON of a list of values, whose first one has the number `first` among all. An error names the item. @internal */
export function encodeAll(values: unknown[], first: number, bigints: BigInts): string {
  const isExact = bigints !== 'error';
  let found = PLAIN;
  for (let at = 0; at < values.length; at++) {
    const value = values[at] === undefined ? (values[at] = null) : values[at];
    const one = look(value, isExact, 0);
    if (one === REFUSED) throw explain(value, `items[${first + at}]`, isExact, 0)!;
    found |= one;
  }
  return found === PLAIN ? JSON.stringify(values) : exactJson(values);
}
