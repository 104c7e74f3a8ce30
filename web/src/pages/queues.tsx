import { type Control, post, put, type QueueCounts, REASON, total } from "../api/client.ts";
import {
  Act,
  type Done,
  Empty,
  Heading,
  Loading,
  Panel,
  Problem,
  StateBar,
  StateLegend,
} from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { plural, whole } from "../format.ts";
import { useLiveCounts, useLoaded } from "../live.ts";
import { href } from "../router.ts";
import { Controls } from "./controls.tsx";

export function Queues() {
  const live = useLiveCounts();
  const controls = useLoaded<{ controls: Control[] }>("/controls");
  const queues = live.queues;
  if (!queues) return live.refused ? <Problem error={live.refused} /> : <Loading />;
  const names = [...new Set(queues.map(({ queue }) => queue))];
  const pauses = (scope: { queue?: string; kind?: string }) =>
    (controls.data?.controls ?? []).filter(
      (control) =>
        "pause" in control.effect &&
        !control.scope.group &&
        !control.scope.each_group &&
        (control.scope.queue ?? undefined) === scope.queue &&
        (control.scope.kind ?? undefined) === scope.kind,
    );
  const toggle = (scope: { queue?: string; kind?: string }, name: string, label = "") => {
    const paused = pauses(scope).length > 0;
    return (
      <Act
        label={`${paused ? "Resume" : "Pause"}${label}`}
        class={label === "" ? "small" : ""}
        describe={`${paused ? "Resume" : "Pause"} ${name}`}
        run={async (): Promise<Done> => {
          const held = pauses(scope);
          if (paused) {
            await post("/controls/lift", { scope, effects: ["pause"] });
            return { said: `${name} resumed`, undo: () => put("/controls", { controls: held }) };
          }
          await put("/controls", { controls: [{ scope, effect: { pause: { reason: REASON } } }] });
          return {
            said: `${name} paused`,
            undo: () => post("/controls/lift", { scope, effects: ["pause"], reason: REASON }),
          };
        }}
        done={controls.reload}
      />
    );
  };
  return (
    <>
      <Heading
        title="Queues, kinds and groups"
        note={`${plural(names.length, "queue")}, ${plural(new Set(queues.map(({ kind }) => kind)).size, "kind")}`}
      >
        {queues.length > 0 && toggle({}, "everything", " everything")}
      </Heading>
      {names.length === 0 && (
        <Empty
          title="There is no queue yet."
          command='gristmill submit hello &apos;{"name": "world"}&apos; --queue default'
        >
          A queue exists as soon as a job is submitted to it.
        </Empty>
      )}
      {names.map((name) => {
        const kinds = queues.filter(({ queue }) => queue === name);
        const paused = pauses({ queue: name }).length > 0;
        return (
          <Panel key={name} flush>
            <div class="panel-title">
              <h2>
                {name}{" "}
                {paused && (
                  <span class="state" data-state="paused">
                    paused
                  </span>
                )}
              </h2>
              <StateLegend states={total(kinds)} href={(state) => href("jobs", { queue: name, states: state })} />
              {toggle({ queue: name }, `queue ${name}`)}
            </div>
            <KindTable
              kinds={kinds}
              toggle={(kind) => toggle({ kind }, `kind ${kind}`)}
              paused={(kind) => pauses({ kind }).length > 0}
            />
          </Panel>
        );
      })}
      <datalist id="known-queue">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <datalist id="known-kind">
        {[...new Set(queues.map(({ kind }) => kind))].map((kind) => (
          <option key={kind} value={kind} />
        ))}
      </datalist>
      <Controls loaded={controls} />
    </>
  );
}

function KindTable(props: {
  kinds: QueueCounts[];
  toggle: (kind: string) => preact.ComponentChildren;
  paused: (kind: string) => boolean;
}) {
  const number = (count: number) => (count === 0 ? <span class="faint">0</span> : whole(count));
  return (
    <Table
      label={`Kinds of the queue ${props.kinds[0]?.queue ?? ""}`}
      rows={props.kinds}
      id={({ kind }) => kind}
      columns={[
        {
          title: "Kind",
          class: "name",
          cell: ({ kind, queue }) => (
            <>
              <a href={href("jobs", { kind, queue })}>{kind}</a>{" "}
              {props.paused(kind) && (
                <span class="state" data-state="paused">
                  paused
                </span>
              )}
            </>
          ),
        },
        { title: "States", cell: (counts) => <StateBar states={counts} />, class: "bar-cell" },
        { title: "Waiting", cell: ({ waiting }) => number(waiting), number: true },
        { title: "Scheduled", cell: ({ scheduled }) => number(scheduled), number: true, wide: true },
        { title: "Blocked", cell: ({ blocked }) => number(blocked), number: true, wide: true },
        { title: "Running", cell: ({ running }) => number(running), number: true, wide: true },
        { title: "Completed", cell: ({ completed }) => number(completed), number: true, wide: true },
        { title: "Dead", cell: ({ dead }) => number(dead), number: true },
        { title: "Change", cell: ({ kind }) => props.toggle(kind), number: true },
      ]}
    />
  );
}
