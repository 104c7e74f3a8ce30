import { useEffect, useState } from "preact/hooks";
import { STATES, type States } from "../api/client.ts";
import { compact } from "../format.ts";
import { useLive } from "../live.ts";
import { type Route, setSearch } from "../router.ts";

const TEXTS = [
  ["kind", "Kind", "any"],
  ["queue", "Queue", "any"],
  ["group", "Group", "any"],
  ["tags", "Tags", "customer=7"],
  ["key", "Key", "any"],
  ["batch", "Batch", "any"],
  ["run", "Run", "any"],
  ["text", "Text", "in payload, value, error"],
] as const;
export type FilterName = (typeof TEXTS)[number][0];

/** The filters of a listing, kept in the address. */
export function Filters(props: {
  route: Route;
  names: FilterName[];
  counts?: States | undefined;
  stateless?: boolean;
}) {
  const live = useLive();
  const chosen = statesOf(props.route);
  const toggle = (state: string) => {
    const states = chosen.includes(state) ? chosen.filter((other) => other !== state) : [...chosen, state];
    setSearch(props.route, { states: states.join(","), after: undefined, before: undefined });
  };
  const known = (name: "kind" | "queue") => [...new Set((live.queues ?? []).map((counts) => counts[name]))].sort();
  return (
    <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <div class="filter-fields">
        {TEXTS.filter(([name]) => props.names.includes(name)).map(([name, label, hint], index) => (
          <label key={name}>
            <span>{label}</span>
            <Field
              name={name}
              value={props.route.search.get(name) ?? ""}
              hint={hint}
              first={index === 0}
              set={(value) => setSearch(props.route, { [name]: value.trim(), after: undefined, before: undefined })}
            />
          </label>
        ))}
        {(["kind", "queue"] as const).map((name) => (
          <datalist key={name} id={`known-${name}`}>
            {known(name).map((value) => (
              <option key={value} value={value} />
            ))}
          </datalist>
        ))}
      </div>
      <div class="chips" role="group" aria-label="States">
        {(props.stateless ? [] : STATES).map((state) => (
          <button
            key={state}
            type="button"
            class="chip"
            data-state={state}
            aria-pressed={chosen.includes(state)}
            onClick={() => toggle(state)}
          >
            <i data-state={state} />
            {state}
            {props.counts && props.counts[state] > 0 && <b>{compact(props.counts[state])}</b>}
          </button>
        ))}
        {[...props.route.search.keys()].some((name) => name !== "after" && name !== "before") && (
          <button
            type="button"
            class="quiet small"
            onClick={() =>
              setSearch(
                props.route,
                Object.fromEntries([...props.route.search.keys()].map((name) => [name, undefined])),
              )
            }
          >
            Clear filters
          </button>
        )}
      </div>
    </form>
  );
}

/** Keeps what is typed until it is entered, while the page is drawn again for other reasons. */
function Field(props: { name: string; value: string; hint: string; first: boolean; set: (value: string) => void }) {
  const [typed, setTyped] = useState(props.value);
  useEffect(() => setTyped(props.value), [props.value]);
  return (
    <input
      name={props.name}
      value={typed}
      placeholder={props.hint}
      autocomplete="off"
      spellcheck={false}
      list={props.name === "kind" || props.name === "queue" ? `known-${props.name}` : undefined}
      data-search={props.first ? "" : undefined}
      onInput={(event) => setTyped(event.currentTarget.value)}
      onChange={(event) => props.set(event.currentTarget.value)}
    />
  );
}

export const statesOf = (route: Route) => (route.search.get("states") ?? "").split(",").filter(Boolean);

/** The filter of the address, for the API. */
export function filterOf(route: Route, names: readonly string[]): Record<string, string | undefined> {
  const chosen = ["states", ...names].map((name) => [name, route.search.get(name) ?? undefined]);
  return Object.fromEntries(chosen.filter(([, value]) => value)) as Record<string, string | undefined>;
}
