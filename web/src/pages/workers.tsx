import { useState } from "preact/hooks";

import { post, type Worker } from "../api/client.ts";
import { Confirm, Empty, Heading, Loading, Panel, Problem, When } from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { plural, whole } from "../format.ts";
import { useLoaded, useNow } from "../live.ts";
import { mayOperate } from "../rights.ts";
import { href } from "../router.ts";
import { SILENT_AFTER_MS } from "./overview.tsx";

export function Workers() {
  const loaded = useLoaded<{ workers: Worker[] }>("/workers", 3_000);
  const now = useNow();
  const [drained, setDrained] = useState<Worker>();
  if (!loaded.data) return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  const rows = loaded.data.workers;
  const held = rows.reduce((sum, { jobs_held }) => sum + jobs_held, 0);
  return (
    <>
      <Heading title="Workers" note={`${plural(rows.length, "worker")} and agents, holding ${plural(held, "job")}`}>
        <a class="button" href={href("jobs", { states: "running" })}>
          Running jobs
        </a>
      </Heading>
      <Problem error={loaded.error} />
      {rows.length === 0 ? (
        <Empty title="No worker is registered." command="gristmill worker hello.py">
          A worker runs the jobs of its scripts' kinds. On another machine, start an agent:{" "}
          <code>gristmill agent hello.py --base-url {location.origin}</code>
        </Empty>
      ) : (
        <Panel flush>
          <Table
            label="Workers"
            rows={rows}
            id={({ worker }) => worker}
            columns={[
              { title: "Worker", cell: ({ name }) => name, class: "name" },
              { title: "Host", cell: ({ host, process_id }) => `${host} · ${process_id}`, wide: true },
              {
                title: "State",
                cell: ({ heartbeat_at, draining }) =>
                  now - heartbeat_at > SILENT_AFTER_MS ? (
                    <span class="state" data-state="dead">
                      silent
                    </span>
                  ) : draining ? (
                    <span class="state" data-state="paused">
                      draining
                    </span>
                  ) : (
                    <span class="state" data-state="completed">
                      alive
                    </span>
                  ),
              },
              {
                title: "Runs",
                cell: ({ kinds, queues }) => (
                  <>
                    {kinds.length > 0 ? kinds.join(", ") : "any kind"}
                    {queues.length > 0 && <span class="faint"> on {queues.join(", ")}</span>}
                  </>
                ),
                class: "text",
                wide: true,
              },
              { title: "Jobs held", cell: ({ jobs_held }) => whole(jobs_held), number: true },
              { title: "Heartbeat", cell: ({ heartbeat_at }) => <When at={heartbeat_at} />, number: true },
              { title: "Started", cell: ({ started_at }) => <When at={started_at} both />, number: true, wide: true },
              ...(mayOperate()
                ? [
                    {
                      title: "Change",
                      number: true,
                      cell: (worker: Worker) => (
                        <button
                          type="button"
                          class="small"
                          disabled={worker.draining}
                          aria-label={`Drain ${worker.name}`}
                          onClick={() => setDrained(worker)}
                        >
                          Drain
                        </button>
                      ),
                    },
                  ]
                : []),
            ]}
          />
        </Panel>
      )}
      {drained && (
        <Confirm
          title={`Drain ${drained.name}?`}
          label="Drain"
          close={() => {
            setDrained(undefined);
            loaded.reload();
          }}
          run={async () => {
            await post(`/workers/${drained.worker}/drain`, undefined);
            return `${drained.name} drains from its next heartbeat on`;
          }}
        >
          <p>
            It claims nothing more, finishes its running jobs, releases the others, and its process ends. This cannot be
            undone.
          </p>
        </Confirm>
      )}
    </>
  );
}
