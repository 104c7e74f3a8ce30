// @ts-check
/** The history, the runs, and what can be undone. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { browser, open, Server, until, violationsOf } from "./fixture.mjs";

/** @type {Server} */ let server;
/** @type {import("playwright-core").Browser} */ let chromium;
/** @type {Awaited<ReturnType<typeof open>>} */ let tab;

before(async () => {
  server = await new Server().start();
  chromium = await browser();
  await server.fill();
  tab = await open(chromium, server);
});
after(async () => {
  assert.deepEqual(tab?.faults, []);
  await chromium?.close();
  await server?.stop();
});

const row = (/** @type {string} */ name) =>
  tab.page.locator("tbody tr[data-row]").filter({ has: tab.page.getByRole("link", { name, exact: true }) });

describe("history", () => {
  /** The numbers of a kind in the map, added up. An hour may end while the test runs. */
  const total = async (/** @type {string} */ kind) => {
    const cells = await row(kind).locator("td").allInnerTexts();
    return cells.filter((text) => text !== "·").reduce((sum, text) => sum + Number(text), 0);
  };

  test("counts the ended jobs of each kind by hour", async () => {
    await tab.to("history");
    await row("resize").waitFor();
    assert.equal(await row("resize").locator("td").count(), 24);
    assert.equal(await total("resize"), 401);
    assert.equal(await total("mail"), 15);
    assert.deepEqual(
      await tab.page.locator(".heat tbody th a").allInnerTexts(),
      ["resize", "mail"],
      "the busiest first",
    );
  });

  test("shows failures and durations, and the address keeps the choice", async () => {
    await tab.to("history");
    await tab.page.getByLabel("Shows").selectOption("failed jobs");
    await until(async () => (await total("mail")) === 3, "the failed jobs");
    assert.equal(await total("resize"), 1);
    await tab.page.getByLabel("Period").selectOption("14 days, by day");
    await until(async () => (await row("mail").locator("td").count()) === 14, "14 days");
    assert.equal(await total("mail"), 3);
    assert.match(tab.page.url(), /#\/history\?measure=failed&period=fortnight$/);
    await tab.page.reload();
    await row("mail").waitFor();
    assert.equal(await tab.page.getByLabel("Shows").inputValue(), "failed");
    await tab.page.getByLabel("Shows").selectOption("duration, 95th percentile");
    await row("resize")
      .getByText(/^[\d.]+ (µs|ms|s)$/)
      .waitFor();
  });

  test("is filtered by kind, and says so where nothing matches", async () => {
    await tab.to("history?kind=mail");
    await row("mail").waitFor();
    assert.equal(await row("resize").count(), 0);
    await tab.to("history?kind=nothing");
    await tab.page.getByText("No job that matches ended in this time.").waitFor();
  });
});

describe("runs", () => {
  test("show their progress, and lead to their jobs", async () => {
    const run = server.map("crunch", [1, 2, 3, { fail: "odd" }, { hold: true }]);
    await tab.to("runs");
    await row("crunch")
      .getByText(/^[34] of 5$/)
      .waitFor();
    await row("crunch")
      .locator(".state", { hasText: /^submitt(ing|ed)$/ })
      .waitFor();
    // A count after the first one gives a rate.
    await until(async () => /^\d/.test(await row("crunch").locator("td").nth(5).innerText()), "the rate");
    await row("crunch").getByRole("link", { name: "crunch" }).click();
    await tab.page.getByText("5 jobs match").waitFor();
    assert.match(tab.page.url(), /#\/jobs\?run=crunch$/);
    run.kill("SIGKILL");
  });

  test("that are finished say so, without a rate", async () => {
    server.map("small", [1, 2]);
    await tab.to("runs");
    await row("small").locator(".state", { hasText: "finished" }).waitFor();
    const cells = await row("small").locator("td").allInnerTexts();
    assert.deepEqual(cells.slice(3, 7), ["2 of 2", "0", "–", "–"]);
  });
});

describe("search", () => {
  test("finds a text in payloads, values and errors, and says how far it looked", async () => {
    await server.submit("letter", [{ to: "Grandmother" }, { to: "wolf" }]);
    await tab.to("jobs");
    await tab.page.getByLabel("Text").fill("grandmother");
    await tab.page.getByLabel("Text").press("Enter");
    await tab.page.getByText(/^Searched all \d+ jobs that match/).waitFor();
    assert.deepEqual(await tab.page.locator("td.id a").count(), 1);
    assert.match(tab.page.url(), /#\/jobs\?text=grandmother$/);
    assert.equal(
      await tab.page.getByRole("button", { name: /^Cancel/ }).count(),
      0,
      "nothing acts on more than is shown",
    );
    await tab.to("jobs?text=mailbox&states=dead");
    await until(async () => (await tab.page.locator("td.id a").count()) === 2, "two errors");
    await tab.to("jobs?kind=resize&text=%22got%22");
    await tab.page.getByText("Searched the newest 401 jobs that match the other filters").waitFor();
    assert.equal(await tab.page.locator("td.id a").count(), 50);
  });

  test("says that nothing has the text", async () => {
    await tab.to("jobs?text=nowhere-to-be-found");
    await tab.page.getByText("No job matches these filters.").waitFor();
    await tab.page.getByText(/^Searched all/).waitFor();
  });
});

describe("filters", () => {
  test("leave the jobs of a time, and the actions keep to it", async () => {
    await server.submit("timed", [1, 2]);
    await tab.to("jobs?kind=timed");
    await tab.page.getByText("2 jobs match").waitFor();
    await tab.page.getByLabel("Submitted since").fill("2999-01-01T00:00");
    await tab.page.getByText("No job matches these filters.").waitFor();
    assert.match(tab.page.url(), /since=2999-01-01T00%3A00/);
    assert.equal(await tab.page.getByRole("button", { name: /^Cancel/ }).count(), 0);
    await tab.to("jobs?kind=timed&since=2020-01-01T00:00&until=2999-01-01T00:00");
    await tab.page.getByRole("button", { name: "Cancel 2" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Cancel 2 jobs" }).click();
    await tab.page.getByText("2 jobs cancelled").waitFor();
  });

  test("are completed with kinds, groups, values of a tag and names of runs", async () => {
    await server.submit("tagged", [1, 2], { tags: [{ customer: "acme" }, { customer: "zenith" }] });
    await server.map("completed-run", [{ a: 1 }]);
    await until(
      async () => (await server.api("GET", "/runs")).runs.some(({ run }) => run === "completed-run"),
      "the run",
    );
    await tab.to("jobs");
    const { page } = tab;
    const offered = (/** @type {string} */ name) =>
      page
        .locator(`#known-${name} option`)
        .evaluateAll((options) => options.map((option) => option.getAttribute("value")));
    await until(async () => (await offered("kind")).includes("tagged"), "the kinds");
    await page.getByLabel("Tags").fill("level=3,customer=");
    await until(async () => (await offered("tags")).length === 2, "the values of the tag");
    assert.deepEqual(await offered("tags"), ["level=3,customer=acme", "level=3,customer=zenith"]);
    await page.getByLabel("Tags").fill("");
    // Only groups of the queue that the filters name, by their first letters.
    await page.getByLabel("Group").fill("ac");
    await until(async () => (await offered("group")).join() === "acme", "the groups");
    await page.getByLabel("Group").fill("");
    await page.getByLabel("Run", { exact: true }).focus();
    await until(async () => (await offered("run")).includes("completed-run"), "the runs");
  });
});

describe("operations", () => {
  test("change all that matches in portions, with a bar, and are stopped and undone", async () => {
    // A portion has at most 10,000 jobs. While the store is locked, the first one waits.
    const [portion, jobs] = [10_000, 20_000];
    for (let sent = 0; sent < jobs; sent += portion) await server.submit("bulk", Array(portion).fill(1));
    const states = async () => (await server.api("GET", "/jobs/count?kind=bulk")).states;
    await tab.to("jobs?kind=bulk");
    const { page } = tab;
    const other = await open(chromium, server);
    await page.getByRole("button", { name: "Pause 20,000" }).click();
    const sure = page.getByRole("dialog").getByRole("button", { name: "Pause 20,000 jobs" });
    await sure.waitFor();
    const unlock = await server.lock();
    await sure.click();
    const bar = { name: "Progress: Pausing 20,000 jobs" };
    await page.getByRole("progressbar", bar).waitFor();
    await page.getByText("Pausing 20,000 jobs: 0 so far").waitFor();
    await other.to("");
    await other.page.getByRole("progressbar", bar).waitFor();
    assert.deepEqual(await violationsOf(page), []);
    const stopped = page.waitForResponse((response) => response.request().method() === "DELETE");
    await page.getByRole("button", { name: "Stop: Pausing 20,000 jobs" }).click();
    assert.equal((await stopped).status(), 202);
    await page.getByRole("button", { name: "Stopping…" }).waitFor();
    await unlock();
    await page.getByText("10,000 jobs paused, and the rest left as it is").waitFor();
    for (const { page } of [tab, other]) await page.getByRole("progressbar", bar).waitFor({ state: "detached" });
    await other.close();
    assert.deepEqual(other.faults, []);
    assert.equal((await states()).paused, portion);
    await page.getByRole("button", { name: "Undo" }).click();
    await page.getByText("10,000 jobs resumed").waitFor();
    assert.equal((await states()).waiting, jobs);
    const { operations } = await server.api("GET", "/operations");
    const newest = operations.slice(0, 2).map(({ change, state }) => [change, state]);
    assert.deepEqual(newest, [
      ["resume", "completed"],
      ["pause", "cancelled"],
    ]);
  });

  test("give all that matches another priority, and say that there is no undo", async () => {
    for (const priority of [3, 4]) await server.submit("ranked", [1, 2], { priority });
    await tab.to("jobs?kind=ranked");
    await tab.page.getByRole("button", { name: "Prioritise 4" }).click();
    const dialog = tab.page.getByRole("dialog");
    await dialog.getByText("there is no undo").waitFor();
    await dialog.getByLabel("New priority").selectOption("urgent");
    await dialog.getByRole("button", { name: "Prioritise 4 jobs" }).click();
    await tab.page.getByText("4 jobs prioritised").waitFor();
    assert.equal(await tab.page.getByRole("button", { name: "Undo" }).count(), 0);
    const { jobs } = await server.api("GET", "/jobs?kind=ranked");
    assert.deepEqual(
      jobs.map((/** @type {any} */ { priority }) => priority),
      [100, 100, 100, 100],
    );
  });
});

describe("relations", () => {
  test("lead to what a job waits for", async () => {
    const first = (await server.submit("first", [1, 2])).batches[0].batch;
    const { first: second } = await server.submit("second", [1], { after: [`${first}:1`], after_failure: "ignore" });
    await tab.to(`jobs/${second}`);
    const before = tab.page.getByRole("list", { name: "Before this job" });
    await before.getByText("runs in any case").waitFor();
    await before.getByRole("link", { name: `${first}:1` }).click();
    await tab.page.getByRole("heading", { name: `Job ${first}:1`, exact: true }).waitFor();
    assert.equal(await tab.page.getByRole("heading", { name: "Relations" }).count(), 0, "it stands alone");
  });

  test("lead from a job to its children and back", async () => {
    const { first } = await server.submit("parent", [{ spawn: 3 }]);
    const worker = server.worker("parent");
    await server.reached("parent", "completed", 4);
    worker.kill("SIGKILL");
    await tab.to(`jobs/${first}`);
    const after = tab.page.getByRole("list", { name: "After this job" });
    await after.getByRole("link", { name: "Children" }).click();
    await until(async () => (await tab.page.locator("td.id a").count()) === 3, "three children");
    await tab.page.locator("td.id a").first().click();
    await tab.page.getByRole("list", { name: "Before this job" }).getByRole("link", { name: first }).waitFor();
  });
});

describe("flows", () => {
  test("show their steps, and take an event", async () => {
    const { first } = await server.submit("document@2", [{ approve: 3 }]);
    const worker = server.worker("document@2");
    await server.reached("document@2", "blocked", 1);
    await tab.to(`jobs/${first}`);
    const steps = tab.page.getByRole("region", { name: "Steps of the flow" });
    await steps.getByRole("link", { name: "resize" }).waitFor();
    await steps.getByRole("link", { name: "event approve" }).waitFor();
    await steps.getByRole("button", { name: "Send event approve" }).press("Enter");
    const dialog = tab.page.getByRole("dialog");
    assert.equal(await dialog.getByLabel("Name").inputValue(), "approve");
    await dialog.getByLabel("Value, as JSON").fill("yes");
    await dialog.getByText(/^Line 1, column/).waitFor();
    await dialog.getByLabel("Value, as JSON").fill('{"by": 12345678901234567890}');
    assert.deepEqual(await violationsOf(tab.page), []);
    await dialog.getByRole("button", { name: "Send the event" }).click();
    await tab.page.getByText("The flow has the event approve").waitFor();
    await server.reached("document@2", "completed", 1);
    await steps.getByText("received").waitFor();
    worker.kill("SIGKILL");
    await steps.getByRole("button", { name: "Fork from step 1" }).press("Enter");
    assert.deepEqual(await violationsOf(tab.page), []);
    await tab.page.getByRole("dialog").getByRole("button", { name: "Begin the fork" }).press("Enter");
    await tab.page.getByText(/^Flow \d+:0 is begun$/).waitFor();
    await until(() => /#\/jobs\/\d+:0$/.test(tab.page.url()) && !tab.page.url().endsWith(`/${first}`), "its page");
  });

  test("are counted by version and state, filtered, and listed with what they wait for", async () => {
    const { first } = await server.submit("letter@1", [{ approve: 2 }, { approve: 1 }]);
    await server.submit("letter@2", [{ approve: 1 }], { queue: "post" });
    const workers = [server.worker("letter@1"), server.worker("letter@2", "--queue", "post")];
    await server.reached("letter@1", "blocked", 2);
    await server.reached("letter@2", "blocked", 1);
    await tab.to("");
    await tab.page.getByRole("heading", { name: "Overview" }).waitFor();
    await tab.page.keyboard.press("g");
    await tab.page.keyboard.press("l");
    const kinds = tab.page.getByRole("region", { name: "Flows by name and version" });
    const flows = tab.page.getByRole("region", { name: "Flows", exact: true });
    await kinds.getByRole("link", { name: "letter" }).first().waitFor();
    assert.deepEqual(await violationsOf(tab.page), []);
    await tab.page.getByLabel("Flow", { exact: true }).fill("letter");
    await tab.page.getByLabel("Flow", { exact: true }).press("Enter");
    await tab.page.getByText("3 flows", { exact: true }).waitFor();
    await until(async () => (await flows.locator("tbody tr").count()) === 3, "three flows");
    await kinds.getByRole("link", { name: "2 blocked" }).press("Enter");
    await until(async () => (await flows.locator("tbody tr").count()) === 2, "two flows");
    assert.match(tab.page.url(), /flow=letter%401&queue=default&states=blocked/);
    await flows.getByText("event approve").first().waitFor();

    await flows.getByRole("button", { name: `Send event approve to ${first}` }).press("Enter");
    await tab.page.getByRole("dialog").getByRole("button", { name: "Send the event" }).press("Enter");
    await tab.page.getByText("The flow has the event approve").waitFor();
    await until(async () => (await flows.getByText("event approve").count()) === 1, "one awaited event");

    for (const worker of workers) worker.kill("SIGTERM");
    const served = async () =>
      (await server.api("GET", "/flows/kinds?flow=letter")).kinds.some((kind) => kind.has_worker);
    await until(async () => !(await served()), "no worker of letters");
    await tab.to("flows?flow=letter");
    await tab.page.getByRole("button", { name: "Without a worker" }).click();
    await until(async () => (await flows.locator("tbody tr").count()) === 3, "three flows without a worker");
    assert.match(tab.page.url(), /no_worker=true/);
  });
});

describe("undo", () => {
  const pauses = async () =>
    (await server.api("GET", "/controls")).controls
      .filter((/** @type {any} */ { effect }) => effect.pause)
      .map((/** @type {any} */ { scope, effect }) => [scope.kind, effect.pause.reason]);
  const undo = () => tab.page.getByRole("button", { name: "Undo" });

  test("a pause of a kind is taken back", async () => {
    await tab.to("queues");
    await tab.page.getByRole("button", { name: "Pause kind report" }).click();
    await tab.page.getByRole("button", { name: "Resume kind report" }).waitFor();
    await undo().click();
    await tab.page.getByRole("button", { name: "Pause kind report" }).waitFor();
    assert.deepEqual(await pauses(), [["crawl", "robots.txt changed"]]);
  });

  test("a resumed kind is paused again, for its old reason", async () => {
    await tab.to("queues");
    await tab.page.getByRole("button", { name: "Resume kind crawl" }).click();
    await tab.page.getByRole("button", { name: "Pause kind crawl" }).waitFor();
    assert.deepEqual(await pauses(), []);
    await undo().click();
    await tab.page.getByRole("button", { name: "Resume kind crawl" }).waitFor();
    assert.deepEqual(await pauses(), [["crawl", "robots.txt changed"]]);
  });

  test("a lifted limit is set again", async () => {
    const limit = /at most 5 running jobs/;
    await tab.to("queues");
    await tab.page.getByRole("button", { name: "Lift: kind mail, at most 5" }).click();
    await tab.page.getByText(limit).waitFor({ state: "detached" });
    await undo().click();
    await tab.page.getByText(limit).waitFor();
  });

  test("a job gets its old priority back", async () => {
    const { first } = await server.submit("idle", [1], { priority: 3 });
    const priority = async () => (await server.api("GET", `/jobs/${first}`)).priority;
    await tab.to(`jobs/${first}`);
    const choice = tab.page.getByLabel("Priority", { exact: true });
    assert.equal(await choice.inputValue(), "3");
    await choice.selectOption("urgent");
    await tab.page.getByText("Priority changed to 100").waitFor();
    assert.equal(await priority(), 100);
    await undo().click();
    await tab.page.getByText("Undone").waitFor();
    assert.equal(await priority(), 3);
    await until(async () => (await choice.inputValue()) === "3", "the old priority");
  });

  test("all jobs that were paused together are resumed, and no others", async () => {
    const { first } = await server.submit("many", [0, 1, 2, 3, 4, 5]);
    await server.api("POST", "/jobs/pause", { jobs: [first], reason: "by hand" });
    const states = async () => (await server.api("GET", "/jobs/count?kind=many")).states;
    await tab.to("jobs?kind=many");
    await tab.page.getByRole("button", { name: "Pause 5" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Pause 5 jobs" }).click();
    await tab.page.getByText("5 jobs paused").waitFor();
    assert.equal((await states()).paused, 6);
    await undo().click();
    await tab.page.getByText("5 jobs resumed").waitFor();
    const { paused, waiting } = await states();
    assert.deepEqual({ paused, waiting }, { paused: 1, waiting: 5 });
    await tab.page.getByRole("button", { name: "Resume 1" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Resume 1 job" }).click();
    await tab.page.getByText("1 job resumed").waitFor();
    assert.equal((await states()).waiting, 6);
  });
});
