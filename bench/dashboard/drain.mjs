// @ts-check
/** The drain of waiting jobs by a worker in processes of its own: in turn alone, and with what five open tabs ask. */

import { readFileSync } from "node:fs";
import { setTimeout as pass } from "node:timers/promises";
import { WORKED } from "./mix.mjs";
import { percentile, readOpen } from "./request.mjs";
import { openTabs, recordTabs, replayTabs } from "./tabs.mjs";

/** Pairs of a part alone and one with tabs, which take turns at being the first. */
const PAIRS = 12;
/**
 * How long each thing takes, in a store of 10,000,000 jobs; less in smaller ones. Milliseconds.
 * The worker has begun before the tabs are recorded.
 */
const WARM_UP_MS = 5_000;
const RECORDED_MS = 8_000;
const PART_MS = 2_500;
const FULL_JOBS = 10_000_000;
const TICKS_PER_SECOND = 100;

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

/** @typedef {{jobs_per_second: number, server_cores: number, tabs_cores: number, idle_cores: number}} Part */

/** The medians of the parts. @param {Part[]} parts @returns {Part} */
function medians(parts) {
  const median = (/** @type {keyof Part} */ of) =>
    percentile(
      parts.map((part) => part[of]),
      0.5,
    );
  return {
    jobs_per_second: median("jobs_per_second"),
    server_cores: median("server_cores"),
    tabs_cores: median("tabs_cores"),
    idle_cores: median("idle_cores"),
  };
}

/**
 * Measures a worker that keeps all processors busy, and closes the browser.
 * @param {import("../../web/tests/fixture.mjs").Server} server
 * @param {import("playwright-core").Browser} chromium
 * @param {number} jobs in the store
 */
export async function measureDrain(server, chromium, jobs) {
  const part_ms = (PART_MS * jobs) / FULL_JOBS;
  const pid = Number(server.server?.pid);
  const tabs = await openTabs(chromium, server.url);
  await pass((WARM_UP_MS * jobs) / FULL_JOBS);
  const recorded = await recordTabs(tabs, () =>
    pass((RECORDED_MS * jobs) / FULL_JOBS),
  );
  await chromium.close();

  /** The next part of the drain. @returns {Promise<Part>} */
  const next = async () => {
    const cpu = processorSeconds(pid);
    const own = process.cpuUsage();
    const idle = idleSeconds();
    const begun = performance.now();
    const before = await readOpen(server.url, WORKED);
    const counted = performance.now();
    await pass(part_ms);
    const after = await readOpen(server.url, WORKED);
    const seconds = (performance.now() - begun) / 1_000;
    const { user, system } = process.cpuUsage(own);
    if (after === 0)
      throw new Error("the worker ran out of jobs: measure with more");
    return {
      jobs_per_second:
        (before - after) / ((performance.now() - counted) / 1_000),
      server_cores: (processorSeconds(pid) - cpu) / seconds,
      tabs_cores: (user + system) / 1_000_000 / seconds,
      idle_cores: (idleSeconds() - idle) / seconds,
    };
  };
  const alone = [];
  const watched = [];
  const asked = { answers: 0, bytes: 0 };
  const watch = async () => {
    const stop = replayTabs(server.url, recorded);
    watched.push(await next());
    const { answers, bytes } = stop();
    asked.answers += answers;
    asked.bytes += bytes;
  };
  for (let pair = 0; pair < PAIRS; pair += 1) {
    if (pair % 2 === 1) await watch();
    alone.push(await next());
    if (pair % 2 === 0) await watch();
  }
  const lost = alone.map(
    (part, pair) =>
      100 * (1 - (watched[pair]?.jobs_per_second ?? 0) / part.jobs_per_second),
  );
  const watched_seconds = (PAIRS * part_ms) / 1_000;
  return {
    alone: medians(alone),
    watched: medians(watched),
    pairs_lost_percent: lost,
    lost_percent: percentile(lost, 0.5),
    answers_per_second: asked.answers / watched_seconds,
    bytes_per_second: asked.bytes / watched_seconds,
  };
}
