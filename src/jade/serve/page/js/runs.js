// Runs as the options of a select, under the folder they come from.

import { h } from "./dom.js";

/** A run told apart from others of the same title. */
export const runLabel = (run) => `${run.group} · ${run.title}`;

export function runOptions(runs) {
  const groups = [...new Set(runs.map((run) => run.group))];
  const isAlone = (run) => runs.every((other) => other === run || other.title !== run.title);
  return groups.map((group) =>
    h(
      "optgroup",
      { label: group },
      runs
        .filter((run) => run.group === group)
        .map((run) => h("option", { value: run.name }, isAlone(run) ? run.title : runLabel(run))),
    ),
  );
}
