/** The page and its filters are in the address after `#`, so that a link or a bookmark shows the same. */

import { useEffect, useState } from "preact/hooks";

export interface Route {
  /** The parts of the path: `["jobs", "1:7"]`. */
  path: string[];
  search: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decode), search: new URLSearchParams(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function href(path: string, fields: Record<string, string | number | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${path}${text === "" ? "" : `?${text}`}`;
}

export const go = (to: string) => {
  location.hash = to;
};

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Changes filters in the address; the page is in the history only once. */
export function setSearch(route: Route, changes: Record<string, string | undefined>): void {
  const search = new URLSearchParams(route.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") search.delete(name);
    else search.set(name, value);
  }
  const text = search.toString();
  const path = route.path.map(encodeURIComponent).join("/");
  history.replaceState(null, "", `#/${path}${text === "" ? "" : `?${text}`}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
