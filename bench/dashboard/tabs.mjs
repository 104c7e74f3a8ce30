// @ts-check
/** What open tabs ask of the server: recorded from a browser, and asked again without one. */

import { Agent, get } from "node:http";

/** The tabs: the pages that ask for most. */
const TABS = ["", "jobs", "batches", "queues", "history"];

/** @typedef {{tab: number, path: string, at_ms: number}} Asked */

/** Answers are asked for as browsers do. */
const HEADERS = { accept: "application/json", "accept-encoding": "gzip" };
const STREAM = "/api/v1/events";

/** Opens the tabs. @param {import("playwright-core").Browser} chromium @param {string} url */
export async function openTabs(chromium, url) {
  const context = await chromium.newContext({
    viewport: { width: 1280, height: 860 },
  });
  const pages = [];
  for (const path of TABS) {
    const page = await context.newPage();
    await page.goto(`${url}/#/${path}`);
    await page.locator("main h1").waitFor({ timeout: 60_000 });
    pages.push(page);
  }
  return pages;
}

/**
 * Notes what open tabs ask in a time; the loading of their pages is over.
 * @param {import("playwright-core").Page[]} pages @param {() => Promise<unknown>} meanwhile
 */
export async function recordTabs(pages, meanwhile) {
  const began = performance.now();
  /** @type {Asked[]} */
  const asked = [];
  for (const [tab, page] of pages.entries())
    page.on("request", (request) => {
      const { pathname, search } = new URL(request.url());
      if (pathname === STREAM) return;
      const at_ms = performance.now() - began;
      asked.push({ tab, path: pathname + search, at_ms });
    });
  await meanwhile();
  const seconds = (performance.now() - began) / 1_000;
  return { asked, seconds };
}

/**
 * Listens to the events as each tab does, and asks what was recorded, at the same moments, again and again.
 * @param {string} url @param {{asked: Asked[], seconds: number}} recorded
 */
export function replayTabs(url, { asked, seconds }) {
  let answers = 0;
  let bytes = 0;
  let stopped = false;
  /** @type {Set<NodeJS.Timeout>} */
  const timers = new Set();
  const agents = TABS.map(() => new Agent({ keepAlive: true, maxSockets: 6 }));
  /** @param {number} tab @param {string} path */
  const ask = (tab, path) => {
    const agent = agents[tab];
    get(`${url}${path}`, { ...(agent ? { agent } : {}), headers: HEADERS })
      .on("response", (answer) => {
        answer.on("data", (part) => (bytes += part.length));
        answer.on("end", () => (answers += 1));
        answer.on("error", () => {});
      })
      .on("error", (error) => {
        if (!stopped) throw error;
      });
  };
  const round = () => {
    for (const { tab, path, at_ms } of asked) {
      const timer = setTimeout(() => {
        timers.delete(timer);
        ask(tab, path);
      }, at_ms);
      timers.add(timer);
    }
  };
  for (const tab of TABS.keys()) ask(tab, STREAM);
  round();
  const rounds = setInterval(round, seconds * 1_000);
  return () => {
    stopped = true;
    clearInterval(rounds);
    for (const timer of timers) clearTimeout(timer);
    for (const agent of agents) agent.destroy();
    return { answers, bytes };
  };
}
