// @ts-check
/**
 * Fills a store, and measures the server and its dashboard on it: measure.mjs JOBS LOADS. The store is the PostgreSQL of
 * WEB_STORE, or SQLite. Prints JSON.
 */

import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as pass } from "node:timers/promises";
import { browser, NOTES, Server, until } from "../../web/tests/fixture.mjs";
import { measureDrain } from "./drain.mjs";
import {
  addOthers,
  BUSY_SCRIPT,
  QUEUES,
  SCRIPT,
  submitMix,
  WORKED,
} from "./mix.mjs";
import { loadTimes, pages, SEARCHES } from "./pages.mjs";
import { percentile, readOpen, timed, times } from "./request.mjs";

const [jobs = 10_000_000, loads = 40] = process.argv.slice(2).map(Number);
const BACKLOG_READS = 200;
const SEARCH_READS = 20;
/** Processes of the worker whose drain is measured: as many as this machine has processors. */
const PROCESSES = availableParallelism();
const LOOK_EVERY_MS = 100;

const say = (/** @type {string} */ what) =>
  process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${what}\n`);
const summary = (/** @type {number[]} */ samples) => ({
  p50: percentile(samples, 0.5),
  p95: percentile(samples, 0.95),
  max: Math.max(...samples),
  first: samples[0],
});

/** The highest resident memory of a process so far. Bytes. @param {number} pid */
const peakBytes = (pid) =>
  1024 *
  Number(
    /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1],
  );

/** Works on what is due, in so many processes. @param {string} script @param {number} processes */
const startWorker = (script, processes) =>
  server.run(
    "worker",
    ...WORKED.map(() => script),
    ...WORKED.flatMap((kind) => ["--kind", kind]),
    ...QUEUES.flatMap((queue) => ["--queue", queue]),
    "-j",
    String(processes),
    "--quiet",
  );

const server = new Server();
/** @type {Record<string, any>} */
const found = { jobs };
try {
  server.remember(NOTES);
  await server.start("--memory", "kb.db");
  const pid = Number(server.server?.pid);
  await addOthers(server, jobs / 500);
  writeFileSync(join(server.folder, "mix.py"), SCRIPT);
  writeFileSync(join(server.folder, "busy.py"), BUSY_SCRIPT);
  let began = performance.now();
  await submitMix(server, jobs);
  found["submit_seconds"] = (performance.now() - began) / 1_000;
  say(`submitted in ${found["submit_seconds"].toFixed(0)} s`);

  const backlog = `${server.url}/api/v1/backlog`;
  const { body } = await timed(backlog);
  found["backlog_jobs"] = body.jobs + body.held_back + body.later;
  found["backlog"] = summary(await times(backlog, BACKLOG_READS));
  found["backlog_of_a_kind"] = summary(
    await times(`${backlog}?kind=resize&queue=default`, BACKLOG_READS),
  );
  const unknown = (await timed(`${backlog}?kind=unknown`)).body.jobs;
  if (unknown !== 0)
    throw new Error(`an unknown kind has a backlog of ${unknown}`);
  say(`backlog: ${JSON.stringify(found["backlog"])}`);

  const busy = startWorker("busy.py", PROCESSES);
  found["drain"] = await measureDrain(server, await browser(), jobs);
  busy.kill("SIGTERM");
  await once(busy, "exit");
  say(`drain: ${JSON.stringify(found["drain"])}`);
  began = performance.now();
  startWorker("mix.py", 1);
  while ((await readOpen(server.url, WORKED)) > 0) await pass(LOOK_EVERY_MS);
  found["drain_seconds"] = (performance.now() - began) / 1_000;
  found["peak_bytes_drain"] = peakBytes(pid);
  say(`drained the rest in ${found["drain_seconds"].toFixed(0)} s`);

  found["states"] = (await server.api("GET", "/jobs/count")).states;
  const newest = (
    await server.api("GET", "/jobs?newest=true&limit=1&states=completed")
  ).jobs[0].job;
  const dead = (
    await server.api("GET", "/jobs?newest=true&limit=1&states=dead")
  ).jobs[0].job;
  const ids = { batch: Number(dead.split(":")[0]), completed: newest, dead };
  await until(
    async () => (await server.api("GET", "/workers")).workers.length > 0,
    "the worker",
  );
  const chromium = await browser();
  found["pages"] = [];
  for (const [title, path, wanted] of pages(ids)) {
    const { first, whole, asked } = await loadTimes(
      chromium,
      server.url,
      path,
      wanted,
      loads,
    );
    found["pages"].push({
      title,
      path,
      first: summary(first),
      whole: summary(whole),
      asked,
    });
    say(
      `${title}: p95 ${percentile(first, 0.95).toFixed(0)} ms, whole ${percentile(whole, 0.95).toFixed(0)} ms ${JSON.stringify(asked)}`,
    );
  }
  found["searches"] = [];
  for (const text of SEARCHES) {
    const path = `${server.url}/api/v1/jobs?text=${encodeURIComponent(text)}`;
    const { body } = await timed(path);
    const took = await times(path, SEARCH_READS);
    const shown = await loadTimes(
      chromium,
      server.url,
      `jobs?text=${encodeURIComponent(text)}`,
      ".search-bound",
      loads,
    );
    found["searches"].push({
      text,
      searched: body.searched.jobs,
      hits: body.jobs.length,
      request: summary(took),
      shown: summary(shown.first),
    });
    say(`search: ${JSON.stringify(found["searches"].at(-1))}`);
  }
  await chromium.close();
  found["changes"] = [];
  const filter = { kind: "crawl", states: ["waiting"] };
  const paused = { kind: "crawl", states: ["paused"] };
  for (const [verb, body] of /** @type {const} */ ([
    ["pause", { filter, reason: "measured" }],
    ["resume", { filter: paused, reason: "measured" }],
    ["prioritise", { filter, priority: 10 }],
    ["cancel", { filter }],
  ])) {
    began = performance.now();
    const { changed } = await server.api("POST", `/jobs/${verb}`, body);
    found["changes"].push({ verb, changed, ms: performance.now() - began });
  }
  say(`changes: ${JSON.stringify(found["changes"])}`);
  found["peak_bytes"] = peakBytes(pid);
  say(`memory: ${(found["peak_bytes"] / 2 ** 20).toFixed(0)} MiB`);
} finally {
  await server.stop();
}
process.stdout.write(`${JSON.stringify(found)}\n`);
