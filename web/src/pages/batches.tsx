import { useState } from "preact/hooks";
import { type Batch, query } from "../api/client.ts";
import { Empty, Heading, Loading, Panel, Problem, StateBar, StateLegend, When } from "../components/basics.tsx";
import { Strip, STRIP_JOBS_MAX, useBatchStates } from "../components/strip.tsx";
import { Table } from "../components/table.tsx";
import { plural, whole } from "../format.ts";
import { NoJobs } from "../components/no_jobs.tsx";
import { useLoaded } from "../live.ts";
import { href, type Route, setSearch } from "../router.ts";
import { filterOf, Filters } from "./filters.tsx";
import { Actions, JobTable } from "./jobs.tsx";

const NAMES = ["kind", "queue", "group"] as const;

export function Batches(props: { route: Route }) {
  const [opened, setOpened] = useState<number>();
  const before = props.route.search.get("before") ?? undefined;
  const filter = filterOf(props.route, NAMES);
  const loaded = useLoaded<{ batches: Batch[]; next?: number | null }>(`/batches${query({ ...filter, before })}`);
  const filtered = Object.keys(filter).length > 0;
  return (
    <>
      <Heading title="Batches" note="The newest first" />
      <Filters route={props.route} names={[...NAMES]} />
      <Problem error={loaded.error} />
      {!loaded.data && !loaded.error && <Loading />}
      {loaded.data && loaded.data.batches.length === 0 && <NoJobs filtered={filtered} what="batch" />}
      {loaded.data && loaded.data.batches.length > 0 && (
        <Panel flush>
          <Table
            label="Batches"
            rows={loaded.data.batches}
            id={({ batch }) => batch}
            columns={[
              {
                title: "Batch",
                class: "id",
                cell: ({ batch }) => (
                  <span class="opener">
                    <button
                      type="button"
                      class="quiet small twist"
                      aria-expanded={opened === batch}
                      aria-label={`Jobs of batch ${batch}`}
                      onClick={() => setOpened(opened === batch ? undefined : batch)}
                    >
                      {opened === batch ? "▾" : "▸"}
                    </button>
                    <a href={href(`batches/${batch}`)}>{batch}</a>
                  </span>
                ),
              },
              { title: "Kind", cell: ({ kind }) => kind, class: "name" },
              { title: "Queue", cell: ({ queue, group }) => (group ? `${queue} · ${group}` : queue), wide: true },
              { title: "Jobs", cell: ({ jobs }) => whole(jobs), number: true },
              { title: "States", cell: ({ states }) => <StateBar states={states} />, class: "bar-cell" },
              {
                title: "Dead",
                cell: ({ states }) =>
                  states.dead ? <b class="bad">{whole(states.dead)}</b> : <span class="faint">0</span>,
                number: true,
              },
              { title: "Submitted", cell: ({ submitted_at }) => <When at={submitted_at} />, number: true, wide: true },
            ]}
            below={(row) =>
              row.batch === opened && (
                <div class="opened">
                  <StateLegend states={row.states} href={(state) => href(`batches/${row.batch}`, { states: state })} />
                  <Strip batch={row.batch} states={row.states} />
                </div>
              )
            }
          />
        </Panel>
      )}
      <nav class="pages" aria-label="Pages of the list">
        {before && (
          <button type="button" onClick={() => setSearch(props.route, { before: undefined })}>
            Newest
          </button>
        )}
        {loaded.data?.next && (
          <button type="button" onClick={() => setSearch(props.route, { before: String(loaded.data?.next) })}>
            Older
          </button>
        )}
      </nav>
    </>
  );
}

export function BatchPage(props: { route: Route; batch: number }) {
  const isNumber = Number.isSafeInteger(props.batch) && props.batch > 0;
  const counted = useBatchStates(isNumber ? props.batch : undefined);
  const states = props.route.search.get("states") ?? undefined;
  if (!isNumber || counted.data?.jobs === 0) {
    const name = `Batch ${props.route.path[1]}`;
    return (
      <>
        <Heading title={name} />
        <Empty title={`${name} does not exist.`}>
          A prune may have deleted it. See all <a href={href("batches")}>batches</a>.
        </Empty>
      </>
    );
  }
  return (
    <>
      <Heading title={`Batch ${props.batch}`} note={counted.data && plural(counted.data.jobs, "job")}>
        {counted.data && (
          <Actions
            filter={{ batch: props.batch, ...(states ? { states: states.split(",") } : {}) }}
            states={counted.data.states}
            only={states?.split(",")}
          />
        )}
      </Heading>
      <Problem error={counted.error} />
      {counted.data && (
        <Panel
          title="States"
          note={
            counted.data.jobs > STRIP_JOBS_MAX
              ? `the first ${whole(STRIP_JOBS_MAX)} jobs are drawn`
              : "a cell is a job; choose one to open it"
          }
        >
          <StateLegend
            states={counted.data.states}
            href={(state) => href(`batches/${props.batch}`, { states: state })}
          />
          <Strip batch={props.batch} states={counted.data.states} />
        </Panel>
      )}
      {!counted.error && (
        <JobTable
          route={props.route}
          filter={{ batch: String(props.batch), states }}
          title={states ? `Jobs: ${states.replaceAll(",", ", ")}` : "Jobs"}
        />
      )}
      {states && (
        <nav class="pages">
          <a href={href(`batches/${props.batch}`)}>All states</a>
        </nav>
      )}
    </>
  );
}
