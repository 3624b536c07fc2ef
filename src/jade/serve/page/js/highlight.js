// Answers marked in a text: whole words, whatever their case; the pieces between stay text.

import { h } from "./dom.js";

const PLAIN = new Set(["yes", "no", ""]);
// What is longer is no answer, and a pattern of it would take the browser seconds.
const MAX_CHARS = 300;

export function highlighted(text, phrases) {
  const pattern = patternOf(phrases);
  if (!pattern) return text;
  const pieces = [];
  let last = 0;
  for (const found of text.matchAll(pattern)) {
    pieces.push(text.slice(last, found.index), h("mark", {}, found[0]));
    last = found.index + found[0].length;
  }
  return [...pieces, text.slice(last)];
}

/** Whether a text holds the words of an answer; of "yes" and "no" nobody can tell. */
export function holds(text, phrase) {
  return patternOf([phrase])?.test(text) ?? false;
}

function patternOf(phrases) {
  const wanted = [...new Set(phrases.map(bare))].filter(
    (phrase) => !PLAIN.has(phrase.toLowerCase()) && phrase.length <= MAX_CHARS,
  );
  if (!wanted.length) return null;
  const words = wanted
    .sort((a, b) => b.length - a.length)
    .map((phrase) => phrase.split(/\s+/).map(escape).join("\\s+"));
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})(?![\\p{L}\\p{N}])`, "giu");
}

const bare = (phrase) =>
  (phrase ?? "")
    .trim()
    .replace(/^(?:the|an?)\s+/i, "")
    .replace(/[.,;:!?]+$/, "");
const escape = (word) => word.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
