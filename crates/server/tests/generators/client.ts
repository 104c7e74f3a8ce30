/** Submits jobs by the client of hey-api, reads a refusal and a failure, and prints a job's value. */

import { job, submit } from "./generated";
import { client } from "./generated/client.gen";

client.setConfig({ baseUrl: process.env["GRISTMILL_URL"] ?? "" });

function expect(is: boolean, seen: unknown): void {
  if (!is) throw new Error(JSON.stringify(seen));
}

async function main(): Promise<void> {
  const { data, error } = await submit({
    body: { kind: "double", payload: 21, priority: "high", retry: { attempts_max: 2 }, tags: { team: "red" } },
    query: { wait: "30s" },
  });
  const result = data?.results?.[0];
  expect(result !== undefined, error);
  const shown = await job({ path: { job: String(result?.["job"]) } });
  expect(shown.data?.state === "completed", shown.error);

  const refused = await submit({ body: { kind: "" } });
  expect(refused.response?.status === 400 && (refused.error?.error.includes("kind") ?? false), refused.error);
  const failing = await submit({ body: { kind: "double", payload: {}, retry: { attempts_max: 1 } }, query: { wait: "30s" } });
  expect(failing.data?.results?.[0]?.["state"] === "dead", failing.data);
  console.log(result?.["value"]);
}

void main();
