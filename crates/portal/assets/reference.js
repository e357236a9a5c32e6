// The reference's forms: they call the API with the reader's own key, which stays in this tab.

import { answered, refusalIn } from "./api_call.js";

const STORED = "ipseity-key";
const key = document.getElementById("reader-key");

key.value = sessionStorage.getItem(STORED) ?? "";
key.addEventListener("input", () => {
  const value = key.value.trim();
  if (value) sessionStorage.setItem(STORED, value);
  else sessionStorage.removeItem(STORED);
});

for (const form of document.querySelectorAll("[data-try]")) {
  const button = form.querySelector("button");
  const place = form.querySelector(".tryit-answer");
  button.addEventListener("click", async () => {
    const scope = form.querySelector("select")?.value;
    const address = scope ? `${form.dataset.try}?scope=${scope}` : form.dataset.try;
    const value = key.value.trim();
    const headers = "key" in form.dataset && value ? { Authorization: `Bearer ${value}` } : {};
    button.disabled = true;
    try {
      place.replaceChildren((await answered(address, { headers, credentials: "omit" })).view);
    } catch {
      place.replaceChildren(refusalIn("The service could not be reached, or the key holds letters that no header can carry."));
    }
    button.disabled = false;
    button.focus();
  });
}
