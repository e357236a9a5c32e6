// The reference's request forms. They call the API with the reader's key, which stays in this tab.

import { callApi, errorMessage } from "./api_call.js";

const STORAGE_KEY = "ipseity-key";
const keyInput = document.getElementById("reader-key");

keyInput.value = sessionStorage.getItem(STORAGE_KEY) ?? "";
keyInput.addEventListener("input", () => {
  const key = keyInput.value.trim();
  if (key) sessionStorage.setItem(STORAGE_KEY, key);
  else sessionStorage.removeItem(STORAGE_KEY);
});

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
