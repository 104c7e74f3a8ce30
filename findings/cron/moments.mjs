// node-cron and node-schedule count from now alone, so a Date of our own tells them the start.
import { CronTime } from "cron";
import { CronExpressionParser } from "cron-parser";
import { Cron } from "croner";
import { DateTime } from "luxon";
import nodeCron from "node-cron";
import schedule from "node-schedule";

const [expression, zone, startText, countText] = process.argv.slice(2);
const count = Number(countText);
const RealDate = Date;
const start = RealDate.parse(startText);

function tell(library, moments) {
  let told;
  try {
    told = moments().map((moment) => new RealDate(+moment).toISOString().slice(0, 16) + "Z").join(" ");
  } catch {
    told = "refused";
  }
  console.log(`${library}: ${told}`);
}

tell("npm cron", () => {
  const time = new CronTime(expression, zone);
  const moments = [];
  let last = DateTime.fromMillis(start).setZone(zone);
  for (let i = 0; i < count; i++) moments.push((last = time.getNextDateFrom(last, zone)));
  return moments;
});
tell("npm croner", () => new Cron(expression, { timezone: zone }).nextRuns(count, new Date(start)));
tell("npm cron-parser", () => {
  const read = CronExpressionParser.parse(expression, { tz: zone, currentDate: new Date(start) });
  return Array.from({ length: count }, () => read.next().toDate());
});

let now = start;
globalThis.Date = class extends RealDate {
  constructor(...given) {
    given.length ? super(...given) : super(now);
  }
  static now() {
    return now;
  }
};
tell("npm node-cron", () => nodeCron.createTask(expression, () => {}, { timezone: zone }).getNextRuns(count));
tell("npm node-schedule", () => {
  const moments = [];
  for (let i = 0; i < count; i++) {
    const job = schedule.scheduleJob({ rule: expression, tz: zone }, () => {});
    now = +job.nextInvocation().toDate();
    job.cancel();
    moments.push(now);
  }
  return moments;
});
process.exit(0);
