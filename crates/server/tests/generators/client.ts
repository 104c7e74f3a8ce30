/** Submits a job by the client of hey-api, and prints its value. */

import { submit } from "./generated";
import { client } from "./generated/client.gen";

client.setConfig({ baseUrl: process.env["GRISTMILL_URL"] ?? "" });

async function main(): Promise<void> {
  const { data, error } = await submit({
    body: { kind: "double", payload: 21, priority: "high", retry: { attempts_max: 2 }, tags: { team: "red" } },
    query: { wait: "30s" },
  });
  const result = data?.results?.[0];
  console.log(result ? result["value"] : error);
}

void main();
