// Submits within a transaction of the caller's on the store's file, over connections of better-sqlite3 or node:sqlite.
//
// The addon prepares the rows of the jobs, and the connection inserts them. The application must not have the file open: two
// libraries of SQLite in one process would take each other's locks for their own.

import type { Submitted } from './backend.js';
import { InvalidValue } from './errors.js';
import { submitOver } from './native.js';

interface Statement {
  all(...values: any[]): unknown[];
  run(...values: any[]): unknown;
  /** Of better-sqlite3. */
  safeIntegers?(isOn: boolean): unknown;
  raw?(isOn: boolean): unknown;
  /** Of node:sqlite. */
  setReadBigInts?(isOn: boolean): unknown;
}

/** A connection of better-sqlite3 or node:sqlite to the store's file, within a transaction. */
export interface SqliteTransaction {
  prepare(sql: string): Statement;
  /** Of better-sqlite3. */
  readonly inTransaction?: boolean;
  /** Of node:sqlite. */
  readonly isTransaction?: boolean;
}

function readValue(text: string | null): unknown {
  if (text === null) return null;
  const rest = text.slice(1);
  switch (text[0]) {
    case 'i':
      return BigInt(rest);
    case 'r':
      return Number(rest);
    case 'b':
      return Uint8Array.from(rest.match(/../g) ?? [], (digits) => parseInt(digits, 16));
    default:
      return rest;
  }
}

function writtenValue(value: unknown): string | null {
  if (value === null) return null;
  return typeof value === 'bigint' || typeof value === 'number' ? `i${value}` : `t${value as string}`;
}

/** Whether a transaction is one of SQLite. @internal */
export function isSqlite(transaction: unknown): transaction is SqliteTransaction {
  const { prepare, unsafe } = (transaction ?? {}) as { prepare?: unknown; unsafe?: unknown };
  // A transaction of `postgres` has a `prepare` of its own.
  return typeof prepare === 'function' && unsafe === undefined;
}

/** Submits the jobs of a request. @internal */
export function submitWithinFile(transaction: SqliteTransaction, place: string, request: string): Submitted['batches'] {
  if ((transaction.inTransaction ?? transaction.isTransaction) === false) {
    throw new InvalidValue('the connection is in no transaction: begin one, so that the job commits or rolls back with your rows',
      'transaction');
  }
  const rowsOf = (text: string): unknown[][] => (JSON.parse(text) as (string | null)[][]).map((row) => row.map(readValue));
  const query = (sql: string, parameters: string): string => {
    const statement = transaction.prepare(sql);
    statement.safeIntegers?.(true);
    statement.raw?.(true);
    statement.setReadBigInts?.(true);
    const rows = statement.all(...rowsOf(parameters)[0]!);
    return JSON.stringify(rows.map((row) => (Array.isArray(row) ? row : Object.values(row as object)).map(writtenValue)));
  };
  const insert = (sql: string, rows: string): string => {
    const statement = transaction.prepare(sql);
    for (const row of rowsOf(rows)) statement.run(...row);
    return '';
  };
  return submitOver(request, place, query, insert).map(({ batch, count }) => ({ batch, first_position: 0, count }));
}
