import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Batch, Refused, type State, STATES, type States } from "../api/client.ts";
import { compact, moment, plural, relative, whole } from "../format.ts";
import { useNow } from "../live.ts";
import { mayChange } from "../rights.ts";

export function Heading(props: { title: string; note?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Gristmill`;
  }, [props.title]);
  return (
    <header class="heading">
      <div>
        <h1>{props.title}</h1>
        {props.note && <p class="note">{props.note}</p>}
      </div>
      {props.children && <div class="actions">{props.children}</div>}
    </header>
  );
}

export function Panel(props: {
  title?: string;
  note?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
  flush?: boolean;
}) {
  return (
    <section class={`panel ${props.class ?? ""}`}>
      {props.title && (
        <div class="panel-title">
          <h2>{props.title}</h2>
          {props.note && <span class="note">{props.note}</span>}
        </div>
      )}
      <div class={props.flush ? "panel-flush" : "panel-body"}>{props.children}</div>
    </section>
  );
}

/** A hint for the next step, if there is nothing to show. */
export function Empty(props: { title: string; command?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.children && <p>{props.children}</p>}
      {props.command && (
        <div class="command">
          <code>{props.command}</code>
          <Copy text={props.command} what="the command" />
        </div>
      )}
    </div>
  );
}

export function Copy(props: { text: string; what: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1_500);
    } catch {
      // Plain HTTP beyond loopback has no clipboard; the text can be selected.
    }
  };
  return (
    <button type="button" class="quiet small" aria-label={`Copy ${props.what}`} onClick={() => void copy()}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}

export function Problem(props: { error: Error | undefined }) {
  if (!props.error) return null;
  const refused = props.error instanceof Refused ? props.error : undefined;
  return (
    <div class="problem" role="alert">
      <strong>{props.error.message}</strong>
      {refused?.remedy && <span> {refused.remedy}</span>}
    </div>
  );
}

export const Loading = () => (
  <p class="loading" role="status">
    Loading…
  </p>
);

export const StateBadge = (props: { state: string }) => (
  <span class="state" data-state={props.state}>
    {props.state}
  </span>
);

/** A time as text, relative and absolute. */
export function When(props: { at: number | null | undefined; both?: boolean }) {
  const now = useNow();
  if (props.at === undefined || props.at === null) return <span class="faint">–</span>;
  return (
    <time dateTime={new Date(props.at).toISOString()} title={moment(props.at)}>
      {relative(props.at, now)}
      {props.both && <span class="faint"> {moment(props.at)}</span>}
    </time>
  );
}

export const stateText = (states: States) =>
  STATES.filter((state) => states[state] > 0)
    .map((state) => `${whole(states[state])} ${state}`)
    .join(", ") || "no jobs";

/** The states of many jobs as one bar. */
export function StateBar(props: { states: States }) {
  const total = STATES.reduce((sum, state) => sum + props.states[state], 0);
  return (
    <span class="bar" role="img" aria-label={stateText(props.states)}>
      {STATES.filter((state) => props.states[state] > 0).map((state) => (
        <span key={state} data-state={state} style={{ flexGrow: Math.max(props.states[state] / total, 0.012) }} />
      ))}
    </span>
  );
}

export function StateLegend(props: { states: States; href?: (state: State) => string }) {
  return (
    <ul class="legend">
      {STATES.filter((state) => props.states[state] > 0).map((state) => {
        const text = (
          <>
            <i data-state={state} /> <b>{compact(props.states[state])}</b> {state}
          </>
        );
        return <li key={state}>{props.href ? <a href={props.href(state)}>{text}</a> : text}</li>;
      })}
    </ul>
  );
}

/** The result of an action, and its undo. */
export interface Done {
  said: string;
  undo: () => Promise<unknown>;
}

/** Runs an action and reports its result, with its undo if it has one, or the error. */
export async function act(run: () => Promise<unknown>, done?: () => void): Promise<void> {
  try {
    const said = await run();
    if (typeof said === "string") notify(said);
    else if (isDone(said)) notify(said.said, false, () => act(() => said.undo().then(() => "Undone"), done));
    done?.();
  } catch (error) {
    const remedy = error instanceof Refused && error.remedy ? `: ${error.remedy}` : "";
    notify(`${error instanceof Error ? error.message : String(error)}${remedy}`, true);
  }
}

const isDone = (said: unknown): said is Done => typeof said === "object" && said !== null && "undo" in said;

/** A button that shows that it works, and the error. */
export function Act(props: {
  label: string;
  run: () => Promise<unknown>;
  class?: string;
  done?: () => void;
  title?: string;
  describe?: string;
  /** It changes nothing, so every role may do it. */
  reads?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    await act(props.run, props.done);
    setBusy(false);
  };
  if (!props.reads && !mayChange()) return null;
  return (
    <button
      type="button"
      class={props.class ?? ""}
      disabled={busy}
      aria-label={props.describe}
      onClick={() => void run()}
    >
      {busy ? "…" : props.label}
    </button>
  );
}

/** A dialog before an action on many jobs, or one that cannot be undone. */
export function Confirm(props: {
  title: string;
  children: ComponentChildren;
  label: string;
  danger?: boolean;
  run: () => Promise<unknown>;
  close: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={props.close} aria-labelledby="confirm-title">
      <h2 id="confirm-title">{props.title}</h2>
      <div class="dialog-body">{props.children}</div>
      <div class="dialog-actions">
        <button type="button" onClick={() => dialog.current?.close()}>
          Back
        </button>
        <Act
          label={props.label}
          class={props.danger ? "danger" : "primary"}
          run={props.run}
          done={() => dialog.current?.close()}
        />
      </div>
    </dialog>
  );
}

interface Notice {
  text: string;
  bad: boolean;
  undo?: (() => Promise<void>) | undefined;
}

/** How long a notice stays; one that can be undone stays longer. Milliseconds. */
const SHOWN_MS = 6_000;
const UNDO_WITHIN_MS = 20_000;

let show: (notice: Notice) => void = () => {};
export const notify = (text: string, bad = false, undo?: () => Promise<void>) => show({ text, bad, undo });

/** One line at the bottom that reports actions, below the running operations. */
export function Notices(props: { children: ComponentChildren }) {
  const [notice, setNotice] = useState<Notice>();
  useEffect(() => {
    show = setNotice;
  }, []);
  useEffect(() => {
    if (!notice || notice.bad) return;
    const timer = setTimeout(() => setNotice(undefined), notice.undo ? UNDO_WITHIN_MS : SHOWN_MS);
    return () => clearTimeout(timer);
  }, [notice]);
  return (
    <div class="notices">
      {props.children}
      <div aria-live="polite">
        {notice && (
          <div class={`notice ${notice.bad ? "bad" : ""}`}>
            <span>{notice.text}</span>
            {notice.undo && (
              <button
                type="button"
                class="small"
                onClick={() => {
                  setNotice(undefined);
                  void notice.undo?.();
                }}
              >
                Undo
              </button>
            )}
            <button type="button" class="quiet small" onClick={() => setNotice(undefined)}>
              Close
            </button>
          </div>
        )}
      </div>
    </div>
  );
}

export const changed = (verb: string) => (answer: { changed: number; unchanged: number }) =>
  `${plural(answer.changed, "job")} ${verb}${answer.unchanged > 0 ? `, ${whole(answer.unchanged)} unchanged` : ""}`;

export const sumOf = (batch: Pick<Batch, "states">) => STATES.reduce((sum, state) => sum + batch.states[state], 0);
