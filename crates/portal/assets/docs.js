// The documentation's search: finds sections while one types. Without script the form is answered by the server, by the same rules.

const HITS_MAX = 8;
const SHOWN_MAX = 110;
const field = document.getElementById("q");
const place = document.getElementById("found");
let index;

/** Fetched once, when somebody begins to search. */
function sections() {
  index ??= fetch("/docs/search.json").then((answer) => answer.json());
  return index;
}

function worth([, title, page, text], words) {
  let total = 0;
  for (const word of words) {
    const points = 8 * title.toLowerCase().includes(word) + 3 * page.toLowerCase().includes(word) + text.toLowerCase().includes(word);
    if (points === 0) return 0;
    total += points;
  }
  return total;
}

function shown([address, title, page, text]) {
  const link = document.createElement("a");
  link.href = address;
  for (const [name, words] of [["strong", title], ["span", page], ["small", text.slice(0, SHOWN_MAX)]]) {
    const part = document.createElement(name);
    part.textContent = words;
    link.append(part);
  }
  return link;
}

async function search() {
  const question = field.value.trim().toLowerCase();
  const words = question.split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    place.hidden = true;
    return;
  }
  const all = (await sections()).map((section, order) => ({ section, order, points: worth(section, words) }));
  if (field.value.trim().toLowerCase() !== question) return;
  const hits = all.filter(({ points }) => points > 0).sort((one, other) => other.points - one.points || one.order - other.order);
  place.replaceChildren(...hits.slice(0, HITS_MAX).map(({ section }) => shown(section)));
  if (hits.length === 0) place.textContent = "Nothing is said of it. Try fewer or other words.";
  place.hidden = false;
}

field.addEventListener("focus", () => sections().catch(() => (index = undefined)));
field.addEventListener("input", () => search().catch(() => (place.hidden = true)));

// Arrows move through the results, Escape closes them, and a slash anywhere begins a search.
field.form.addEventListener("keydown", (event) => {
  const links = [...place.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "Escape") {
    place.hidden = true;
    field.focus();
  } else if (event.key === "ArrowDown" && links.length && !place.hidden) {
    links[Math.min(at + 1, links.length - 1)].focus();
    event.preventDefault();
  } else if (event.key === "ArrowUp" && at >= 0) {
    (at === 0 ? field : links[at - 1]).focus();
    event.preventDefault();
  }
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  field.focus();
});
document.addEventListener("click", (event) => {
  if (!field.form.contains(event.target)) place.hidden = true;
});
