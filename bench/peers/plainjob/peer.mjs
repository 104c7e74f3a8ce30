// Runs one piece of work on plainjob: `node peer.mjs '{"work":"drain","store":"a.db",…}'`.
// Prints one line of JSON: {"jobs":…,"seconds":…}, or latencies in milliseconds.
//
// better-sqlite3 is plainjob's fastest driver under Node; a poll every millisecond is the shortest it takes.
import Database from "better-sqlite3";
import { better, defineQueue, defineWorker } from "plainjob";

const order = JSON.parse(process.argv[2]);
const silent = { debug() {}, info() {}, warn() {}, error: console.error };
const KIND = "noop";

function openQueue() {
  const database = new Database(order.store);
  const queue = defineQueue({ connection: better(database), logger: silent });
  // defineQueue sets NORMAL.
  database.pragma(`synchronous = ${order.synchronous}`);
  return queue;
}

// Payloads of exactly 100 bytes as JSON.
function makeJobs(from, count) {
  return Array.from({ length: count }, (_, index) => ({
    id: String(from + index).padStart(8, "0"),
    to: "user@example.com",
    pad: "x".repeat(50),
  }));
}

function submitBatches(queue, jobs) {
  for (let start = 0; start < jobs.length; start += order.batch_jobs) {
    queue.addMany(KIND, jobs.slice(start, start + order.batch_jobs));
  }
}

function rate(began) {
  return { jobs: order.jobs, seconds: (performance.now() - began) / 1000 };
}

function measureSubmit() {
  const queue = openQueue();
  submitBatches(queue, makeJobs(0, order.warm_up_jobs));
  const jobs = makeJobs(order.warm_up_jobs, order.jobs);
  const began = performance.now();
  submitBatches(queue, jobs);
  return rate(began);
}

function drain(queue, jobs) {
  return new Promise((resolve) => {
    let completed = 0;
    const worker = defineWorker(KIND, () => {}, {
      queue,
      logger: silent,
      pollIntervall: 1,
      onCompleted: () => {
        completed += 1;
        if (completed === jobs) resolve(worker.stop());
      },
    });
    void worker.start();
  });
}

async function measureDrain() {
  const queue = openQueue();
  submitBatches(queue, makeJobs(0, order.warm_up_jobs));
  await drain(queue, order.warm_up_jobs);
  submitBatches(queue, makeJobs(order.warm_up_jobs, order.jobs));
  const began = performance.now();
  await drain(queue, order.jobs);
  return rate(began);
}

async function submitSingly(queue, jobs) {
  let next = 0;
  const caller = async () => {
    while (next < jobs.length) {
      await queue.add(KIND, jobs[next++]);
    }
  };
  await Promise.all(Array.from({ length: order.callers }, caller));
}

async function measureSingle() {
  const queue = openQueue();
  await submitSingly(queue, makeJobs(0, order.warm_up_jobs));
  const jobs = makeJobs(order.warm_up_jobs, order.jobs);
  const began = performance.now();
  await submitSingly(queue, jobs);
  return rate(began);
}

async function measureLatency() {
  const count = order.warm_up_jobs + order.jobs;
  const jobs = makeJobs(0, count);
  const sentAt = [];
  const latencies = [];
  let begun = 0;
  let allBegun;
  const done = new Promise((resolve) => (allBegun = resolve));
  const handler = (job) => {
    const now = performance.now();
    const index = Number(JSON.parse(job.data).id);
    if (index >= order.warm_up_jobs) latencies.push(now - sentAt[index]);
    begun += 1;
    if (begun === count) allBegun();
  };
  void defineWorker(KIND, handler, { queue: openQueue(), logger: silent, pollIntervall: 1 }).start();
  const queue = openQueue();
  const gapMs = 1000 / order.rate_per_second;
  const began = performance.now();
  for (let index = 0; index < count; index += 1) {
    const wait = began + index * gapMs - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    sentAt.push(performance.now());
    queue.add(KIND, jobs[index]);
  }
  await done;
  latencies.sort((a, b) => a - b);
  const at = (share) => latencies[Math.round((latencies.length - 1) * share)];
  return { samples: latencies.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}

async function measureIdle() {
  void defineWorker(KIND, () => {}, { queue: openQueue(), logger: silent, pollIntervall: 1 }).start();
  await new Promise((resolve) => setTimeout(resolve, 500));
  return { idle_mb: process.memoryUsage().rss / 1e6, start_ms: performance.now() - 500 };
}

const works = {
  idle: measureIdle,
  submit_batches: measureSubmit,
  drain: measureDrain,
  submit_single: measureSingle,
  latency: measureLatency,
};
console.log(JSON.stringify(await works[order.work]()));
process.exit(0);
