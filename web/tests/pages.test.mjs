// @ts-check
/** Each page against a real server: what it shows, and what its buttons do. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { browser, open, Server, until } from "./fixture.mjs";

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

const rows = () => tab.page.locator("tbody tr[data-row]");
const heading = (/** @type {string} */ name) => tab.page.getByRole("heading", { name, exact: true }).waitFor();

describe("batches", () => {
  test("are listed from the newest, and a row opens into its jobs", async () => {
    await tab.to("batches");
    await rows().first().waitFor();
    const ids = (await tab.page.locator("td.id a").allInnerTexts()).map(Number);
    assert.deepEqual(
      ids,
      [...ids].sort((a, b) => b - a),
    );
    await tab.page.getByRole("button", { name: "Jobs of batch 1", exact: true }).click();
    await tab.page.getByRole("img", { name: "Jobs of batch 1 by position: 400 completed" }).waitFor();
  });

  test("are filtered by state, and the address keeps the filter", async () => {
    await tab.to("batches");
    await tab.page.getByRole("button", { name: "dead" }).click();
    await until(async () => (await rows().count()) === 2, "two batches with dead jobs");
    assert.match(tab.page.url(), /#\/batches\?states=dead$/);
    await tab.page.reload();
    await until(async () => (await rows().count()) === 2, "two batches with dead jobs");
    assert.equal(await tab.page.getByRole("button", { name: "dead" }).getAttribute("aria-pressed"), "true");
    await tab.page.getByRole("button", { name: "Clear filters" }).click();
    await until(async () => (await rows().count()) > 2, "all batches");
  });

  test("a cell of the strip opens its job", async () => {
    await tab.to("batches/1");
    const strip = tab.page.locator(".strip canvas");
    await until(async () => ((await strip.boundingBox())?.height ?? 0) > 20, "the strip");
    await until(() => strip.evaluate((/** @type {HTMLCanvasElement} */ canvas) => canvas.width > 300), "its cells");
    await strip.click({ position: { x: 2, y: 2 } });
    await heading("Job 1:0");
  });

  test("one that does not exist says so", async () => {
    await tab.to("batches/9999");
    await tab.page.getByText("Batch 9999 does not exist.").waitFor();
  });
});

describe("jobs", () => {
  test("are filtered by kind, and counted", async () => {
    await tab.to("jobs");
    await tab.page.getByLabel("Kind").fill("report");
    await tab.page.getByLabel("Kind").press("Enter");
    await tab.page.getByText("3 jobs match").waitFor();
    await until(async () => (await rows().count()) === 3, "three rows");
    await tab.page.getByRole("button", { name: "scheduled 1" }).click();
    await tab.page.getByText("1 job matches").waitFor();
    assert.match(tab.page.url(), /kind=report&states=scheduled/);
  });

  test("keep what is typed into a filter while the counts change", async () => {
    await tab.to("jobs");
    await rows().first().waitFor();
    await tab.page.getByLabel("Kind").pressSequentially("typ");
    await server.submit("changing", [1]);
    await tab.page.getByRole("button", { name: /^waiting [1-9]/ }).waitFor();
    const before = await tab.page.getByRole("button", { name: /^waiting / }).innerText();
    await server.submit("changing", [1, 2, 3]);
    await until(
      async () => (await tab.page.getByRole("button", { name: /^waiting / }).innerText()) !== before,
      "another count",
    );
    assert.equal(await tab.page.getByLabel("Kind").inputValue(), "typ");
  });

  test("go on to the next page and back", async () => {
    await tab.to("jobs?kind=resize");
    await rows().first().waitFor();
    const first = await rows().first().locator("a").innerText();
    await tab.page.getByRole("button", { name: "Next" }).click();
    await until(
      async () =>
        (await rows()
          .first()
          .locator("a")
          .innerText()
          .catch(() => first)) === "1:50",
      "the second page",
    );
    await tab.page.getByRole("button", { name: "First" }).click();
    await until(
      async () =>
        (await rows()
          .first()
          .locator("a")
          .innerText()
          .catch(() => "")) === "1:0",
      "the first page",
    );
  });

  test("all that match are cancelled, after their number was shown", async () => {
    await server.submit(
      "bulk",
      Array.from({ length: 2_500 }, (_, number) => number),
    );
    await tab.to("jobs?kind=bulk");
    await tab.page.getByRole("button", { name: "Cancel 2,500" }).click();
    const dialog = tab.page.getByRole("dialog");
    await dialog.getByRole("heading", { name: "Cancel 2,500 jobs?" }).waitFor();
    await dialog.getByRole("button", { name: "Cancel 2,500 jobs" }).click();
    await tab.page.getByText("2,500 jobs cancelled").waitFor();
    assert.equal((await server.api("GET", "/jobs/count?kind=bulk")).states.cancelled, 2_500);
    await tab.page.getByRole("button", { name: "Retry 2,500" }).waitFor();
  });

  test("a dialog that is left changes nothing", async () => {
    await server.submit("kept", [1, 2]);
    await tab.to("jobs?kind=kept");
    await tab.page.getByRole("button", { name: "Cancel 2" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Back" }).click();
    assert.equal((await server.api("GET", "/jobs/count?kind=kept")).states.waiting, 2);
  });

  test("filters that nothing matches say so", async () => {
    await tab.to("jobs?kind=nothing");
    await tab.page.getByText("No job matches these filters.").waitFor();
  });
});

describe("a job", () => {
  test("shows its payload, value, log and facts", async () => {
    await tab.to("jobs/1:7");
    await heading("Job 1:7");
    const texts = await tab.page.locator("pre").allInnerTexts();
    assert.deepEqual(JSON.parse(texts[0] ?? ""), { width: 107 });
    assert.deepEqual(JSON.parse(texts[1] ?? ""), { got: { width: 107 } });
    assert.match(texts[2] ?? "", /begins \{'width': 107\}/);
    await tab.page.locator(".facts", { hasText: "acme" }).waitFor();
  });

  test("says that a pause of its kind keeps it back", async () => {
    const { jobs } = await server.api("GET", "/jobs?kind=crawl");
    await tab.to(`jobs/${jobs[0].job}`);
    await tab.page.getByText("Kind crawl is paused: robots.txt changed").waitFor();
  });

  test("says when its next attempt begins", async () => {
    const { jobs } = await server.api("GET", "/jobs?kind=mail&states=scheduled");
    await tab.to(`jobs/${jobs[0].job}`);
    await tab.page.getByText(/Its next attempt begins in (59 min|1 h)/).waitFor();
    await tab.page.getByText("try later", { exact: true }).first().waitFor();
  });

  test("is paused and resumed", async () => {
    const { first } = await server.submit("idle", [1]);
    await tab.to(`jobs/${first}`);
    await tab.page.getByRole("button", { name: "Pause" }).click();
    await tab.page.getByText("The job itself is paused: dashboard").waitFor();
    await tab.page.getByRole("button", { name: "Resume" }).click();
    await tab.page.locator(".heading [data-state=waiting]").waitFor();
  });

  test("is cancelled after a question", async () => {
    const { first } = await server.submit("idle", [2]);
    await tab.to(`jobs/${first}`);
    await tab.page.getByRole("button", { name: "Cancel" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Cancel the job" }).click();
    await tab.page.locator(".heading [data-state=cancelled]").waitFor();
  });

  test("shows what it prints while it runs", async () => {
    server.worker("steady");
    const { first } = await server.submit("steady", [{ hold: true }]);
    await server.reached("steady", "running", 1);
    await tab.to(`jobs/${first}`);
    await heading(`Job ${first}`);
    await tab.page.locator(".heading [data-state=running]").waitFor();
    await tab.page.locator(".live-log").waitFor();
  });

  test("one that does not exist says so", async () => {
    await tab.to("jobs/9999:0");
    await tab.page.getByText("Job 9999:0 does not exist.").waitFor();
  });
});

describe("failures", () => {
  test("that differ in numbers alone are one group", async () => {
    await tab.to("failures?kind=mail");
    await tab.page.getByText("3 dead jobs in 2 groups").waitFor();
    assert.deepEqual(await tab.page.locator(".group-count").allInnerTexts(), ["2", "1"]);
  });

  test("appear while more are read", async () => {
    const { page } = tab;
    const dead = (batch, message) => ({
      jobs: [
        {
          job: `${batch}:0`,
          kind: "mail",
          queue: "default",
          state: "dead",
          attempt: 1,
          priority: 0,
          submitted_at: 1,
          error: message,
        },
      ],
      next: batch === 1 ? "1:0" : null,
    });
    let goOn = () => {};
    const held = new Promise((resolve) => (goOn = () => resolve(undefined)));
    const path = (/** @type {URL} */ url) => url.pathname === "/api/v1/jobs";
    await page.route(path, async (route) => {
      const isFirst = !new URL(route.request().url()).searchParams.has("after");
      if (!isFirst) await held;
      await route.fulfill({ json: isFirst ? dead(1, "disk full") : dead(2, "quota used up") });
    });
    await tab.to("failures");
    await page.getByText("1 dead job in 1 group so far").waitFor();
    await page.getByText("disk full").waitFor();
    goOn();
    await page.getByText("2 dead jobs in 2 groups").waitFor();
    await page.unroute(path);
  });

  test("a group is retried", async () => {
    await server.submit("flaky", [{ fail: "code 1" }, { fail: "code 2" }], { retry: { attempts_max: 1 } });
    const worker = server.worker("flaky");
    await server.reached("flaky", "dead", 2);
    worker.kill("SIGKILL");
    await tab.to("failures?kind=flaky");
    await tab.page.getByRole("button", { name: "Retry 2 jobs: code 1" }).click();
    await tab.page.getByText("2 jobs retried").waitFor();
    await tab.page.getByText("No job is dead.").waitFor();
    assert.equal((await server.api("GET", "/jobs/count?kind=flaky")).states.dead, 0);
  });

  test("a group is discarded after a question", async () => {
    await server.submit("lost", [{ fail: "gone" }], { retry: { attempts_max: 1 } });
    const worker = server.worker("lost");
    await server.reached("lost", "dead", 1);
    worker.kill("SIGKILL");
    await tab.to("failures?kind=lost");
    await tab.page.getByRole("button", { name: "Discard 1 job: gone" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Discard 1 job" }).click();
    await tab.page.getByText("1 job discarded").waitFor();
    assert.equal((await server.api("GET", "/jobs/count?kind=lost")).states.cancelled, 1);
  });
});

describe("queues", () => {
  const controls = async () => (await server.api("GET", "/controls")).controls;

  test("a kind is paused and resumed", async () => {
    await tab.to("queues");
    await tab.page.getByRole("button", { name: "Pause kind report" }).click();
    await tab.page.getByRole("button", { name: "Resume kind report" }).waitFor();
    assert.ok(
      (await controls()).some((/** @type {any} */ { scope, effect }) => scope.kind === "report" && effect.pause),
    );
    await tab.page.getByRole("button", { name: "Resume kind report" }).click();
    await tab.page.getByRole("button", { name: "Pause kind report" }).waitFor();
    assert.ok(!(await controls()).some((/** @type {any} */ { scope }) => scope.kind === "report"));
  });

  test("a limit is set and lifted", async () => {
    await tab.to("queues");
    const form = tab.page.getByRole("form", { name: "New limit or pause" });
    await form.getByLabel("Name").fill("report");
    await form.getByLabel("Effect").selectOption("limit the rate");
    await form.getByLabel("Jobs", { exact: true }).fill("3");
    await form.getByLabel("In seconds").fill("60");
    await form.getByLabel("At once").fill("1");
    await form.getByRole("button", { name: "Set" }).click();
    await tab.page.getByText("at most 3 jobs in 1 min, 1 at once").waitFor();
    assert.ok((await controls()).some((/** @type {any} */ { effect }) => effect.rate?.period_ms === 60_000));
    await tab.page.getByRole("button", { name: "Lift: kind report, at most 3 jobs" }).click();
    await tab.page.getByText("at most 3 jobs in 1 min").waitFor({ state: "detached" });
  });

  test("a limit without a name is refused, with the reason", async () => {
    await tab.to("queues");
    await tab.page.getByRole("form").getByLabel("Name").fill("");
    await tab.page.getByRole("form").getByRole("button", { name: "Set" }).click();
    await tab.page.getByText("Name the kind.").waitFor();
  });
});

describe("schedules", () => {
  const schedule = () => server.api("GET", "/schedules/sweep");

  test("are listed with their rules and next moments", async () => {
    await tab.to("schedules");
    // A phone shows them in another place.
    for (const rule of ["30 4 * * * (Europe/Berlin)", "every 1 h"])
      await tab.page.getByText(rule).filter({ visible: true }).waitFor();
    await tab.page
      .getByText(/in (59 min|1 h)/)
      .first()
      .waitFor();
    // The moments after the next one, on the clocks of Berlin.
    await tab.page.getByText("next 5 in Europe/Berlin").click();
    const moments = await tab.page.locator("details[open] .moments li").allInnerTexts();
    assert.equal(moments.length, 5);
    for (const moment of moments) assert.match(moment, /^\w{3}, \d{4}-\d\d-\d\d 04:30:00 (CES?T|GMT\+[12])$/);
  });

  test("one is triggered", async () => {
    await tab.to("schedules");
    const { fired } = await schedule();
    await tab.page.getByRole("button", { name: "Trigger sweep" }).click();
    await until(async () => (await schedule()).fired > fired, "the schedule fired");
    await rows().nth(1).getByRole("link", { name: /:/ }).waitFor();
  });

  test("one is paused, resumed and deleted", async () => {
    await tab.to("schedules");
    await tab.page.getByRole("button", { name: "Pause nightly" }).click();
    await tab.page.getByRole("button", { name: "Resume nightly" }).click();
    await tab.page.getByRole("button", { name: "Pause nightly" }).waitFor();
    await tab.page.getByRole("button", { name: "Delete nightly" }).click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await tab.page.getByRole("link", { name: "nightly" }).waitFor({ state: "detached" });
    assert.deepEqual(
      (await server.api("GET", "/schedules")).schedules.map((/** @type {any} */ one) => one.schedule),
      ["sweep"],
    );
  });
});

describe("workers, events, submit", () => {
  test("workers are listed with what they hold", async () => {
    const worker = server.worker("resize");
    await tab.to("workers");
    await tab.page.locator("[data-state=completed]", { hasText: "alive" }).first().waitFor();
    await tab.page.getByText(String(worker.pid), { exact: false }).first().waitFor();
    await tab.page.getByRole("cell", { name: "resize on default" }).first().waitFor();
  });

  test("a worker is drained", async () => {
    const worker = server.worker("drained");
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    await tab.to("workers");
    const row = rows().filter({ hasText: String(worker.pid) });
    await row.getByRole("button", { name: "Drain" }).click();
    const dialog = tab.page.getByRole("dialog");
    await dialog.getByText("finishes its running jobs").waitFor();
    await dialog.getByRole("button", { name: "Drain" }).click();
    assert.equal(await ended, 0);
    await row.waitFor({ state: "detached" });
  });

  test("events come as they happen", async () => {
    await tab.to("events");
    await heading("Events");
    await server.submit("eventful", [1, 2, 3]);
    const row = rows().filter({ hasText: "eventful" });
    await row.getByText("submitted").waitFor();
    assert.equal(await row.locator("td.number").first().innerText(), "3");
  });

  test("held events stay while others come", async () => {
    await tab.to("events");
    await tab.page.getByRole("button", { name: "Hold" }).click();
    const shown = await rows().count();
    await server.submit("unseen", [1]);
    await until(async () => (await server.api("GET", "/jobs/count?kind=unseen")).jobs === 1, "the job");
    assert.equal(await rows().count(), shown);
    await tab.page.getByRole("button", { name: "Go on" }).click();
    await rows().filter({ hasText: "unseen" }).waitFor();
  });

  test("a job is submitted with exact numbers", async () => {
    await tab.to("submit");
    await tab.page.getByLabel("Kind").fill("typed");
    await tab.page.getByLabel("Payload, as JSON").fill('{"id": 12345678901234567890}');
    await tab.page.getByRole("button", { name: "Submit" }).click();
    const link = tab.page.getByRole("link", { name: /^job \d+:0$/ });
    await link.waitFor();
    const job = (await link.innerText()).slice(4);
    const stored = await fetch(`${server.url}/api/v1/jobs/${job}`).then((answer) => answer.text());
    assert.match(stored, /12345678901234567890/);
  });

  test("many jobs are submitted, one on each line", async () => {
    await tab.to("submit");
    await tab.page.getByLabel("Kind").fill("lines");
    await tab.page.getByLabel("one on each line").check();
    await tab.page.getByLabel("Payload, as JSON").fill('1\n\n"two"\n{"three": 3}\n');
    await tab.page.getByRole("button", { name: "Submit 3 jobs" }).click();
    await tab.page.getByText("Submitted 3 jobs").waitFor();
    assert.equal((await server.api("GET", "/jobs/count?kind=lines")).jobs, 3);
  });

  test("wrong JSON is refused with its place", async () => {
    await tab.to("submit");
    await tab.page.getByLabel("Payload, as JSON").fill('{\n  "a": 1,\n  b: 2\n}');
    await tab.page.getByText(/^Line 3, column 3: /).waitFor();
  });

  test("a refusal of the server is shown with its remedy", async () => {
    await tab.to("submit");
    await tab.page.getByLabel("Kind").fill("k");
    await tab.page.getByLabel("Attempts at most").fill("5000");
    await tab.page.getByRole("button", { name: "Submit" }).click();
    await tab.page.locator(".notice.bad").waitFor();
  });
});

describe("keys", () => {
  test("j and k go through the rows, Enter opens", async () => {
    await tab.to("jobs?kind=resize");
    await rows().first().waitFor();
    const focused = () => tab.page.evaluate(() => document.activeElement?.textContent);
    await tab.page.keyboard.press("j");
    assert.equal(await focused(), "1:0");
    await tab.page.keyboard.press("j");
    assert.equal(await focused(), "1:1");
    await tab.page.keyboard.press("k");
    assert.equal(await focused(), "1:0");
    await tab.page.keyboard.press("Enter");
    await heading("Job 1:0");
  });

  test("the slash filters, and keys in a field are text", async () => {
    await tab.to("batches");
    await rows().first().waitFor();
    await tab.page.keyboard.press("/");
    await tab.page.keyboard.type("jk?");
    assert.equal(await tab.page.getByLabel("Kind").inputValue(), "jk?");
    assert.equal(await tab.page.getByRole("dialog").count(), 0);
    await tab.page.keyboard.press("Escape");
    await tab.page.getByText("No batch matches these filters.").waitFor();
  });

  test("the question mark lists the keys, g leads to pages", async () => {
    await tab.to("");
    await heading("Overview");
    await tab.page.keyboard.press("?");
    await tab.page.getByRole("heading", { name: "Keys" }).waitFor();
    await tab.page.keyboard.press("Escape");
    await tab.page.getByRole("heading", { name: "Keys" }).waitFor({ state: "detached" });
    await tab.page.keyboard.press("g");
    await tab.page.keyboard.press("w");
    await heading("Workers");
  });
});
