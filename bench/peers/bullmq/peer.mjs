// BullMQ: bulk submits, and one worker with many jobs at once in the event loop. Commands share round trips (`enableAutoPipelining`).
// Completed jobs are removed, so that Redis's memory does not grow.
import { Queue, QueueEvents, Worker } from "bullmq";
import { Redis } from "ioredis";
import {
  SECONDS_MAX, chunks, idleMemory, main, order, payload, payloads, pause, percentiles, rate, submitInBatches,
  submitSingly,
} from "../node_order.mjs";

const QUEUE = "noop";
// The fastest of 50, 100, 300 and 1,000 on two processors, by a little.
const CONCURRENCY = 100;

// Workers and listeners block a connection, so that each gets its own.
const connection = () => new Redis(order.url, { maxRetriesPerRequest: null, enableAutoPipelining: true });
const rows = (jobs) => jobs.map((data) => ({ name: QUEUE, data, opts: { removeOnComplete: true } }));
const openQueue = () => new Queue(QUEUE, { connection: connection() });

async function startWorker(handler, options = {}) {
  const worker = new Worker(QUEUE, handler, { connection: connection(), concurrency: order.workers_max ?? CONCURRENCY, ...options });
  worker.on("error", (error) => console.error(error.message));
  await worker.waitUntilReady();
  return worker;
}

async function drain() {
  const queue = openQueue();
  const drained = async (first, count) => {
    for (const batch of chunks(payloads(first, count))) await queue.addBulk(rows(batch));
    let done = 0;
    let reached;
    const all = new Promise((resolve) => (reached = resolve));
    const worker = await startWorker(() => order.sleep_ms && pause(order.sleep_ms), { autorun: false });
    worker.on("completed", () => void (++done === count && reached()));
    const began = performance.now();
    void worker.run();
    await Promise.race([all, pause(SECONDS_MAX * 1e3).then(() => { throw new Error(`${done} of ${count} jobs ran`); })]);
    const answer = rate(count, began);
    await worker.close();
    return answer;
  };
  await drained(0, order.warm_up_jobs);
  return drained(order.warm_up_jobs, order.jobs);
}

await main({
  submit_batches: async () => {
    const queue = openQueue();
    return submitInBatches((batch) => queue.addBulk(rows(batch)));
  },
  drain,
  submit_single: async () => {
    const queue = openQueue();
    return submitSingly((job) => queue.add(QUEUE, job, { removeOnComplete: true }));
  },
  awaited: async () => {
    const queue = openQueue();
    const events = new QueueEvents(QUEUE, { connection: connection() });
    await events.waitUntilReady();
    await startWorker(() => {});
    const found = [];
    for (let number = 0; number < order.warm_up_jobs + order.jobs; number++) {
      const began = performance.now();
      // Without `removeOnComplete`: it waits for a job that is there.
      await (await queue.add(QUEUE, payload(number))).waitUntilFinished(events);
      found.push(performance.now() - began);
    }
    return percentiles(found.slice(order.warm_up_jobs));
  },
  idle: async () => {
    await startWorker(() => {});
    return idleMemory();
  },
});
