import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/steps.css";
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Session, session } from "./api/client.ts";
import { Notices, Problem } from "./components/basics.tsx";
import { Operations } from "./components/operations.tsx";
import { clock, compact } from "./format.ts";
import { listenToKeys, PAGES } from "./keyboard.ts";
import { live, useLive } from "./live.ts";
import { Batches, BatchPage } from "./pages/batches.tsx";
import { Events } from "./pages/events.tsx";
import { Failures } from "./pages/failures.tsx";
import { Flows } from "./pages/flows.tsx";
import { History } from "./pages/history.tsx";
import { Job } from "./pages/job.tsx";
import { Jobs } from "./pages/jobs.tsx";
import { Memory } from "./pages/memory.tsx";
import { Overview } from "./pages/overview.tsx";
import { Queues } from "./pages/queues.tsx";
import { Runs } from "./pages/runs.tsx";
import { Schedules } from "./pages/schedules.tsx";
import { SignIn } from "./pages/sign_in.tsx";
import { Submit } from "./pages/submit.tsx";
import { Workers } from "./pages/workers.tsx";
import { href, type Route, useRoute } from "./router.ts";
import { maySubmit, setRole } from "./rights.ts";
import { readTheme, type Theme, THEMES, useTheme } from "./theme.ts";

// Asked before anything is drawn, together with the requests of the page.
live.start();
let asked: Promise<Session> | undefined = session.show();

function App() {
  const [known, setKnown] = useState<Session>();
  const [error, setError] = useState<Error>();
  const connection = useLive();
  useLayoutEffect(() => {
    if (known) return;
    (asked ?? session.show()).then(setKnown, setError);
    asked = undefined;
  }, [connection.lostSince === undefined]);
  if (connection.signedOut) {
    return (
      <SignIn
        signedIn={(session) => {
          setKnown(session);
          setError(undefined);
        }}
      />
    );
  }
  if (!known && error) {
    return (
      <main class="content">
        <Problem error={error} />
      </main>
    );
  }
  // Until the caller is known, the page shows no action.
  setRole(known?.role);
  return <Shell session={known} />;
}

function Shell(props: { session: Session | undefined }) {
  const route = useRoute();
  const connection = useLive();
  const [keys, showKeys] = useState(false);
  const main = useRef<HTMLElement>(null);
  const page = route.path[0] ?? "";
  const place = route.path.join("/");
  useEffect(() => listenToKeys(() => showKeys(true)), []);
  useEffect(() => {
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
    // On a phone, the pages are in a line that is wider than the screen.
    const list = document.querySelector<HTMLElement>(".side ul");
    const current = list?.querySelector<HTMLElement>("[aria-current]");
    if (list && current) list.scrollLeft = current.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
  }, [place]);
  const dead = (connection.queues ?? []).reduce((sum, counts) => sum + counts.dead, 0);
  const signOut = async () => {
    await session.signOut();
    location.reload();
  };
  return (
    <div class="shell">
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <nav class="side" aria-label="Pages">
        <a class="brand" href={href("")}>
          <Mark />
          Gristmill
        </a>
        <ul>
          {PAGES.filter(([, path]) => path !== "submit" || maySubmit()).map(([key, path, title]) => (
            <li key={path}>
              <a href={href(path)} aria-current={path === page ? "page" : undefined} aria-keyshortcuts={`g ${key}`}>
                {title}
                {path === "failures" && dead > 0 && <span class="count">{compact(dead)}</span>}
              </a>
            </li>
          ))}
        </ul>
        <div class="side-foot">
          <ThemeChoice />
          <button type="button" class="quiet small" onClick={() => showKeys(true)}>
            Keys <kbd>?</kbd>
          </button>
          {props.session?.tokens && (
            <button type="button" class="quiet small" onClick={() => void signOut()}>
              Sign out
            </button>
          )}
          {props.session && (
            <p class="note">
              {props.session.tokens && (
                <>
                  {props.session.subject}, {props.session.role}
                  <br />
                </>
              )}
              version {props.session.version}
            </p>
          )}
        </div>
      </nav>
      <div class="column">
        {connection.lostSince !== undefined && (
          <div class="lost" role="alert">
            The connection is lost since {clock(connection.lostSince)}. What you see may be outdated; the page tries
            again by itself.
          </div>
        )}
        <main class="content" id="content" ref={main} tabIndex={-1}>
          <Page route={route} />
        </main>
      </div>
      <Notices>
        <Operations />
      </Notices>
      {keys && <Keys close={() => showKeys(false)} />}
    </div>
  );
}

function Page(props: { route: Route }) {
  const { route } = props;
  const [page, id] = route.path;
  switch (page) {
    case undefined:
      return <Overview />;
    case "batches":
      return id === undefined ? <Batches route={route} /> : <BatchPage key={id} route={route} batch={Number(id)} />;
    case "jobs":
      return id === undefined ? <Jobs route={route} /> : <Job key={id} id={id} />;
    case "failures":
      return <Failures route={route} />;
    case "flows":
      return <Flows route={route} />;
    case "queues":
      return <Queues />;
    case "schedules":
      return <Schedules />;
    case "runs":
      return <Runs />;
    case "workers":
      return <Workers />;
    case "events":
      return <Events />;
    case "history":
      return <History route={route} />;
    case "memory":
      return <Memory route={route} />;
    case "submit":
      return <Submit />;
    default:
      return (
        <div class="empty">
          <h1>No such page</h1>
          <p>
            Go to the <a href={href("")}>overview</a>.
          </p>
        </div>
      );
  }
}

function ThemeChoice() {
  const [theme, setTheme] = useState<Theme>(readTheme);
  useTheme(theme);
  return (
    <label class="theme">
      <span>Theme</span>
      <select value={theme} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
        {THEMES.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function Keys(props: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const keys: [string[], string][] = [
    [["/"], "Filter, or list jobs"],
    [["j"], "Next row"],
    [["k"], "Previous row"],
    [["Enter"], "Open the row"],
    ...PAGES.map(([key, , title]): [string[], string] => [["g", key], title]),
    [["?"], "These keys"],
  ];
  return (
    <dialog ref={dialog} onClose={props.close} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">
        {keys.map(([pressed, meaning]) => (
          <div key={meaning}>
            <dt>
              {pressed.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div class="dialog-actions">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}

const Mark = () => (
  <svg viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="7" />
    <g fill="none" stroke="#fff" stroke-width="2.4" stroke-linecap="round">
      <circle cx="16" cy="16" r="9.2" />
      <circle cx="16" cy="16" r="2" fill="#fff" stroke="none" />
      <path d="M16 10.4V6.8M20.9 18.8l3.1 1.8M11.1 18.8l-3.1 1.8" />
    </g>
  </svg>
);

const place = document.getElementById("page");
if (place) render(<App />, place);
