// pg-boss: bulk inserts, batches of 1,000 fetched by two workers that go on at once while batches are full, and
// notifications instead of polls.
import pg from "pg";
import { PgBoss } from "pg-boss";
import {
  Latencies, SECONDS_MAX, chunks, idleMemory, main, order, payloads, pause, rate, submitInBatches, submitSingly,
} from "../node_order.mjs";

const QUEUE = "noop";
const WORK = { batchSize: 1_000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };

async function start(connections, options = {}) {
  const boss = new PgBoss({ connectionString: order.url, max: connections, ...options });
  boss.on("error", (error) => console.error(error.message));
  boss.on("warning", () => {});
  await boss.start();
  await boss.createQueue(QUEUE, { notify: true });
  return boss;
}

const submitter = (connections) => start(connections, { supervise: false, schedule: false });
const rows = (jobs) => jobs.map((job) => ({ data: job }));

async function drain() {
  const boss = await start(10, { useListenNotify: true });
  const client = new pg.Client({ connectionString: order.url });
  await client.connect();
  const left = async () =>
    Number((await client.query("SELECT count(*) AS left FROM pgboss.job WHERE name = $1 AND state <> 'completed'", [QUEUE])).rows[0].left);
  const drained = async (first, count) => {
    for (const batch of chunks(payloads(first, count))) await boss.insert(QUEUE, rows(batch));
    await client.query("VACUUM ANALYZE");
    await client.query("CHECKPOINT");
    let done = 0;
    let reached;
    const all = new Promise((resolve) => (reached = resolve));
    const began = performance.now();
    await boss.work(QUEUE, WORK, async (jobs) => void ((done += jobs.length) >= count && reached()));
    await Promise.race([all, pause(SECONDS_MAX * 1e3).then(() => { throw new Error(`${done} of ${count} jobs ran`); })]);
    while ((await left()) > 0) await pause(5);
    const answer = rate(count, began);
    await boss.offWork(QUEUE);
    return answer;
  };
  await drained(0, order.warm_up_jobs);
  return drained(order.warm_up_jobs, order.jobs);
}

await main({
  submit_batches: async () => {
    const boss = await submitter(4);
    return submitInBatches((batch) => boss.insert(QUEUE, rows(batch)));
  },
  drain,
  submit_single: async () => {
    const boss = await submitter(order.callers);
    return submitSingly((job) => boss.send(QUEUE, job));
  },
  latency: async () => {
    const boss = await start(10, { useListenNotify: true });
    const sender = await submitter(4);
    const latencies = new Latencies();
    await boss.work(QUEUE, WORK, async (jobs) => jobs.forEach((job) => latencies.begun(job.data)));
    return latencies.measure((job) => sender.send(QUEUE, job));
  },
  idle: async () => {
    const boss = await start(10, { useListenNotify: true });
    await boss.work(QUEUE, WORK, async () => {});
    return idleMemory();
  },
});
