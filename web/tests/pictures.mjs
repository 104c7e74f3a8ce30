// @ts-check
/** The pictures of docs/dashboard.md: `node tests/pictures.mjs FOLDER`. */

import { mkdirSync } from "node:fs";
import { browser, NOTES, open, Server } from "./fixture.mjs";

const folder = process.argv[2] ?? "../docs/images";
/** How long jobs come in while the overview is open. Milliseconds. */
const LOAD_MS = 45_000;
const ERRORS = [
  "connection to 'images.example.org' timed out after 30 s",
  "unsupported color space in frame 7",
  "HTTP 429 from 'api.example.org'",
];

mkdirSync(folder, { recursive: true });
const server = new Server();
server.remember(NOTES);
await server.start("--memory", "kb.db");
const chromium = await browser();
const failing = (/** @type {number} */ number) => (number % 61 === 0 ? { fail: ERRORS[number % ERRORS.length] } : {});
const payloads = (/** @type {number} */ count) =>
  Array.from({ length: count }, (_, number) => ({ image: number, ...failing(number) }));
try {
  await server.fill();
  const viewport = { width: 1280, height: 800 };
  const overview = await open(chromium, server, { viewport, colorScheme: "light" });
  await overview.to("");
  const end = Date.now() + LOAD_MS;
  for (let round = 1; Date.now() < end; round += 1) {
    await server.submit("resize", payloads(100 + 60 * (round % 7)), { retry: { attempts_max: 1 } });
    await overview.page.waitForTimeout(700);
  }
  await overview.page.screenshot({ path: `${folder}/dashboard-overview.png`, fullPage: true });
  await overview.to("failures");
  await overview.page.locator(".group-count").first().waitFor();
  await overview.page.screenshot({ path: `${folder}/dashboard-failures.png` });
  await overview.to("memory?q=Who+keeps+bees");
  await overview.page.locator(".recalled li").first().waitFor();
  await overview.page.screenshot({ path: `${folder}/dashboard-memory.png` });
  const [{ batch }] = (await server.submit("resize", payloads(4_000), { retry: { attempts_max: 1 } })).batches;
  await server.api("PUT", "/controls", {
    controls: [{ scope: { kind: "resize" }, effect: { rate: { jobs: 500, period_ms: 1_000, burst: 500 } } }],
  });
  const dark = await open(chromium, server, { viewport, colorScheme: "dark" });
  await dark.to(`batches/${batch}`);
  await dark.page.getByRole("img", { name: / completed/ }).waitFor();
  await dark.page.waitForTimeout(1_500);
  await dark.page.screenshot({ path: `${folder}/dashboard-batch.png` });
} finally {
  await chromium.close();
  await server.stop();
}
