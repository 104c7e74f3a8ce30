// The package on other runtimes: a server's from Deno and Bun; transactions of SQLite on a newer Node. `make runtimes` installs them.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { atEnd, place, server } from './stores.mjs';

const run = promisify(execFile);
const TOOLS = process.env.RUNTIMES ?? new URL('../../build/tools', import.meta.url).pathname;
const DIST = new URL('../dist/index.js', import.meta.url).href;

function script(t, code) {
  const folder = mkdtempSync(join(tmpdir(), 'gristmill-runtimes-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'main.mjs');
  writeFileSync(path, code);
  return path;
}

function program(name) {
  const path = join(TOOLS, name);
  assert.ok(existsSync(path), `${path} is missing: run \`make runtimes\``);
  return path;
}

const OVER_HTTP = `
import { App } from ${JSON.stringify(DIST)};
const app = new App(process.env.SERVER);
const double = app.job('double', { retries: 0 }, async (number) => 2 * number);
const approved = app.flow('approved', async (flow, number) => {
  const doubled = await flow.step(double, number);
  return [doubled, typeof flow.uuid(), await flow.event('approve'), flow.id === id];
});
const worker = await app.worker();
const { id } = await approved.submit(4);
await app.sendEvent(id, 'approve', 'Ada');
console.log(JSON.stringify(await app.result(id, { timeout: '30s' })));
const events = app.events();
const first = events.next();
const handle = await double.submit(21);
console.log(await handle.result({ timeout: '30s' }));
const submits = setInterval(() => double.submit(1).catch(() => {}), 50);
await first;
clearInterval(submits);
await events.return();
const all = [];
for await (const value of app.map((number) => number + 1, [1, 2, 3])) all.push(value);
console.log(all.join());
await worker.stop();
await app.close();
const local = new App('jobs.db');
try {
  await local.counts();
} catch (error) {
  console.log(error.message.includes('https://') ? 'no addon' : error.message);
}
`;

for (const [name, args] of [['bin/deno', ['run', '--quiet', '--allow-env', '--allow-net', '--allow-read']], ['bin/bun', []]]) {
  test(`jobs of a server are submitted, run and mapped in ${name}`, async (t) => {
    const env = { ...process.env, SERVER: await server(t, place(t)), GRISTMILL_ADDON: '/nowhere.node', NO_COLOR: '1' };
    const path = script(t, OVER_HTTP.replaceAll('process.env', '(globalThis.Deno?.env.toObject() ?? process.env)'));
    const { stdout } = await run(program(name), [...args, path], { env, timeout: 60_000 });
    assert.equal(stdout, '[8,"string","Ada",true]\n42\n2,3,4\nno addon\n');
  });
}

const WITHIN = `
DATABASE
import { App } from ${JSON.stringify(DIST)};
const store = process.env.STORE;
const app = new App(store);
const job = app.job('mail', (payload) => payload);
await app.counts();
try {
  await job.submitWithin(new Database(':memory:'), 1);
} catch (error) {
  console.log(error.message.slice(0, 34));
}
await app.close();
const database = new Database(store);
database.exec('CREATE TABLE own (n INTEGER)');
for (const end of ['ROLLBACK', 'COMMIT']) {
  database.exec('BEGIN IMMEDIATE');
  database.exec('INSERT INTO own VALUES (1)');
  await job.submitWithin(database, { end }, { tags: { a: 'b' }, priority: 3 });
  const many = await job.submitManyWithin(database, [1, 2, 3]);
  console.log(many.length);
  database.exec(end);
}
console.log(database.prepare('SELECT count(*) AS n FROM own').get().n);
database.close();
console.log(JSON.stringify(await app.drain()));
for await (const row of app.find({ tags: { a: 'b' } })) console.log((await app.details(row.job)).value.end, row.priority);
await app.close();
`;

const CLIENTS = JSON.stringify(join(process.env.NODE_CLIENTS ?? '.', 'index.js'));

/** Other libraries of SQLite, as the class `Database` of their connections. */
const LIBRARIES = {
  'node:sqlite': "import { DatabaseSync as Database } from 'node:sqlite';",
  'better-sqlite3': `import { createRequire } from 'node:module'; const Database = createRequire(${CLIENTS})('better-sqlite3');`,
};

for (const [name, statement] of Object.entries(LIBRARIES)) {
  test(`a job is submitted within a transaction of ${name}, and a rollback leaves nothing`, async (t) => {
    const env = { ...process.env, STORE: place(t), NODE_NO_WARNINGS: '1' };
    const path = script(t, WITHIN.replace('DATABASE', statement));
    const { stdout } = await run(program('node24/bin/node'), [path], { env, timeout: 60_000 });
    assert.equal(stdout, 'this application has the file open\n3\n3\n1\n{"completed":4,"failed":0}\nCOMMIT 3\n');
  });
}
