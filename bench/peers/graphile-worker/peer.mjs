// graphile-worker with the configuration of its own figures (https://worker.graphile.org/docs/performance): 24 jobs at
// once, a local queue, completions in batches. An order may say how many jobs run at once and how long each sleeps.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import {
  Latencies, SECONDS_MAX, chunks, idleMemory, main, order, payloads, pause, rate, submitInBatches, submitSingly,
} from "../node_order.mjs";

const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
const preset = {
  worker: {
    connectionString: order.url,
    logger,
    concurrentJobs: order.workers_max ?? 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

async function utilities(connections) {
  const found = await makeWorkerUtils({ logger, pgPool: new pg.Pool({ connectionString: order.url, max: connections }) });
  await found.migrate();
  return found;
}

const specifications = (jobs) => jobs.map((job) => ({ identifier: "noop", payload: job }));

async function drain() {
  const utils = await utilities(4);
  const client = new pg.Client({ connectionString: order.url });
  await client.connect();
  const drained = async (first, count) => {
    for (const batch of chunks(payloads(first, count))) await utils.addJobs(specifications(batch));
    await client.query("VACUUM ANALYZE graphile_worker._private_jobs");
    await client.query("CHECKPOINT");
    let done = 0;
    let reached;
    const all = new Promise((resolve) => (reached = resolve));
    const began = performance.now();
    const noop = async () => {
      if (order.sleep_ms) await pause(order.sleep_ms);
      if (++done === count) reached();
    };
    const runner = await run({ preset, taskList: { noop } });
    await Promise.race([all, pause(SECONDS_MAX * 1e3).then(() => { throw new Error(`${done} of ${count} jobs ran`); })]);
    while (Number((await client.query("SELECT count(*) AS left FROM graphile_worker._private_jobs")).rows[0].left) > 0) {
      await pause(5);
    }
    const answer = rate(count, began);
    await Promise.race([runner.stop(), pause(8_000)]);
    return answer;
  };
  await drained(0, order.warm_up_jobs);
  return drained(order.warm_up_jobs, order.jobs);
}

await main({
  submit_batches: async () => {
    const utils = await utilities(4);
    return submitInBatches((batch) => utils.addJobs(specifications(batch)));
  },
  drain,
  submit_single: async () => {
    const utils = await utilities(order.callers);
    return submitSingly((job) => utils.addJob("noop", job));
  },
  latency: async () => {
    const utils = await utilities(4);
    const latencies = new Latencies();
    await run({ preset, taskList: { noop: async (job) => latencies.begun(job) } });
    return latencies.measure((job) => utils.addJob("noop", job));
  },
  idle: async () => {
    await run({ preset, taskList: { noop: () => {} } });
    return idleMemory();
  },
});
