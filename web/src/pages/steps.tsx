import { useState } from "preact/hooks";
import { hasEnded, type JobView, post, query, type Step, type StepsPage, type States } from "../api/client.ts";
import { Confirm, Panel, StateBadge, StateBar, When } from "../components/basics.tsx";
import { type Column, Table } from "../components/table.tsx";
import { plural, shorten, span, whole } from "../format.ts";
import { check } from "../json_check.ts";
import { useLoaded, useNow } from "../live.ts";
import { mayChange, maySubmit } from "../rights.ts";
import { go, href } from "../router.ts";

/** Steps that are shown at a time. */
const STEPS_PER_PAGE = 100;
/** Characters of an error that are shown. */
const ERROR_CHARACTERS = 120;
/** The least part of the timeline that a step takes, so that it is seen. Percent. */
const WIDTH_MIN = 0.8;

/** The steps of a flow as a timeline. Nothing of a job that is no flow. */
export function Steps(props: { job: JobView; done: () => void }) {
  const { job } = props;
  const [from, setFrom] = useState(0);
  const [event, setEvent] = useState<string>();
  const [forked, setForked] = useState<Step>();
  const now = useNow();
  const path = `/jobs/${encodeURIComponent(job.job)}/steps${query({ from, limit: STEPS_PER_PAGE })}`;
  const loaded = useLoaded<StepsPage>(job.children ? path : undefined);
  const page = loaded.data;
  if (!page?.flow) return null;
  const end = job.finished_at ?? Math.max(now, job.submitted_at + 1);
  const mayEnd = !hasEnded(job.state) && mayChange();
  const mayFork = hasEnded(job.state) && maySubmit();
  const columns: Column<Step>[] = [
    { title: "Step", class: "name", cell: (step) => <Name step={step} /> },
    { title: "State", cell: (step) => <StepState step={step} /> },
    {
      title: "Attempt",
      number: true,
      wide: true,
      cell: (step) => (step.event || isSleep(step) ? "–" : (step.attempt ?? "–")),
    },
    {
      title: "Time",
      class: "bar-cell",
      wide: true,
      cell: (step) => <Bar step={step} begin={job.submitted_at} end={end} now={now} />,
    },
    { title: "Lasted", number: true, cell: (step) => lasted(step, now) },
    {
      title: "Waits for",
      class: "text",
      cell: (step) => (
        <Waits step={step} send={mayEnd && step.event && isOpen(step) ? () => setEvent(step.event ?? "") : undefined} />
      ),
    },
    ...(mayFork ? [forkColumn(setForked)] : []),
  ];
  return (
    <Panel
      title="Steps"
      note={
        <>
          {plural(page.total, "step")}{" "}
          {mayEnd && (
            <button type="button" class="small" onClick={() => setEvent("")}>
              Send event…
            </button>
          )}
        </>
      }
      flush
    >
      <Table label="Steps of the flow" columns={columns} rows={page.steps} id={(step) => step.number} />
      {page.total > STEPS_PER_PAGE && (
        <nav class="pages" aria-label="Pages of the steps">
          <button type="button" disabled={from === 0} onClick={() => setFrom(Math.max(0, from - STEPS_PER_PAGE))}>
            Earlier
          </button>
          <span class="faint">
            {whole(from + 1)} to {whole(from + page.steps.length)} of {whole(page.total)}
          </span>
          <button type="button" disabled={typeof page.next !== "number"} onClick={() => setFrom(page.next ?? 0)}>
            Later
          </button>
        </nav>
      )}
      {forked !== undefined && <Fork job={job.job} step={forked} close={() => setForked(undefined)} />}
      {event !== undefined && (
        <SendEvent
          job={job.job}
          name={event}
          close={() => {
            setEvent(undefined);
            loaded.reload();
            props.done();
          }}
        />
      )}
    </Panel>
  );
}

const forkColumn = (ask: (step: Step) => void): Column<Step> => ({
  title: "Fork",
  cell: (step) => (
    <button type="button" class="small" aria-label={`Fork from step ${step.number}`} onClick={() => ask(step)}>
      Fork…
    </button>
  ),
});

const isOpen = (step: Step) => step.state !== undefined && !hasEnded(step.state);
export const isSleep = (step: Step) => step.kind === "gristmill.sleep";

function Name(props: { step: Step }) {
  const { step } = props;
  const name = step.event ? `event ${step.event}` : isSleep(step) ? "sleep" : (step.name ?? step.kind ?? "deleted");
  return (
    <>
      <a href={href(`jobs/${step.job}`)}>{name}</a>
      {step.key && <span class="faint"> {step.key}</span>}
    </>
  );
}

/** A wait has words of its own. */
function StepState(props: { step: Step }) {
  const { step } = props;
  if (step.states) return <StateBar states={step.states as unknown as States} />;
  if (step.state === undefined) return <span class="faint">deleted</span>;
  if (step.state === "expired" && isSleep(step)) return <span class="faint">over</span>;
  if (step.state === "expired" && step.event) return <span class="faint">timed out</span>;
  if (step.state === "completed" && step.event) return <span class="good-text">received</span>;
  return <StateBadge state={step.state} />;
}

function lasted(step: Step, now: number) {
  if (typeof step.submitted_at !== "number") return "–";
  if (typeof step.finished_at === "number") return span(step.finished_at - step.submitted_at);
  return isOpen(step) ? `${span(Math.max(0, now - step.submitted_at))} so far` : "–";
}

/** When the step was open, within the time of the flow. */
function Bar(props: { step: Step; begin: number; end: number; now: number }) {
  const { step, begin, end, now } = props;
  if (typeof step.submitted_at !== "number") return null;
  const whole_ms = Math.max(1, end - begin);
  const part = (at: number) => Math.min(100, Math.max(0, ((at - begin) / whole_ms) * 100));
  const left = Math.min(part(step.submitted_at), 100 - WIDTH_MIN);
  const until = step.finished_at ?? (isOpen(step) ? now : step.submitted_at);
  const width = Math.max(WIDTH_MIN, part(until) - left);
  const begun = `begins ${span(step.submitted_at - begin)} after the flow`;
  return (
    <span class="timeline" role="img" aria-label={begun} title={begun}>
      <span data-state={step.state} style={{ left: `${left}%`, width: `${width}%` }} />
    </span>
  );
}

function Waits(props: { step: Step; send: (() => void) | undefined }) {
  const { step, send } = props;
  return (
    <>
      {typeof step.until === "number" && (
        <>
          <When at={step.until} />{" "}
        </>
      )}
      {step.states && <span class="faint">{plural(step.jobs ?? 0, "job")} </span>}
      {step.error && <span class="bad-text">{shorten(step.error, ERROR_CHARACTERS)} </span>}
      {send && (
        <button type="button" class="small" aria-label={`Send event ${step.event}`} onClick={send}>
          Send
        </button>
      )}
    </>
  );
}

/** Begins a new instance that has the steps before one. */
function Fork(props: { job: string; step: Step; close: () => void }) {
  const { job, step } = props;
  const fork = async () => {
    const request = { jobs: [job], from: step.number };
    const { flows } = await post<{ flows: { fork?: string; error?: string }[] }>("/jobs/fork", request);
    const [told] = flows;
    if (!told?.fork) throw new Error(told?.error ?? "The flow is not there any more.");
    go(href(`jobs/${told.fork}`));
    return `Flow ${told.fork} is begun`;
  };
  return (
    <Confirm title={`Fork flow ${job}?`} label="Begin the fork" run={fork} close={props.close}>
      <p>
        A new instance gets the payload, the options and the tags of this flow, and the outcomes of the steps before
        step {whole(step.number)}, <b>{shorten(step.name ?? step.kind ?? "", ERROR_CHARACTERS)}</b>. This step and what
        follows run again.
      </p>
    </Confirm>
  );
}

/** Asks for the name and the value of an event. */
export function SendEvent(props: { job: string; name: string; close: () => void }) {
  const [name, setName] = useState(props.name);
  const [value, setValue] = useState("null");
  const checked = check(value, false);
  const send = async () => {
    if (name.trim() === "") throw new Error("Name the event: the flow awaits it by its name.");
    if (checked.problem !== undefined) throw new Error(checked.problem);
    // The value goes as it is written, so that its numbers stay exact.
    const body = `{"name":${JSON.stringify(name)},"value":${checked.payloads[0] ?? "null"}}`;
    const { receipt } = await post<{ receipt: string }>(`/jobs/${encodeURIComponent(props.job)}/events`, body);
    return receipt === "delivered" ? `The flow has the event ${name}` : `Kept until the flow awaits ${name}`;
  };
  return (
    <Confirm title="Send an event" label="Send the event" run={send} close={props.close}>
      <label>
        <span>Name</span>
        <input value={name} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label>
        <span>Value, as JSON</span>
        <textarea
          rows={4}
          spellcheck={false}
          value={value}
          aria-invalid={checked.problem !== undefined}
          aria-describedby="event-check"
          onInput={(event) => setValue(event.currentTarget.value)}
        />
      </label>
      <p id="event-check" class={checked.problem === undefined ? "faint" : "bad-text"} role="status">
        {checked.problem ?? "A flow that does not await the event yet gets it when it does."}
      </p>
    </Confirm>
  );
}
