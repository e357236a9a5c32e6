// The language in which a person sees code: the same in all tabs of a page, and remembered.

const STORAGE_KEY = "language";
// Some pages have two programs in JavaScript.
const SIMILAR = { javascript: ["node"], node: ["javascript"], browser: ["javascript"] };

/** Storage fails where the person has blocked it. */
function storedLanguage() {
  try {
    return localStorage.getItem(STORAGE_KEY);
  } catch {
    return null;
  }
}

function storeLanguage(language) {
  try {
    localStorage.setItem(STORAGE_KEY, language);
  } catch {
    // It is not remembered.
  }
}

function showLanguage(language) {
  for (const tabs of document.querySelectorAll(".code-tabs")) {
    const inputs = [...tabs.querySelectorAll(".languages input")];
    const found = [language, ...(SIMILAR[language] ?? [])].flatMap((value) => inputs.filter((input) => input.value === value));
    if (found.length) found[0].checked = true;
  }
}

/** Links such as `/docs/samples#python` name a language. */
function showLinkedLanguage() {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.closest(".languages")) showLanguage(target.value);
}

document.addEventListener("change", ({ target }) => {
  if (!target.closest(".languages")) return;
  storeLanguage(target.value);
  showLanguage(target.value);
});
addEventListener("hashchange", showLinkedLanguage);
const stored = storedLanguage();
if (stored) showLanguage(stored);
showLinkedLanguage();
