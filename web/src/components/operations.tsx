/** Changes of all matching jobs, which the server makes in portions: their progress, and their end. */

import { useEffect, useReducer, useState } from "preact/hooks";
import { get, type Operation, type OperationRequest, post, Refused, remove, Unreachable } from "../api/client.ts";
import { plural, whole } from "../format.ts";
import { live, SETTLED_AFTER_MS } from "../live.ts";
import { mayChange } from "../rights.ts";
import { act, notify } from "./basics.tsx";

const WORDS = {
  cancel: { present: "Cancelling", past: "cancelled" },
  retry: { present: "Retrying", past: "retried" },
  discard: { present: "Discarding", past: "discarded" },
  prioritise: { present: "Prioritising", past: "prioritised" },
  pause: { present: "Pausing", past: "paused" },
  resume: { present: "Resuming", past: "resumed" },
} satisfies Record<Operation["change"], { present: string; past: string }>;

/**
 * The waits before the looks at operations; the last one repeats. An operation that has ended at the first look has no bar.
 * Milliseconds.
 */
const LOOK_AFTER_MS = [100, 200, 500];
/** The interval of looks for operations of others while the tab is visible. Milliseconds. */
const LOOK_FOR_OTHERS_MS = 15_000;

/** The operations that this tab began, by id, with their undo. */
const own = new Map<string, OperationRequest | undefined>();
let running: Operation[] = [];
let looks = 0;
let timer: number | undefined;
let draw: () => void = () => {};

/** Begins an operation. Its end is a notice, with its undo. */
export async function begin(request: OperationRequest, undo?: OperationRequest): Promise<void> {
  const operation = await post<Operation>("/operations", request);
  own.set(operation.operation, undo);
  running = [operation, ...running];
  looks = 0;
  lookSoon();
}

function lookSoon(): void {
  clearTimeout(timer);
  const next = Math.min(looks, LOOK_AFTER_MS.length - 1);
  timer = window.setTimeout(() => void look(), running.length > 0 ? LOOK_AFTER_MS[next] : LOOK_FOR_OTHERS_MS);
}

async function look(): Promise<void> {
  looks += 1;
  if (!document.hidden || own.size > 0) {
    // An operation that begins during the question may be missing in the answer.
    const asked = [...own];
    try {
      const { operations } = await get<{ operations: Operation[] }>("/operations");
      for (const [id, undo] of asked) {
        const operation = operations.find(({ operation }) => operation === id);
        if (operation?.state === "running") continue;
        own.delete(id);
        tell(operation, undo);
        live.touch();
      }
      running = operations.filter(({ state }) => state === "running");
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    }
    draw();
  }
  lookSoon();
}

function tell(operation: Operation | undefined, undo: OperationRequest | undefined): void {
  if (operation === undefined) {
    notify("The server has restarted, and the change has ended early. Repeat it for the rest.", true);
    return;
  }
  const { change, changed, failure, state } = operation;
  const done = `${plural(changed, "job")} ${WORDS[change].past}`;
  const takeBack = undo && changed > 0 ? () => act(() => begin(undo)) : undefined;
  if (failure) notify(`${failure.error}: ${failure.remedy}. Before, ${done}.`, true, takeBack);
  else notify(state === "cancelled" ? `${done}, and the rest left as it is` : done, false, takeBack);
}

/** The running operations, each with a bar and a button that ends it. */
export function Operations() {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    draw = () => redraw(undefined);
    timer = window.setTimeout(() => void look(), SETTLED_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <>
      {running.map((operation) => (
        <Progress key={operation.operation} operation={operation} />
      ))}
    </>
  );
}

function Progress(props: { operation: Operation }) {
  const { operation, change, changed, matched } = props.operation;
  const [stopping, setStopping] = useState(false);
  const label = `${WORDS[change].present} ${plural(matched, "job")}`;
  const stop = () => {
    setStopping(true);
    const asked = remove(`/operations/${operation}`).catch((error: unknown) => {
      setStopping(false);
      throw error;
    });
    void act(() => asked);
  };
  return (
    <section class="notice operation" aria-label={label}>
      <span>
        {label}: {whole(changed)} so far
      </span>
      <progress value={changed} max={Math.max(matched, changed, 1)} aria-label={`Progress: ${label}`} />
      {mayChange() && (
        <button
          type="button"
          class="small"
          disabled={stopping}
          aria-label={stopping ? undefined : `Stop: ${label}`}
          onClick={stop}
        >
          {stopping ? "Stopping…" : "Stop"}
        </button>
      )}
    </section>
  );
}
