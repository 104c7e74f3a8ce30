/** The rights of the caller's role. Pages omit the actions that the server would refuse; the server decides. */

import type { Session } from "./api/client.ts";

type Role = Session["role"];

/** `null` on a server without tokens, where every caller may do everything; unknown until the server has answered. */
let role: Role | undefined;

export function setRole(now: Role | undefined): void {
  role = now;
}

const isAnyOf = (...roles: Role[]) => role === null || (role !== undefined && roles.includes(role));

export const mayChange = () => isAnyOf("admin", "operator", "submit");
export const mayOperate = () => isAnyOf("admin", "operator");
export const maySubmit = () => isAnyOf("admin", "submit");
export const mayMakeSchedules = () => isAnyOf("admin");
