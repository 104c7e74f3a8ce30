/** Light or dark, as the system or the user has chosen. */

import { useLayoutEffect } from "preact/hooks";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
const KEPT_AS = "gristmill-theme";

export function readTheme(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEPT_AS)) ?? "system";
  } catch {
    // A browser may refuse storage.
    return "system";
  }
}

export function useTheme(theme: Theme): void {
  // Before the browser paints, so that no page flashes in the other theme.
  useLayoutEffect(() => {
    if (theme === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
    try {
      localStorage.setItem(KEPT_AS, theme);
    } catch {
      // The choice then lasts until the page is closed.
    }
  }, [theme]);
}
