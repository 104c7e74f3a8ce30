import { useEffect, useState } from "preact/hooks";
import { get, type MemoryMessage, type MemoryOverview, type MemoryRecall, query, Refused } from "../api/client.ts";
import { Empty, Heading, Loading, Panel, Problem, When } from "../components/basics.tsx";
import { Table } from "../components/table.tsx";
import { bytes, moment, plural, whole } from "../format.ts";
import { type Route, setSearch } from "../router.ts";

/** The maximum number of sources on the page. */
const SOURCES_MAX = 100;
/** The maximum number of messages and pieces of knowledge for a question. */
const FOUND_MAX = 20;
/** The maximum number of characters of a question: the server reads 2,000 bytes. */
const QUESTION_CHARACTERS_MAX = 500;

interface Answer<T> {
  data?: T;
  error?: Error;
}

/** The answer to one request. It is requested once, because events of jobs do not change a knowledge base. */
function useAnswer<T>(path: string | undefined): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { path?: string }>({});
  useEffect(() => {
    if (path === undefined) return;
    const abort = new AbortController();
    get<T>(path, abort.signal).then(
      (data) => setAnswer({ path, data }),
      (error: unknown) => {
        if (!abort.signal.aborted)
          setAnswer({ path, error: error instanceof Error ? error : new Error(String(error)) });
      },
    );
    return () => abort.abort();
  }, [path]);
  return answer.path === path ? answer : {};
}

export function Memory(props: { route: Route }) {
  const { search } = props.route;
  const after = search.get("after") ?? undefined;
  const question = search.get("q")?.trim() ?? "";
  const overview = useAnswer<MemoryOverview>(`/memory${query({ limit: SOURCES_MAX, after })}`);
  if (overview.error instanceof Refused && overview.error.status === 404) {
    return (
      <>
        <Heading title="Memory" />
        <Empty title="This server serves no knowledge base." command="gristmill serve --memory kb.db">
          A knowledge base answers questions about talks, mail and notes. Fill one first:{" "}
          <code>gristmill ingest notes/ --into kb.db</code>
        </Empty>
      </>
    );
  }
  const { data } = overview;
  if (!data) return overview.error ? <Problem error={overview.error} /> : <Loading />;
  return (
    <>
      <Heading
        title="Memory"
        note={`${plural(data.messages, "message")} of ${plural(data.sources_total, "source")}, ${bytes(data.bytes)}`}
      />
      <Question key={question} route={props.route} question={question} />
      {question !== "" && <Found question={question} />}
      <Sources overview={data} />
      <nav class="pages" aria-label="Pages of the list">
        {after !== undefined && (
          <button type="button" onClick={() => setSearch(props.route, { after: undefined })}>
            First
          </button>
        )}
        {data.sources.length === SOURCES_MAX && (
          <button type="button" onClick={() => setSearch(props.route, { after: data.sources.at(-1)?.source })}>
            Next
          </button>
        )}
      </nav>
    </>
  );
}

function Question(props: { route: Route; question: string }) {
  const [typed, setTyped] = useState(props.question);
  return (
    <form
      class="filters question"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        setSearch(props.route, { q: typed.trim() });
      }}
    >
      <label>
        <span>Question</span>
        <input
          name="q"
          type="search"
          data-search=""
          value={typed}
          maxLength={QUESTION_CHARACTERS_MAX}
          placeholder="in plain words"
          autocomplete="off"
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="primary">
        Recall
      </button>
    </form>
  );
}

function Found(props: { question: string }) {
  const path = `/memory/recall${query({ question: props.question, limit: FOUND_MAX })}`;
  const { data, error } = useAnswer<MemoryRecall>(path);
  if (!data) return error ? <Problem error={error} /> : <Loading />;
  if (data.messages.length === 0 && data.knowledge.length === 0) {
    return <Empty title="Nothing is found.">The question is compared with the words and names of all messages.</Empty>;
  }
  return (
    <>
      <Panel title="Messages" note="the best first">
        {data.messages.length === 0 ? (
          <p class="note">No message has these words.</p>
        ) : (
          <ol class="recalled">
            {data.messages.map((message) => (
              <li key={`${message.source} ${message.position}`}>
                <Message message={message} />
              </li>
            ))}
          </ol>
        )}
      </Panel>
      {data.knowledge.length > 0 && (
        <Panel title="Knowledge" note="the best first" flush>
          <Table
            label="Knowledge"
            rows={data.knowledge}
            id={({ kind, text }) => `${kind} ${text}`}
            columns={[
              { title: "What", cell: ({ kind }) => kind },
              { title: "In words", cell: ({ text }) => text },
            ]}
          />
        </Panel>
      )}
    </>
  );
}

function Message(props: { message: MemoryMessage }) {
  const { source, position, speaker, at, subject, text, is_cut } = props.message;
  const facts = [speaker, at === undefined || at === null ? undefined : moment(at), subject].filter(Boolean);
  return (
    <>
      <p class="note">
        <b>{source}</b> #{position}
        {facts.map((fact) => ` · ${fact}`)}
      </p>
      <p class="recalled-text">
        {text}
        {is_cut && <span class="faint"> … the message goes on</span>}
      </p>
    </>
  );
}

function Sources(props: { overview: MemoryOverview }) {
  const { sources, sources_total, entities, actions, topics, failures } = props.overview;
  if (sources_total === 0) {
    return (
      <Empty title="The knowledge base has no source." command="gristmill ingest notes/ --into kb.db">
        Sources are transcripts, subtitles, mail, Markdown, text and JSON lines.
      </Empty>
    );
  }
  const extracted = `${whole(entities)} entities, ${whole(actions)} actions, ${whole(topics)} topics`;
  return (
    <Panel
      title="Sources"
      note={failures > 0 ? `${extracted}; the extraction of ${plural(failures, "chunk")} failed` : extracted}
      flush
    >
      <Table
        label="Sources"
        rows={sources}
        id={({ source }) => source}
        columns={[
          { title: "Source", cell: ({ source }) => source, class: "name" },
          { title: "Format", cell: ({ format }) => format, wide: true },
          { title: "Messages", cell: ({ messages }) => whole(messages), number: true },
          {
            title: "State",
            cell: ({ complete }) => (
              <span class="state" data-state={complete ? "completed" : "running"}>
                {complete ? "complete" : "partial"}
              </span>
            ),
          },
          { title: "Ingested", cell: ({ ingested_at }) => <When at={ingested_at} />, number: true, wide: true },
        ]}
      />
    </Panel>
  );
}
