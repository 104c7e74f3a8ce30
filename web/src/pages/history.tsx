import { useEffect, useMemo, useRef } from "preact/hooks";
import { type HistoryRow, query } from "../api/client.ts";
import { Empty, Heading, Loading, Panel, Problem } from "../components/basics.tsx";
import { compact, plural, span, whole } from "../format.ts";
import { SHARED_WITHIN_MS, useLive, useLoaded } from "../live.ts";
import { href, type Route, setSearch } from "../router.ts";
import { filterOf, Filters } from "./filters.tsx";

const HOUR_MS = 3_600_000;
/** The maximum number of rows of the map: the kinds with the most ended jobs. */
const ROWS_MAX = 30;
const NAMES = ["kind", "queue"] as const;

const PERIODS = {
  day: { label: "24 hours, by hour", by: "hour", step_ms: HOUR_MS, steps: 24 },
  fortnight: { label: "14 days, by day", by: "day", step_ms: 24 * HOUR_MS, steps: 14 },
} as const;
type Period = keyof typeof PERIODS;

const MEASURES = {
  ended: {
    label: "Ended jobs",
    color: "--completed",
    of: (row: HistoryRow) => row.completed + row.dead + row.expired,
    join: (a: number, b: number) => a + b,
    text: compact,
  },
  failed: {
    label: "failed jobs",
    color: "--dead",
    of: (row: HistoryRow) => row.dead + row.expired,
    join: (a: number, b: number) => a + b,
    text: compact,
  },
  duration: {
    label: "duration, 95th percentile",
    color: "--scheduled",
    of: (row: HistoryRow) => row.duration?.p95_us ?? 0,
    join: Math.max,
    text: (us: number) => span(us / 1000),
  },
} as const;
type Measure = keyof typeof MEASURES;

interface Line {
  id: string;
  kind: string;
  queue: string;
  ended: number;
  values: number[];
}

/** The rows of the history as lines of the map, the busiest first. */
export function lines(rows: HistoryRow[], since: number, period: Period, measure: Measure): Line[] {
  const { step_ms, steps } = PERIODS[period];
  const { of, join } = MEASURES[measure];
  const byLane = new Map<string, Line>();
  for (const row of rows) {
    const step = Math.round(((row.from ?? 0) - since) / step_ms);
    if (step < 0 || step >= steps) continue;
    const id = `${row.queue} ${row.kind}`;
    const line = byLane.get(id) ?? {
      id,
      kind: row.kind,
      queue: row.queue,
      ended: 0,
      values: Array<number>(steps).fill(0),
    };
    byLane.set(id, line);
    line.ended += MEASURES.ended.of(row);
    line.values[step] = join(line.values[step] ?? 0, of(row));
  }
  return [...byLane.values()].sort((a, b) => b.ended - a.ended);
}

const chosen = <Name extends string>(given: string | null, of: Record<Name, unknown>, otherwise: Name): Name =>
  given !== null && given in of ? (given as Name) : otherwise;

export function History(props: { route: Route }) {
  const live = useLive();
  const filter = filterOf(props.route, NAMES);
  delete filter["states"];
  const period = chosen<Period>(props.route.search.get("period"), PERIODS, "day");
  const measure = chosen<Measure>(props.route.search.get("measure"), MEASURES, "ended");
  const { by, step_ms, steps } = PERIODS[period];
  // The server's periods begin at full hours and days of UTC.
  const since = (Math.floor(Date.now() / step_ms) + 1 - steps) * step_ms;
  const path = `/history${query({ ...filter, by, since, age_ms_max: SHARED_WITHIN_MS })}`;
  const history = useLoaded<{ rows: HistoryRow[] }>(path, 30_000);
  const all = useMemo(
    () => lines(history.data?.rows ?? [], since, period, measure),
    [history.data, since, period, measure],
  );
  const heading = (note?: string) => <Heading title="History" {...(note ? { note } : {})} />;
  if (!history.data) {
    return (
      <>
        {heading()}
        {history.error ? <Problem error={history.error} /> : <Loading />}
      </>
    );
  }
  const jobs = all.reduce((sum, { ended }) => sum + ended, 0);
  return (
    <>
      {heading(`${plural(jobs, "job")} ended in the last ${period === "day" ? "24 hours" : "14 days"}`)}
      <Filters route={props.route} names={[...NAMES]} stateless />
      <form class="heat-choice" aria-label="Map" onSubmit={(event) => event.preventDefault()}>
        <Choice name="period" label="Period" value={period} of={PERIODS} route={props.route} />
        <Choice name="measure" label="Shows" value={measure} of={MEASURES} route={props.route} />
      </form>
      <Problem error={history.error} />
      {all.length === 0 ? (
        live.queues?.length === 0 ? (
          <Empty title="No job has ended yet." command='gristmill submit hello &apos;{"name": "world"}&apos;'>
            Submit one on the page <a href={href("submit")}>Submit</a>, or with the program:
          </Empty>
        ) : (
          <Empty title="No job that matches ended in this time." command="gristmill history">
            Choose the longer period, remove a filter, or print the whole history:
          </Empty>
        )
      ) : (
        <Panel
          title={MEASURES[measure].label}
          note={all.length > ROWS_MAX ? `the ${ROWS_MAX} busiest of ${whole(all.length)} kinds` : "by kind and queue"}
          flush
        >
          <HeatMap lines={all.slice(0, ROWS_MAX)} since={since} period={period} measure={measure} />
        </Panel>
      )}
    </>
  );
}

function Choice<Name extends string>(props: {
  name: string;
  label: string;
  value: Name;
  of: Record<Name, { label: string }>;
  route: Route;
}) {
  return (
    <label>
      <span>{props.label}</span>
      <select
        value={props.value}
        onChange={(event) => setSearch(props.route, { [props.name]: event.currentTarget.value })}
      >
        {(Object.keys(props.of) as Name[]).map((name) => (
          <option key={name} value={name}>
            {props.of[name].label}
          </option>
        ))}
      </select>
    </label>
  );
}

const two = (value: number) => String(value).padStart(2, "0");

/** A table whose cells are coloured by their numbers, on a logarithmic scale. */
function HeatMap(props: { lines: Line[]; since: number; period: Period; measure: Measure }) {
  const { step_ms, steps } = PERIODS[props.period];
  const { color, text } = MEASURES[props.measure];
  const place = useRef<HTMLDivElement>(null);
  const most = Math.max(...props.lines.flatMap(({ values }) => values));
  const heat = (value: number) => (value === 0 ? 0 : Math.log1p(value) / Math.log1p(most));
  // The latest hours come into view first on narrow screens.
  useEffect(() => place.current?.scrollTo({ left: place.current.scrollWidth }), [props.period]);
  const starts = Array.from({ length: steps }, (_, step) => new Date(props.since + step * step_ms));
  const title = (start: Date) =>
    props.period === "day" ? two(start.getHours()) : `${two(start.getUTCMonth() + 1)}-${two(start.getUTCDate())}`;
  return (
    <div class="table heat-place" tabIndex={0} role="region" aria-label="Heat map" ref={place}>
      <table class="heat" style={{ "--heat-color": `var(${color})` }}>
        <thead>
          <tr>
            <th scope="col">Kind</th>
            {starts.map((start) => (
              <th key={start.getTime()} scope="col">
                {title(start)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.lines.map((line) => (
            <tr key={line.id} data-row="">
              <th scope="row">
                <a href={href("jobs", { kind: line.kind, queue: line.queue })}>{line.kind}</a>
                {line.queue !== "default" && <span class="faint"> · {line.queue}</span>}
              </th>
              {line.values.map((value, step) => (
                <td key={step} class={value === 0 ? "zero" : ""} style={{ "--heat": String(heat(value)) }}>
                  {value === 0 ? "·" : text(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
