import { useMemo } from "preact/hooks";
import {
  type Control,
  type HistoryRow,
  query,
  type QueueCounts,
  type Schedule,
  STATES,
  type States,
  type Worker,
  total,
} from "../api/client.ts";
import { Empty, Heading, Loading, Panel, Problem, StateBar } from "../components/basics.tsx";
import { Plot } from "../components/plot.tsx";
import { Table } from "../components/table.tsx";
import { compact, plural, rate, relative, span, whole } from "../format.ts";
import { type Sample, SHARED_WITHIN_MS, useLiveCounts, useLoaded, useNow } from "../live.ts";
import { href } from "../router.ts";
import { effectText, scopeText } from "./controls.tsx";

/** The time span of the live plots. Milliseconds. */
const LIVE_SPAN_MS = 10 * 60_000;
const HISTORY_SPAN_MS = 48 * 3_600_000;
const HOUR_MS = 3_600_000;
/** The maximum number of kinds that one line names. */
const KINDS_NAMED_MAX = 3;
/** A worker is shown as silent after this time without a heartbeat. Milliseconds. */
export const SILENT_AFTER_MS = 15_000;

export function Overview() {
  const live = useLiveCounts();
  const now = useNow();
  const controls = useLoaded<{ controls: Control[] }>("/controls", 10_000);
  const workers = useLoaded<{ workers: Worker[] }>("/workers", 5_000);
  const schedules = useLoaded<{ schedules: Schedule[] }>("/schedules", 15_000);
  if (!live.queues) return live.refused ? <Problem error={live.refused} /> : <Loading />;
  const states = total(live.queues);
  const jobs = STATES.reduce((sum, state) => sum + states[state], 0);
  if (jobs === 0) {
    return (
      <>
        <Heading title="Overview" />
        <Empty title="This store has no jobs yet." command='gristmill submit hello &apos;{"name": "world"}&apos;'>
          Submit one on the page <a href={href("submit")}>Submit</a>, or with the program:
        </Empty>
      </>
    );
  }
  const latest = speeds(live.samples).at(-1);
  const tiles: [string, string, string, string, string?][] = [
    ["Waiting", compact(states.waiting), "waiting", href("jobs", { states: "waiting" })],
    ["Running", compact(states.running), "running", href("jobs", { states: "running" })],
    [
      "Completed",
      compact(states.completed),
      "completed",
      href("jobs", { states: "completed" }),
      latest ? `${rate(latest.completed)} per second` : "",
    ],
    [
      "Dead",
      compact(states.dead),
      "dead",
      href("failures"),
      latest && latest.failed > 0 ? `${rate(latest.failed)} per second` : "",
    ],
    ["Scheduled", compact(states.scheduled), "scheduled", href("jobs", { states: "scheduled" })],
    ["Blocked, paused", compact(states.blocked + states.paused), "blocked", href("jobs", { states: "blocked,paused" })],
  ];
  return (
    <>
      <Heading
        title="Overview"
        note={`${whole(jobs)} jobs in ${plural(new Set(live.queues.map(({ queue }) => queue)).size, "queue")}`}
      />
      <ul class="tiles">
        {tiles.map(([label, figure, state, to, note]) => (
          <li key={label}>
            <a href={to} data-state={state} class={figure === "0" ? "zero" : ""}>
              <span class="tile-label">{label}</span>
              <span class="tile-figure">{figure}</span>
              <span class="tile-note">{note || "\u00a0"}</span>
            </a>
          </li>
        ))}
      </ul>
      <Attention
        now={now}
        queues={live.queues}
        states={states}
        controls={controls.data?.controls}
        workers={workers.data?.workers}
        schedules={schedules.data?.schedules}
      />
      <div class="pair">
        <Panel title="Now" note="since this page was opened">
          <LivePlots samples={live.samples} />
        </Panel>
        <Panel title="The last 48 hours" note="by hour">
          <HistoryPlots />
        </Panel>
      </div>
      <Panel title="Kinds" flush>
        <Kinds queues={live.queues} />
      </Panel>
    </>
  );
}

function speeds(samples: Sample[]) {
  return samples.slice(1).map((sample, index) => {
    const before = samples[index] as Sample;
    const seconds = Math.max(0.5, (sample.at - before.at) / 1000);
    return {
      at: sample.at,
      // A prune or a retry makes a count smaller.
      completed: Math.max(0, sample.completed - before.completed) / seconds,
      failed: Math.max(0, sample.failed - before.failed) / seconds,
      backlog: sample.backlog,
      running: sample.running,
    };
  });
}

function LivePlots(props: { samples: Sample[] }) {
  const end = props.samples.at(-1)?.at ?? Date.now();
  const begin = Math.max(props.samples[0]?.at ?? end, end - LIVE_SPAN_MS);
  const range: [number, number] = [begin / 1000, Math.max(end, begin + 60_000) / 1000];
  const points = speeds(props.samples).filter(({ at }) => at >= begin);
  const times = points.map(({ at }) => at);
  return (
    <>
      <Plot
        label="Jobs per second"
        times={times}
        range={range}
        height={140}
        format={rate}
        series={[
          { label: "completed", color: "--completed", values: points.map(({ completed }) => completed) },
          { label: "failed", color: "--dead", values: points.map(({ failed }) => failed) },
        ]}
      />
      <Plot
        label="Backlog"
        times={times}
        range={range}
        height={140}
        format={compact}
        series={[
          { label: "not ended", color: "--waiting", values: points.map(({ backlog }) => backlog) },
          { label: "running", color: "--running", values: points.map(({ running }) => running) },
        ]}
      />
    </>
  );
}

function HistoryPlots() {
  const hour = Math.floor(Date.now() / HOUR_MS);
  const since = hour * HOUR_MS - HISTORY_SPAN_MS + HOUR_MS;
  const path = `/history${query({ by: "hour", since, age_ms_max: SHARED_WITHIN_MS })}`;
  const history = useLoaded<{ rows: HistoryRow[] }>(path, 30_000);
  const hours = useMemo(() => byHour(history.data?.rows ?? [], since), [history.data, since]);
  if (!history.data) return history.error ? <Problem error={history.error} /> : <Loading />;
  const times = hours.map(({ at }) => at);
  const range: [number, number] = [(since - HOUR_MS / 2) / 1000, (since + HISTORY_SPAN_MS - HOUR_MS / 2) / 1000];
  return (
    <>
      <Plot
        label="Jobs that ended"
        times={times}
        range={range}
        height={140}
        format={compact}
        series={[
          {
            label: "ended",
            color: "--completed",
            bars: true,
            values: hours.map(({ completed, failed }) => completed + failed),
          },
          { label: "of these failed", color: "--dead", bars: true, values: hours.map(({ failed }) => failed) },
        ]}
      />
      <Plot
        label="Duration, 95th percentile"
        times={times}
        range={range}
        height={140}
        format={(value) => (value === 0 ? "0" : span(value / 1000))}
        series={[
          { label: "slowest kind", color: "--scheduled", bars: true, values: hours.map(({ p95_us }) => p95_us) },
        ]}
      />
    </>
  );
}

function byHour(rows: HistoryRow[], since: number) {
  const hours = Array.from({ length: HISTORY_SPAN_MS / HOUR_MS }, (_, index) => ({
    at: since + index * HOUR_MS,
    completed: 0,
    failed: 0,
    p95_us: 0,
  }));
  for (const row of rows) {
    const hour = hours[Math.round(((row.from ?? 0) - since) / HOUR_MS)];
    if (!hour) continue;
    hour.completed += row.completed;
    hour.failed += row.dead + row.expired;
    hour.p95_us = Math.max(hour.p95_us, row.duration?.p95_us ?? 0);
  }
  return hours;
}

/** Reports whether a registered worker runs the kind on the queue; true until the workers are known. */
function isServed({ kind, queue }: QueueCounts, workers: Worker[] | undefined): boolean {
  const runs = (named: string[], name: string) => named.length === 0 || named.includes(name);
  return workers === undefined || workers.some(({ kinds, queues }) => runs(kinds, kind) && runs(queues, queue));
}

/** `resize 314, mail 3, and 2 other kinds`: the most first. */
function byKind(queues: QueueCounts[], of: (counts: QueueCounts) => number): string {
  const kinds = new Map<string, number>();
  for (const counts of queues) {
    if (of(counts) > 0) kinds.set(counts.kind, (kinds.get(counts.kind) ?? 0) + of(counts));
  }
  const sorted = [...kinds].sort((a, b) => b[1] - a[1]);
  const named = sorted.slice(0, KINDS_NAMED_MAX).map(([kind, jobs]) => `${kind} ${whole(jobs)}`);
  const others = sorted.length - named.length;
  return named.join(", ") + (others > 0 ? `, and ${plural(others, "other kind")}` : "");
}

interface Concern {
  level: "bad" | "warn" | "note";
  text: string;
  to: string;
  action: string;
}

function Attention(props: {
  now: number;
  queues: QueueCounts[];
  states: States;
  controls: Control[] | undefined;
  workers: Worker[] | undefined;
  schedules: Schedule[] | undefined;
}) {
  const concerns: Concern[] = [];
  const { states, now } = props;
  if (states.dead > 0) {
    concerns.push({
      level: "bad",
      text: `${plural(states.dead, "job")} ran out of attempts: ${byKind(props.queues, ({ dead }) => dead)}`,
      to: href("failures"),
      action: "See the errors",
    });
  }
  const silent = (props.workers ?? []).filter(({ heartbeat_at }) => now - heartbeat_at > SILENT_AFTER_MS);
  if (silent.length > 0) {
    const held = silent.reduce((sum, { jobs_held }) => sum + jobs_held, 0);
    concerns.push({
      level: "bad",
      text: `${plural(silent.length, "worker")} silent, holding ${plural(held, "job")}`,
      to: href("workers"),
      action: "See the workers",
    });
  }
  const unserved = props.queues.filter((counts) => counts.waiting > 0 && !isServed(counts, props.workers));
  if (unserved.length > 0) {
    const jobs = unserved.reduce((sum, { waiting }) => sum + waiting, 0);
    concerns.push({
      level: "warn",
      text: `${plural(jobs, "job")} waiting without a worker for the kind: ${byKind(unserved, ({ waiting }) => waiting)}`,
      to: href("workers"),
      action: "Start a worker",
    });
  }
  if (states.expired > 0) {
    concerns.push({
      level: "warn",
      text: `${plural(states.expired, "job")} expired before a worker started them`,
      to: href("jobs", { states: "expired" }),
      action: "See the jobs",
    });
  }
  for (const control of props.controls ?? []) {
    if (!("pause" in control.effect)) continue;
    const until = control.effect.pause.until;
    concerns.push({
      level: "warn",
      text: `${scopeText(control.scope, true)} ${effectText(control.effect)}${until ? `, ends ${relative(until, now)}` : ""}`,
      to: href("queues"),
      action: "See the pauses",
    });
  }
  const paused = (props.schedules ?? []).filter(({ paused }) => paused);
  if (paused.length > 0) {
    concerns.push({
      level: "note",
      text: `${plural(paused.length, "schedule")} paused: ${paused
        .slice(0, 3)
        .map(({ schedule }) => schedule)
        .join(", ")}`,
      to: href("schedules"),
      action: "See the schedules",
    });
  }
  return (
    <Panel title="Needs attention" flush>
      {concerns.length === 0 ? (
        <p class="all-well">Nothing. No job is dead, no worker is silent, nothing is paused.</p>
      ) : (
        <ul class="concerns">
          {concerns.map(({ level, text, to, action }) => (
            <li key={text} class={level}>
              <span>{text}</span>
              <a href={to}>{action}</a>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Kinds(props: { queues: QueueCounts[] }) {
  const busiest = [...props.queues].sort(
    (a, b) => b.running + b.waiting - (a.running + a.waiting) || b.completed - a.completed,
  );
  const to = (counts: QueueCounts, states?: string) =>
    href("jobs", { kind: counts.kind, queue: counts.queue, ...(states ? { states } : {}) });
  const count = (counts: QueueCounts, state: "waiting" | "running" | "completed" | "dead") =>
    counts[state] === 0 ? <span class="faint">0</span> : <a href={to(counts, state)}>{whole(counts[state])}</a>;
  return (
    <Table
      label="Kinds"
      rows={busiest}
      id={({ queue, kind }) => `${queue} ${kind}`}
      columns={[
        { title: "Kind", cell: (counts) => <a href={to(counts)}>{counts.kind}</a>, class: "name" },
        { title: "Queue", cell: ({ queue }) => queue, wide: true },
        { title: "States", cell: (counts) => <StateBar states={counts} />, class: "bar-cell" },
        { title: "Waiting", cell: (counts) => count(counts, "waiting"), number: true },
        { title: "Running", cell: (counts) => count(counts, "running"), number: true, wide: true },
        { title: "Completed", cell: (counts) => count(counts, "completed"), number: true },
        { title: "Dead", cell: (counts) => count(counts, "dead"), number: true },
      ]}
    />
  );
}
