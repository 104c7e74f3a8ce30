import { href } from "../router.ts";
import { Empty } from "./basics.tsx";

/** An empty list of jobs or batches. */
export function NoJobs(props: { filtered: boolean; what: string }) {
  return props.filtered ? (
    <Empty title={`No ${props.what} matches these filters.`}>Remove one of them, or clear them all.</Empty>
  ) : (
    <Empty title={`There is no ${props.what} yet.`} command='gristmill submit hello &apos;{"name": "world"}&apos;'>
      Submit one on the page <a href={href("submit")}>Submit</a>, or with the program:
    </Empty>
  );
}
