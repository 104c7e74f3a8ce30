// p-map: a function over many items, so many at once. It stores nothing. `node peer.mjs '{"work":"drain","jobs":1000,…}'`.

import pMap from "p-map";
import { main, order, payloads, pause, rate } from "../node_order.mjs";

await main({
  drain: async () => {
    const all = (items) => pMap(items, () => order.sleep_ms && pause(order.sleep_ms), { concurrency: order.workers_max });
    await all(payloads(0, order.warm_up_jobs));
    const items = payloads(order.warm_up_jobs, order.jobs);
    const began = performance.now();
    await all(items);
    return rate(order.jobs, began);
  },
});
