import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";

export interface Series {
  label: string;
  /** A name of a custom property: `--completed`. */
  color: string;
  values: (number | null)[];
  bars?: boolean;
}

/** Lines or bars over time. The label has the figures, too, for readers who do not see the plot. */
export function Plot(props: {
  label: string;
  times: number[];
  series: Series[];
  format: (value: number) => string;
  range?: [number, number];
  height?: number;
}) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const shape = props.series.map((series) => series.label).join();
  const latest = useRef(props);
  latest.current = props;
  const data = (): uPlot.AlignedData => [
    latest.current.times.map((time) => time / 1000),
    ...latest.current.series.map((series) => series.values),
  ];
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, latest), data(), element);
    };
    make();
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const themed = new MutationObserver(make);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    theme.addEventListener("change", make);
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height: latest.current.height ?? 170 }),
    );
    resized.observe(element);
    return () => {
      resized.disconnect();
      themed.disconnect();
      theme.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data()), [props.times, props.series]);
  return (
    <figure class="plot">
      <figcaption>
        <span>{props.label}</span>
        <span class="plot-legend">
          {props.series.map((series) => (
            <span key={series.label}>
              <i style={{ background: `var(${series.color})` }} />
              {series.label} <b>{props.format(series.values.findLast((value) => value !== null) ?? 0)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  );
}

function options(element: HTMLElement, latest: { current: Parameters<typeof Plot>[0] }): uPlot.Options {
  const style = getComputedStyle(element);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const font = `11px ${style.fontFamily}`;
  const grid = { stroke: color("--line"), width: 1 };
  const { series, height = 170 } = latest.current;
  return {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    padding: [8, 8, 0, 0],
    scales: {
      x: { range: (_, min, max) => latest.current.range ?? [min, max] },
      y: { range: (_, __, max) => [0, Math.max(max * 1.12, 1)] },
    },
    axes: [
      {
        stroke: color("--faint"),
        font,
        grid: { show: false },
        ticks: { show: false },
        size: 26,
        space: 90,
        values: (_, splits, __, ___, step) => splits.map((at) => axisTime(at * 1000, step)),
      },
      {
        stroke: color("--faint"),
        font,
        grid,
        ticks: { show: false },
        size: 52,
        space: 36,
        values: (_, splits) => splits.map((value) => latest.current.format(value)),
      },
    ],
    series: [
      {},
      ...series.map((one): uPlot.Series => ({
        label: one.label,
        stroke: color(one.color),
        width: one.bars ? 0 : 1.75,
        points: { show: false },
        ...(one.bars && uPlot.paths.bars
          ? { fill: color(one.color), paths: uPlot.paths.bars({ size: [0.7, 28], radius: 0.12 }) }
          : { fill: `${color(one.color)}1f` }),
      })),
    ],
  };
}

function axisTime(at: number, step_s: number): string {
  const date = new Date(at);
  const two = (value: number) => String(value).padStart(2, "0");
  if (step_s >= 86_400) return `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return step_s < 60 ? `${minutes}:${two(date.getSeconds())}` : minutes;
}
