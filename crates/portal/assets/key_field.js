// Fills the reader's API key into the code of a page, in place of `<API_KEY>`. The key stays in the page.

const PLACEHOLDER = "<API_KEY>";
const KEY = /^ipst?_[0-9A-Za-z]{48}$/;

/** Puts each placeholder in the code into an element. Responses that name it stay. */
function findSlots() {
  const texts = [];
  for (const code of document.querySelectorAll("pre code:not(.language-json)")) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (walker.currentNode.data.includes(PLACEHOLDER)) texts.push(walker.currentNode);
  }
  return texts.flatMap((text) => {
    const parts = text.data.split(PLACEHOLDER);
    const slots = parts.slice(1).map(() => document.createElement("span"));
    for (const slot of slots) slot.textContent = PLACEHOLDER;
    text.replaceWith(...parts.flatMap((part, index) => (index ? [slots[index - 1], part] : [part])));
    return slots;
  });
}

/** Fills in what the reader enters, if it is a key. Only letters, digits and `_` reach the code. */
export function fillInKey(input, showError = () => {}) {
  const slots = findSlots();
  const update = () => {
    const key = input.value.trim();
    const isKey = KEY.test(key);
    for (const slot of slots) slot.textContent = isKey ? key : PLACEHOLDER;
    showError(isKey || !key ? "" : "This isn’t a complete key. Keys start with ips_ and have 48 more letters and digits.");
  };
  input.addEventListener("input", update);
  update();
}
