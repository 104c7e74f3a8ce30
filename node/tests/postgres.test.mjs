// The same on PostgreSQL. NODE_STORE is the URL of a database; `make test-node` starts one.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

import { App } from 'gristmill';
import { closed } from './stores.mjs';

test('jobs are submitted, run and awaited on PostgreSQL', async (t) => {
  const store = process.env.NODE_STORE;
  assert.ok(store, 'NODE_STORE is not set: run `make test-node`');
  const app = closed(t, new App(store));
  const double = app.job('double', { retries: 0 }, async (number) => {
    if (number === 13) throw new TypeError('unlucky');
    return 2 * number;
  });
  const jobs = await double.submitMany(Array.from({ length: 2_500 }, (_, number) => number + 100));
  const bad = await double.submit(13);
  assert.deepEqual(await app.drain(), { completed: 2_500, failed: 1 });
  assert.deepEqual((await jobs.results()).slice(0, 2), [200, 202]);
  await assert.rejects(bad.result(), /TypeError: unlucky/);
  const worker = await app.worker();
  const one = await double.submit(21);
  assert.equal(await one.result({ timeout: '20s' }), 42);
  await worker.stop();
});

/** Other people's libraries: NODE_CLIENTS is the folder in which they are installed. */
const clients = createRequire(join(process.env.NODE_CLIENTS ?? '.', 'index.js'));

const undo = new Error('undo');

/** Lets a library roll its transaction back by an error. */
async function undone(transaction) {
  await transaction.catch((error) => {
    if (error !== undo) throw error;
  });
}

/** Does the task in a transaction. It is to be rolled back when the task says so. */
const orUndo = (task) => async (transaction) => {
  if (!await task(transaction)) throw undo;
};

/** The statements of libraries over one transaction each, and how they end it. */
const LIBRARIES = {
  async pg(url, task) {
    const pg = clients('pg');
    const client = new pg.Client(url);
    await client.connect();
    try {
      await client.query('BEGIN');
      const isKept = await task(client);
      await client.query(isKept ? 'COMMIT' : 'ROLLBACK');
    } finally {
      await client.end();
    }
  },
  async postgres(url, task) {
    const sql = clients('postgres')(url, { max: 1 });
    await undone(sql.begin(orUndo(task))).finally(() => sql.end());
  },
  async Kysely(url, task) {
    const { Kysely, PostgresDialect } = clients('kysely');
    const database = new Kysely({ dialect: new PostgresDialect({ pool: new (clients('pg').Pool)({ connectionString: url }) }) });
    await undone(database.transaction().execute(orUndo(task))).finally(() => database.destroy());
  },
  async Knex(url, task) {
    const database = clients('knex')({ client: 'pg', connection: url });
    await undone(database.transaction(orUndo(task))).finally(() => database.destroy());
  },
  async TypeORM(url, task) {
    const source = await new (clients('typeorm').DataSource)({ type: 'postgres', url }).initialize();
    await undone(source.transaction(orUndo(task))).finally(() => source.destroy());
  },
  async Drizzle(url, task) {
    const { sql } = clients('drizzle-orm');
    const pool = new (clients('pg').Pool)({ connectionString: url });
    const database = clients('drizzle-orm/node-postgres').drizzle(pool);
    const within = (transaction) => task((_, values, parts) => (
      transaction.execute(sql(parts, ...values.map((value) => sql.param(value))))
    ));
    await undone(database.transaction(orUndo(within))).finally(() => pool.end());
  },
  async Prisma(url, task) {
    // The client that `prisma generate` has made of a schema, in TypeScript, compiled.
    const folder = process.env.NODE_PRISMA;
    const { PrismaClient } = await import(join(folder, 'dist/client.js'));
    const { PrismaPg } = createRequire(join(folder, 'index.js'))('@prisma/adapter-pg');
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
    const within = (transaction) => task((text, values) => transaction.$queryRawUnsafe(text, ...values));
    await undone(prisma.$transaction(orUndo(within))).finally(() => prisma.$disconnect());
  },
};

/** Those that are large are checks of their own. */
const SKIPPED = { Prisma: process.env.NODE_PRISMA === undefined && '`make test-node-prisma` runs it' };

for (const [name, within] of Object.entries(LIBRARIES)) {
  const skip = SKIPPED[name] ?? false;
  test(`a job is submitted within a transaction of ${name}, and a rollback leaves nothing`, { skip }, async (t) => {
    const store = process.env.NODE_STORE;
    const app = closed(t, new App(store));
    const kind = `within-${name}`;
    const job = app.job(kind, { retries: 0 }, (payload) => payload);
    // The SQL functions are there once the store has been opened.
    assert.equal((await app.counts({ job })).waiting, 0);
    let one, many;
    await within(store, async (transaction) => {
      one = await job.submitWithin(transaction, { text: 'a "b" \\' }, { priority: 5, queue: 'default', tags: { a: 'b' }, delay: '0ms' });
      many = await job.submitManyWithin(transaction, [1, 'two', null]);
      assert.equal((await app.counts({ job })).waiting, 0);
      return true;
    });
    await within(store, async (transaction) => {
      await job.submitWithin(transaction, 'lost', { key: 'k' });
      return false;
    });
    assert.deepEqual(await app.drain(), { completed: 4, failed: 0 });
    assert.deepEqual([await one.result(), await many.results()], [{ text: 'a "b" \\' }, [1, 'two', null]]);
    assert.equal((await one.details()).priority, 5);
  });
}

test('a connection in no transaction is refused where its library says so', async (t) => {
  const store = process.env.NODE_STORE;
  const job = closed(t, new App(store)).job('outside');
  const { Kysely, PostgresDialect } = clients('kysely');
  const kysely = new Kysely({ dialect: new PostgresDialect({ pool: new (clients('pg').Pool)({ connectionString: store }) }) });
  const knex = clients('knex')({ client: 'pg', connection: store });
  try {
    for (const database of [kysely, knex]) await assert.rejects(job.submitWithin(database, 1), /in no transaction/);
  } finally {
    await Promise.all([kysely.destroy(), knex.destroy()]);
  }
});

test('a database that cannot be reached is told', async () => {
  const app = new App('postgresql://127.0.0.1:1/nowhere');
  await assert.rejects(app.counts(), /StoreError/);
});
