import { useState } from "preact/hooks";
import {
  ENDED,
  type Filter,
  get,
  type JobSummary,
  query,
  type Searched,
  STATES,
  type State,
  type States,
  total,
} from "../api/client.ts";
import { Confirm, Heading, Loading, Panel, Problem, StateBadge, StateLegend, When } from "../components/basics.tsx";
import { NoJobs } from "../components/no_jobs.tsx";
import { begin } from "../components/operations.tsx";
import { PriorityOptions } from "../components/priorities.tsx";
import { Table } from "../components/table.tsx";
import { moment, plural, shorten, span, whole } from "../format.ts";
import { useLive, useLoaded, useSettled } from "../live.ts";
import { mayChange } from "../rights.ts";
import { href, type Route, setSearch } from "../router.ts";
import { filterOf, Filters, statesOf } from "./filters.tsx";

const NAMES = ["kind", "queue", "group", "tags", "key", "batch", "run", "parent", "since", "until", "text"] as const;
const OPEN = STATES.filter((state) => !ENDED.includes(state));

export function Jobs(props: { route: Route }) {
  const filter = filterOf(props.route, NAMES);
  const { states: _, text, ...countable } = filter;
  const counted = useCounts(countable);
  const chosen = statesOf(props.route);
  const matching = STATES.filter((state) => chosen.length === 0 || chosen.includes(state)).reduce(
    (sum, state) => sum + (counted.data?.states[state] ?? 0),
    0,
  );
  return (
    <>
      <Heading
        title="Jobs"
        note={
          text
            ? "the newest with this text"
            : counted.data
              ? `${plural(matching, "job")} ${Object.keys(filter).length === 0 ? "in all" : matching === 1 ? "matches" : "match"}`
              : "…"
        }
      >
        {counted.data && !text && <Actions filter={requestOf(filter)} states={counted.data.states} />}
      </Heading>
      <Filters route={props.route} names={[...NAMES]} counts={counted.data?.states} />
      <Problem error={counted.error} />
      <JobTable route={props.route} filter={filter} />
    </>
  );
}

/** The numbers of jobs by state; for kinds and queues they come from the totals of the page, so that large stores count nothing. */
function useCounts(filter: Record<string, string | undefined>) {
  const { queues } = useLive();
  const settled = useSettled();
  const known = Object.keys(filter).every((name) => name === "kind" || name === "queue");
  const counted = useLoaded<{ states: States }>(known || !settled ? undefined : `/jobs/count${query(filter)}`);
  if (!known) return counted;
  if (!queues) return { data: undefined, error: undefined };
  const { kind, queue } = filter;
  const states = total(
    queues.filter((counts) => (!kind || counts.kind === kind) && (!queue || counts.queue === queue)),
  );
  return { data: { states }, error: undefined };
}

/** The filter of an address in the form of a change. */
function requestOf(filter: Record<string, string | undefined>): Filter {
  const { states, tags, batch, since, until, ...rest } = filter;
  return {
    ...rest,
    ...(states ? { states: states.split(",") } : {}),
    ...(tags ? { tags: tags.split(",") } : {}),
    ...(batch ? { batch: Number(batch) } : {}),
    ...(since ? { since: Number(since) } : {}),
    ...(until ? { until: Number(until) } : {}),
  };
}

const VERBS = {
  retry: { label: "Retry", states: ["dead", "cancelled", "expired"], danger: false },
  pause: { label: "Pause", states: ["waiting", "scheduled", "blocked"], danger: false },
  resume: { label: "Resume", states: ["paused"], danger: false },
  prioritise: { label: "Prioritise", states: OPEN, danger: false },
  cancel: { label: "Cancel", states: OPEN, danger: true },
  discard: { label: "Discard", states: ["dead"], danger: true },
} satisfies Record<string, { label: string; states: State[]; danger: boolean }>;
type Verb = keyof typeof VERBS;

/** Changes of all matching jobs, with their number before the change. */
export function Actions(props: { filter: Filter; states: States; only?: string[] | undefined }) {
  const [asked, setAsked] = useState<Verb>();
  const chosen = props.only ?? props.filter.states ?? [];
  const affected = (verb: Verb) =>
    (VERBS[verb].states as State[])
      .filter((state) => chosen.length === 0 || chosen.includes(state))
      .reduce((sum, state) => sum + props.states[state], 0);
  const verbs = mayChange() ? (Object.keys(VERBS) as Verb[]).filter((verb) => affected(verb) > 0) : [];
  return (
    <>
      {verbs.map((verb) => (
        <button key={verb} type="button" onClick={() => setAsked(verb)}>
          {VERBS[verb].label} {whole(affected(verb))}
        </button>
      ))}
      {asked && <Change verb={asked} filter={props.filter} close={() => setAsked(undefined)} />}
    </>
  );
}

function Change(props: { verb: Verb; filter: Filter; close: () => void }) {
  const { label, states, danger } = VERBS[props.verb];
  const chosen = (props.filter.states ?? []) as State[];
  const affected = (states as State[]).filter((state) => chosen.length === 0 || chosen.includes(state));
  const filter = { ...props.filter, states: affected };
  const preview = useLoaded<{ jobs: number; states: States }>(
    `/jobs/count${query({ ...filter, states: affected.join(","), tags: filter.tags?.join(",") })}`,
    2_000,
  );
  const [priority, setPriority] = useState("10");
  const run = () => {
    if (props.verb === "prioritise") return begin({ change: "prioritise", filter, priority: Number(priority) });
    if (props.verb !== "pause") return begin({ change: props.verb, filter });
    // A unique reason, so that the undo ends no other pause.
    const reason = `dashboard ${moment(Date.now())}`;
    return begin(
      { change: "pause", filter, reason },
      { change: "resume", filter: { ...filter, states: ["paused"] }, reason },
    );
  };
  return (
    <Confirm
      title={`${label} ${preview.data ? plural(preview.data.jobs, "job") : "jobs"}?`}
      label={`${label} ${preview.data ? plural(preview.data.jobs, "job") : ""}`}
      danger={danger}
      close={props.close}
      run={run}
    >
      <p>
        {props.verb === "retry" &&
          "These jobs become claimable again, with all their attempts. They keep their errors."}
        {props.verb === "pause" && "Workers claim none of these jobs until they are resumed."}
        {props.verb === "resume" && "These jobs take their old place in line again."}
        {props.verb === "prioritise" &&
          "From their next claim on, these jobs have one priority. Their present ones may differ and are not kept: there is no undo."}
        {props.verb === "cancel" && "These jobs end as cancelled. A running one is stopped at its next heartbeat."}
        {props.verb === "discard" &&
          "These jobs no longer count as dead. They keep their errors, and can be retried later."}
      </p>
      {props.verb === "prioritise" && (
        <label>
          New priority
          <select class="inline" value={priority} onChange={(event) => setPriority(event.currentTarget.value)}>
            <PriorityOptions />
          </select>
        </label>
      )}
      {preview.data ? <StateLegend states={preview.data.states} /> : <Loading />}
      <Problem error={preview.error} />
    </Confirm>
  );
}

export function JobTable(props: { route: Route; filter: Record<string, string | undefined>; title?: string }) {
  const after = props.route.search.get("after") ?? undefined;
  const loaded = useLoaded<{ jobs: JobSummary[]; next?: string | null; searched?: Searched | null }>(
    `/jobs${query({ ...props.filter, after, limit: 50 })}`,
  );
  if (!loaded.data) return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  const rows = loaded.data.jobs;
  const { searched } = loaded.data;
  if (rows.length === 0 && !after) {
    return (
      <>
        {searched && <SearchBound searched={searched} />}
        <NoJobs filtered={Object.keys(props.filter).length > 0} what="job" />
      </>
    );
  }
  return (
    <>
      <Problem error={loaded.error} />
      {searched && <SearchBound searched={searched} />}
      <Panel flush {...(props.title ? { title: props.title } : {})}>
        <Table
          label="Jobs"
          rows={rows}
          id={({ job }) => job}
          columns={[
            { title: "Job", cell: ({ job }) => <a href={href(`jobs/${job}`)}>{job}</a>, class: "id" },
            { title: "State", cell: ({ state }) => <StateBadge state={state} /> },
            { title: "Kind", cell: ({ kind }) => kind, class: "name" },
            { title: "Queue", cell: ({ queue, group }) => (group ? `${queue} · ${group}` : queue), wide: true },
            { title: "Error or progress", cell: (row) => <Note row={row} />, class: "text", wide: true },
            {
              title: "Attempt",
              cell: ({ attempt }) => attempt || <span class="faint">0</span>,
              number: true,
              wide: true,
            },
            {
              title: "Latest",
              cell: (row) => <When at={row.finished_at ?? row.claimed_at ?? row.run_at ?? row.submitted_at} />,
              number: true,
            },
          ]}
        />
      </Panel>
      <nav class="pages" aria-label="Pages of the list">
        {after && (
          <button type="button" onClick={() => setSearch(props.route, { after: undefined })}>
            First
          </button>
        )}
        {loaded.data.next && rows.length > 0 && (
          <button type="button" onClick={() => setSearch(props.route, { after: loaded.data?.next ?? undefined })}>
            Next
          </button>
        )}
      </nav>
    </>
  );
}

/** How many jobs a search for a text has covered. */
function SearchBound(props: { searched: Searched }) {
  const { jobs, all } = props.searched;
  return (
    <p class="note search-bound" role="status">
      {all
        ? `Searched all ${plural(jobs, "job")} that match the other filters.`
        : `Searched the newest ${plural(jobs, "job")} that match the other filters; older ones may have the text, too.`}
    </p>
  );
}

function Note(props: { row: JobSummary }) {
  const { error, progress } = props.row;
  if (progress && typeof progress.fraction === "number") {
    return (
      <span class="progress">
        <progress value={progress.fraction} max={1} aria-label={`Progress of ${props.row.job}`} />{" "}
        {Math.round(progress.fraction * 100)} %{progress.left_ms ? `, ${span(progress.left_ms)} left` : ""}
      </span>
    );
  }
  return error ? <span class="bad-text">{shorten(error, 90)}</span> : <span class="faint">–</span>;
}

/** Dead jobs on the first page of a look, which is short so that it comes at once. */
const DEAD_ROWS_FIRST = 250;
/** Dead jobs on each further page. */
const DEAD_ROWS = 2_000;

/** Dead jobs, oldest first, up to a maximum: all so far, after each page. The failures page groups them. */
export async function* deadJobs(
  jobs_max: number,
  filter: Record<string, string | undefined>,
): AsyncGenerator<{ jobs: JobSummary[]; more: boolean; reading: boolean }> {
  const jobs: JobSummary[] = [];
  let after: string | null | undefined;
  do {
    const limit = Math.min(after ? DEAD_ROWS : DEAD_ROWS_FIRST, jobs_max - jobs.length);
    const page: { jobs: JobSummary[]; next?: string | null } = await get(
      `/jobs${query({ ...filter, states: "dead", limit, after })}`,
    );
    jobs.push(...page.jobs);
    after = page.jobs.length > 0 ? page.next : undefined;
    yield { jobs, more: Boolean(after), reading: Boolean(after) && jobs.length < jobs_max };
  } while (after && jobs.length < jobs_max);
}
