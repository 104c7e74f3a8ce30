#!/usr/bin/env node
// The program `gristmill`, as `npx gristmill` runs it: this process becomes the program of the platform's package.

import { type Builtins, type Process, platformOf } from './platform.js';

interface Program extends Process {
  argv: string[];
  pid: number;
  exitCode?: number;
  stderr: { write(text: string): unknown };
  getBuiltinModule<Name extends keyof Builtins>(name: Name): Builtins[Name];
  kill(pid: number, signal: string): unknown;
  on(event: string, listener: () => void): unknown;
  removeAllListeners(event: string): unknown;
  execve?(program: string, words: string[], environment: Record<string, string | undefined>): never;
}

/** Signals that the program gets, too. */
const SIGNALS = ['SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR2'];
/** The platforms that have a package. */
const PLATFORMS = ['linux-x64-gnu', 'linux-arm64-gnu'];

const { process } = globalThis as unknown as { process: Program };

function fail(text: string): void {
  process.stderr.write(`error: ${text}\n`);
  process.exitCode = 1;
}

/** The path of the program; null where no package has it. */
function find(name: string): string | null {
  const require = process.getBuiltinModule('node:module').createRequire(import.meta.url);
  try {
    return require.resolve(`${name}/bin/gristmill`);
  } catch {
    return null;
  }
}

/** Runs the program as a child, for runtimes that cannot become another program. */
function start(path: string, words: string[]): void {
  const child = process.getBuiltinModule('node:child_process').spawn(path, words, { stdio: 'inherit' });
  for (const signal of SIGNALS) process.on(signal, () => child.kill(signal));
  // A terminal sends Ctrl-C to the program by itself.
  const hasTerminal = process.getBuiltinModule('node:tty').isatty(0);
  process.on('SIGINT', () => {
    if (!hasTerminal) child.kill('SIGINT');
  });
  child.on('error', (error) => fail(`${path} does not start: ${error.message}`));
  child.on('exit', (code, signal) => {
    if (signal === null) {
      process.exitCode = code ?? 1;
      return;
    }
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

function main(): void {
  const platform = platformOf(process);
  const name = `gristmill-${platform}`;
  const path = find(name);
  if (path === null) {
    const remedy = PLATFORMS.includes(platform) ? `install the package ${name} in the version of the package gristmill, or ` : '';
    fail(`the program for ${platform} is not installed: ${remedy}build it by \`cargo build --release\``);
    return;
  }
  const words = process.argv.slice(2);
  if (process.execve !== undefined) process.execve(path, [path, ...words], process.env);
  start(path, words);
}

main();
