// Submits within a transaction of the caller's on the store's PostgreSQL database, by the SQL functions of docs/sql.md.

import { InvalidValue, shown } from './errors.js';
import type { Members } from './options.js';

type Row = Record<string, unknown>;

/**
 * A connection within a transaction: a client of `pg`, a transaction of `postgres`, or a function that runs a statement with
 * parameters ($1, $2, …) over the connection of any other library, and gives its rows.
 */
export type SqlTransaction =
  | { query(sql: string, values: unknown[]): PromiseLike<{ rows: Row[] }> }
  | { unsafe(sql: string, values: any[]): PromiseLike<readonly Row[]> }
  | ((sql: string, values: unknown[]) => PromiseLike<readonly Row[]>);

function runnerOf(transaction: SqlTransaction): (sql: string, values: unknown[]) => Promise<readonly Row[]> {
  if ('unsafe' in transaction && typeof transaction.unsafe === 'function') {
    return async (sql, values) => transaction.unsafe(sql, values);
  }
  if ('query' in transaction && typeof transaction.query === 'function') {
    return async (sql, values) => (await transaction.query(sql, values)).rows;
  }
  if (typeof transaction === 'function') return async (sql, values) => transaction(sql, values);
  throw new InvalidValue(`the transaction is ${shown(transaction)}: give a client of \`pg\`, a transaction of \`postgres\`, or a ` +
    'function that runs a statement with its parameters', 'transaction');
}

/** Options that the SQL function takes as arguments of their own. */
const ARGUMENTS: Record<string, (value: string) => string> = {
  queue: (value) => `queue => ${value}::text`,
  priority: (value) => `priority => ${value}::integer`,
  run_at: (value) => `run_at => to_timestamp(${value}::float8 / 1000)`,
  delay_ms: (value) => `run_at => now() + ${value}::float8 * interval '1 millisecond'`,
  expires_at: (value) => `expires_at => to_timestamp(${value}::float8 / 1000)`,
};

/** Submits payloads that are JSON; the ids of the jobs, in their order. @internal */
export async function submitWithin(
  transaction: SqlTransaction, kind: string, members: Members, payloads: string | readonly string[],
): Promise<string[]> {
  const values: unknown[] = [kind, payloads];
  // As text: some libraries would write a text for json as JSON again.
  const words = ['$1::text', typeof payloads === 'string' ? '$2::text::json' : '$2::text[]::json[]'];
  const options: Members = {};
  for (const [name, value] of Object.entries(members)) {
    if (value === undefined) continue;
    const word = ARGUMENTS[name];
    if (word === undefined) options[name] = value;
    else words.push(word(`$${values.push(value)}`));
  }
  words.push(`options => $${values.push(JSON.stringify(options))}::text::jsonb`);
  const rows = await runnerOf(transaction)(`SELECT gristmill.submit(${words.join(', ')}) AS job`, values);
  return rows.map((row) => String(row.job));
}
