// The reference's request forms. They call the API with the reader's key, which stays in this tab.

import { callApi, errorMessage } from "./api_call.js";
import "./code_tabs.js";
import { fillInKey } from "./key_field.js";

const STORAGE_KEY = "ipseity-key";
const keyInput = document.getElementById("reader-key");

keyInput.value = sessionStorage.getItem(STORAGE_KEY) ?? "";
keyInput.addEventListener("input", () => {
  const key = keyInput.value.trim();
  if (key) sessionStorage.setItem(STORAGE_KEY, key);
  else sessionStorage.removeItem(STORAGE_KEY);
});
fillInKey(keyInput);

for (const form of document.querySelectorAll("[data-try]")) {
  const button = form.querySelector("button");
  const output = form.querySelector(".try-request-response");
  button.addEventListener("click", async () => {
    const scope = form.querySelector("select")?.value;
    const url = scope ? `${form.dataset.try}?scope=${scope}` : form.dataset.try;
    const key = keyInput.value.trim();
    const headers = "key" in form.dataset && key ? { Authorization: `Bearer ${key}` } : {};
    button.disabled = true;
    try {
      output.replaceChildren((await callApi(url, { headers, credentials: "omit" })).view);
    } catch {
      output.replaceChildren(errorMessage("Couldn’t reach the service, or the key contains invalid characters."));
    }
    button.disabled = false;
    button.focus();
  });
}

// On narrow screens, the menu is closed, and only the first section and the one that a link leads to are open.

const narrow = matchMedia("(max-width: 48rem)");
const menu = document.querySelector(".reference-menu");
const sections = [...document.querySelectorAll(".reference-section")];

function openLinkedSection() {
  const target = document.getElementById(location.hash.slice(1));
  const section = target?.closest(".reference-section");
  if (!section || section.open) return;
  section.open = true;
  target.scrollIntoView();
}

if (narrow.matches) for (const section of [menu, ...sections.slice(1)]) section.open = false;
menu.classList.add("ready");
addEventListener("hashchange", openLinkedSection);
openLinkedSection();

/* The menu closes when a link in it is followed. On wide screens it is always open. */

menu.addEventListener("click", ({ target }) => {
  if (narrow.matches && target.closest("a")) menu.open = false;
});
narrow.addEventListener("change", () => (menu.open = !narrow.matches));
