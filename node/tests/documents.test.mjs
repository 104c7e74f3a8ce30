// Compiles the examples of docs/typescript.md as strict TypeScript, and runs each: its output is the text that follows it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { atEnd, place, server } from './stores.mjs';

const run = promisify(execFile);
const ROOT = new URL('../..', import.meta.url).pathname;
const TOOLS = process.env.TYPESCRIPT_MODULES ?? join(ROOT, 'web/node_modules');
// An installed package, or that of this folder.
const PACKAGE = process.env.GRISTMILL_PACKAGE ?? join(ROOT, 'node');

/** The examples: name, code, and the expected output. */
function examples() {
  const text = readFileSync(join(ROOT, 'docs/typescript.md'), 'utf8');
  const found = [...text.matchAll(/```ts\n(\/\/ ([\w-]+)\.ts[^\n]*\n[\s\S]*?)```\n(?:\n```text\n([\s\S]*?)```\n)?/g)];
  // frameworks.test.mjs compiles and runs those that need packages of others.
  return found.map(([, code, name, output]) => ({ code, name, output })).filter(({ code }) => !/^\/\/ .*, needs @/.test(code));
}

test('the examples of docs/typescript.md compile, and print what the page says', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'gristmill-documents-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'node_modules', '@types'), { recursive: true });
  symlinkSync(PACKAGE, join(folder, 'node_modules/gristmill'));
  symlinkSync(join(TOOLS, '@types/node'), join(folder, 'node_modules/@types/node'));
  symlinkSync(join(TOOLS, 'undici-types'), join(folder, 'node_modules/undici-types'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const listed = examples();
  assert.ok(listed.length >= 8, `${listed.length} examples`);
  for (const { name, code } of listed) writeFileSync(join(folder, `${name}.ts`), code);
  const compiler = join(TOOLS, 'typescript/bin/tsc');
  const options = ['--strict', '--target', 'es2022', '--lib', 'es2023,esnext.disposable', '--module', 'nodenext', '--types', 'node'];
  const compiled = run(process.execPath, [compiler, ...options, ...listed.map(({ name }) => `${name}.ts`)], { cwd: folder });
  await compiled.catch((error) => assert.fail(error.stdout));
  const address = await server(t, place(t));
  await Promise.all(listed.map(async ({ name, output }) => {
    const env = { ...process.env, SERVER: address };
    const { stdout } = await run(process.execPath, [join(folder, `${name}.js`)], { cwd: folder, env, timeout: 60_000 });
    assert.equal(stdout, output ?? '', `the output of ${name}.ts`);
  }));
});
