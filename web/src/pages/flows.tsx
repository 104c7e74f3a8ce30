import { useState } from "preact/hooks";
import {
  ENDED,
  type Flow,
  type FlowKind,
  hasEnded,
  query,
  type Step,
  type State,
  STATES,
  type States,
  total,
} from "../api/client.ts";
import {
  Empty,
  Heading,
  Loading,
  Panel,
  Problem,
  StateBadge,
  StateBar,
  StateLegend,
  When,
} from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { plural, shorten, whole } from "../format.ts";
import { useLoaded } from "../live.ts";
import { mayChange } from "../rights.ts";
import { href, type Route, setSearch } from "../router.ts";
import { filterOf, Filters, statesOf } from "./filters.tsx";
import { isSleep, SendEvent } from "./steps.tsx";

const FLOWS_PER_PAGE = 50;
/** Characters of an error that are shown. */
const ERROR_CHARACTERS = 90;

/** Flows by name, version and state, and each with what it waits for. */
export function Flows(props: { route: Route }) {
  const { route } = props;
  const filter = filterOf(route, ["flow", "queue", "no_worker"]);
  const loaded = useLoaded<{ kinds: FlowKind[] }>("/flows/kinds");
  if (!loaded.data) return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  const { kinds } = loaded.data;
  const matching = kinds.filter(
    (kind) =>
      (!filter["flow"] || [kind.kind, kind.name].includes(filter["flow"])) &&
      (!filter["queue"] || kind.queue === filter["queue"]) &&
      (!filter["no_worker"] || !kind.has_worker),
  );
  const counts = total(matching);
  const chosen = statesOf(route);
  const shown = STATES.filter((state) => chosen.length === 0 || chosen.includes(state)).reduce(
    (sum, state) => sum + counts[state],
    0,
  );
  const unserved = total(kinds.filter((kind) => !kind.has_worker));
  const open = STATES.filter((state) => !ENDED.includes(state)).reduce((sum, state) => sum + unserved[state], 0);
  return (
    <>
      <Heading title="Flows" note={plural(shown, "flow")}>
        {(open > 0 || filter["no_worker"]) && (
          <button
            type="button"
            class="chip"
            aria-pressed={Boolean(filter["no_worker"])}
            onClick={() => setSearch(route, { no_worker: filter["no_worker"] ? undefined : "true", after: undefined })}
          >
            Without a worker <b>{whole(open)}</b>
          </button>
        )}
      </Heading>
      <Problem error={loaded.error} />
      {kinds.length === 0 ? (
        <Empty title="No flow has waited here yet." command="gristmill flow start document@1 '&quot;a.html&quot;'">
          A kind of job is listed here as soon as one of its jobs has waited as a flow.
        </Empty>
      ) : (
        <>
          <Filters route={route} names={["flow", "queue"]} counts={counts} />
          <Kinds kinds={matching} />
          <Instances route={route} filter={filter} />
        </>
      )}
    </>
  );
}

function Kinds(props: { kinds: FlowKind[] }) {
  if (props.kinds.length === 0) return null;
  return (
    <Panel flush>
      <Table
        label="Flows by name and version"
        rows={props.kinds}
        id={({ kind, queue }) => `${queue} ${kind}`}
        columns={[
          {
            title: "Flow",
            class: "name",
            cell: ({ name, kind }) => <a href={href("flows", { flow: kind })}>{name}</a>,
          },
          { title: "Version", cell: ({ version }) => version ?? <span class="faint">–</span> },
          { title: "Queue", cell: ({ queue }) => queue, wide: true },
          { title: "Worker", cell: ({ has_worker }) => (has_worker ? "yes" : <span class="bad-text">none</span>) },
          { title: "States", class: "bar-cell", wide: true, cell: (kind) => <StateBar states={statesIn(kind)} /> },
          {
            title: "Flows",
            cell: (kind) => (
              <StateLegend
                states={statesIn(kind)}
                href={(state) => href("flows", { flow: kind.kind, queue: kind.queue, states: state })}
              />
            ),
          },
        ]}
      />
    </Panel>
  );
}

const statesIn = (kind: FlowKind): States => total([kind]);

function Instances(props: { route: Route; filter: Record<string, string | undefined> }) {
  const after = props.route.search.get("after") ?? undefined;
  const [event, setEvent] = useState<{ job: string; name: string }>();
  const loaded = useLoaded<{ flows: Flow[]; next?: string | null }>(
    `/flows${query({ ...props.filter, after, limit: FLOWS_PER_PAGE })}`,
  );
  if (!loaded.data) return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  const { flows, next } = loaded.data;
  return (
    <>
      <Problem error={loaded.error} />
      {flows.length === 0 && <Empty title="No flow matches.">Clear a filter to see more.</Empty>}
      {flows.length > 0 && (
        <Panel flush>
          <Table
            label="Flows"
            rows={flows}
            id={({ job }) => job}
            columns={[
              { title: "Job", class: "id", cell: ({ job }) => <a href={href(`jobs/${job}`)}>{job}</a> },
              { title: "Flow", class: "name", cell: ({ kind }) => kind },
              { title: "State", cell: ({ state }) => <StateBadge state={state as State} /> },
              { title: "Queue", cell: ({ queue }) => queue, wide: true },
              {
                title: "Waits for",
                class: "text",
                cell: (flow) => <Awaited flow={flow} send={(name) => setEvent({ job: flow.job, name })} />,
              },
              {
                title: "Latest",
                number: true,
                wide: true,
                cell: (flow) => <When at={flow.finished_at ?? flow.submitted_at} />,
              },
            ]}
          />
        </Panel>
      )}
      <nav class="pages" aria-label="Pages of the list">
        {after && (
          <button type="button" onClick={() => setSearch(props.route, { after: undefined })}>
            First
          </button>
        )}
        {next && (
          <button type="button" onClick={() => setSearch(props.route, { after: next })}>
            Next
          </button>
        )}
      </nav>
      {event && (
        <SendEvent
          job={event.job}
          name={event.name}
          close={() => {
            setEvent(undefined);
            loaded.reload();
          }}
        />
      )}
    </>
  );
}

/** What a flow waits for, or why it has failed. */
function Awaited(props: { flow: Flow; send: (event: string) => void }) {
  const { flow } = props;
  if (flow.awaited.length === 0) {
    return flow.error ? (
      <span class="bad-text">{shorten(flow.error, ERROR_CHARACTERS)}</span>
    ) : (
      <span class="faint">–</span>
    );
  }
  return (
    <ul class="awaited">
      {flow.awaited.map((step) => (
        <li key={step.number}>
          {described(step as Step)}
          {typeof step.until === "number" && (
            <>
              {" "}
              <span class="faint">
                {step.event ? "times out" : "ends"} <When at={step.until} />
              </span>
            </>
          )}
          {step.event && mayChange() && !hasEnded(flow.state) && (
            <>
              {" "}
              <button
                type="button"
                class="small"
                aria-label={`Send event ${step.event} to ${flow.job}`}
                onClick={() => props.send(step.event ?? "")}
              >
                Send
              </button>
            </>
          )}
        </li>
      ))}
    </ul>
  );
}

function described(step: Step): string {
  if (step.event) return `event ${step.event}`;
  if (isSleep(step)) return "sleep";
  const name = `${step.name ?? step.kind ?? "deleted"}${step.key ? ` ${step.key}` : ""}`;
  if (!step.states) return name;
  const states = step.states as unknown as States;
  const ended = ENDED.reduce((sum, state) => sum + states[state], 0);
  return `${name}, ${whole(ended)} of ${whole(step.jobs ?? 0)} ended`;
}
