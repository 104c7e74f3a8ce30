import { useEffect, useRef, useState } from "preact/hooks";
import { api, type Failure, hasEnded, type JobView, post, query, readJob, REASON } from "../api/client.ts";
import {
  Act,
  act,
  changed,
  Confirm,
  Copy,
  Empty,
  Heading,
  Loading,
  Panel,
  Problem,
  StateBadge,
  When,
} from "../components/basics.tsx";
import { PRIORITIES, PriorityOptions } from "../components/priorities.tsx";
import { plural, relative, span, whole } from "../format.ts";
import { indented } from "../json_text.ts";
import { Refused } from "../api/client.ts";
import { useLive, useLoaded, useNow } from "../live.ts";
import { mayChange } from "../rights.ts";
import { href } from "../router.ts";
import { scopeText } from "./controls.tsx";
import { Relations } from "./relations.tsx";
import { Steps } from "./steps.tsx";

const HIDDEN = "Hidden from this token. See gristmill serve --monitors-see-payloads.";

/** The maximum number of characters of a live log; the oldest are removed. */
const LIVE_LOG_CHARACTERS_MAX = 200_000;
/** The number of characters of a payload or a value that are shown at first. */
const JSON_CHARACTERS = 20_000;

export function Job(props: { id: string }) {
  const loaded = useLoaded<JobView>(`/jobs/${encodeURIComponent(props.id)}`, undefined, readJob);
  const [asked, setAsked] = useState(false);
  const job = loaded.data;
  if (!job) {
    if (loaded.error instanceof Refused && loaded.error.status === 404) {
      return (
        <>
          <Heading title={`Job ${props.id}`} />
          <Empty title={`Job ${props.id} does not exist.`}>
            A prune may have deleted its batch. See all <a href={href("batches")}>batches</a>.
          </Empty>
        </>
      );
    }
    return loaded.error ? <Problem error={loaded.error} /> : <Loading />;
  }
  const ended = hasEnded(job.state);
  const selection = { jobs: [job.job] };
  const done = () => loaded.reload();
  const paused = (job.pauses ?? []).some(({ scope }) => !scope);
  return (
    <>
      <Heading
        title={`Job ${job.job}`}
        note={
          <>
            <StateBadge state={job.state} /> · <a href={href("jobs", { kind: job.kind })}>{job.kind}</a>
            {job.attempt > 0 && (ended || job.state === "running") && <span> · attempt {job.attempt}</span>}
          </>
        }
      >
        {["dead", "cancelled", "expired"].includes(job.state) && (
          <Act
            label="Retry"
            class="primary"
            run={async () => changed("retried")(await post("/jobs/retry", selection))}
            done={done}
          />
        )}
        {!ended && mayChange() && <Priority job={job} done={done} />}
        {!ended && job.state !== "running" && !paused && (
          <Act
            label="Pause"
            run={async () => ({
              said: changed("paused")(await post("/jobs/pause", { ...selection, reason: REASON })),
              undo: () => post("/jobs/resume", { ...selection, reason: REASON }),
            })}
            done={done}
          />
        )}
        {paused && <Act label="Resume" run={() => resumed(job)} done={done} />}
        {!ended && mayChange() && (
          <button type="button" onClick={() => setAsked(true)}>
            Cancel
          </button>
        )}
      </Heading>
      <Problem error={loaded.error} />
      {asked && (
        <Confirm
          title={`Cancel job ${job.job}?`}
          label="Cancel the job"
          danger
          close={() => {
            setAsked(false);
            done();
          }}
          run={async () => changed("cancelled")(await post("/jobs/cancel", selection))}
        >
          <p>It ends as cancelled. A running job is stopped at its worker's next heartbeat.</p>
        </Confirm>
      )}
      {!ended && <Why job={job} />}
      <Facts job={job} />
      <Steps job={job} done={done} />
      <Relations job={job} />
      {job.state === "running" && mayChange() && <LiveLog job={job.job} />}
      <div class="pair">
        <Panel title="Payload">
          {job.hidden ? <p class="faint">{HIDDEN}</p> : <Json text={job.payload} what="the payload" />}
        </Panel>
        <Panel title="Value">
          {job.value !== undefined ? (
            <Json text={job.value} what="the value" />
          ) : (
            <p class="faint">
              {job.hidden ? HIDDEN : ended ? "The job has no value." : "The job has not completed yet."}
            </p>
          )}
        </Panel>
      </div>
      {job.failures.length > 0 && (
        <Panel title="Failed attempts" note={plural(job.failures.length, "attempt")} flush>
          {[...job.failures].reverse().map((failure, index) => (
            <FailedAttempt key={`${failure.failed_at} ${failure.attempt}`} failure={failure} open={index === 0} />
          ))}
        </Panel>
      )}
      {job.log && <LastLog text={job.log} />}
    </>
  );
}

/** The log of the last attempt. */
function LastLog(props: { text: string }) {
  return (
    <Panel title="Log" note="of the last attempt">
      <pre tabIndex={0}>{props.text}</pre>
    </Panel>
  );
}

/** Ends the pauses of the job itself; an undo sets them again. */
async function resumed(job: JobView) {
  const selection = { jobs: [job.job] };
  const own = (job.pauses ?? []).filter(({ scope }) => !scope);
  const said = changed("resumed")(await post("/jobs/resume", selection));
  const undo = async () => {
    for (const { reason, until } of own) {
      await post("/jobs/pause", { ...selection, reason, ...(until ? { until } : {}) });
    }
  };
  return { said, undo };
}

/** The priority of an open job, by name if it has one. */
function Priority(props: { job: JobView; done: () => void }) {
  const { job } = props;
  const named = PRIORITIES.some(([, priority]) => priority === job.priority);
  const set = (priority: number) => post<{ changed: number }>("/jobs/prioritise", { jobs: [job.job], priority });
  const choose = (priority: number) =>
    act(async () => {
      await set(priority);
      return { said: `Priority changed to ${priority}`, undo: () => set(job.priority) };
    }, props.done);
  return (
    <select
      class="inline"
      aria-label="Priority"
      value={String(job.priority)}
      onChange={(event) => void choose(Number(event.currentTarget.value))}
    >
      {!named && <option value={String(job.priority)}>priority {job.priority}</option>}
      <PriorityOptions />
    </select>
  );
}

/** Why a job waits, and how to make it run. */
function Why(props: { job: JobView }) {
  const { job } = props;
  const live = useLive();
  const now = useNow();
  const workers = useLoaded<{ workers: unknown[] }>(job.state === "waiting" ? "/workers" : undefined);
  const reasons: preact.ComponentChildren[] = [];
  for (const pause of job.pauses ?? []) {
    reasons.push(
      <>
        {pause.scope ? `${scopeText(pause.scope, true)} paused` : "The job itself is paused"}: {pause.reason}
        {pause.until ? `, until ${relative(pause.until, now)}` : ""}.
        {pause.scope && (
          <>
            {" "}
            See <a href={href("queues")}>queues</a>.
          </>
        )}
      </>,
    );
  }
  if (job.state === "scheduled" && job.run_at) {
    reasons.push(
      <>
        {job.failures.length > 0 ? "Its next attempt begins" : "It begins"} <When at={job.run_at} both />.
      </>,
    );
  }
  if (job.state === "blocked") {
    const children = job.children
      ? Object.entries(job.children as Record<string, number>).filter(([state, count]) => count > 0 && !hasEnded(state))
      : [];
    reasons.push(
      children.length > 0 ? (
        <>It waits for its children: {children.map(([state, count]) => `${whole(count)} ${state}`).join(", ")}.</>
      ) : (
        "It waits for other jobs to end."
      ),
    );
  }
  if (job.state === "waiting" && reasons.length === 0) {
    const counts = (live.queues ?? []).find(({ queue, kind }) => queue === job.queue && kind === job.kind);
    if (workers.data?.workers.length === 0) {
      reasons.push(
        <>
          No worker is registered. Start one:{" "}
          <code>
            gristmill worker {job.kind}.py --kind {job.kind} --queue {job.queue}
          </code>
        </>,
      );
    } else if (counts?.running === 0) {
      reasons.push(
        <>
          No job of its kind runs now. A pause or a limit may hold it back (see <a href={href("queues")}>queues</a>), or
          no worker runs its kind:{" "}
          <code>
            gristmill worker {job.kind}.py --kind {job.kind} --queue {job.queue}
          </code>
        </>,
      );
    } else if (counts) {
      reasons.push(
        `It waits for a free worker: of its kind, ${plural(counts.waiting, "job")} waiting and ${whole(counts.running)} running.`,
      );
    }
  }
  if (job.progress && (typeof job.progress.fraction === "number" || job.progress.message)) {
    const { fraction, message, left_ms, estimated } = job.progress;
    reasons.push(
      <span class="progress">
        {typeof fraction === "number" && <progress value={fraction} max={1} aria-label="Progress" />}{" "}
        {typeof fraction === "number" ? `${Math.round(fraction * 100)} %` : ""} {message ?? ""}
        {left_ms ? `, ${estimated ? "about " : ""}${span(left_ms)} left` : ""}
      </span>,
    );
  }
  if (reasons.length === 0) return null;
  return (
    <section class="why" aria-label="Why it is where it is">
      {reasons.map((reason, index) => (
        <p key={index}>{reason}</p>
      ))}
    </section>
  );
}

function Facts(props: { job: JobView }) {
  const { job } = props;
  const facts: [string, preact.ComponentChildren][] = [
    ["Queue", <a href={href("jobs", { queue: job.queue })}>{job.queue}</a>],
    ["Batch", <a href={href(`batches/${job.job.split(":")[0]}`)}>{job.job.split(":")[0]}</a>],
    ["Submitted", <When at={job.submitted_at} both />],
  ];
  if (job.claimed_at) facts.push(["Claimed", <When at={job.claimed_at} both />]);
  if (job.finished_at) facts.push(["Ended", <When at={job.finished_at} both />]);
  if (typeof job.duration_us === "number") facts.push(["Duration", span(job.duration_us / 1000)]);
  if (job.worker) facts.push(["Worker", job.worker]);
  if (job.group) facts.push(["Group", <a href={href("jobs", { group: job.group })}>{job.group}</a>]);
  if (job.key) facts.push(["Key", <a href={href("jobs", { key: job.key })}>{job.key}</a>]);
  if (job.priority !== 0) facts.push(["Priority", String(job.priority)]);
  for (const [name, value] of Object.entries(job.tags ?? {})) {
    facts.push([`Tag ${name}`, <a href={href("jobs", { tags: `${name}=${value}` })}>{value}</a>]);
  }
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Json(props: { text: string; what: string }) {
  const [whole_text, showWhole] = useState(false);
  const text = indented(props.text);
  const cut = !whole_text && text.length > JSON_CHARACTERS;
  return (
    <div class="json">
      <Copy text={text} what={props.what} />
      <pre tabIndex={0}>{cut ? `${text.slice(0, JSON_CHARACTERS)}…` : text}</pre>
      {cut && (
        <button type="button" class="quiet small" onClick={() => showWhole(true)}>
          Show all {whole(text.length)} characters
        </button>
      )}
    </div>
  );
}

function FailedAttempt(props: { failure: Failure; open: boolean }) {
  const { failure } = props;
  return (
    <details class="attempt" open={props.open}>
      <summary>
        <span>Attempt {failure.attempt}</span>
        <b class="bad-text">{failure.type}</b>
        <span class="attempt-message">{failure.message}</span>
        <span class="faint">
          <When at={failure.failed_at} /> · {span(failure.duration_us / 1000)}
        </span>
      </summary>
      <p class="faint attempt-facts">
        <When at={failure.failed_at} both />
        {failure.worker && <> · worker {failure.worker}</>}
      </p>
      {failure.traceback && <pre tabIndex={0}>{failure.traceback}</pre>}
      {failure.log && (
        <>
          <h3>Log</h3>
          <pre tabIndex={0}>{failure.log}</pre>
        </>
      )}
    </details>
  );
}

/** The output of a running job, as it comes. */
function LiveLog(props: { job: string }) {
  const [text, setText] = useState("");
  const place = useRef<HTMLPreElement>(null);
  useEffect(() => {
    let attempt = 0;
    let source: EventSource | undefined;
    const follow = () => {
      source?.close();
      source = undefined;
      if (document.hidden) return;
      setText("");
      source = new EventSource(api(`/logs${query({ job: props.job })}`));
      source.addEventListener("printed", (message) => {
        const printed = JSON.parse((message as MessageEvent<string>).data) as { attempt: number; text: string };
        const again = printed.attempt !== attempt;
        attempt = printed.attempt;
        setText((before) => `${again ? "" : before}${printed.text}`.slice(-LIVE_LOG_CHARACTERS_MAX));
      });
      source.addEventListener("ended", () => source?.close());
    };
    follow();
    document.addEventListener("visibilitychange", follow);
    return () => {
      source?.close();
      document.removeEventListener("visibilitychange", follow);
    };
  }, [props.job]);
  useEffect(() => {
    const element = place.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, [text]);
  return (
    <Panel title="Log" note="live">
      <pre ref={place} tabIndex={0} class="live-log" aria-live="off">
        {text || "Nothing printed since this page was opened."}
      </pre>
    </Panel>
  );
}
