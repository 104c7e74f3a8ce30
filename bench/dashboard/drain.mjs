// @ts-check
/** The drain of waiting jobs by a worker in a process of its own: in turn with hidden tabs, which ask nothing, and with five shown. */

import { readFileSync } from "node:fs";
import { WORKED } from "./mix.mjs";
import { percentile, readOpen } from "./request.mjs";

/** The tabs: the pages that ask for most. */
const TABS = ["", "jobs", "batches", "queues", "history"];
/** Of the jobs, this part is drained before the measuring begins. */
const WARM_UP = 0.1;
/** Pairs of a part with hidden tabs and one with five shown, and the part of all jobs in each of the two. */
const PAIRS = 5;
const MEASURED = 0.08;
const TICKS_PER_SECOND = 100;
const WAIT_MS = 100;

/** Processor seconds of a process. @param {number} pid */
function processorSeconds(pid) {
  const fields =
    readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

/** The part of all processor time that nothing used, so far. */
function idleSeconds() {
  const fields =
    readFileSync("/proc/stat", "utf8").split("\n", 1)[0]?.split(/\s+/) ?? [];
  return (Number(fields[4]) + Number(fields[5])) / TICKS_PER_SECOND;
}

/** Waits until at most so many jobs are left; how many, and when they were counted. @param {string} url @param {number} jobs_left */
async function leftAtMost(url, jobs_left) {
  for (;;) {
    const jobs = await readOpen(url, WORKED);
    if (jobs <= jobs_left) return { jobs, at: performance.now() };
    await new Promise((ready) => setTimeout(ready, WAIT_MS));
  }
}

/** @typedef {{jobs_per_second: number, server_cores: number, idle_cores: number, seconds: number}} Part */

/** The medians of the parts. @param {Part[]} parts */
function medians(parts) {
  const median = (/** @type {keyof Part} */ of) =>
    percentile(
      parts.map((part) => part[of]),
      0.5,
    );
  return {
    jobs_per_second: median("jobs_per_second"),
    server_cores: median("server_cores"),
    idle_cores: median("idle_cores"),
    seconds: median("seconds"),
  };
}

/** Runs in a page: shows or hides its tab. @param {boolean} shown */
function show(shown) {
  Object.defineProperty(document, "hidden", {
    value: !shown,
    configurable: true,
  });
  document.dispatchEvent(new Event("visibilitychange"));
}

/**
 * Drains all due jobs; nobody has listened to events before.
 * @param {import("../../web/tests/fixture.mjs").Server} server
 * @param {() => import("node:child_process").ChildProcess} startWorker
 * @param {() => Promise<import("playwright-core").Browser>} startBrowser
 */
export async function measureDrain(server, startWorker, startBrowser) {
  const pid = Number(server.server?.pid);
  const all = await readOpen(server.url, WORKED);
  const chromium = await startBrowser();
  const context = await chromium.newContext({
    viewport: { width: 1280, height: 860 },
  });
  const tabs = [];
  for (const path of TABS) {
    const page = await context.newPage();
    await page.goto(`${server.url}/#/${path}`);
    await page.locator("main h1").waitFor({ timeout: 60_000 });
    await page.evaluate(show, false);
    tabs.push(page);
  }
  let requests = 0;
  context.on("response", () => (requests += 1));
  startWorker();
  await leftAtMost(server.url, all * (1 - WARM_UP));

  /** The next part of the jobs. @returns {Promise<Part>} */
  const next = async () => {
    const begun = await leftAtMost(server.url, all);
    const cpu = processorSeconds(pid);
    const idle = idleSeconds();
    const from = performance.now();
    const end = await leftAtMost(
      server.url,
      Math.max(0, begun.jobs - all * MEASURED),
    );
    const used_seconds = (performance.now() - from) / 1_000;
    const seconds = Math.max(end.at - begun.at, 1) / 1_000;
    return {
      jobs_per_second: (begun.jobs - end.jobs) / seconds,
      server_cores: (processorSeconds(pid) - cpu) / used_seconds,
      idle_cores: (idleSeconds() - idle) / used_seconds,
      seconds,
    };
  };
  const alone = [];
  const watched = [];
  let watched_seconds = 0;
  let asked = 0;
  for (let pair = 0; pair < PAIRS; pair += 1) {
    alone.push(await next());
    for (const page of tabs) await page.evaluate(show, true);
    requests = 0;
    const part = await next();
    watched.push(part);
    asked += requests;
    watched_seconds += part.seconds;
    for (const page of tabs) await page.evaluate(show, false);
  }
  await chromium.close();
  await leftAtMost(server.url, 0);
  const found = { alone: medians(alone), watched: medians(watched) };
  const pairs = alone.map(
    (part, pair) =>
      100 * (1 - (watched[pair]?.jobs_per_second ?? 0) / part.jobs_per_second),
  );
  return {
    ...found,
    pairs_lost_percent: pairs,
    requests_per_second: asked / Math.max(watched_seconds, 0.001),
    lost_percent:
      100 * (1 - found.watched.jobs_per_second / found.alone.jobs_per_second),
  };
}
