/** Keys for the whole page. None acts while a field has the focus. */

import { go } from "./router.ts";

export const PAGES: [key: string, path: string, title: string][] = [
  ["o", "", "Overview"],
  ["b", "batches", "Batches"],
  ["j", "jobs", "Jobs"],
  ["f", "failures", "Failures"],
  ["l", "flows", "Flows"],
  ["q", "queues", "Queues"],
  ["s", "schedules", "Schedules"],
  ["r", "runs", "Runs"],
  ["w", "workers", "Workers"],
  ["e", "events", "Events"],
  ["h", "history", "History"],
  ["m", "memory", "Memory"],
  ["n", "submit", "Submit"],
];

/** A second key must follow `g` within this time. Milliseconds. */
const SECOND_KEY_WITHIN_MS = 1_500;

export function listenToKeys(showKeys: () => void): () => void {
  let g_at = -Infinity;
  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const target = event.target as HTMLElement;
    if (target.matches("input, textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const follows = event.timeStamp - g_at < SECOND_KEY_WITHIN_MS;
    g_at = event.key === "g" ? event.timeStamp : -Infinity;
    const page = follows ? PAGES.find(([key]) => key === event.key) : undefined;
    if (page) go(`#/${page[1]}`);
    else if (event.key === "/") search();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") showKeys();
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

/** The first filter of the page; pages without filters lead to the list of jobs. */
function search(): void {
  const field = document.querySelector<HTMLInputElement>("[data-search]");
  if (field) {
    field.focus();
    field.select();
  } else {
    go("#/jobs");
  }
}

/** Puts the focus on the link of the next or the previous row; Enter then opens it. */
function move(step: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(now + step, 0), rows.length - 1)];
  const target = next?.querySelector<HTMLElement>("a") ?? next?.querySelector<HTMLElement>("button");
  target?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
