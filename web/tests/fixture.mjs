// @ts-check
/** A real server with real jobs, and a real browser, for the tests. */

import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const ROOT = resolve(import.meta.dirname, "../..");
export const GRISTMILL = process.env["GRISTMILL"] ?? join(ROOT, "target/debug/gristmill");
const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
/** No test waits longer for what must happen. Milliseconds. */
export const PATIENCE_MS = 20_000;

export const MARKUP = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>&amp;`;

const SCRIPT = `import sys, time
def main(payload):
    print("begins", payload)
    if isinstance(payload, dict) and payload.get("hold"):
        print("holds now", flush=True)
        while True:
            time.sleep(0.1)
    if isinstance(payload, dict) and "spawn" in payload:
        import gristmill
        return gristmill.spawn([{"child": number} for number in range(payload["spawn"])])
    if isinstance(payload, dict) and "approve" in payload:
        import gristmill
        children = [{"kind": "resize", "payloads": [{"width": number} for number in range(payload["approve"])]},
                    {"event": "approve", "delay_ms": 3600000, "payloads": [None]}]
        flow = gristmill.spawn()
        flow.body = {"children": children, "on_failure": "collect", "flow": True, "wake": "all",
                     "memo": [{"steps": [["resize", 1, "pages", payload["approve"]], ["@approve", 0]]}]}
        return flow
    if isinstance(payload, dict) and "fail" in payload:
        raise ValueError(payload["fail"])
    return {"got": payload}
def finalize(payload, memo, outcomes):
    return len(outcomes)
`;

const LOCK_SQLITE = `import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
store.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
`;

/** Resolves once `condition` is true; it is asked again until then. */
export async function until(condition, what) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const result = await condition();
    if (result) return result;
    if (Date.now() > end) throw new Error(`waited for ${what}`);
    await new Promise((ready) => setTimeout(ready, 50));
  }
}

export class Server {
  /** @type {import("node:child_process").ChildProcess[]} */
  children = [];
  url = "";

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "gristmill-web-"));
    this.store = process.env["WEB_STORE"] ? freshDatabase(process.env["WEB_STORE"]) : join(this.folder, "gristmill.db");
    writeFileSync(join(this.folder, "work.py"), SCRIPT);
  }

  /** @param {string[]} more */
  async start(...more) {
    await this.listen("127.0.0.1:0", ...more);
    return this;
  }

  /** @param {string} address @param {string[]} more */
  async listen(address, ...more) {
    const child = this.run("serve", "--listen", address, ...more);
    const lines = createInterface({ input: child.stderr });
    this.url = await new Promise((found, failed) => {
      const said = [];
      lines.on("line", (line) => {
        said.push(line);
        const url = /listening on (http\S+)/.exec(line)?.[1];
        if (url) found(url);
      });
      child.on("exit", (code) => failed(new Error(`the server ended with ${code}: ${said.join("\n")}`)));
    });
    this.server = child;
  }

  /** @param {string[]} words */
  run(...words) {
    const child = spawn(GRISTMILL, words, {
      cwd: this.folder,
      env: { ...process.env, GRISTMILL_STORE: this.store },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.children.push(child);
    // A command line that is refused is a fault of the test.
    child.stderr.on(
      "data",
      (said) => /^error:/.test(String(said)) && process.stderr.write(`${words.join(" ")}: ${said}`),
    );
    return child;
  }

  /** A run over lines of JSON, in a process of its own; without a worker it would wait. @param {string} name @param {unknown[]} items */
  map(name, items) {
    const input = join(this.folder, `${name}.jsonl`);
    writeFileSync(input, items.map((item) => `${JSON.stringify(item)}\n`).join(""));
    return this.run("run", "work.py", "--name", name, "--input", input, "--output", `${input}.results`, "--quiet");
  }

  /** A command that ends. @param {string[]} words */
  command(...words) {
    const ended = spawnSync(GRISTMILL, words, {
      cwd: this.folder,
      env: { ...process.env, GRISTMILL_STORE: this.store },
      encoding: "utf8",
    });
    if (ended.status !== 0) throw new Error(`gristmill ${words.join(" ")}: ${ended.stderr}`);
    return ended.stdout;
  }

  /** A knowledge base of notes, by their names, for `--memory kb.db`. @param {Record<string, string>} notes */
  remember(notes) {
    const folder = join(this.folder, "notes");
    mkdirSync(folder);
    for (const [name, text] of Object.entries(notes)) writeFileSync(join(folder, name), text);
    // Its jobs are beside it, and not in the store.
    this.command("ingest", "notes", "--into", "kb.db", "--extractor", "local", "--quiet", "--store", "kb.jobs.db");
  }

  /** A worker for jobs of `kind`, until the server is stopped. @param {string} kind @param {string[]} more */
  worker(kind, ...more) {
    return this.run("worker", "work.py", "--kind", kind, "--quiet", "-j", "1", ...more);
  }

  async api(method, path, body, headers = {}) {
    const response = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  submit(kind, payloads, options = {}) {
    return this.api("POST", "/jobs", { kind, payloads, ...options });
  }

  /** Resolves once so many jobs of a kind are in a state. */
  async reached(kind, state, count) {
    await until(
      async () => (await this.api("GET", `/jobs/count?kind=${kind}`)).states[state] >= count,
      `${count} ${state} jobs of ${kind}`,
    );
  }

  /** Keeps all others from changing jobs, as a long transaction of a client does, until the returned function is called. */
  async lock() {
    const locker = process.env["WEB_STORE"]
      ? spawn("psql", ["--quiet", "--tuples-only", "--set=ON_ERROR_STOP=1", this.store])
      : spawn("python3", ["-c", LOCK_SQLITE, this.store]);
    this.children.push(locker);
    const ended = new Promise((done) => locker.once("exit", done));
    const locked = new Promise((ready) => locker.stdout.once("data", () => ready(true)));
    locker.stderr.pipe(process.stderr);
    if (process.env["WEB_STORE"])
      locker.stdin.write("BEGIN; LOCK TABLE gristmill.slice IN EXCLUSIVE MODE; SELECT 'locked';\n");
    if (!(await Promise.race([locked, ended.then(() => false)]))) throw new Error("the store was not locked");
    return async () => {
      locker.stdin.end();
      await ended;
    };
  }

  /** Some of everything: completed, dead, waiting, scheduled and running jobs, a pause, a limit, a schedule, a worker. */
  async fill() {
    await this.submit(
      "resize",
      Array.from({ length: 400 }, (_, number) => ({ width: 100 + number })),
      { group: "acme" },
    );
    await this.submit(
      "mail",
      [...Array(12)].map((_, number) => ({ to: `user${number}@example.org` })),
    );
    await this.submit(
      "mail",
      [
        { fail: "mailbox 17 is full" },
        { fail: "mailbox 23 is full" },
        { fail: "connection to 'smtp.example.org' refused" },
      ],
      { retry: { attempts_max: 1 } },
    );
    await this.submit("resize", [{ name: MARKUP, fail: MARKUP }], { retry: { attempts_max: 1 } });
    await this.submit("mail", [{ fail: "try later" }], {
      retry: { attempts_max: 5, delay_ms: 3_600_000, delay_ms_max: 3_600_000, backoff: "constant" },
    });
    await this.submit("report", [{ month: "2026-02" }, { month: "2026-03" }]);
    await this.submit("report", [{ month: "2026-04" }], { delay_ms: 7_200_000 });
    await this.submit("crawl", [{ url: "https://example.org" }], { queue: "slow" });
    await this.api("PUT", "/controls", {
      controls: [
        { scope: { kind: "crawl" }, effect: { pause: { reason: "robots.txt changed" } } },
        { scope: { kind: "mail" }, effect: { concurrency: { jobs_max: 5 } } },
      ],
    });
    await this.api("PUT", "/schedules/nightly", {
      kind: "report",
      payload: { all: true },
      rule: { cron: { expression: "30 4 * * *", time_zone: "Europe/Berlin" } },
    });
    await this.api("PUT", "/schedules/sweep", {
      kind: "sweep",
      payload: null,
      rule: { every: { interval_ms: 3_600_000 } },
    });
    const workers = [this.worker("resize"), this.worker("mail")];
    await this.reached("resize", "completed", 400);
    await this.reached("resize", "dead", 1);
    await this.reached("mail", "completed", 12);
    await this.reached("mail", "dead", 3);
    await this.reached("mail", "scheduled", 1);
    return workers;
  }

  async stop() {
    const running = this.children.filter((child) => child.exitCode === null && child.signalCode === null);
    const ended = running.map((child) => new Promise((done) => child.once("exit", done)));
    for (const child of running) child.kill("SIGKILL");
    await Promise.all(ended);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A new, empty database beside the one that the URL names. @param {string} url */
function freshDatabase(url) {
  const name = `web_${process.pid}_${Math.random().toString(36).slice(2, 8)}`;
  const made = spawnSync("psql", [url, "-qc", `CREATE DATABASE ${name}`], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(made.stderr);
  const database = new URL(url);
  database.pathname = `/${name}`;
  return database.href;
}

/** @returns {Promise<import("playwright-core").Browser>} */
export async function browser(executablePath = CHROMIUM) {
  if (!existsSync(executablePath))
    throw new Error(`${executablePath} does not exist: install Debian's package chromium, or set CHROMIUM`);
  return await chromium.launch({
    executablePath,
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/**
 * A page that fails its test where the script fails, the policy of content is violated, or another host is asked.
 * @param {import("playwright-core").Browser} chromium
 * @param {Server} server
 * @param {import("playwright-core").BrowserContextOptions} [options]
 */
export async function open(chromium, server, options = {}) {
  const context = await chromium.newContext({
    viewport: { width: 1280, height: 860 },
    locale: "en",
    timezoneId: "UTC",
    ...options,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  page.on("pageerror", (error) => faults.push(`script: ${error.stack ?? error.message}`));
  page.on("console", (message) => {
    if (/Content Security Policy|violates/i.test(message.text())) faults.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !request.url().startsWith("data:"))
      faults.push(`asked ${request.url()}`);
  });
  /** Loads the page anew: another `#` alone would keep what was typed. @param {string} hash */
  const to = async (hash) => {
    await page.goto("about:blank");
    await page.goto(`${server.url}/#/${hash}`);
  };
  if (process.env["WEB_DIST"]) await serveFrom(page, process.env["WEB_DIST"]);
  return { page, faults, close: () => context.close(), to };
}

/** Takes the page's files from a folder, under the server's own headers: for work on the page without a build of Rust. */
async function serveFrom(page, folder) {
  const files = {
    "/": "index.html",
    "/assets/app.js": "app.js",
    "/assets/app.css": "app.css",
    "/assets/icon.svg": "icon.svg",
  };
  await page.route(
    (url) => url.pathname in files,
    async (route) => {
      const path = new URL(route.request().url()).pathname;
      const response = await route.fetch().catch(() => undefined);
      if (!response) return await route.abort();
      const { "content-encoding": _, "content-length": __, ...headers } = response.headers();
      await route.fulfill({ response, headers, body: readFileSync(join(folder, files[path])) });
    },
  );
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * What axe has against a page that has loaded.
 * @param {import("playwright-core").Page} page
 * @returns {Promise<string[]>}
 */
export async function violationsOf(page) {
  await page.waitForFunction(() => !document.querySelector(".loading"));
  await page.evaluate(AXE);
  return await page.evaluate(async () => {
    const { violations } = await /** @type {any} */ (globalThis).axe.run(document, { resultTypes: ["violations"] });
    return violations.map(
      (/** @type {any} */ violation) =>
        `${violation.id}: ${violation.nodes
          .slice(0, 3)
          .map((/** @type {any} */ node) => `${node.html} ${node.failureSummary}`)
          .join("; ")}`,
    );
  });
}

/** Notes for pictures. */
export const NOTES = {
  "bees.md": [
    "# Bees\n\nAda King keeps bees in London. She bought the first hive from Tom Reed in May.\n",
    "# Honey\n\nThe bees gave 12 kg of honey. Tom Reed sold it in Hackney.\n",
  ].join("\n"),
  "garden.md": "# Garden\n\nTom Reed planted lavender for the bees beside the canal.\n",
};

export const PAGES = [
  "",
  "batches",
  "jobs",
  "failures",
  "flows",
  "queues",
  "schedules",
  "runs",
  "workers",
  "events",
  "history",
  "memory",
  "submit",
];
