// The examples for web frameworks of docs/typescript.md, run with the real ones. NODE_CLIENTS is the folder in which they are installed.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { App } from 'gristmill';
import { atEnd, closed } from './stores.mjs';

const TOOLS = process.env.TYPESCRIPT_MODULES ?? new URL('../../web/node_modules', import.meta.url).pathname;
const MODULES = join(process.env.NODE_CLIENTS ?? '.', 'node_modules');

/** A folder with the page's modules and with the packages that they import. */
function folderOf(t) {
  const folder = mkdtempSync(join(tmpdir(), 'gristmill-frameworks-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  const modules = join(folder, 'node_modules');
  mkdirSync(modules);
  for (const name of readdirSync(MODULES)) if (!name.startsWith('.')) symlinkSync(join(MODULES, name), join(modules, name));
  symlinkSync(new URL('..', import.meta.url).pathname, join(modules, 'gristmill'));
  const page = readFileSync(new URL('../../docs/typescript.md', import.meta.url), 'utf8');
  for (const [, code, name] of page.matchAll(/```js\n(\/\/ ([\w-]+\.mjs)[^\n]*\n[\s\S]*?)```/g)) writeFileSync(join(folder, name), code);
  return folder;
}

/** Compiles an example in TypeScript with the types of its packages. */
async function compile(folder, name) {
  const page = readFileSync(new URL('../../docs/typescript.md', import.meta.url), 'utf8');
  const found = new RegExp(`\`\`\`ts\\n(// ${name}\\.ts[\\s\\S]*?)\`\`\``).exec(page);
  const [, code] = found ?? assert.fail(`docs/typescript.md has no ${name}.ts`);
  writeFileSync(join(folder, `${name}.ts`), code);
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const options = [
    '--strict', '--target', 'es2022', '--lib', 'es2023,esnext.disposable', '--module', 'nodenext', '--skipLibCheck',
    '--experimentalDecorators', '--emitDecoratorMetadata', '--types', 'node', '--typeRoots', join(TOOLS, '@types'),
  ];
  const compiled = promisify(execFile)(process.execPath, [join(TOOLS, 'typescript/bin/tsc'), ...options, `${name}.ts`], { cwd: folder });
  await compiled.catch((error) => assert.fail(error.stdout));
}

/** Servers of frameworks, with the ends of their processes after SIGTERM. */
const SERVERS = { express: [0, null], fastify: [0, null], hono: [0, null], nest: [null, 'SIGTERM'] };

for (const [name, end] of Object.entries(SERVERS)) {
  test(`a server of ${name} submits, awaits and ends`, { timeout: 120_000 }, async (t) => {
    const folder = folderOf(t);
    if (name === 'nest') await compile(folder, name);
    const env = { ...process.env, PORT: '0', STORE: join(folder, 'jobs.db') };
    const script = join(folder, name === 'nest' ? 'nest.js' : `${name}.mjs`);
    const child = spawn(process.execPath, [script], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    atEnd(t, () => child.kill('SIGKILL'));
    const ended = once(child, 'exit');
    const said = await Promise.race([once(createInterface(child.stdout), 'line'), ended]);
    const [, port] = /^listening on (\d+)$/.exec(said[0]) ?? assert.fail(`it said ${said[0]}`);
    const address = `http://127.0.0.1:${port}/pictures`;
    const headers = { 'content-type': 'application/json', connection: 'close' };
    const answer = await fetch(address, { method: 'POST', headers, body: '{"width":640}' });
    assert.equal(answer.status, 202);
    const { job } = await answer.json();
    const result = await fetch(`${address}/${job}`, { headers: { connection: 'close' } });
    assert.deepEqual(await result.json(), { width: 320 });
    child.kill('SIGTERM');
    assert.deepEqual(await ended, end);
  });
}

test('a route handler of Next.js submits', async (t) => {
  const folder = folderOf(t);
  const store = join(folder, 'jobs.db');
  process.env.STORE = store;
  atEnd(t, () => delete process.env.STORE);
  const { POST } = await import(join(folder, 'route.mjs'));
  const answer = await POST(new Request('http://localhost/pictures', { method: 'POST', body: '{"width":640}' }));
  assert.equal(answer.status, 202);
  const { app } = await import(join(folder, 'jobs.mjs'));
  await app.close();
  const reader = closed(t, new App(store));
  assert.equal(await reader.handle((await answer.json()).job).state(), 'waiting');
});
