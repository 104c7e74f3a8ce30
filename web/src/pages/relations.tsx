import type { JobView, States } from "../api/client.ts";
import { Panel, StateBadge, StateBar, StateLegend } from "../components/basics.tsx";
import { whole } from "../format.ts";
import { countPositions, firstPosition } from "../positions.ts";
import { href } from "../router.ts";

const IF_NOT = {
  cancel: "cancelled if one does not complete",
  fail: "dead if one does not complete",
  ignore: "runs in any case",
} as Record<string, string>;

/** The job between its parent or prerequisites and the jobs that it spawned. Empty if there are none. */
export function Relations(props: { job: JobView }) {
  const { job } = props;
  const prerequisites = job.prerequisites ?? [];
  const children = job.children as unknown as States | undefined;
  if (!job.parent && !job.cause && !children && prerequisites.length === 0) return null;
  return (
    <Panel title="Relations">
      <div class="relations">
        <ul aria-label="Before this job">
          {job.parent && (
            <li>
              <span class="faint">spawned by</span> <a href={href(`jobs/${job.parent}`)}>{job.parent}</a>
            </li>
          )}
          {prerequisites.map(({ batch, positions, on_failure, states }) => (
            <li key={`${batch} ${positions ?? ""} ${on_failure}`}>
              <span class="faint">waits for</span> <Prerequisite batch={batch} positions={positions ?? undefined} />
              <StateBar states={states as unknown as States} />
              <span class="faint">{IF_NOT[on_failure] ?? "then spawned jobs are put together"}</span>
            </li>
          ))}
          {job.cause && (
            <li>
              <span class="faint">cancelled because of</span>{" "}
              <a href={href(`jobs/${job.cause.job}`)}>{job.cause.job}</a> <StateBadge state={job.cause.state} />
            </li>
          )}
        </ul>
        <p class="relations-self">
          <StateBadge state={job.state} /> {job.job}
        </p>
        <ul aria-label="After this job">
          {children && (
            <li>
              <a href={href("jobs", { parent: job.job })}>Children</a>
              <StateBar states={children} />
              <StateLegend states={children} href={(state) => href("jobs", { parent: job.job, states: state })} />
            </li>
          )}
        </ul>
      </div>
    </Panel>
  );
}

/** A whole batch, one of its jobs, or several of them. */
function Prerequisite(props: { batch: number; positions: string | undefined }) {
  const { batch, positions } = props;
  const count = positions === undefined ? undefined : countPositions(positions);
  if (positions !== undefined && count === 1) {
    const job = `${batch}:${firstPosition(positions)}`;
    return <a href={href(`jobs/${job}`)}>{job}</a>;
  }
  return (
    <a href={href(`batches/${batch}`)}>
      {count === undefined ? "all" : whole(count)} jobs of batch {batch}
    </a>
  );
}
