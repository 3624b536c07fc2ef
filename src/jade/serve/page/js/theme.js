// Light or dark: what the system says, until somebody chooses.

import { h, icon, put } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");

export function themeButton() {
  const button = h("button", { class: "button quiet icon", type: "button", onclick: toggle });
  system.addEventListener("change", () => apply(button));
  apply(button);
  return button;

  function toggle() {
    localStorage.setItem("jade-theme", current() === "dark" ? "light" : "dark");
    apply(button);
  }
}

function current() {
  return localStorage.getItem("jade-theme") ?? (system.matches ? "dark" : "light");
}

function apply(button) {
  const theme = current();
  document.documentElement.dataset.theme = theme;
  put(button, icon(theme === "dark" ? "sun" : "moon"));
  button.setAttribute("aria-label", theme === "dark" ? "Use light colours" : "Use dark colours");
}
