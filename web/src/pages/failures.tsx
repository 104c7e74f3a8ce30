import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type JobSummary, post } from "../api/client.ts";
import { Act, changed, Confirm, Empty, Heading, Loading, Panel, Problem, When } from "../components/basics.tsx";
import { plural, shorten, whole } from "../format.ts";
import { mayChange } from "../rights.ts";
import { href, type Route } from "../router.ts";
import { filterOf, Filters } from "./filters.tsx";
import { deadJobs } from "./jobs.tsx";

/** The maximum number of dead jobs that are grouped. */
const LOOKED_AT_MAX = 10_000;
/** The maximum number of jobs that one request can name. */
const SELECTED_MAX = 10_000;
const MORE = `: the ${whole(LOOKED_AT_MAX)} oldest; retry or discard some to see more`;
const NAMES = ["kind", "queue", "group"] as const;

interface Group {
  id: string;
  kind: string;
  message: string;
  jobs: JobSummary[];
  first_at: number;
  last_at: number;
}

/** Errors that differ only in numbers, ids and quoted texts are one group. */
export function pattern(message: string): string {
  return (message.split("\n", 1)[0] ?? "")
    .replace(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/gi, "…")
    .replace(/0x[0-9a-f]+/gi, "…")
    .replace(/'[^']*'|"[^"]*"/g, "'…'")
    .replace(/\d+(\.\d+)?/g, "#");
}

export function grouped(jobs: JobSummary[]): Group[] {
  const groups = new Map<string, Group>();
  for (const job of jobs) {
    const id = `${job.kind}\n${pattern(job.error ?? "")}`;
    const at = job.finished_at ?? job.submitted_at;
    const group = groups.get(id);
    if (group) {
      group.jobs.push(job);
      group.first_at = Math.min(group.first_at, at);
      group.last_at = Math.max(group.last_at, at);
    } else {
      groups.set(id, {
        id,
        kind: job.kind,
        message: job.error ?? "no message",
        jobs: [job],
        first_at: at,
        last_at: at,
      });
    }
  }
  return [...groups.values()].sort((a, b) => b.jobs.length - a.jobs.length);
}

/** The failures that the page has found so far. */
interface Looked {
  groups?: Group[];
  looked_at: number;
  more: boolean;
  reading: boolean;
  error?: Error;
}

export function Failures(props: { route: Route }) {
  const filter = filterOf(props.route, NAMES);
  delete filter["states"];
  const key = JSON.stringify(filter);
  const [state, setState] = useState<Looked>({ looked_at: 0, more: false, reading: true });
  const looks = useRef(0);
  const [discarded, setDiscarded] = useState<Group>();
  const load = useCallback(async () => {
    const look = ++looks.current;
    try {
      for await (const { jobs, ...so_far } of deadJobs(LOOKED_AT_MAX, JSON.parse(key) as Record<string, string>)) {
        if (look !== looks.current) return;
        const next = { groups: grouped(jobs), looked_at: jobs.length, ...so_far };
        // A part does not replace the complete result of an earlier look.
        setState((before) => (next.reading && !before.reading ? before : next));
      }
    } catch (error) {
      setState((before) => ({ ...before, error: error instanceof Error ? error : new Error(String(error)) }));
    }
  }, [key]);
  useEffect(() => void load(), [load]);
  const { groups } = state;
  const change = async (verb: "retry" | "discard", past: string, group: Group) => {
    const jobs = group.jobs.slice(0, SELECTED_MAX).map(({ job }) => job);
    return changed(past)(await post(`/jobs/${verb}`, { jobs }));
  };
  return (
    <>
      <Heading
        title="Failures"
        note={
          groups &&
          `${plural(state.looked_at, "dead job")} in ${plural(groups.length, "group")}${
            state.reading ? " so far" : state.more ? MORE : ""
          }`
        }
      >
        <Act label="Refresh" run={load} reads />
      </Heading>
      <Filters route={props.route} names={[...NAMES]} stateless />
      <Problem error={state.error} />
      {!groups && !state.error && <Loading />}
      {groups?.length === 0 && (
        <Empty title="No job is dead.">
          Jobs that run out of attempts appear here, grouped by their error. See all <a href={href("jobs")}>jobs</a>.
        </Empty>
      )}
      <div class="groups">
        {groups?.map((group) => (
          <Panel key={group.id} class="failure-group">
            <div class="group-head" data-row="">
              <b class="group-count">{whole(group.jobs.length)}</b>
              <div class="group-text">
                <p class="group-message">{group.message}</p>
                <p class="faint">
                  <a href={href("jobs", { kind: group.kind, states: "dead" })}>{group.kind}</a> · first{" "}
                  <When at={group.first_at} />
                  {group.last_at - group.first_at > 1_000 && (
                    <>
                      , last <When at={group.last_at} />
                    </>
                  )}{" "}
                  · e.g.{" "}
                  {group.jobs.slice(0, 3).map(({ job }) => (
                    <>
                      <a key={job} href={href(`jobs/${job}`)}>
                        {job}
                      </a>{" "}
                    </>
                  ))}
                </p>
              </div>
              <div class="actions">
                <Act
                  label={`Retry ${whole(group.jobs.length)}`}
                  describe={`Retry ${plural(group.jobs.length, "job")}: ${shorten(group.message, 60)}`}
                  run={() => change("retry", "retried", group)}
                  done={() => void load()}
                />
                {mayChange() && (
                  <button
                    type="button"
                    aria-label={`Discard ${plural(group.jobs.length, "job")}: ${shorten(group.message, 60)}`}
                    onClick={() => setDiscarded(group)}
                  >
                    Discard
                  </button>
                )}
              </div>
            </div>
          </Panel>
        ))}
      </div>
      {discarded && (
        <Confirm
          title={`Discard ${plural(discarded.jobs.length, "job")}?`}
          label={`Discard ${plural(discarded.jobs.length, "job")}`}
          danger
          close={() => {
            setDiscarded(undefined);
            void load();
          }}
          run={() => change("discard", "discarded", discarded)}
        >
          <p>
            These jobs end as cancelled and no longer count as dead. They keep their errors, and can be retried later.
          </p>
          <p class="bad-text">{shorten(discarded.message, 200)}</p>
        </Confirm>
      )}
    </>
  );
}
