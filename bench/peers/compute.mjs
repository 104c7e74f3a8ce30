// A job that computes for some milliseconds, for pools of threads and processes.

import { pbkdf2Sync } from "node:crypto";

export default (number) => pbkdf2Sync(String(number), "salt", 20_000, 32, "sha256").toString("hex");
