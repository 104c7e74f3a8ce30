// Piscina: a pool of worker threads, which stores nothing. `node peer.mjs '{"work":"compute","jobs":1000,…}'`.

import { Piscina } from "piscina";
import { main, order, rate } from "../node_order.mjs";

const filename = new URL("../compute.mjs", import.meta.url).href;

await main({
  compute: async () => {
    const pool = new Piscina({ filename, minThreads: order.workers_max, maxThreads: order.workers_max });
    const all = (jobs) => Promise.all(Array.from({ length: jobs }, (_, number) => pool.run(number)));
    await all(order.warm_up_jobs);
    const began = performance.now();
    await all(order.jobs);
    return rate(order.jobs, began);
  },
});
