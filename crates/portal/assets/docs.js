// The documentation: copies pages, and searches. The search lists matching sections while the reader types. Without JavaScript the server answers the form, by the same rules.

import "./code_tabs.js";
import { fillInKey } from "./key_field.js";

const HITS_MAX = 8;
const EXCERPT_CHARS_MAX = 110;
const input = document.getElementById("q");
const results = document.getElementById("search-results");
let index;

/** Fetches the search index once, when the reader starts to search. */
function loadIndex() {
  index ??= fetch("/docs/search.json").then((response) => response.json());
  return index;
}

function score([, title, page, text], words) {
  let total = 0;
  for (const word of words) {
    const points = 8 * title.toLowerCase().includes(word) + 3 * page.toLowerCase().includes(word) + text.toLowerCase().includes(word);
    if (points === 0) return 0;
    total += points;
  }
  return total;
}

function resultLink([url, title, page, text]) {
  const link = document.createElement("a");
  link.href = url;
  for (const [name, content] of [["strong", title], ["span", page], ["small", text.slice(0, EXCERPT_CHARS_MAX)]]) {
    const part = document.createElement(name);
    part.textContent = content;
    link.append(part);
  }
  return link;
}

async function search() {
  const query = input.value.trim();
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    results.hidden = true;
    return;
  }
  const sections = (await loadIndex()).map((section, order) => ({ section, order, points: score(section, words) }));
  if (input.value.trim() !== query) return;
  const hits = sections.filter(({ points }) => points > 0).sort((a, b) => b.points - a.points || a.order - b.order);
  results.replaceChildren(...hits.slice(0, HITS_MAX).map(({ section }) => resultLink(section)));
  if (hits.length === 0) results.textContent = `No results for “${query}”. Try fewer or different words.`;
  results.hidden = false;
}

input.addEventListener("focus", () => loadIndex().catch(() => (index = undefined)));
input.addEventListener("input", () => search().catch(() => (results.hidden = true)));

// Arrow keys move through the results, Escape closes them, and / or Ctrl K focuses the search.
input.form.addEventListener("keydown", (event) => {
  const links = [...results.querySelectorAll("a")];
  const current = links.indexOf(document.activeElement);
  if (event.key === "Escape") {
    results.hidden = true;
    input.focus();
  } else if (event.key === "ArrowDown" && links.length && !results.hidden) {
    links[Math.min(current + 1, links.length - 1)].focus();
    event.preventDefault();
  } else if (event.key === "ArrowUp" && current >= 0) {
    (current === 0 ? input : links[current - 1]).focus();
    event.preventDefault();
  }
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  const isShortcut = event.key.toLowerCase() === "k" && (event.ctrlKey !== event.metaKey) && !event.altKey && !event.shiftKey;
  if (!isShortcut && !(event.key === "/" && isPlain && !isTyping)) return;
  event.preventDefault();
  input.focus();
});
document.addEventListener("click", (event) => {
  if (!input.form.contains(event.target)) results.hidden = true;
});

/* Fills in the reader's key. */

const keyInput = document.getElementById("your-key");

if (keyInput) fillInKey(keyInput, (message) => (document.getElementById("your-key-error").textContent = message));

/* Copies the page as Markdown. */

const copyButton = document.getElementById("copy-page");

async function copyPage() {
  const response = await fetch(copyButton.dataset.page);
  await navigator.clipboard.writeText(await response.text());
  copyButton.textContent = "Copied";
  setTimeout(() => (copyButton.textContent = "Copy page"), 2_000);
}

if (copyButton) {
  copyButton.hidden = false;
  copyButton.addEventListener("click", () => copyPage().catch(() => location.assign(copyButton.dataset.page)));
}
