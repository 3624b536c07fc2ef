// The OpenAPI document as a page that needs no network.

import { h, put } from "./dom.js";
import { themeButton } from "./theme.js";

async function start() {
  document.getElementById("tools").append(themeButton());
  const api = await (await fetch("/openapi.json")).json();
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, spec]) => ({ path, method, spec })),
  );
  const tags = [...new Set(operations.map(({ spec }) => spec.tags?.[0] ?? ""))];
  put(
    document.getElementById("main"),
    h("h1", {}, `${api.info.title} ${api.info.version}`),
    tags.map((tag) => [
      h("h2", {}, tag),
      operations.filter(({ spec }) => (spec.tags?.[0] ?? "") === tag).map((operation) => card(operation, api)),
    ]),
  );
}

function card({ path, method, spec }, api) {
  const body = resolve(spec.requestBody?.content?.["application/json"]?.schema, api);
  const answer = resolve(spec.responses?.[200]?.content?.["application/json"]?.schema, api);
  return h(
    "article",
    { class: "card" },
    h("div", { class: "endpoint" }, h("span", { class: "tag good mono" }, method.toUpperCase()), h("code", {}, path)),
    h("p", {}, prose(spec.description)),
    table(
      "Parameters",
      (spec.parameters ?? []).map(({ name, schema, description, required }) => [
        name,
        kind(schema),
        description ?? schema?.description ?? "",
        required,
      ]),
    ),
    table("Body", fields(body)),
    table("Answer", fields(answer)),
    table(
      "Otherwise",
      Object.entries(spec.responses ?? {})
        .filter(([status]) => status >= "300")
        .map(([status, { description }]) => [status, "", description]),
    ),
  );
}

function fields(schema) {
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => [
    name,
    kind(field),
    field.description ?? "",
    schema.required?.includes(name),
  ]);
}

/** Text in which names stand between backticks. */
function prose(text = "") {
  return text.split("`").map((piece, place) => (place % 2 ? h("code", {}, piece) : piece));
}

function table(title, rows) {
  if (!rows.length) return null;
  return h(
    "details",
    { open: title === "Body" || null },
    h("summary", { class: "muted small" }, title),
    h(
      "table",
      {},
      h(
        "tbody",
        {},
        rows.map(([name, type, meaning, required]) =>
          h(
            "tr",
            {},
            h(
              "td",
              {},
              h("code", {}, name),
              required ? "" : title === "Body" ? h("span", { class: "muted small" }, " optional") : "",
            ),
            h("td", { class: "mono muted" }, type),
            h("td", {}, prose(meaning)),
          ),
        ),
      ),
    ),
  );
}

function resolve(schema, api) {
  const name = schema?.$ref?.split("/").at(-1);
  return name ? api.components.schemas[name] : schema;
}

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf)
    return schema.anyOf
      .map(kind)
      .filter((name) => name !== "null")
      .join(" or ");
  if (schema.type === "array") return `${kind(schema.items)}[]`;
  return schema.enum?.join(" | ") ?? schema.const ?? schema.type ?? "";
}

start();
