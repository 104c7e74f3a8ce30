// @ts-check
/** Pictures of every page, in both themes and at the width of a phone: `node tests/shots.mjs FOLDER`. */

import { mkdirSync } from "node:fs";
import { browser, NOTES, open, PAGES, Server } from "./fixture.mjs";

/**
 * Goes through the states of a change of all that matches, and undoes it.
 * @param {import("playwright-core").Page} page
 * @param {(state: string) => Promise<unknown>} shot
 */
async function operate(page, shot) {
  await page.getByRole("button", { name: "Prioritise 20,000" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Prioritise 20,000 jobs" }).waitFor();
  await shot("asked");
  await page.getByRole("button", { name: "Back" }).click();
  await page.getByRole("button", { name: "Pause 20,000" }).click();
  const sure = page.getByRole("dialog").getByRole("button", { name: "Pause 20,000 jobs" });
  await sure.waitFor();
  // Its first portion waits while the store is locked.
  const unlock = await server.lock();
  await sure.click();
  const stop = page.getByRole("button", { name: "Stop: Pausing" });
  await stop.waitFor();
  await shot("running");
  await stop.click();
  await page.getByRole("button", { name: "Stopping…" }).waitFor();
  await shot("stopping");
  await unlock();
  const undo = page.getByRole("button", { name: "Undo" });
  await undo.waitFor();
  await shot("stopped");
  await undo.click();
  await page.getByText("jobs resumed").waitFor();
  await shot("undone");
}

const folder = process.argv[2] ?? "../build/web/shots";
mkdirSync(folder, { recursive: true });
const server = new Server();
server.remember(NOTES);
await server.start("--memory", "kb.db");
const chromium = await browser();
try {
  await server.fill();
  for (let batch = 0; batch < 2; batch += 1) await server.submit("bulk", Array(10_000).fill(1));
  await server.submit("resize", [{ hold: true, width: 640 }]);
  await server.reached("resize", "running", 1);
  const dead = (await server.api("GET", "/jobs?states=dead&limit=1")).jobs[0].job;
  const running = (await server.api("GET", "/jobs?states=running&limit=1")).jobs[0].job;
  const waiting = (await server.api("GET", "/jobs?states=waiting&kind=report&limit=1")).jobs[0].job;
  const { first: flow } = await server.submit("document@2", [{ approve: 3 }]);
  server.worker("document@2");
  await server.reached("document@2", "blocked", 1);
  const pages = [
    ...PAGES,
    `jobs/${flow}`,
    "memory?q=Who+keeps+bees",
    "batches/1",
    `jobs/${dead}`,
    `jobs/${running}`,
    `jobs/${waiting}`,
  ];
  for (const theme of /** @type {const} */ (["light", "dark"])) {
    for (const width of [1280, 390]) {
      const { page, faults, close, to } = await open(chromium, server, {
        colorScheme: theme,
        viewport: { width, height: width === 390 ? 844 : 860 },
      });
      for (const path of pages) {
        await to(path);
        await page.waitForSelector("h1");
        await page.waitForFunction(() => !document.querySelector(".loading"));
        if (path === "") await page.waitForTimeout(5_000);
        if (path === "events") {
          await server.submit("mail", [1, 2]);
          await page.waitForSelector("tbody tr");
        }
        if (path === "schedules") await page.getByText("next 5 in").click();
        if (path === "batches") await page.click(".twist >> nth=-1");
        await page.waitForTimeout(300);
        const name = (path || "overview").replaceAll(/[/:?=+]/g, "-");
        await page.screenshot({ path: `${folder}/${theme}-${width}-${name}.png`, fullPage: true });
      }
      await to("jobs?kind=bulk");
      await operate(page, (state) => page.screenshot({ path: `${folder}/${theme}-${width}-operation-${state}.png` }));
      if (faults.length > 0) console.log(theme, width, faults);
      await close();
    }
  }
} finally {
  await chromium.close();
  await server.stop();
}
