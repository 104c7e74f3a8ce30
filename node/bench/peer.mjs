// Runs one piece of work on the package, as the drivers of other queues do: `node peer.mjs '{"work":"drain","store":"a.db",…}'`.

import { App } from "gristmill";
import {
  Latencies, idleMemory, main, order, payloads, pause, percentiles, rate, submitInBatches, submitSingly,
} from "../../bench/peers/node_order.mjs";

const app = new App(order.url ?? order.store, { durable: order.synchronous !== "NORMAL" });
let handle = () => {};
const job = app.job("noop", { concurrency: order.workers_max ?? 100 }, (payload) => handle(payload));

async function drain() {
  if (order.sleep_ms) handle = () => pause(order.sleep_ms);
  await job.submitMany(payloads(0, order.warm_up_jobs));
  await app.drain();
  await job.submitMany(payloads(order.warm_up_jobs, order.jobs));
  const began = performance.now();
  const { completed } = await app.drain();
  const answer = rate(order.jobs, began);
  if (completed !== order.jobs) throw new Error(`${completed} of ${order.jobs} jobs completed`);
  return answer;
}

await main({
  // All items in one call: the package makes batches of them.
  submit_many: async () => {
    await job.submitMany(payloads(0, order.warm_up_jobs));
    const items = payloads(order.warm_up_jobs, order.jobs);
    const began = performance.now();
    await job.submitMany(items);
    return rate(order.jobs, began);
  },
  submit_batches: () => submitInBatches((batch) => job.submitMany(batch)),
  drain,
  submit_single: () => submitSingly((payload) => job.submit(payload)),
  latency: async () => {
    const latencies = new Latencies();
    handle = (payload) => latencies.begun(payload);
    await app.worker();
    return latencies.measure((payload) => job.submit(payload));
  },
  compute: async () => {
    const module = new URL("../../bench/peers/compute.mjs", import.meta.url);
    const compute = app.job("compute", { module, processes: order.workers_max });
    const all = async (count) => {
      await compute.submitMany(Array.from({ length: count }, (_, number) => number));
      await app.drain({ jobs: [compute] });
    };
    await all(order.warm_up_jobs);
    const began = performance.now();
    await all(order.jobs);
    return rate(order.jobs, began);
  },
  // One job after the other, each awaited to its result.
  awaited: async () => {
    await app.worker();
    const found = [];
    for (const payload of payloads(0, order.warm_up_jobs + order.jobs)) {
      const began = performance.now();
      await (await job.submit(payload)).result();
      found.push(performance.now() - began);
    }
    return percentiles(found.slice(order.warm_up_jobs));
  },
  idle: async () => {
    await app.worker();
    return idleMemory();
  },
});
