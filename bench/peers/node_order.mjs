// What the drivers of Node peers share: the order (JSON, the only argument), the jobs, the measured loops, the answer.

export const order = JSON.parse(process.argv[2]);
export const SECONDS_MAX = 300;

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// 100 bytes of JSON.
export const payload = (number) => ({
  id: String(number).padStart(8, "0"),
  to: "user@example.com",
  pad: "x".repeat(50),
});

export const payloads = (first, count) => Array.from({ length: count }, (_, index) => payload(first + index));

export function chunks(items) {
  const found = [];
  for (let first = 0; first < items.length; first += order.batch_jobs) {
    found.push(items.slice(first, first + order.batch_jobs));
  }
  return found;
}

/** Of durations in milliseconds. */
export function percentiles(durations) {
  const sorted = [...durations].sort((left, right) => left - right);
  const at = (share) => sorted[Math.round((sorted.length - 1) * share)];
  return { samples: sorted.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}

export const rate = (jobs, began) => ({ jobs, seconds: (performance.now() - began) / 1e3 });

export async function submitInBatches(submit) {
  for (const batch of chunks(payloads(0, order.warm_up_jobs))) await submit(batch);
  const batches = chunks(payloads(order.warm_up_jobs, order.jobs));
  const began = performance.now();
  for (const batch of batches) await submit(batch);
  return rate(order.jobs, began);
}

export async function submitSingly(submit) {
  const all = async (jobs) => {
    let next = 0;
    const caller = async () => {
      while (next < jobs.length) await submit(jobs[next++]);
    };
    await Promise.all(Array.from({ length: order.callers }, caller));
  };
  await all(payloads(0, order.warm_up_jobs));
  const jobs = payloads(order.warm_up_jobs, order.jobs);
  const began = performance.now();
  await all(jobs);
  return rate(order.jobs, began);
}

// From before each submit to its handler's first line, at a steady rate.
export class Latencies {
  sentAt = new Map();
  begunAt = new Map();

  begun(job) {
    const now = performance.now();
    const number = Number(job.id);
    if (!this.begunAt.has(number)) this.begunAt.set(number, now);
  }

  async measure(submit) {
    const count = order.warm_up_jobs + order.jobs;
    const began = performance.now();
    for (let number = 0; number < count; number++) {
      await pause(Math.max(0, began + (number * 1e3) / order.rate_per_second - performance.now()));
      this.sentAt.set(number, performance.now());
      await submit(payload(number));
    }
    const until = performance.now() + 30_000;
    while (this.begunAt.size < count) {
      if (performance.now() > until) throw new Error(`${this.begunAt.size} of ${count} jobs began`);
      await pause(20);
    }
    const found = [];
    for (let number = order.warm_up_jobs; number < count; number++) {
      found.push(this.begunAt.get(number) - this.sentAt.get(number));
    }
    return percentiles(found);
  }
}

/** The memory of this process half a second after its worker began, with Node's own. */
export async function idleMemory() {
  await pause(500);
  return { idle_mb: process.memoryUsage().rss / 1e6, start_ms: performance.now() - 500 };
}

// Runs the order's work and prints its answer as one line of JSON.
export async function main(works) {
  console.log(JSON.stringify(await works[order.work]()));
  process.exit(0);
}
