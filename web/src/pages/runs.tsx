import { useEffect, useRef } from "preact/hooks";
import { ENDED, query, type Run, STATES } from "../api/client.ts";
import { Empty, Heading, Loading, Panel, Problem, StateBar, stateText, When } from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { plural, rate, span, whole } from "../format.ts";
import { SHARED_WITHIN_MS, useLoaded } from "../live.ts";
import { href } from "../router.ts";

/** The maximum number of runs on the page; the server counts the jobs of each. */
const ROWS_MAX = 20;
/** The rate counts the jobs that ended within this time. Milliseconds. */
const RATE_SPAN_MS = 60_000;

const ended = (run: Run) => ENDED.reduce((sum, state) => sum + run.states[state], 0);
const open = (run: Run) => STATES.reduce((sum, state) => sum + run.states[state], 0) - ended(run);

interface Seen {
  at: number;
  ended: number;
}

/** The number of jobs that ended per second since the oldest count of the last minute; undefined after only one count. */
export function speed(seen: Seen[]): number | undefined {
  const [first, last] = [seen[0], seen.at(-1)];
  if (!first || !last || last.at <= first.at) return undefined;
  return Math.max(0, last.ended - first.ended) / ((last.at - first.at) / 1000);
}

/** The counts of the last minute, by run. */
function useSpeeds(runs: Run[] | undefined): Map<string, number | undefined> {
  const seen = useRef(new Map<string, Seen[]>());
  useEffect(() => {
    if (!runs) return;
    const at = Date.now();
    const names = new Set(runs.map(({ run }) => run));
    for (const name of seen.current.keys()) if (!names.has(name)) seen.current.delete(name);
    for (const run of runs) {
      const before = (seen.current.get(run.run) ?? []).filter((count) => at - count.at < RATE_SPAN_MS);
      seen.current.set(run.run, [...before, { at, ended: ended(run) }]);
    }
  }, [runs]);
  return new Map([...seen.current].map(([name, counts]) => [name, speed(counts)]));
}

export function Runs() {
  const path = `/runs${query({ limit: ROWS_MAX, age_ms_max: SHARED_WITHIN_MS })}`;
  const loaded = useLoaded<{ runs: Run[]; total: number }>(path, 2_000);
  const speeds = useSpeeds(loaded.data?.runs);
  if (!loaded.data) return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  const { runs, total } = loaded.data;
  return (
    <>
      <Heading
        title="Runs"
        note={total > runs.length ? `the newest ${whole(runs.length)} of ${whole(total)}` : plural(total, "run")}
      />
      <Problem error={loaded.error} />
      {runs.length === 0 ? (
        <Empty title="There is no run yet." command="gristmill run hello.py --input items.jsonl --output results.jsonl">
          A run sends each line of a file through a script, and goes on where it stopped.
        </Empty>
      ) : (
        <Panel flush>
          <Table
            label="Runs"
            rows={runs}
            id={({ run }) => run}
            columns={[
              { title: "Run", cell: ({ run }) => <a href={href("jobs", { run })}>{run}</a>, class: "name" },
              { title: "State", cell: (run) => <RunState run={run} /> },
              { title: "Jobs", cell: (run) => <StateBar states={run.states} />, class: "bar-cell" },
              { title: "Ended", cell: (run) => `${whole(ended(run))} of ${whole(run.jobs_submitted)}`, number: true },
              {
                title: "Failed",
                cell: ({ run, states }) =>
                  states.dead + states.expired === 0 ? (
                    <span class="faint">0</span>
                  ) : (
                    <a href={href("jobs", { run, states: "dead,expired" })}>{whole(states.dead + states.expired)}</a>
                  ),
                number: true,
              },
              { title: "Per second", cell: (run) => <Rate run={run} speed={speeds.get(run.run)} />, number: true },
              { title: "Left", cell: (run) => left(run, speeds.get(run.run)), number: true },
              { title: "Begun", cell: ({ created_at }) => <When at={created_at} />, number: true, wide: true },
            ]}
          />
        </Panel>
      )}
    </>
  );
}

function RunState(props: { run: Run }) {
  const { run } = props;
  const state = run.state === "finished" ? "completed" : open(run) > 0 ? "running" : "waiting";
  return (
    <span class="state" data-state={state} aria-label={`${run.state}: ${stateText(run.states)}`}>
      {run.state}
    </span>
  );
}

function Rate(props: { run: Run; speed: number | undefined }) {
  if (props.run.state === "finished" || props.speed === undefined) return <span class="faint">–</span>;
  return rate(props.speed);
}

/** The time until the submitted jobs have ended, at the current rate. */
function left(run: Run, perSecond: number | undefined) {
  if (run.state === "finished" || open(run) === 0 || !perSecond) return <span class="faint">–</span>;
  const time = span((open(run) / perSecond) * 1000);
  return run.state === "submitting" ? `over ${time}` : time;
}
