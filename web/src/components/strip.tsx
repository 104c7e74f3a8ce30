import { useEffect, useRef } from "preact/hooks";
import { get, query, type State, STATES, type States } from "../api/client.ts";
import { go, href } from "../router.ts";
import { useLive, useLoaded } from "../live.ts";
import { stateText } from "./basics.tsx";
import { eachPosition } from "../positions.ts";

/** The maximum number of jobs in a strip; of larger batches, it shows the first ones. */
export const STRIP_JOBS_MAX = 100_000;

/** The state of each job of a batch: one query for each state of the batch, packed as ranges. */
async function statesOf(batch: number, states: States): Promise<Uint8Array> {
  const total = Math.min(
    STATES.reduce((sum, state) => sum + states[state], 0),
    STRIP_JOBS_MAX,
  );
  const cells = new Uint8Array(total);
  const present = STATES.filter((state) => states[state] > 0);
  const only = present.length === 1 ? present[0] : undefined;
  if (only) return cells.fill(STATES.indexOf(only));
  await Promise.all(
    present.map(async (state) => {
      const page = await get<{ batches: { positions: string }[] }>(`/jobs/ids${query({ batch, states: state })}`);
      for (const { positions } of page.batches) {
        eachPosition(positions, total, (position) => {
          cells[position] = STATES.indexOf(state);
        });
      }
    }),
  );
  return cells;
}

/** Every job of a batch as a cell with the colour of its state. A click opens the job. */
export function Strip(props: { batch: number; states: States }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const grid = useRef({ columns: 1, step: 1, count: 0 });
  useLive();
  const key = STATES.map((state) => props.states[state]).join();
  useEffect(() => {
    let current = true;
    let cells: Uint8Array | undefined;
    const draw = () => cells && canvas.current && paint(canvas.current, cells, grid.current);
    void statesOf(props.batch, props.states).then(
      (loaded) => {
        cells = loaded;
        if (current) draw();
      },
      () => {}, // The page says that the connection is lost.
    );
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const resized = new ResizeObserver(draw);
    if (canvas.current?.parentElement) resized.observe(canvas.current.parentElement);
    theme.addEventListener("change", draw);
    const themed = new MutationObserver(draw);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      current = false;
      themed.disconnect();
      resized.disconnect();
      theme.removeEventListener("change", draw);
    };
  }, [props.batch, key]);
  const open = (event: MouseEvent) => {
    const { columns, step, count } = grid.current;
    const position = Math.floor(event.offsetY / step) * columns + Math.floor(event.offsetX / step);
    if (position < count) go(href(`jobs/${props.batch}:${position}`));
  };
  return (
    <div class="strip">
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Jobs of batch ${props.batch} by position: ${stateText(props.states)}`}
        onClick={open}
      />
    </div>
  );
}

function paint(
  canvas: HTMLCanvasElement,
  cells: Uint8Array,
  grid: { columns: number; step: number; count: number },
): void {
  const width = canvas.parentElement?.clientWidth ?? 0;
  if (width === 0) return;
  const step =
    [14, 10, 7, 5, 4, 3, 2].find((size) => Math.ceil(cells.length / Math.floor(width / size)) * size <= 160) ?? 2;
  const gap = step >= 5 ? 2 : step >= 3 ? 1 : 0;
  const columns = Math.max(1, Math.floor(width / step));
  const rows = Math.ceil(cells.length / columns);
  Object.assign(grid, { columns, step, count: cells.length });
  const scale = devicePixelRatio || 1;
  canvas.width = columns * step * scale;
  canvas.height = rows * step * scale;
  canvas.style.width = `${columns * step}px`;
  canvas.style.height = `${rows * step}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const colors = STATES.map((state: State) => style.getPropertyValue(`--${state}`));
  for (let position = 0; position < cells.length; position += 1) {
    context.fillStyle = colors[cells[position] ?? 0] ?? "";
    context.fillRect((position % columns) * step, Math.floor(position / columns) * step, step - gap, step - gap);
  }
}

/** The strip of a batch of which only the id is known. */
export function useBatchStates(batch: number | undefined) {
  return useLoaded<{ jobs: number; states: States }>(
    batch === undefined ? undefined : `/jobs/count${query({ batch })}`,
  );
}
