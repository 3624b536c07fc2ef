// One step in full: what it cost and earned, what it wrote, what that was taken for, what it was told and shown.

import { h, icon } from "./dom.js";
import { compact, seconds, signed } from "./format.js";
import { highlighted, holds } from "./highlight.js";

/** `phrases` are marked in the passages, those with `answer` in them are told; `onClose` leaves the step. */
export function detail(step, { phrases = [], answer = "", onClose } = {}) {
  return h(
    "article",
    { class: "detail", "aria-label": `Step ${step.id}`, data: { role: step.role } },
    head(step, onClose),
    facts(step),
    step.error ? h("p", { class: "notice bad", role: "alert" }, step.error) : null,
    step.malformed ? malformed(step) : null,
    step.applied ? section(step.malformed ? "What ran instead" : "Action", action(step.applied)) : null,
    step.output === null
      ? section("Query", h("div", { class: "box" }, step.question))
      : section("Output", h("pre", { class: "box" }, step.output || "(empty)")),
    step.reward ? reward(step.reward) : null,
    step.passages.length ? passages(step, phrases, answer) : null,
    step.prompt ? prompt(step.prompt) : null,
  );
}

function head(step, onClose) {
  return h(
    "header",
    { class: "detail-head" },
    h("span", { class: "chip", data: { role: step.role } }, step.role),
    h("h2", {}, step.title),
    h("span", { class: "muted small num" }, `node ${step.node} · round ${step.round}`),
    h(
      "span",
      { class: "trace-tools" },
      onClose
        ? h(
            "button",
            { class: "button quiet icon", type: "button", "aria-label": "Close the step", onclick: onClose },
            icon("close"),
          )
        : null,
    ),
  );
}

function facts(step) {
  const made = step.generation;
  const rows = [
    ["Time", seconds(step.seconds)],
    made && ["Read", `${compact(made.prompt_tokens)} tok`],
    made && ["Wrote", `${compact(made.completion_tokens)} tok`],
    made?.mean_logprob != null && ["Log-prob", made.mean_logprob.toFixed(2)],
    made && made.finish !== "stop" && ["Ended by", made.finish],
    made?.policy_version ? ["Policy", `v${made.policy_version}`] : null,
    !made && ["Found", `${step.passages.length}`],
  ];
  return h(
    "dl",
    { class: "facts" },
    rows.filter(Boolean).map(([name, value]) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value))),
  );
}

function malformed(step) {
  return h(
    "p",
    { class: "notice bad" },
    `Malformed: ${step.malformed}. `,
    step.applied ? "The stated fallback ran." : "Nothing could run instead.",
  );
}

function section(title, ...children) {
  return h("section", { class: "section" }, h("div", { class: "section-head" }, h("h3", {}, title)), children);
}

const SHOWN = {
  Workflow: ({ modules }) =>
    h(
      "div",
      { class: "modules" },
      modules.flatMap((code, place) => [
        place ? h("span", { class: "arrow", "aria-hidden": "true" }, "→") : null,
        h("span", { class: "chip", data: { role: code } }, code),
      ]),
    ),
  SubQuestions: ({ questions }) =>
    h(
      "ol",
      { class: "subquestions" },
      questions.map((question) => h("li", {}, h("span", {}, question))),
    ),
  Selection: ({ indices }) =>
    indices.length ? indices.map((index) => `Document${index}`).join(", ") : "None of the documents",
};

function action(taken) {
  const show = SHOWN[taken.kind] ?? (({ text }) => text || "(empty)");
  return h("div", { class: "box action" }, show(taken));
}

function reward({ outcome, cost, format, total }) {
  return section(
    "Reward",
    h(
      "div",
      { class: "box sum" },
      h("b", {}, signed(total)),
      h("span", { class: "muted" }, "="),
      h("span", {}, `outcome ${outcome.toFixed(2)}`),
      h("span", {}, `− cost ${cost.toFixed(2)}`),
      format ? h("span", { class: "reward minus" }, `format ${signed(format)}`) : null,
    ),
  );
}

function passages(step, phrases, answer) {
  const numChosen = step.passages.filter((passage) => passage.chosen).length;
  const judged = step.passages.some((passage) => passage.chosen !== null);
  const title = judged
    ? `Passages, ${numChosen} of ${step.passages.length} selected`
    : `Passages (${step.passages.length})`;
  return section(
    title,
    h(
      "ol",
      { class: "passages" },
      step.passages.map((passage, place) => card(passage, place, phrases, answer)),
    ),
  );
}

function card(passage, place, phrases, answer) {
  const state = passage.chosen === null ? "" : passage.chosen ? " chosen" : " left";
  return h(
    "li",
    { class: `passage${state}` },
    h(
      "div",
      { class: "passage-head" },
      h("span", { class: "mono muted" }, place),
      h("span", { class: "passage-title" }, highlighted(passage.title || passage.id, phrases)),
      h(
        "span",
        { class: "passage-tags" },
        answer && holds(passage.text, answer) ? h("span", { class: "tag mark" }, "holds the answer") : null,
        passage.chosen ? h("span", { class: "tag good" }, "selected") : null,
      ),
    ),
    h("p", { class: "passage-text" }, highlighted(passage.text, phrases)),
    h("p", { class: "passage-source" }, [
      passage.source || passage.id,
      passage.score ? ` · score ${passage.score.toFixed(2)}` : "",
    ]),
  );
}

function prompt({ system, user }) {
  return section(
    "Prompt",
    h("details", { class: "box" }, h("summary", {}, "Instruction of the role"), h("pre", {}, system)),
    h("details", { class: "box" }, h("summary", {}, "What it was shown"), h("pre", {}, user)),
  );
}
