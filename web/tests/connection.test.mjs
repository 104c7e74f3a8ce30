// @ts-check
/** Sign-in, lost connections, hidden tabs, narrow screens, empty stores. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, open, PAGES, Server, until } from "./fixture.mjs";

/** @type {import("playwright-core").Browser} */ let chromium;
/** @type {Server[]} */ const servers = [];
const started = async (/** @type {string[]} */ ...options) => {
  const server = new Server();
  servers.push(server);
  return await server.start(...options);
};

before(async () => {
  chromium = await browser();
});
after(async () => {
  await chromium?.close();
  await Promise.all(servers.map((server) => server.stop()));
});

test("a store without jobs says on every page what to type next", async () => {
  const server = await started();
  const { page, faults, to, close } = await open(chromium, server);
  for (const path of PAGES.filter((path) => !["submit", "failures"].includes(path))) {
    await to(path);
    await page.locator(".empty code", { hasText: "gristmill " }).first().waitFor();
  }
  await to("failures");
  await page.getByText("No job is dead.").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a lost connection is said, and ends by itself", async () => {
  const server = await started();
  await server.submit("stay", [1]);
  const { page, to, close } = await open(chromium, server);
  await to("batches");
  await page.locator("tbody tr").waitFor();
  const address = new URL(server.url).host;
  const ended = new Promise((done) => server.server?.once("exit", done));
  server.server?.kill("SIGKILL");
  await ended;
  await page.getByText("The connection is lost since").waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1, "what was loaded stays");
  await server.listen(address);
  await page.getByText("The connection is lost since").waitFor({ state: "detached" });
  await server.submit("stay", [2]);
  await until(async () => (await page.locator("tbody tr").count()) === 2, "the new batch");
  await close();
});

test("a hidden tab asks nothing", async () => {
  const server = await started();
  const { page, to, close } = await open(chromium, server);
  await page.clock.install();
  await to("workers");
  await page.locator("h1").waitFor();
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  // Requests under way end first.
  await page.waitForLoadState("networkidle");
  let asked = 0;
  page.on("request", () => {
    asked += 1;
  });
  // Longer than the interval of every request of the page.
  await page.clock.runFor(120_000);
  assert.equal(asked, 0);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { get: () => false, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await until(() => asked > 0, "requests of the shown tab");
  await close();
});

test("with tokens, the page asks for one and keeps it out of reach of scripts", async () => {
  const server = new Server();
  servers.push(server);
  const token = server
    .command("token", "create", "--trust", "trust", "--role", "admin", "--group", "me", "--queue", "*")
    .trim();
  await server.start("--trust", "trust");
  const { page, faults, to, close } = await open(chromium, server);
  await to("batches");
  await page.getByLabel("Token").fill("nonsense");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".problem").waitFor();
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("There is no batch yet.").waitFor();
  await page.getByText("me, admin").waitFor();
  const cookies = await page.context().cookies();
  assert.deepEqual(
    cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite })),
    [{ name: "gristmill_token", httpOnly: true, sameSite: "Strict" }],
  );
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes(token));
  await page.reload();
  await page.getByText("There is no batch yet.").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.deepEqual(await page.context().cookies(), []);
  assert.deepEqual(faults, []);
  await close();
});

test("a token without the right sees the refusal, not a broken page", async () => {
  const server = new Server();
  servers.push(server);
  const token = server
    .command("token", "create", "--trust", "trust", "--role", "submit", "--group", "app", "--queue", "paid")
    .trim();
  await server.start("--trust", "trust");
  const { page, faults, to, close } = await open(chromium, server);
  await to("workers");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".problem", { hasText: "use a token" }).waitFor();
  await to("jobs");
  await page.getByText("There is no job yet.").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("an operator pauses and sees nothing that it may not do", async () => {
  const server = new Server();
  servers.push(server);
  const token = (/** @type {string} */ role) =>
    server.command("token", "create", "--trust", "trust", "--role", role, "--group", "desk", "--queue", "*").trim();
  const [admin, operator] = [token("admin"), token("operator")];
  await server.start("--trust", "trust");
  const authorized = { authorization: `Bearer ${admin}` };
  await server.api("POST", "/jobs", { kind: "report", payloads: [1, 2] }, authorized);
  const every = { every: { interval_ms: 3_600_000 } };
  await server.api("PUT", "/schedules/nightly", { kind: "report", payload: 1, rule: every }, authorized);
  const { page, faults, to, close } = await open(chromium, server);
  await to("queues");
  await page.getByLabel("Token").fill(operator);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("desk, operator").waitFor();
  await page.getByRole("button", { name: "Pause kind report" }).click();
  await page.getByRole("button", { name: "Resume kind report" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Submit", exact: true }).count(), 0);
  await to("jobs?kind=report");
  await page.getByRole("button", { name: "Cancel 2" }).waitFor();
  await to("schedules");
  await page.getByRole("button", { name: "Pause nightly" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Delete nightly" }).count(), 0);
  const refused = await fetch(`${server.url}/api/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${operator}`, "content-type": "application/json" },
    body: '{"kind":"k","payload":1}',
  });
  assert.equal(refused.status, 403);
  assert.deepEqual(faults, []);
  await close();
});

test("a monitor reads everything but the contents of jobs, and changes nothing", async () => {
  const server = new Server();
  servers.push(server);
  const token = (/** @type {string} */ role) =>
    server.command("token", "create", "--trust", "trust", "--role", role, "--group", "desk", "--queue", "*").trim();
  const [admin, monitor] = [token("admin"), token("monitor")];
  await server.start("--trust", "trust");
  const job = { kind: "report", payload: { secret: "swordfish" } };
  const { first } = await server.api("POST", "/jobs", job, { authorization: `Bearer ${admin}` });
  const { page, faults, to, close } = await open(chromium, server);
  await to(`jobs/${first}`);
  await page.getByLabel("Token").fill(monitor);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Hidden from this token").first().waitFor();
  assert.equal(await page.getByText("swordfish").count(), 0);
  for (const path of ["", "batches", `jobs/${first}`, "jobs", "queues", "schedules", "runs", "workers", "history"]) {
    await to(path);
    await page.locator("main h1").waitFor();
    await page.waitForFunction(() => !document.querySelector(".loading"));
    assert.equal(await page.locator(".problem").count(), 0, path);
    const changes = page.getByRole("button", { name: /^(Cancel|Pause|Resume|Retry|Discard|Lift|Set)/ });
    assert.equal(await changes.count(), 0, path);
  }
  await to("jobs?text=swordfish");
  await page.locator(".problem", { hasText: "--monitors-see-payloads" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a page of another origin can neither read nor change", async () => {
  const server = await started();
  const other = await started();
  const { page, close } = await open(chromium, server);
  await page.goto(`${server.url}/`);
  const answers = await page.evaluate(async (url) => {
    const tried = async (/** @type {RequestInit} */ init) =>
      fetch(`${url}/api/v1/jobs`, init).then(
        (answer) => answer.type,
        () => "blocked",
      );
    return [await tried({}), await tried({ method: "POST", body: '{"kind":"k","payload":1}', mode: "no-cors" })];
  }, other.url);
  assert.deepEqual(answers, ["blocked", "blocked"]);
  const forged = await fetch(`${other.url}/api/v1/jobs`, {
    method: "POST",
    headers: { origin: server.url, "content-type": "application/json" },
    body: '{"kind":"k","payload":1}',
  });
  assert.equal(forged.status, 403);
  assert.equal((await other.api("GET", "/jobs/count")).jobs, 0);
  await close();
});

test("no page is wider than a phone", async () => {
  const server = await started();
  await server.submit(
    "a-kind-with-a-rather-long-name-as-teams-like-them",
    Array.from({ length: 300 }, (_, number) => number),
    { queue: "a-long-queue" },
  );
  const { page, to, close } = await open(chromium, server, { viewport: { width: 360, height: 740 }, hasTouch: true });
  for (const path of [...PAGES, "batches/1", "jobs/1:0"]) {
    await to(path);
    await page.locator("h1").first().waitFor();
    await page.waitForFunction(() => !document.querySelector(".loading"));
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${path}: ${width}`);
  }
  await close();
});

test("the chosen theme is kept", async () => {
  const server = await started();
  const { page, to, close } = await open(chromium, server, { colorScheme: "light" });
  await to("");
  await page.getByLabel("Theme").selectOption("dark");
  await page.reload();
  await page.locator("h1").waitFor();
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");
  await close();
});
