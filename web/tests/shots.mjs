// @ts-check
/** Pictures of every page, in both themes and at the width of a phone: `node tests/shots.mjs FOLDER`. */

import { mkdirSync } from "node:fs";
import { browser, NOTES, open, PAGES, Server } from "./fixture.mjs";

const folder = process.argv[2] ?? "../build/web/shots";
mkdirSync(folder, { recursive: true });
const server = new Server();
server.remember(NOTES);
await server.start("--memory", "kb.db");
const chromium = await browser();
try {
  await server.fill();
  await server.submit("resize", [{ hold: true, width: 640 }]);
  await server.reached("resize", "running", 1);
  const dead = (await server.api("GET", "/jobs?states=dead&limit=1")).jobs[0].job;
  const running = (await server.api("GET", "/jobs?states=running&limit=1")).jobs[0].job;
  const waiting = (await server.api("GET", "/jobs?states=waiting&kind=report&limit=1")).jobs[0].job;
  const pages = [
    ...PAGES,
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
        if (path === "batches") await page.click(".twist >> nth=-1");
        await page.waitForTimeout(300);
        const name = (path || "overview").replaceAll(/[/:?=+]/g, "-");
        await page.screenshot({ path: `${folder}/${theme}-${width}-${name}.png`, fullPage: true });
      }
      if (faults.length > 0) console.log(theme, width, faults);
      await close();
    }
  }
} finally {
  await chromium.close();
  await server.stop();
}
