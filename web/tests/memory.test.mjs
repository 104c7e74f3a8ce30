// @ts-check
/** The page Memory over a real knowledge base. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, MARKUP, open, Server, until, violationsOf } from "./fixture.mjs";

/** Sources on one page of the list. */
const SOURCES_MAX = 100;

/** @type {Server} */ let server;
/** @type {import("playwright-core").Browser} */ let chromium;
/** @type {Awaited<ReturnType<typeof open>>} */ let tab;

before(async () => {
  server = new Server();
  const days = Array.from({ length: 100 }, (_, number) => [
    `note-${100 + number}.md`,
    `# Note ${number}\n\nNothing happened on day ${number}.\n`,
  ]);
  server.remember({
    "bees.md": "# Bees\n\nAda King keeps bees in London.\n",
    "markup.md": `# Wasps\n\nAda King wrote of wasps: ${MARKUP}\n`,
    ...Object.fromEntries(days),
  });
  await server.start("--memory", "kb.db");
  chromium = await browser();
  tab = await open(chromium, server);
});
after(async () => {
  assert.deepEqual(tab?.faults, []);
  await chromium?.close();
  await server?.stop();
});

const sources = () => tab.page.getByRole("region", { name: "Sources" }).locator("tbody tr");
const messages = () => tab.page.locator(".recalled li");
const ask = async (/** @type {string} */ question) => {
  await tab.page.getByLabel("Question").fill(question);
  await tab.page.getByRole("button", { name: "Recall" }).click();
};

test("the sources are listed a page at a time, with what was read of them", async () => {
  await tab.to("memory");
  await tab.page.getByText("102 messages of 102 sources").waitFor();
  await until(async () => (await sources().count()) === SOURCES_MAX, "the first sources");
  assert.match(await sources().first().innerText(), /^notes\/bees\.md\s+markdown\s+1\s+complete/);
  await tab.page.getByRole("button", { name: "Next" }).click();
  await until(async () => (await sources().count()) === 2, "the last sources");
  assert.match(tab.page.url(), /#\/memory\?after=/);
  await tab.page.getByRole("button", { name: "First" }).click();
  await until(async () => (await sources().count()) === SOURCES_MAX, "the first sources");
});

test("a question finds messages with their sources, and the address keeps it", async () => {
  await tab.to("memory");
  await tab.page.getByLabel("Question").waitFor();
  await tab.page.keyboard.press("/");
  await tab.page.keyboard.type("Who keeps bees?");
  await tab.page.keyboard.press("Enter");
  await messages().first().waitFor();
  const best = await messages().first().innerText();
  assert.match(best, /bees\.md #0/);
  assert.match(best, /Ada King keeps bees in London\./);
  assert.match(tab.page.url(), /#\/memory\?q=Who\+keeps\+bees/);
  await tab.page.reload();
  await messages().first().waitFor();
  assert.equal(await tab.page.getByLabel("Question").inputValue(), "Who keeps bees?");
});

test("a question finds what was extracted", async () => {
  await tab.to("memory");
  await ask("Ada King");
  const knowledge = tab.page.getByRole("region", { name: "Knowledge" });
  await knowledge.getByText("Ada King").first().waitFor();
  await knowledge.getByText("entity").first().waitFor();
});

test("a question without an answer says so", async () => {
  await tab.to("memory");
  await ask("zyxwvut");
  await tab.page.getByText("Nothing is found.").waitFor();
});

test("markup of a message is text", async () => {
  await tab.to("memory");
  await ask("wasps");
  await tab.page.locator(".recalled-text", { hasText: "<img src=x" }).waitFor();
  assert.equal(await tab.page.locator("img").count(), 0);
  assert.doesNotMatch(await tab.page.title(), /owned/);
});

test("a refusal is shown with its remedy", async () => {
  await tab.to(`memory?q=${"x".repeat(2_001)}`);
  await tab.page.getByText("give 1 to 2000 bytes").waitFor();
});

test("a server without a knowledge base says how to serve one", async () => {
  const plain = await new Server().start();
  const other = await open(chromium, plain);
  await other.to("memory");
  await other.page.getByText("This server serves no knowledge base.").waitFor();
  await other.page.getByText("gristmill serve --memory kb.db").waitFor();
  assert.deepEqual(other.faults, []);
  await other.close();
  await plain.stop();
});

for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
  test(`axe finds no violation, ${colorScheme}`, async () => {
    const other = await open(chromium, server, { colorScheme });
    for (const path of ["memory", "memory?q=Ada+King", "memory?q=zyxwvut"]) {
      await other.to(path);
      await other.page.getByRole("region", { name: "Sources" }).waitFor();
      await other.page.waitForFunction(() => !document.querySelector(".loading"));
      assert.deepEqual(await violationsOf(other.page), [], path);
    }
    assert.deepEqual(other.faults, []);
    await other.close();
  });
}
