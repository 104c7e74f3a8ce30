import { useState } from "preact/hooks";
import { post } from "../api/client.ts";
import { Act, Heading, Panel } from "../components/basics.tsx";
import { plural } from "../format.ts";
import { check } from "../json_check.ts";
import { useLive } from "../live.ts";
import { href } from "../router.ts";

interface Submitted {
  jobs: number;
  first?: string;
  batches: { batch: number }[];
}

export function Submit() {
  const live = useLive();
  const [fields, setFields] = useState({
    kind: "",
    queue: "",
    group: "",
    priority: "",
    delay_s: "",
    timeout_s: "",
    attempts: "",
  });
  const [text, setText] = useState('{\n  "name": "world"\n}');
  const [lines, setLines] = useState(false);
  const [submitted, setSubmitted] = useState<Submitted>();
  const checked = check(text, lines);
  const field = (name: keyof typeof fields) => ({
    name,
    value: fields[name],
    autocomplete: "off",
    onInput: (event: Event) => setFields({ ...fields, [name]: (event.currentTarget as HTMLInputElement).value }),
  });
  const submit = async () => {
    if (fields.kind.trim() === "") throw new Error("Name the kind: it selects the script that runs the jobs.");
    if (checked.problem !== undefined) throw new Error(checked.problem);
    const ms = (seconds: string) => (seconds.trim() === "" ? undefined : Math.round(Number(seconds) * 1000));
    const options = JSON.stringify({
      kind: fields.kind.trim(),
      queue: fields.queue.trim() || undefined,
      group: fields.group.trim() || undefined,
      priority: fields.priority.trim() === "" ? undefined : Number(fields.priority),
      delay_ms: ms(fields.delay_s),
      timeout_ms: ms(fields.timeout_s),
      retry: fields.attempts.trim() === "" ? undefined : { attempts_max: Number(fields.attempts) },
    });
    const payloads = lines
      ? `"payloads":[${checked.payloads.join(",")}]`
      : `"payload":${checked.payloads[0] ?? "null"}`;
    const answer = await post<Submitted>("/jobs", `${options.slice(0, -1)},${payloads}}`);
    setSubmitted(answer);
    return `${plural(answer.jobs, "job")} submitted`;
  };
  return (
    <>
      <Heading title="Submit" note="One job, or one on each line" />
      <form class="submit" onSubmit={(event) => event.preventDefault()}>
        <Panel title="Jobs">
          <div class="fields">
            <label>
              <span>Kind</span>
              <input {...field("kind")} list="known-kind" placeholder="hello" data-search="" required />
            </label>
            <label>
              <span>Queue</span>
              <input {...field("queue")} list="known-queue" placeholder="default" />
            </label>
            <label>
              <span>Group</span>
              <input {...field("group")} placeholder="none" />
            </label>
          </div>
          <datalist id="known-kind">
            {[...new Set((live.queues ?? []).map(({ kind }) => kind))].map((kind) => (
              <option key={kind} value={kind} />
            ))}
          </datalist>
          <datalist id="known-queue">
            {[...new Set((live.queues ?? []).map(({ queue }) => queue))].map((queue) => (
              <option key={queue} value={queue} />
            ))}
          </datalist>
          <fieldset class="choice">
            <legend>Payload</legend>
            <label>
              <input type="radio" name="lines" checked={!lines} onChange={() => setLines(false)} /> one JSON text
            </label>
            <label>
              <input type="radio" name="lines" checked={lines} onChange={() => setLines(true)} /> one on each line
            </label>
          </fieldset>
          <textarea
            rows={10}
            spellcheck={false}
            aria-label="Payload, as JSON"
            aria-invalid={checked.problem !== undefined}
            aria-describedby="payload-check"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <p id="payload-check" class={checked.problem === undefined ? "good-text" : "bad-text"} role="status">
            {checked.problem ?? (lines ? `JSON: ${plural(checked.payloads.length, "job")}` : "JSON: 1 job")}
          </p>
        </Panel>
        <Panel title="Options" note="empty fields take the server's defaults">
          <div class="fields">
            <label>
              <span>Priority</span>
              <input {...field("priority")} type="number" placeholder="0" />
            </label>
            <label>
              <span>Delay, seconds</span>
              <input {...field("delay_s")} type="number" min="0" step="any" placeholder="0" />
            </label>
            <label>
              <span>Timeout, seconds</span>
              <input {...field("timeout_s")} type="number" min="0" step="any" placeholder="none" />
            </label>
            <label>
              <span>Attempts at most</span>
              <input {...field("attempts")} type="number" min="1" max="1000" placeholder="default" />
            </label>
          </div>
        </Panel>
        <div class="submit-line">
          <Act
            label={
              checked.payloads && checked.payloads.length > 1
                ? `Submit ${plural(checked.payloads.length, "job")}`
                : "Submit"
            }
            class="primary"
            run={submit}
          />
          {submitted && (
            <p role="status">
              Submitted {plural(submitted.jobs, "job")}:{" "}
              {submitted.jobs === 1 && submitted.first ? (
                <a href={href(`jobs/${submitted.first}`)}>job {submitted.first}</a>
              ) : (
                submitted.batches.slice(0, 5).map(({ batch }) => (
                  <a key={batch} href={href(`batches/${batch}`)}>
                    batch {batch}{" "}
                  </a>
                ))
              )}
            </p>
          )}
        </div>
      </form>
    </>
  );
}
