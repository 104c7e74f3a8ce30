import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

/** The rows of a new table that are painted first, about a screenful; the others follow at once. */
const FIRST_ROWS = 20;

export interface Column<Row> {
  title: string;
  cell: (row: Row) => ComponentChildren;
  /** Numbers are aligned at the right, with digits of one width. */
  number?: boolean;
  /** Left out on narrow screens. */
  wide?: boolean;
  class?: string;
}

/** A table whose rows the keys `j` and `k` select: the first link of a row opens it. */
export function Table<Row>(props: {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string | number;
  below?: (row: Row) => ComponentChildren;
}) {
  const [painted, setPainted] = useState(false);
  useEffect(() => setPainted(true), []);
  const rows = painted ? props.rows : props.rows.slice(0, FIRST_ROWS);
  const kind = (column: Column<Row>) =>
    `${column.number ? "number" : ""} ${column.wide ? "wide" : ""} ${column.class ?? ""}`.trim();
  return (
    <div class="table" tabIndex={0} role="region" aria-label={props.label}>
      <table>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th key={column.title} scope="col" class={kind(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const below = props.below?.(row);
            return [
              <tr key={props.id(row)} data-row="">
                {props.columns.map((column) => (
                  <td key={column.title} class={kind(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>,
              below && (
                <tr key={`${props.id(row)} below`} class="below">
                  <td colSpan={props.columns.length}>{below}</td>
                </tr>
              ),
            ];
          })}
        </tbody>
      </table>
    </div>
  );
}
