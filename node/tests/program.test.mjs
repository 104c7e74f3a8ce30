// The program `gristmill`, as `npx gristmill` starts it.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { atEnd } from './stores.mjs';

const program = process.env.GRISTMILL ?? new URL('../../target/debug/gristmill', import.meta.url).pathname;
const libc = process.report.getReport().header.glibcVersionRuntime === undefined ? 'musl' : 'gnu';
const platform = `${process.platform}-${process.arch}-${libc}`;

/** The runtimes that run the program's script: one becomes the program, the other starts it as a child. */
const nodes = [process.execPath, join(process.env.RUNTIMES ?? '', 'node24/bin/node')].filter((path) => existsSync(path));

/** A folder with the package installed, and with the program's package if it is asked for. Returns the path of the script. */
function installed(t, hasProgram) {
  const folder = mkdtempSync(join(tmpdir(), 'gristmill-npx-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  const modules = join(folder, 'node_modules');
  cpSync(new URL('../dist', import.meta.url), join(modules, 'gristmill', 'dist'), { recursive: true });
  cpSync(new URL('../package.json', import.meta.url), join(modules, 'gristmill', 'package.json'));
  if (hasProgram) {
    mkdirSync(join(modules, `gristmill-${platform}`, 'bin'), { recursive: true });
    symlinkSync(program, join(modules, `gristmill-${platform}`, 'bin', 'gristmill'));
  }
  return { folder, script: join(modules, 'gristmill', 'dist', 'program.js') };
}

for (const node of nodes) {
  test(`the program runs with its words, input and exit status (${node})`, { timeout: 120_000 }, (t) => {
    const { folder, script } = installed(t, true);
    const run = (words, input) => spawnSync(node, [script, ...words], { cwd: folder, input, encoding: 'utf8' });
    const version = run(['--version']);
    assert.match(version.stdout, /^gristmill \d/);
    assert.deepEqual([version.status, version.stderr], [0, '']);
    const wrong = run(['submit', '--no-such-option']);
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /--no-such-option/);
    const submitted = run(['submit', 'resize', '--store', 'jobs.db', '--input', '-'], '{"picture": 1}\n{"picture": 2}\n');
    assert.equal(submitted.status, 0, submitted.stderr);
    assert.match(run(['jobs', '--store', 'jobs.db']).stdout, /resize/);
  });

  test(`a signal reaches the program, which ends by itself (${node})`, { timeout: 120_000 }, async (t) => {
    const { folder, script } = installed(t, true);
    const child = spawn(node, [script, 'serve', '--store', 'jobs.db', '--listen', '127.0.0.1:0'], { cwd: folder });
    atEnd(t, () => child.kill('SIGKILL'));
    const ended = once(child, 'exit');
    // The server listens when it has told its address.
    await Promise.race([once(child.stdout, 'data'), once(child.stderr, 'data')]);
    child.kill('SIGTERM');
    const [code, signal] = await ended;
    assert.deepEqual([code, signal], [143, null]);
  });
}

test('without a program for the platform, the error names the package', (t) => {
  const { folder, script } = installed(t, false);
  const run = spawnSync(process.execPath, [script, '--version'], { cwd: folder, encoding: 'utf8' });
  assert.equal(run.status, 1);
  assert.match(run.stderr, new RegExp(`^error: .*install the package gristmill-${platform} `));
});
