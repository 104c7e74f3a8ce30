import { useState } from "preact/hooks";
import { post, query, remove, type Schedule } from "../api/client.ts";
import { Act, Confirm, Empty, Heading, Loading, Panel, Problem, When } from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { momentIn, plural, span, whole } from "../format.ts";
import { useLoaded } from "../live.ts";
import { mayMakeSchedules } from "../rights.ts";
import { href } from "../router.ts";

/** Schedules on one page. */
const PAGE_ROWS = 500;

export function ruleText(rule: Schedule["rule"]): string {
  if ("cron" in rule)
    return `${rule.cron.expression}${rule.cron.time_zone && rule.cron.time_zone !== "UTC" ? ` (${rule.cron.time_zone})` : ""}`;
  return `every ${span(rule.every.interval_ms)}`;
}

/** The next moment, and those after it, on the clocks of the schedule's time zone. */
function Upcoming(props: { schedule: Schedule }) {
  const { rule, next_at, upcoming } = props.schedule;
  const zone = "cron" in rule ? (rule.cron.time_zone ?? "UTC") : undefined;
  return (
    <>
      <When at={next_at} both />
      {upcoming.length > 1 && (
        <details>
          <summary>
            next {upcoming.length}
            {zone && ` in ${zone}`}
          </summary>
          <ol class="moments">
            {upcoming.map((at) => (
              <li key={at}>
                <time dateTime={new Date(at).toISOString()}>{momentIn(at, zone)}</time>
              </li>
            ))}
          </ol>
        </details>
      )}
    </>
  );
}

export function Schedules() {
  const loaded = useLoaded<{ schedules: Schedule[] }>(`/schedules${query({ limit: PAGE_ROWS })}`);
  const [deleted, setDeleted] = useState<string>();
  if (!loaded.data) return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  const rows = loaded.data.schedules;
  const path = (name: string, verb: string) => `/schedules/${encodeURIComponent(name)}/${verb}`;
  return (
    <>
      <Heading
        title="Schedules"
        note={rows.length === PAGE_ROWS ? `the first ${whole(PAGE_ROWS)} by name` : plural(rows.length, "schedule")}
      />
      <Problem error={loaded.error} />
      {rows.length === 0 ? (
        <Empty title="There is no schedule yet." command="gristmill schedule put nightly report --cron '30 4 * * *'">
          A schedule submits a job at each of its moments.
        </Empty>
      ) : (
        <Panel flush>
          <Table
            label="Schedules"
            rows={rows}
            id={({ schedule }) => schedule}
            columns={[
              {
                title: "Schedule",
                class: "name",
                cell: ({ schedule, paused, kind, rule }) => (
                  <>
                    <a href={href("jobs", { kind })}>{schedule}</a>{" "}
                    {paused && (
                      <span class="state" data-state="paused">
                        paused
                      </span>
                    )}
                    <code class="narrow">{ruleText(rule)}</code>
                  </>
                ),
              },
              { title: "Rule", cell: ({ rule }) => <code>{ruleText(rule)}</code>, wide: true },
              {
                title: "Kind",
                cell: ({ kind, queue }) => (queue === "default" ? kind : `${kind} · ${queue}`),
                wide: true,
              },
              {
                title: "Next",
                cell: (schedule) =>
                  schedule.paused ? <span class="faint">paused</span> : <Upcoming schedule={schedule} />,
              },
              {
                title: "Last",
                wide: true,
                cell: ({ last_at, last_job }) => (
                  <>
                    <When at={last_at} /> {last_job && <a href={href(`jobs/${last_job}`)}>{last_job}</a>}
                  </>
                ),
              },
              { title: "Fired", cell: ({ fired }) => whole(fired), number: true, wide: true },
              {
                title: "Change",
                number: true,
                cell: ({ schedule, paused }) => (
                  <span class="actions tight">
                    <Act
                      label="Trigger"
                      class="small"
                      describe={`Trigger ${schedule}`}
                      run={async () => {
                        await post(path(schedule, "trigger"), undefined);
                        return `${schedule} triggered: its job is submitted within a second`;
                      }}
                      done={loaded.reload}
                    />
                    <Act
                      label={paused ? "Resume" : "Pause"}
                      class="small"
                      describe={`${paused ? "Resume" : "Pause"} ${schedule}`}
                      run={async () => {
                        const set = (to: "pause" | "resume") =>
                          post(path(schedule, to), to === "pause" ? {} : undefined);
                        await set(paused ? "resume" : "pause");
                        if (paused) return `${schedule} resumed`;
                        return { said: `${schedule} paused`, undo: () => set("resume") };
                      }}
                      done={loaded.reload}
                    />
                    {mayMakeSchedules() && (
                      <button
                        type="button"
                        class="small"
                        aria-label={`Delete ${schedule}`}
                        onClick={() => setDeleted(schedule)}
                      >
                        Delete
                      </button>
                    )}
                  </span>
                ),
              },
            ]}
          />
        </Panel>
      )}
      {deleted && (
        <Confirm
          title={`Delete the schedule ${deleted}?`}
          label="Delete"
          danger
          close={() => {
            setDeleted(undefined);
            loaded.reload();
          }}
          run={() => remove(`/schedules/${encodeURIComponent(deleted)}`)}
        >
          <p>It submits no further jobs. Its submitted jobs stay. This cannot be undone.</p>
        </Confirm>
      )}
    </>
  );
}
