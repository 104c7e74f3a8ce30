import { useState } from "preact/hooks";
import { type Control, post, put, type Scope } from "../api/client.ts";
import { Act, Panel, Problem } from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { plural, relative, span, whole } from "../format.ts";
import { type Loaded, useNow } from "../live.ts";
import { mayChange } from "../rights.ts";

type Effect = Control["effect"];
type EffectName = "pause" | "concurrency" | "rate" | "share" | "aging";

export function scopeText(scope: Scope, sentence = false): string {
  const parts = [
    scope.queue && `queue ${scope.queue}`,
    scope.kind && `kind ${scope.kind}`,
    scope.group && `group ${scope.group}`,
    scope.each_group && "each group",
  ].filter(Boolean) as string[];
  const text = parts.length === 0 ? "everything" : parts.join(", ");
  return sentence ? `${text[0]?.toUpperCase()}${text.slice(1)} is` : text;
}

export function effectText(effect: Effect): string {
  if ("pause" in effect) return `paused: ${effect.pause.reason}`;
  if ("concurrency" in effect) return `at most ${plural(effect.concurrency.jobs_max, "running job")}`;
  if ("rate" in effect)
    return `at most ${plural(effect.rate.jobs, "job")} in ${span(effect.rate.period_ms)}, ${whole(effect.rate.burst)} at once`;
  if ("share" in effect) return `weight ${effect.share.weight}, at least ${plural(effect.share.jobs_min, "job")}`;
  return `priority grows by 1 every ${span(effect.aging.step_ms)}, after ${span(effect.aging.grace_ms)}`;
}

export const nameOf = (effect: Effect) => Object.keys(effect)[0] as EffectName;

export function Controls(props: { loaded: Loaded<{ controls: Control[] }> }) {
  const now = useNow();
  const { loaded } = props;
  const controls = loaded.data?.controls ?? [];
  return (
    <Panel title="Limits and pauses" flush>
      <Problem error={loaded.error} />
      {controls.length > 0 ? (
        <Table
          label="Limits and pauses"
          rows={controls}
          id={({ scope, effect }) => `${JSON.stringify(scope)} ${JSON.stringify(effect)}`}
          columns={[
            { title: "For", cell: ({ scope }) => scopeText(scope), class: "name" },
            {
              title: "Effect",
              cell: ({ effect }) => (
                <>
                  {effectText(effect)}
                  {"pause" in effect && effect.pause.until ? `, ends ${relative(effect.pause.until, now)}` : ""}
                </>
              ),
              class: "text",
            },
            {
              title: "Change",
              cell: ({ scope, effect }) => (
                <Act
                  label="Lift"
                  class="small"
                  describe={`Lift: ${scopeText(scope)}, ${effectText(effect)}`}
                  run={async () => {
                    const reason = "pause" in effect ? { reason: effect.pause.reason } : {};
                    await post("/controls/lift", { scope, effects: [nameOf(effect)], ...reason });
                    return { said: "Lifted", undo: () => put("/controls", { controls: [{ scope, effect }] }) };
                  }}
                  done={loaded.reload}
                />
              ),
              number: true,
            },
          ]}
        />
      ) : (
        <p class="all-well">No limit is set, and nothing is paused.</p>
      )}
      {mayChange() && <NewControl done={loaded.reload} />}
    </Panel>
  );
}

const SCOPES = ["everything", "queue", "kind", "group", "each group"] as const;

function NewControl(props: { done: () => void }) {
  const [scope, setScope] = useState<(typeof SCOPES)[number]>("kind");
  const [name, setName] = useState("");
  const [effect, setEffect] = useState<"pause" | "concurrency" | "rate">("concurrency");
  const [fields, setFields] = useState({ reason: "", jobs: "10", period_s: "1", burst: "10" });
  const field = (key: keyof typeof fields) => ({
    value: fields[key],
    onInput: (event: Event) => setFields({ ...fields, [key]: (event.currentTarget as HTMLInputElement).value }),
  });
  const named = scope === "queue" || scope === "kind" || scope === "group";
  const set = async () => {
    const of: Scope = named ? { [scope]: name.trim() } : scope === "each group" ? { each_group: true } : {};
    if (named && name.trim() === "") throw new Error(`Name the ${scope}.`);
    const effects = {
      pause: { pause: { reason: fields.reason.trim() || "dashboard" } },
      concurrency: { concurrency: { jobs_max: Number(fields.jobs) } },
      rate: {
        rate: {
          jobs: Number(fields.jobs),
          period_ms: Math.round(Number(fields.period_s) * 1000),
          burst: Number(fields.burst),
        },
      },
    };
    await put("/controls", { controls: [{ scope: of, effect: effects[effect] }] });
    return "Set";
  };
  return (
    <form class="row-form" aria-label="New limit or pause" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span>For</span>
        <select value={scope} onChange={(event) => setScope(event.currentTarget.value as typeof scope)}>
          {SCOPES.map((option) => (
            <option key={option}>{option}</option>
          ))}
        </select>
      </label>
      {named && (
        <label>
          <span>Name</span>
          <input
            value={name}
            list={scope === "group" ? undefined : `known-${scope}`}
            onInput={(event) => setName(event.currentTarget.value)}
            autocomplete="off"
          />
        </label>
      )}
      <label>
        <span>Effect</span>
        <select value={effect} onChange={(event) => setEffect(event.currentTarget.value as typeof effect)}>
          <option value="concurrency">limit running jobs</option>
          <option value="rate">limit the rate</option>
          <option value="pause">pause</option>
        </select>
      </label>
      {effect === "pause" && (
        <label>
          <span>Reason</span>
          <input {...field("reason")} placeholder="deploy" />
        </label>
      )}
      {effect !== "pause" && (
        <label class="short">
          <span>Jobs</span>
          <input {...field("jobs")} type="number" min={effect === "rate" ? 1 : 0} />
        </label>
      )}
      {effect === "rate" && (
        <>
          <label class="short">
            <span>In seconds</span>
            <input {...field("period_s")} type="number" min={0.001} step="any" />
          </label>
          <label class="short">
            <span>At once</span>
            <input {...field("burst")} type="number" min={1} />
          </label>
        </>
      )}
      <Act label="Set" class="primary" run={set} done={props.done} />
    </form>
  );
}
