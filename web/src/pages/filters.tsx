import { useEffect, useState } from "preact/hooks";
import { get, query, STATES, type States } from "../api/client.ts";
import { compact } from "../format.ts";
import { SHARED_WITHIN_MS, useLive } from "../live.ts";
import { type Route, setSearch } from "../router.ts";

const TEXTS = [
  ["flow", "Flow", "document or document@3"],
  ["kind", "Kind", "any"],
  ["queue", "Queue", "any"],
  ["group", "Group", "any"],
  ["tags", "Tags", "customer=7"],
  ["key", "Key", "any"],
  ["batch", "Batch", "any"],
  ["run", "Run", "any"],
  ["parent", "Parent", "42:7"],
  ["since", "Submitted since", ""],
  ["until", "Submitted before", ""],
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
              queue={props.route.search.get("queue") ?? undefined}
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

const isMoment = (name: string) => name === "since" || name === "until";

/** Keeps typed text until it is entered, while other news redraw the page. */
function Field(props: {
  name: FilterName;
  value: string;
  hint: string;
  first: boolean;
  /** The queue that the other filters name. */
  queue: string | undefined;
  set: (value: string) => void;
}) {
  const [typed, setTyped] = useState(props.value);
  const [focused, setFocused] = useState(false);
  useEffect(() => setTyped(props.value), [props.value]);
  const asked = useCompletions(props.name, focused ? typed : undefined, props.queue);
  return (
    <>
      <input
        name={props.name}
        type={isMoment(props.name) ? "datetime-local" : "text"}
        value={typed}
        placeholder={props.hint}
        autocomplete="off"
        spellcheck={false}
        list={props.name === "kind" || props.name === "queue" || asked ? `known-${props.name}` : undefined}
        data-search={props.first ? "" : undefined}
        onFocus={() => setFocused(true)}
        onBlur={() => setFocused(false)}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => props.set(event.currentTarget.value)}
      />
      {asked && (
        <datalist id={`known-${props.name}`}>
          {asked.map((value) => (
            <option key={value} value={value} />
          ))}
        </datalist>
      )}
    </>
  );
}

/** The maximum number of values in one completion. */
const COMPLETIONS_MAX = 100;

/** The request whose answer completes a field: groups, the newest runs, the values of the last tag. */
function questionOf(name: FilterName, typed: string | undefined, queue: string | undefined): string | undefined {
  if (typed === undefined) return undefined;
  if (name === "group") return `/groups${query({ queue, prefix: typed.trim(), limit: COMPLETIONS_MAX })}`;
  if (name === "run") return `/runs${query({ limit: 20, age_ms_max: SHARED_WITHIN_MS })}`;
  const tag = name === "tags" ? /^(?:.*,)?([^,=]+)=[^,]*$/.exec(typed)?.[1] : undefined;
  return tag && `/tags/${encodeURIComponent(tag.trim())}${query({ limit: COMPLETIONS_MAX })}`;
}

interface Completions {
  groups?: string[];
  runs?: { run: string }[];
  values?: { value: string }[];
}

/** The possible values of a field, requested once it is in use. Empty if the server refuses. */
function useCompletions(name: FilterName, typed: string | undefined, queue: string | undefined): string[] | undefined {
  const [known, setKnown] = useState<{ question: string; values: string[] }>();
  const question = questionOf(name, typed, queue);
  useEffect(() => {
    if (question === undefined) return;
    const abort = new AbortController();
    get<Completions>(question, abort.signal).then(
      ({ groups, runs, values }) =>
        setKnown({
          question,
          values: groups ?? runs?.map(({ run }) => run) ?? (values ?? []).map(({ value }) => value),
        }),
      () => {}, // The field works without completion.
    );
    return () => abort.abort();
  }, [question]);
  if (known === undefined || known.question !== question) return undefined;
  const before = name === "tags" ? (typed ?? "").replace(/=[^,=]*$/, "=") : "";
  return known.values.map((value) => `${before}${value}`);
}

/** A moment of the reader's time zone, as `2026-11-23T17:00`, in milliseconds since 1970. */
function momentOf(text: string): string | undefined {
  const moment = new Date(text).getTime();
  return Number.isNaN(moment) ? undefined : String(moment);
}

export const statesOf = (route: Route) => (route.search.get("states") ?? "").split(",").filter(Boolean);

/** The filter of the address, for the API: moments in milliseconds since 1970. */
export function filterOf(route: Route, names: readonly string[]): Record<string, string | undefined> {
  const chosen = ["states", ...names].map((name) => {
    const value = route.search.get(name) ?? undefined;
    return [name, value && isMoment(name) ? momentOf(value) : value];
  });
  return Object.fromEntries(chosen.filter(([, value]) => value)) as Record<string, string | undefined>;
}
