// @ts-check
/** The part of the browser tests that `make test` runs. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, MARKUP, open, PAGES, Server, violationsOf } from "./fixture.mjs";

/** @type {Server} */ let server;
/** @type {import("playwright-core").Browser} */ let chromium;
/** @type {Record<string, string>} */ let jobs;

before(async () => {
  server = await new Server().start();
  chromium = await browser();
  await server.fill();
  const first = async (/** @type {string} */ query) => (await server.api("GET", `/jobs?${query}&limit=1`)).jobs[0].job;
  jobs = {
    dead: await first("states=dead&kind=mail"),
    markup: await first("states=dead&kind=resize"),
    waiting: await first("states=waiting&kind=report"),
  };
});
after(async () => {
  await chromium?.close();
  await server?.stop();
});

test("the overview shows the counts and what needs attention", async () => {
  const { page, faults, to, close } = await open(chromium, server);
  await to("");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  const tile = (/** @type {string} */ label) =>
    page.locator(".tiles a", { hasText: label }).locator(".tile-figure").innerText();
  assert.equal(await tile("Completed"), "412");
  assert.equal(await tile("Dead"), "4");
  await page.getByText("4 jobs ran out of attempts: mail 3, resize 1").waitFor();
  await page.getByText("3 jobs waiting without a worker for the kind: report 2, crawl 1").waitFor();
  await page.getByText("Kind crawl is paused: robots.txt changed").waitFor();
  await page.locator(".uplot canvas").first().waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("markup in payloads and errors is text on every page", async () => {
  const { page, faults, to, close } = await open(chromium, server);
  for (const path of [`jobs/${jobs["markup"]}`, "jobs?states=dead", "failures"]) {
    await to(path);
    await page.getByText("<img src=x").first().waitFor();
    assert.equal(await page.locator("img").count(), 0, path);
    assert.doesNotMatch(await page.title(), /owned/);
  }
  await to(`jobs/${jobs["markup"]}`);
  const payload = await page.locator(".json pre").first().innerText();
  assert.deepEqual(JSON.parse(payload), { name: MARKUP, fail: MARKUP });
  assert.deepEqual(faults, []);
  await close();
});

test("payloads keep the texts of their numbers, and Copy copies them", async () => {
  const { page, faults, to, close } = await open(chromium, server);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const payload = '{"a":1.0,"b":[1e400,123456789012345678901,{}],"c \\"d\\"":"x, {y}: [z]","e":[]}';
  const answer = await fetch(`${server.url}/api/v1/jobs`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: `{"kind":"exact","payload":${payload}}`,
  });
  const { first } = JSON.parse(await answer.text());
  await to(`jobs/${first}`);
  const shown = page.locator(".json pre").first();
  await shown.waitFor();
  const lines = ["{", '  "a": 1.0,', '  "b": [', "    1e400,", "    123456789012345678901,", "    {}", "  ],"];
  const text = [...lines, '  "c \\"d\\"": "x, {y}: [z]",', '  "e": []', "}"].join("\n");
  assert.equal(await shown.innerText(), text);
  await page.getByRole("button", { name: "Copy the payload" }).click();
  await page.getByText("Copied").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
  assert.deepEqual(faults, []);
  await close();
});

for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
  test(`axe finds no violation on any page, ${colorScheme}`, async () => {
    const { page, faults, to, close } = await open(chromium, server, { colorScheme });
    const violations = [];
    for (const path of [
      ...PAGES,
      "batches/1",
      `jobs/${jobs["dead"]}`,
      `jobs/${jobs["waiting"]}`,
      "jobs/9999:0",
      "nowhere",
    ]) {
      await to(path);
      await page.locator("h1").first().waitFor();
      const found = await violationsOf(page);
      violations.push(...found.map((/** @type {string} */ text) => `${path}: ${text}`));
    }
    assert.deepEqual(violations, []);
    assert.deepEqual(faults, []);
    await close();
  });
}

test("a dead job is retried from its page", async () => {
  const { page, to, close } = await open(chromium, server);
  const { first } = await server.submit("once", [{ fail: "broken" }], { retry: { attempts_max: 1 } });
  const worker = server.worker("once");
  await server.reached("once", "dead", 1);
  await to(`jobs/${first}`);
  await page.getByText("Traceback (most recent call last)").waitFor();
  await page.getByText("ValueError", { exact: true }).waitFor();
  worker.kill("SIGKILL");
  await page.getByRole("button", { name: "Retry" }).click();
  await page.getByText("1 job retried").waitFor();
  await page.locator(".heading [data-state=waiting]").waitFor();
  await close();
});
