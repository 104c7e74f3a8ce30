// @ts-check
/** Single requests on one kept connection, timed. */

import { Agent, get } from "node:http";

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

/** The body of an answer, and how long it took. @param {string} url @returns {Promise<{body: any, took_ms: number}>} */
export function timed(url) {
  return new Promise((done, failed) => {
    const began = performance.now();
    get(url, { agent }, (answer) => {
      /** @type {Buffer[]} */
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        const took_ms = performance.now() - began;
        const text = Buffer.concat(parts).toString();
        if (answer.statusCode === 200)
          done({ body: JSON.parse(text), took_ms });
        else failed(new Error(`${url}: ${answer.statusCode} ${text}`));
      });
    }).on("error", failed);
  });
}

/** The open jobs of these kinds, counted anew: the backlog may be some seconds old. @param {string} url @param {string[]} kinds */
export async function readOpen(url, kinds) {
  const text = await (await fetch(`${url}/api/v1/metrics`)).text();
  const samples = text.matchAll(
    /^gristmill_jobs_(?:due|running)\{kind="([^"]*)",[^}]*\} (\d+)$/gm,
  );
  let jobs = 0;
  for (const [, kind, count] of samples)
    if (kinds.includes(kind ?? "")) jobs += Number(count);
  return jobs;
}

/** @param {string} url @param {number} count @returns {Promise<number[]>} */
export async function times(url, count) {
  const all = [];
  for (let number = 0; number < count; number += 1)
    all.push((await timed(url)).took_ms);
  return all;
}

/** The percentile of samples. @param {number[]} samples @param {number} part */
export function percentile(samples, part) {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] ?? 0;
}
