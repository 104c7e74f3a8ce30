// Stores for tests: a file in a temporary folder, a server of its own.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const endings = new WeakMap();

/** Does this after the test, before what was asked for earlier. */
export function atEnd(t, task) {
  if (!endings.has(t)) {
    const tasks = [];
    endings.set(t, tasks);
    t.after(async () => {
      for (const task of tasks.reverse()) await task();
    });
  }
  endings.get(t).push(task);
}

/** A path for a store, which is removed after the test. */
export function place(t) {
  const folder = mkdtempSync(join(tmpdir(), 'gristmill-node-'));
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }));
  return join(folder, 'jobs.db');
}

/** Closes an application after the test, before its store is removed. */
export function closed(t, app) {
  atEnd(t, () => app.close());
  return app;
}

/** The URL of a server over a store, which ends after the test. */
export async function server(t, store) {
  const program = process.env.GRISTMILL ?? new URL('../../target/debug/gristmill', import.meta.url).pathname;
  const child = spawn(program, ['serve', '--store', store, '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  atEnd(t, async () => {
    child.kill('SIGTERM');
    await ended;
  });
  let said = '';
  const url = new Promise((resolve, reject) => {
    const look = (bytes) => {
      said += bytes;
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
      if (found !== null) resolve(found[0]);
    };
    child.stdout.on('data', look);
    child.stderr.on('data', look);
    child.once('exit', () => reject(new Error(`the server ended: ${said}`)));
  });
  return url;
}

/**
 * The URL of a server that answers as it is told: `answer` gets the method, the path and the body, and gives the status, the body
 * and the headers. Without them the request stays unanswered; `answer` gets the response as well.
 */
export async function scripted(t, answer) {
  const listening = createServer(async (request, response) => {
    let body = '';
    for await (const bytes of request) body += bytes;
    const given = answer(request.method, request.url.replace('/api/v1', ''), body, response);
    if (given === undefined) return;
    const { status = 200, headers = {} } = given;
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(typeof given.body === 'string' ? given.body : JSON.stringify(given.body ?? {}));
  });
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  atEnd(t, () => {
    listening.closeAllConnections();
    listening.close();
  });
  return `http://127.0.0.1:${listening.address().port}`;
}

/** A promise with its functions. */
export function deferred() {
  let settle;
  const promise = new Promise((resolve, reject) => { settle = { resolve, reject }; });
  return { promise, ...settle };
}
