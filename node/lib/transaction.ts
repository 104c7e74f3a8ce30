// Submits within a transaction of the caller's on the store's PostgreSQL database, by the SQL functions of docs/sql.md.

import { InvalidValue, shown } from './errors.js';
import type { Members } from './options.js';

type Row = Record<string, unknown>;

/** The rows of a statement, as libraries give them. */
type Answer = readonly Row[] | { rows: readonly Row[] };

/**
 * A connection within a transaction: a client of `pg`, or the transaction of `postgres`, Kysely, Knex or TypeORM. For any other
 * library, a function that runs a statement with parameters ($1, $2, …) over its connection, and gives the rows. `parts` is
 * the statement's text between its parameters, for libraries that take statements as templates.
 */
export type SqlTransaction =
  | { query(sql: string, values: unknown[]): PromiseLike<any> }
  | { unsafe(sql: string, values: any[]): PromiseLike<any> }
  | { executeQuery(query: any): PromiseLike<any> }
  | { raw(sql: string, values: any): PromiseLike<any> }
  | ((sql: string, values: unknown[], parts: TemplateStringsArray) => PromiseLike<any>);

interface Libraries {
  /** Of Kysely and Knex. */
  isTransaction?: boolean;
  query?(sql: string, values: unknown[]): PromiseLike<Answer>;
  unsafe?(sql: string, values: unknown[]): PromiseLike<Answer>;
  executeQuery?(query: object): PromiseLike<Answer>;
  raw?(sql: string, values: unknown[]): PromiseLike<Answer>;
}

/** A statement's parameters. Each stands once, and they ascend. */
const PARAMETER = /\$\d+/g;

async function rowsOf(transaction: SqlTransaction, sql: string, values: unknown[]): Promise<readonly Row[]> {
  const of = (transaction ?? {}) as Libraries;
  const has = (name: keyof Libraries): boolean => typeof of[name] === 'function';
  // Kysely says so of each connection, Knex of transactions alone.
  const isNone = has('raw') ? of.isTransaction !== true : of.isTransaction === false;
  if (isNone && !has('unsafe')) {
    throw new InvalidValue('the connection is in no transaction: begin one, so that the job commits or rolls back with your rows',
      'transaction');
  }
  let answer: Answer;
  if (has('unsafe')) answer = await of.unsafe!(sql, values);
  else if (has('executeQuery')) answer = await of.executeQuery!(ofKysely(sql, values));
  else if (has('query')) answer = await of.query!(sql, values);
  else if (has('raw')) answer = await of.raw!(sql.replace(PARAMETER, '?'), values);
  else if (typeof transaction === 'function') answer = await transaction(sql, values, templateOf(sql));
  else {
    throw new InvalidValue(`the transaction is ${shown(transaction)}: give a client of \`pg\`, a transaction of \`postgres\`, Kysely, ` +
      'Knex or TypeORM, or a function that runs a statement with its parameters', 'transaction');
  }
  const rows = Array.isArray(answer) ? answer as readonly Row[] : (answer as { rows?: readonly Row[] } | null)?.rows;
  if (Array.isArray(rows)) return rows;
  throw new InvalidValue(`the transaction gave ${shown(answer)} for a statement: give its rows, or an object with \`rows\``, 'transaction');
}

/** A statement's text between its parameters. */
function templateOf(sql: string): TemplateStringsArray {
  const parts = sql.split(PARAMETER);
  return Object.assign(parts, { raw: parts });
}

/** A statement in the form of Kysely's compiled queries. */
const ofKysely = (sql: string, parameters: unknown[]): object => ({
  sql,
  parameters,
  query: { kind: 'RawNode', sqlFragments: [sql], parameters: [] },
  queryId: { queryId: 'gristmill' },
});

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
  const rows = await rowsOf(transaction, `SELECT gristmill.submit(${words.join(', ')}) AS job`, values);
  return rows.map((row) => String(row.job));
}
