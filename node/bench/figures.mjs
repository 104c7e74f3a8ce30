// Measures the package beside other queues of Node, each in a process of its own, one after the other, and writes a report.
// `node figures.mjs [--output FILE] [--quick]`; NODE_BENCH_URL is a private PostgreSQL. It starts a Redis for each run of BullMQ.

import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const ROOT = new URL("../..", import.meta.url).pathname;
const FOLDER = join(ROOT, "build/node/bench");
const url = process.env.NODE_BENCH_URL;
const isQuick = process.argv.includes("--quick");
const output = process.argv[process.argv.indexOf("--output") + 1];
const RUNS = isQuick ? 1 : 3;
const scale = (jobs) => (isQuick ? Math.min(jobs, Math.max(50, Math.floor(jobs / 20))) : jobs);

/** The driver of another queue, installed from the npm registry by its lock file. */
function installed(name) {
  const folder = join(FOLDER, name);
  mkdirSync(folder, { recursive: true });
  for (const file of ["node_order.mjs", "compute.mjs"]) copyFileSync(join(ROOT, "bench/peers", file), join(FOLDER, file));
  const source = join(ROOT, "bench/peers", name);
  for (const file of ["package.json", "package-lock.json", "peer.mjs"]) copyFileSync(join(source, file), join(folder, file));
  if (!existsSync(join(folder, "node_modules"))) {
    execFileSync("npm", ["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], { cwd: folder });
  }
  return join(folder, "peer.mjs");
}

const gristmill = new URL("peer.mjs", import.meta.url).pathname;
const PEERS = ["plainjob", "graphile-worker", "pg-boss", "bullmq", "p-map", "piscina"];

/** What a contender's name says of its place: a database, a Redis that syncs so often, or nothing; by default, the order's. */
const PLACES = {
  "graphile-worker": "postgres", "pg-boss": "postgres", bullmq: "always", "bullmq (synced each second)": "everysec", piscina: "none",
  "p-map": "none",
};
const driverOf = (name) => name.replace(/ \(.*/, "");
/** Contenders that lose acknowledged jobs at a loss of power, or any. They are shown, and Gristmill is not compared with them. */
const isUnsynced = (name) => ["everysec", "none"].includes(PLACES[name]);

const SQLITE = { synchronous: "FULL", batch_jobs: 1_000, callers: 1 };
const POSTGRES = { batch_jobs: 1_000, callers: 1 };
const BULLMQ = (jobs) => ({ bullmq: jobs, "bullmq (synced each second)": jobs });
const rows = [
  ["`submitMany` of 100-byte objects, SQLite", "submit_many", SQLITE, { gristmill: 1_000_000, plainjob: 200_000 }, 1_000_000],
  ["drain of no-ops, SQLite", "drain", SQLITE, { gristmill: 1_000_000, plainjob: 100_000 }, 400_000],
  ["one submit at a time, one caller, SQLite (NORMAL)", "submit_single", { ...SQLITE, synchronous: "NORMAL" },
    { gristmill: 20_000, plainjob: 20_000 }, { ofBest: 1.2 }],
  ["awaited single job, SQLite: p50", "awaited", SQLITE, { gristmill: 1_000 }, 1, "p50_ms"],
  ["awaited single job, SQLite: p99", "awaited", SQLITE, { gristmill: 1_000 }, 4, "p99_ms"],
  ["`submitMany` of 100-byte objects, PostgreSQL", "submit_many", POSTGRES,
    { gristmill: 1_000_000, "graphile-worker": 50_000, "pg-boss": 50_000, ...BULLMQ(50_000) }, 700_000],
  ["drain of no-ops, PostgreSQL", "drain", POSTGRES,
    { gristmill: 1_000_000, "graphile-worker": 50_000, "pg-boss": 50_000, ...BULLMQ(10_000) }, 300_000],
  ["awaited single job, PostgreSQL: p50", "awaited", POSTGRES, { gristmill: 1_000, ...BULLMQ(1_000) }, 3, "p50_ms"],
  ["awaited single job, PostgreSQL: p99", "awaited", POSTGRES, { gristmill: 1_000, ...BULLMQ(1_000) }, 8, "p99_ms"],
  ["jobs of 10 ms, 64 at once, SQLite: time beside the bound", "drain", { ...SQLITE, workers_max: 64, sleep_ms: 10 },
    { gristmill: 12_800, "graphile-worker": 12_800, ...BULLMQ(6_400), "p-map": 12_800 }, 1.03, "bound"],
  ["computing jobs of about 10 ms on all processors (`processes`), with submit, SQLite", "compute",
    { ...SQLITE, workers_max: cpus().length }, { gristmill: 1_000, piscina: 1_000 }, { ofBest: 0.95, isBesideAll: true }],
  ["memory of an idle worker, with Node's own, SQLite", "idle", SQLITE, { gristmill: 1, plainjob: 1 }, 60, "idle_mb"],
  ["memory of an idle worker, with Node's own, PostgreSQL", "idle", POSTGRES,
    { gristmill: 1, "graphile-worker": 1, "pg-boss": 1, bullmq: 1 }, 60, "idle_mb"],
  ["from the start of Node to a worker that waits, SQLite", "idle", SQLITE, { gristmill: 1, plainjob: 1 }, null, "start_ms"],
  ["from the start of Node to a worker that waits, PostgreSQL", "idle", POSTGRES,
    { gristmill: 1, "graphile-worker": 1, "pg-boss": 1, bullmq: 1 }, null, "start_ms"],
];

let databases = 0;

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** A Redis that has nothing in it, and writes each command to its log before it answers: synced `always`, or `everysec`. */
async function startRedis(folder, appendfsync) {
  const port = await freePort();
  const settings = { port, bind: "127.0.0.1", save: "", appendonly: "yes", appendfsync, dir: folder, "auto-aof-rewrite-percentage": 0 };
  const words = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const server = spawn("redis-server", words, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(server, "exit");
  const ready = new Promise((resolve) => {
    let said = "";
    server.stdout.on("data", (bytes) => {
      said = `${said}${bytes}`.slice(-4_000);
      if (said.includes("Ready to accept connections")) resolve();
    });
  });
  await Promise.race([ready, ended.then(() => { throw new Error("redis-server ended before it was ready: see its output"); })]);
  return {
    url: `redis://127.0.0.1:${port}`,
    stop: async () => {
      server.kill("SIGTERM");
      await ended;
    },
  };
}

async function measured(name, work, order, jobs) {
  const folder = mkdtempSync(join(tmpdir(), "gristmill-bench-"));
  const driver = name === "gristmill" ? gristmill : installed(driverOf(name));
  const ofPeer = work === "submit_many" && name !== "gristmill" ? "submit_batches" : work;
  const full = { ...order, work: ofPeer, jobs, warm_up_jobs: Math.ceil(jobs / 10) };
  const place = PLACES[name] ?? (order.synchronous === undefined ? "postgres" : "file");
  let redis;
  try {
    if (place === "postgres") {
      const database = `bench_${process.pid}_${databases++}`;
      execFileSync("psql", [url, "--quiet", "--command", `CREATE DATABASE ${database}`]);
      const address = new URL(url);
      address.pathname = `/${database}`;
      full.url = address.href;
    } else if (place === "file") {
      full.store = join(folder, "jobs.db");
    } else if (place !== "none") {
      redis = await startRedis(folder, place);
      full.url = redis.url;
    }
    const { stdout } = await run(process.execPath, [driver, JSON.stringify(full)], { cwd: join(driver, ".."), timeout: 600_000 });
    return JSON.parse(stdout.trim().split("\n").at(-1));
  } finally {
    await redis?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

const median = (values) => [...values].sort((left, right) => left - right)[Math.floor(values.length / 2)];
const three = (value) => Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 2 });

const lines = [];
const kept = new Map();
for (const [title, work, order, contenders, target, figure] of rows) {
  if (order.synchronous === undefined && url === undefined) continue;
  const found = {};
  for (const [name, jobs] of Object.entries(contenders)) {
    if (PLACES[name] === "postgres" && url === undefined) continue;
    const key = JSON.stringify([name, work, order]);
    if (!kept.has(key)) {
      const answers = [];
      for (let turn = 0; turn < RUNS; turn++) answers.push(await measured(name, work, order, scale(jobs)));
      kept.set(key, answers);
    }
    found[name] = median(kept.get(key).map((answer) => {
      if (figure === "bound") return answer.seconds / ((answer.jobs * order.sleep_ms) / 1_000 / order.workers_max);
      return figure === undefined ? answer.jobs / answer.seconds : answer[figure];
    }));
    console.error(title, name, three(found[name]));
  }
  const unit = figure === undefined ? " jobs/s" : figure === "bound" ? "" : figure === "idle_mb" ? " MB" : " ms";
  const { gristmill: ours, ...others } = found;
  const beside = Object.entries(others).map(([name, value]) => `${name} ${three(value)}`).join(", ") || "–";
  const compared = Object.entries(others).filter(([name]) => target?.isBesideAll === true || !isUnsynced(name));
  const values = compared.map(([, value]) => value);
  const best = figure === undefined ? Math.max(0, ...values) : Math.min(Infinity, ...values);
  const ofBest = target?.ofBest;
  const isMet = ofBest !== undefined ? ours >= ofBest * best : figure === undefined ? ours >= target : ours <= target;
  const wanted = ofBest !== undefined ? `${ofBest} of the best` : `${figure === undefined ? "" : "at most "}${three(target ?? 0)}${unit}`;
  const ratio = values.length > 0 ? three(figure === undefined ? ours / best : best / ours) : "–";
  const told = target === null ? "– | –" : `${wanted} | ${isMet ? "yes" : "no"}`;
  lines.push(`| ${title} | ${three(ours)}${unit} | ${beside} | ${ratio} | ${told} |`);
}

// Import, size of the tarball.
const importing = `const began = performance.now();
await import("gristmill");
console.log(performance.now() - began);`;
const inPackage = { cwd: new URL("..", import.meta.url).pathname };
const { stdout } = await run(process.execPath, ["--input-type=module", "-e", importing], inPackage);
const tarball = join(ROOT, "build/node/gristmill-0.1.0.tgz");
for (const [title, value, unit, most] of [
  ["import", Number(stdout), " ms", 60],
  ["tarball", existsSync(tarball) ? statSync(tarball).size / 1e6 : NaN, " MB", 15],
]) lines.push(`| ${title} | ${three(value)}${unit} | – | – | at most ${most}${unit} | ${value <= most ? "yes" : "no"} |`);

function version(name) {
  const lock = JSON.parse(readFileSync(join(ROOT, "bench/peers", name, "package-lock.json"), "utf8"));
  return lock.packages[`node_modules/${name}`].version;
}

const versions = PEERS.map((name) => `${name} ${version(name)}`).join(", ");
const times = RUNS === 1 ? "once" : `${RUNS} times; the median counts`;
const report = `# The package for Node, measured

\`make bench-node\` writes this. Each contender runs in a process of its own, one after the other, ${times}. Gristmill
commits synchronously (\`synchronous=FULL\`, PostgreSQL's \`fsync\`), and so do the others. Peers submit in batches of 1,000, and run
fewer jobs. BullMQ is beside the rows of PostgreSQL, as it needs a server: Debian's Redis on the same machine with \`appendonly\` and
\`appendfsync always\`, so that an acknowledged job survives a loss of power. With \`appendfsync everysec\`, the usual setting, a loss of
power loses the jobs of the last second or so; that figure is shown, and not compared. Piscina and p-map store nothing. "Times the
best" is how many times better Gristmill is than the best of the synced peers; of the pools, than the pool. Node
${process.version.slice(1)}, ${cpus().length} processors; ${versions}.

| work | Gristmill | peers | times the best | target | met |
| --- | --- | --- | --- | --- | --- |
${lines.join("\n")}
`;
console.log(report);
if (process.argv.includes("--output")) writeFileSync(output, report);
