// Menus of rows: Escape and a click elsewhere close them. Without JavaScript, their own button does.

function closeMenus(isKept) {
  for (const menu of document.querySelectorAll("details.row-menu[open]")) {
    if (isKept(menu)) continue;
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
}

document.addEventListener("click", ({ target }) => closeMenus((menu) => menu.contains(target)));
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") closeMenus(() => false);
});
