import { useState } from "preact/hooks";
import { Empty, Heading, Panel } from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { clock, plural, shorten, whole } from "../format.ts";
import { EVENTS_MAX, type StoreEvent, useLive } from "../live.ts";
import { countPositions, firstPosition } from "../positions.ts";
import { href } from "../router.ts";

/** The maximum number of drawn rows. */
const ROWS_MAX = 200;
const TYPES = ["submitted", "completed", "retried", "dead", "cancelled", "expired"];

export function Events() {
  const live = useLive();
  const [held, setHeld] = useState<StoreEvent[]>();
  const [only, setOnly] = useState<string[]>([]);
  const events = (held ?? live.events).filter(({ type }) => only.length === 0 || only.includes(type));
  const rows = events.slice(-ROWS_MAX).reverse();
  return (
    <>
      <Heading
        title="Events"
        note={
          held
            ? "Held. New events wait until you go on."
            : `Live, since this page was opened; the latest ${whole(EVENTS_MAX)}`
        }
      >
        <button
          type="button"
          aria-pressed={held !== undefined}
          onClick={() => setHeld(held ? undefined : [...live.events])}
        >
          {held ? "Go on" : "Hold"}
        </button>
      </Heading>
      <div class="chips" role="group" aria-label="Types">
        {TYPES.map((type) => (
          <button
            key={type}
            type="button"
            class="chip"
            aria-pressed={only.includes(type)}
            onClick={() => setOnly(only.includes(type) ? only.filter((other) => other !== type) : [...only, type])}
          >
            <i data-state={stateOf(type)} />
            {type}
          </button>
        ))}
      </div>
      {rows.length === 0 && live.eventless ? (
        <Empty title={`No events come: ${live.eventless.message}.`}>The other pages refresh every few seconds.</Empty>
      ) : rows.length === 0 ? (
        <Empty title="No event yet." command="gristmill submit hello 1">
          Events appear here as jobs are submitted and end. In a terminal: <code>gristmill events</code>
        </Empty>
      ) : (
        <Panel flush>
          <Table
            label="Events"
            rows={rows}
            id={({ cursor }) => cursor}
            columns={[
              {
                title: "Time",
                cell: ({ at }) => <time dateTime={new Date(at).toISOString()}>{clock(at)}</time>,
                class: "id",
              },
              {
                title: "Event",
                cell: ({ type }) => (
                  <span class="state" data-state={stateOf(type)}>
                    {type}
                  </span>
                ),
              },
              { title: "Kind", cell: ({ kind }) => kind ?? <span class="faint">–</span>, class: "name" },
              { title: "Queue", cell: ({ queue }) => queue ?? "", wide: true },
              { title: "Jobs", cell: ({ positions }) => whole(countPositions(positions ?? "")), number: true },
              { title: "Which", cell: (event) => <Which event={event} />, class: "id" },
              { title: "Attempt", cell: ({ attempt }) => attempt ?? "", number: true, wide: true },
            ]}
          />
        </Panel>
      )}
    </>
  );
}

const stateOf = (type: string) => ({ submitted: "waiting", retried: "scheduled" })[type] ?? type;

function Which(props: { event: StoreEvent }) {
  const { batch, positions = "" } = props.event;
  if (batch === undefined) return <span class="faint">earlier events are not kept</span>;
  const count = countPositions(positions);
  if (count === 1) {
    const job = `${batch}:${firstPosition(positions)}`;
    return <a href={href(`jobs/${job}`)}>{job}</a>;
  }
  return (
    <a href={href(`batches/${batch}`)} aria-label={`Batch ${batch}, ${plural(count, "job")}`}>
      {shorten(`${batch}:${positions}`, 28)}
    </a>
  );
}
