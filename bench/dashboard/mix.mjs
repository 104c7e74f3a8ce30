// @ts-check
/** The jobs of the measured store: kinds, queues, groups, tags, failures and runs, all decided by their numbers. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** Payloads in one request; the server makes batches of 1,000 of them. */
const REQUEST_JOBS = 10_000;
/** Jobs of a small batch, and which part of all jobs are in such: one in a hundred. */
const SMALL_JOBS = 10;
const SMALL_PART = 100;
/** Requests under way at once. */
const REQUESTS_AT_ONCE = 4;
/** Of the jobs of a kind that may fail, one of so many does. */
const FAILS_EVERY = 100;
const RUNS = 5;
const SCHEDULES = 10;

/** The text of one payload among the newest jobs. */
export const NEEDLE = "Zanzibar";

export const SCRIPT = `def main(payload):
    if "fail" in payload:
        raise ValueError(payload["fail"])
    return {"stored": payload["image"]}
`;

/** The same with some work of a processor, about 10 µs a job. */
export const BUSY_SCRIPT = `import hashlib


def main(payload):
    if "fail" in payload:
        raise ValueError(payload["fail"])
    return {"stored": payload["image"], "sha256": hashlib.sha256(payload["url"].encode() * 400).hexdigest()}
`;

/** How many of a hundred requests are for which kind. Nothing works on \`crawl\`; \`report\` is due in a day. */
const KINDS = /** @type {const} */ ([
  { kind: "resize", weight: 42, queue: "default", fails: true },
  { kind: "mail", weight: 25, queue: "default", fails: true },
  { kind: "index", weight: 14, queue: "bulk", fails: false },
  { kind: "bill", weight: 12, queue: "default", fails: false, groups: 20 },
  { kind: "thumbnail", weight: 3, queue: "bulk", fails: true },
  { kind: "crawl", weight: 3, queue: "slow", fails: false },
  {
    kind: "report",
    weight: 1,
    queue: "default",
    fails: false,
    delay_ms: 86_400_000,
  },
]);

/** The kinds that workers run, and their queues. */
export const WORKED = KINDS.filter(
  ({ kind }) => kind !== "crawl" && kind !== "report",
).map(({ kind }) => kind);
export const QUEUES = ["default", "bulk"];

const ERRORS = [
  (/** @type {number} */ n) =>
    `connection to 'images-${n % 40}.example.org' timed out after ${n % 60} s`,
  (/** @type {number} */ n) => `unsupported color space in frame ${n % 900}`,
  (/** @type {number} */ n) =>
    `HTTP 429 from 'api.example.org', retry after ${n % 120} s`,
  (/** @type {number} */ n) => `mailbox ${n} is full`,
  (/** @type {number} */ n) => `no space left on device: /srv/${n % 7}`,
];

/** @param {number} number @param {boolean} fails @returns {string} */
function payload(number, fails) {
  const fail =
    fails && number % FAILS_EVERY === 17
      ? `,"fail":${JSON.stringify(ERRORS[Math.floor(number / FAILS_EVERY) % ERRORS.length]?.(number))}`
      : "";
  return `{"image":${number},"url":"https://images.example.org/2026/${number}.jpg","width":${number % 4_000}${fail}}`;
}

/**
 * The body of one request.
 * @param {typeof KINDS[number]} of @param {number} request @param {number} first @param {number} jobs @param {string} [last]
 */
function body(of, request, first, jobs, last) {
  const payloads = Array.from({ length: jobs }, (_, index) =>
    payload(first + index, of.fails),
  );
  if (last) payloads[jobs - 1] = last;
  const group =
    "groups" in of
      ? `,"group":"customer-${request % of.groups}","tags":{"customer":"${request % of.groups}"}`
      : "";
  const delay = "delay_ms" in of ? `,"delay_ms":${of.delay_ms}` : "";
  return `{"kind":"${of.kind}","queue":"${of.queue}","retry":{"attempts_max":1}${group}${delay},"payloads":[${payloads.join(",")}]}`;
}

/** The kind of a request: by weight, well mixed. @param {number} request */
function kindOf(request) {
  const drawn = (request * 61) % 100;
  let sum = 0;
  return KINDS.find(({ weight }) => (sum += weight) > drawn) ?? KINDS[0];
}

/** Submits so many jobs: small batches first, so that the newest are large. @param {{url: string}} server @param {number} jobs */
export async function submitMix(server, jobs) {
  const small = Math.floor(jobs / SMALL_PART / SMALL_JOBS);
  const large = Math.ceil((jobs - small * SMALL_JOBS) / REQUEST_JOBS);
  let request = 0;
  const submit = async () => {
    while (request < small + large) {
      const mine = request++;
      const isSmall = mine < small;
      const last =
        mine === small + large - 1
          ? `{"image":0,"url":"ftp://${NEEDLE.toLowerCase()}.example.org"}`
          : undefined;
      // The last one, with the needle, is of a kind that is worked on.
      const of = last ? KINDS[0] : kindOf(mine);
      const text = body(
        of,
        mine,
        mine * REQUEST_JOBS,
        isSmall ? SMALL_JOBS : REQUEST_JOBS,
        last,
      );
      const answer = await fetch(`${server.url}/api/v1/jobs`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: text,
      });
      if (!answer.ok)
        throw new Error(`POST /jobs: ${answer.status} ${await answer.text()}`);
      await answer.arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: REQUESTS_AT_ONCE }, submit));
}

/** Runs, schedules, a pause and a limit. @param {import("../../web/tests/fixture.mjs").Server} server @param {number} jobs of each run */
export async function addOthers(server, jobs) {
  writeFileSync(join(server.folder, "work.py"), SCRIPT);
  for (let run = 1; run <= RUNS; run += 1) {
    const input = join(server.folder, `run-${run}.jsonl`);
    writeFileSync(
      input,
      Array.from(
        { length: jobs },
        (_, number) => `${payload(number, false)}\n`,
      ).join(""),
    );
    server.command(
      "run",
      "work.py",
      "--name",
      `import-${run}`,
      "--input",
      input,
      "--output",
      `${input}.out`,
      "--quiet",
    );
  }
  for (let number = 1; number <= SCHEDULES; number += 1) {
    await server.api("PUT", `/schedules/nightly-${number}`, {
      kind: "report",
      payload: { number },
      rule: { cron: { expression: `${number} 4 * * *` } },
    });
  }
  await server.api("PUT", "/controls", {
    controls: [
      {
        scope: { kind: "crawl" },
        effect: { pause: { reason: "robots.txt changed" } },
      },
      { scope: { kind: "report" }, effect: { concurrency: { jobs_max: 5 } } },
    ],
  });
}
