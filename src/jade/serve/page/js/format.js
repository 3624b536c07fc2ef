// Numbers and names as people read them.

export const count = (number) => Math.round(number).toLocaleString("en-US");

export function compact(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  if (size >= 1e6) return `${(number / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(number / 1e3).toFixed(size < 1e5 ? 1 : 0)}k`;
  if (size >= 100 || Number.isInteger(number)) return count(number);
  if (size >= 10) return number.toFixed(1);
  if (size >= 0.1 || size === 0) return number.toFixed(2);
  return size >= 1e-4 ? String(Number(number.toPrecision(2))) : number.toExponential(1);
}

export function score(value) {
  return value === null || value === undefined ? "–" : value.toFixed(2);
}

/** In which colour an answer is shown: one that shares half its words with the gold one may be another answer. */
export function verdictOf(f1) {
  if (f1 === null || f1 === undefined) return "unscored";
  return f1 < 0.5 ? "wrong" : f1 < 1 ? "partly" : "right";
}

export function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

export function seconds(value) {
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 300) return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} s`;
  return `${(value / 60).toFixed(value < 6000 ? 1 : 0)} min`;
}

export function plural(number, word) {
  return `${count(number)} ${noun(number, word)}`;
}

export function noun(number, word) {
  return number === 1 ? word : word.endsWith("ch") ? `${word}es` : `${word}s`;
}

/** As much of a text as a line has room for. */
export function cut(text, limit = 400) {
  return text.length > limit ? `${text.slice(0, limit)}…` : text;
}

export function percent(value) {
  return `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)}%`;
}

const ACTIONS = {
  Workflow: (action) => action.modules.join(","),
  SubQuestions: (action) => action.questions.join("  ·  "),
  Query: (action) => action.text,
  Selection: (action) =>
    action.indices.length ? action.indices.map((index) => `Document${index}`).join(", ") : "none of the documents",
  Answer: (action) => action.text || "no answer",
  Note: (action) => action.text,
};

/** What a step did, in one line. */
export function summarise(step) {
  if (step.error) return step.error;
  if (step.malformed) return step.applied ? `malformed, ran ${describe(step.applied)}` : `malformed: ${step.malformed}`;
  if (step.applied?.kind === "Selection" && step.applied.indices.length)
    return `${step.applied.indices.length} of ${step.passages.length}: ${titles(step.passages.filter((p) => p.chosen))}`;
  if (step.applied) return describe(step.applied);
  if (step.output === null) return `${plural(step.passages.length, "passage")}: ${titles(step.passages)}`;
  return "nothing";
}

const titles = (passages) => passages.map((passage) => passage.title || passage.id).join(", ");

export function describe(action) {
  return (ACTIONS[action.kind] ?? ((other) => JSON.stringify(other)))(action);
}
