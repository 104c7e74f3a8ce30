// @ts-check
/** The drain of waiting jobs by a worker in a process of its own, before any tab was open and with five tabs. */

import { readFileSync } from "node:fs";
import { readBacklog } from "./request.mjs";

/** The tabs: the pages that ask for most. */
const TABS = ["", "jobs", "batches", "queues", "history"];
/** Of the jobs, this part is drained before the measuring begins, and then with each number of tabs. */
const WARM_UP = 0.1;
const MEASURED = 0.4;
const TICKS_PER_SECOND = 100;
const WAIT_MS = 50;

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

/** Waits until at most so many jobs are left, and tells when and how many. @param {string} url @param {number} jobs_left */
async function leftAtMost(url, jobs_left) {
  for (;;) {
    const { jobs } = await readBacklog(url);
    if (jobs <= jobs_left) return { jobs, at: performance.now() };
    await new Promise((ready) => setTimeout(ready, WAIT_MS));
  }
}

/**
 * Drains all due jobs; nobody has listened to events before.
 * @param {import("../../web/tests/fixture.mjs").Server} server
 * @param {() => import("node:child_process").ChildProcess} startWorker
 * @param {() => Promise<import("playwright-core").Browser>} startBrowser
 */
export async function measureDrain(server, startWorker, startBrowser) {
  const pid = Number(server.server?.pid);
  const all = (await readBacklog(server.url)).jobs;
  startWorker();
  let left = all * (1 - WARM_UP);
  let from = await leftAtMost(server.url, left);
  const measured = async () => {
    const cpu = processorSeconds(pid);
    const idle = idleSeconds();
    const begun = from;
    left = Math.max(0, left - all * MEASURED);
    from = await leftAtMost(server.url, left);
    const seconds = Math.max(from.at - begun.at, 1) / 1_000;
    return {
      jobs_per_second: (begun.jobs - from.jobs) / seconds,
      server_cores: (processorSeconds(pid) - cpu) / seconds,
      idle_cores: (idleSeconds() - idle) / seconds,
      seconds,
    };
  };
  const alone = await measured();
  const chromium = await startBrowser();
  const context = await chromium.newContext({
    viewport: { width: 1280, height: 860 },
  });
  let requests = 0;
  context.on("response", () => (requests += 1));
  for (const path of TABS) {
    const page = await context.newPage();
    await page.goto(`${server.url}/#/${path}`);
    await page.locator("main h1").waitFor({ timeout: 60_000 });
  }
  from = await leftAtMost(server.url, left);
  left = from.jobs;
  requests = 0;
  const watched = await measured();
  const per_second = requests / Math.max(watched.seconds, 0.001);
  await chromium.close();
  await leftAtMost(server.url, 0);
  return {
    alone,
    watched,
    requests_per_second: per_second,
    // Few jobs are drained before the tabs are open: then there is nothing to compare.
    lost_percent: watched.jobs_per_second > 0 ? 100 * (1 - watched.jobs_per_second / alone.jobs_per_second) : null,
  };
}
