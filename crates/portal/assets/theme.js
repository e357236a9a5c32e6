// The theme that the reader chose: applied before the page is drawn, and remembered in this browser. Without a choice, that of the system applies.

const root = document.documentElement;

function storedTheme() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  else delete root.dataset.theme;
}

applyTheme(storedTheme());

document.addEventListener("DOMContentLoaded", () => {
  const choice = document.getElementById("theme");
  const show = () => (choice.value = root.dataset.theme ?? "system");
  choice.parentElement.hidden = false;
  show();
  choice.addEventListener("change", () => {
    applyTheme(choice.value);
    try {
      if (choice.value === "system") localStorage.removeItem("theme");
      else localStorage.setItem("theme", choice.value);
    } catch {
      // Without storage, it lasts until the next page.
    }
  });
  // Another tab chose.
  addEventListener("storage", ({ key }) => {
    if (key !== "theme" && key !== null) return;
    applyTheme(storedTheme());
    show();
  });
});
