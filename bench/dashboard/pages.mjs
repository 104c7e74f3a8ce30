// @ts-check
/** Time from the start of a navigation until the browser has painted a page's first content. */

import { NEEDLE } from "./mix.mjs";

const ROWS = "main tbody tr[data-row]";

/**
 * Each page with what counts as its content.
 * @param {{batch: number, completed: string, dead: string}} ids @returns {[string, string, string][]}
 */
export function pages({ batch, completed, dead }) {
  return [
    // Without a question to the store: what the browser itself takes.
    ["a page that does not exist", "nothing", "main .empty"],
    ["overview", "", ".tiles .tile-figure"],
    ["batches", "batches", ROWS],
    ["batches with dead jobs", "batches?states=dead", ROWS],
    ["one batch", `batches/${batch}`, `.strip canvas[width], ${ROWS}`],
    ["jobs", "jobs", ROWS],
    ["dead jobs", "jobs?states=dead", ROWS],
    [
      "jobs of a kind and state",
      "jobs?kind=crawl&states=waiting",
      `${ROWS}, main .empty`,
    ],
    ["jobs of a group", "jobs?group=customer-7", `${ROWS}, main .empty`],
    ["jobs with a tag", "jobs?tags=customer%3D7", `${ROWS}, main .empty`],
    ["a completed job", `jobs/${completed}`, ".json pre"],
    ["a dead job", `jobs/${dead}`, ".json pre"],
    ["failures", "failures", ".group-count"],
    ["queues", "queues", "main table tbody tr"],
    ["schedules", "schedules", ROWS],
    ["runs", "runs", ROWS],
    ["workers", "workers", ROWS],
    ["events", "events", `main .empty, ${ROWS}`],
    ["history", "history", "table.heat td"],
    ["memory", "memory?q=Who+keeps+bees", ".recalled li"],
    ["submit", "submit", "form.submit textarea"],
  ];
}

/** Runs in the page before its own script: notes when the content is there, and when nothing is loading any more. */
function watch(/** @type {string} */ wanted) {
  const seen = { first_ms: 0, whole_ms: 0 };
  Object.assign(globalThis, { seen });
  const painted = (/** @type {"first_ms" | "whole_ms"} */ what) =>
    requestAnimationFrame(() =>
      setTimeout(() => (seen[what] ||= performance.now())),
    );
  const look = () => {
    if (!document.querySelector(wanted)) return;
    if (!seen.first_ms) painted("first_ms");
    if (!seen.whole_ms && !document.querySelector("main .loading"))
      painted("whole_ms");
  };
  new MutationObserver(look).observe(document, {
    childList: true,
    subtree: true,
    attributes: true,
  });
}

/**
 * Loads a page so many times, each as from a bookmark in a tab that shows something else of the server, with the browser's
 * cache as it is: no process of the browser is made for it.
 * @param {import("playwright-core").Browser} chromium @param {string} url @param {string} path @param {string} wanted @param {number} loads
 */
export async function loadTimes(chromium, url, path, wanted, loads) {
  const context = await chromium.newContext({
    viewport: { width: 1280, height: 860 },
    locale: "en",
    timezoneId: "UTC",
  });
  context.setDefaultTimeout(60_000);
  await context.addInitScript(watch, wanted);
  const page = await context.newPage();
  const first = [];
  const whole = [];
  /** @type {Map<string, number>} */
  const slowest = new Map();
  for (let load = 0; load < loads; load += 1) {
    await page.goto(`${url}/assets/icon.svg`);
    await page.goto(`${url}/#/${path}`, { waitUntil: "commit" });
    await page.waitForFunction(
      () => /** @type {any} */ (globalThis).seen?.whole_ms > 0,
    );
    const seen = await page.evaluate(() => ({
      .../** @type {any} */ (globalThis).seen,
      asked: performance
        .getEntriesByType("resource")
        .map(({ name, duration }) => [name.split("/api/v1")[1], duration]),
    }));
    first.push(seen.first_ms);
    whole.push(seen.whole_ms);
    for (const [name, took] of seen.asked) {
      if (name && !name.startsWith("/events"))
        slowest.set(name, Math.max(took, slowest.get(name) ?? 0));
    }
  }
  await context.close();
  const asked = [...slowest].sort((a, b) => b[1] - a[1]).slice(0, 3);
  return {
    first,
    whole,
    asked: asked.map(([name, took]) => [name, Math.round(took)]),
  };
}

/** Searches among the newest jobs: a text that one of them has, and one that none has. */
export const SEARCHES = [NEEDLE, "a text that no job has"];
