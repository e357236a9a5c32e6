// Tooltips of charts: the numbers of one column, by mouse, touch and keyboard. Without JavaScript browsers show the titles of columns.

const GAP_PX = 8;
const labelsOfChart = new WeakMap();
const tooltip = document.createElement("div");
tooltip.className = "chart-tooltip";
tooltip.hidden = true;
document.body.append(tooltip);

let shown = { chart: null, index: -1 };

/** The text of each column, from left to right. Titles are removed, or the browser would show them too. */
function labelsOf(chart) {
  if (!labelsOfChart.has(chart)) {
    const counts = chart.dataset.counts?.split(",");
    const titles = [...chart.querySelectorAll("g > title")];
    labelsOfChart.set(chart, counts?.map((count, second) => `−${counts.length - second} s: ${count} requests`) ?? titles.map((title) => title.textContent));
    for (const title of titles) title.remove();
  }
  return labelsOfChart.get(chart);
}

function hide() {
  tooltip.hidden = true;
  shown.chart?.querySelector("g.selected")?.classList.remove("selected");
  shown = { chart: null, index: -1 };
}

function show(chart, column) {
  const labels = labelsOf(chart);
  if (labels.length === 0) return;
  const index = Math.min(Math.max(column, 0), labels.length - 1);
  if (shown.chart === chart && shown.index === index) return;
  hide();
  shown = { chart, index };
  chart.querySelectorAll("g")[index]?.classList.add("selected");
  tooltip.textContent = labels[index];
  tooltip.hidden = false;
  const { left, top, width } = chart.getBoundingClientRect();
  const half = tooltip.offsetWidth / 2 + GAP_PX;
  const middle = left + ((index + 0.5) / labels.length) * width;
  tooltip.style.left = `${scrollX + Math.min(Math.max(middle, half), document.documentElement.clientWidth - half)}px`;
  tooltip.style.top = `${scrollY + top - GAP_PX}px`;
}

function showAtPointer(event) {
  const chart = event.target.closest?.("svg.chart");
  if (chart) {
    const { left, width } = chart.getBoundingClientRect();
    show(chart, Math.floor(((event.clientX - left) / width) * labelsOf(chart).length));
  } else if (event.type === "pointerdown" || event.pointerType === "mouse") {
    hide();
  }
}

function showByKey(event) {
  const chart = event.target.closest?.("svg.chart");
  if (!chart) return;
  const last = labelsOf(chart).length - 1;
  const columns = { ArrowLeft: shown.index - 1, ArrowRight: shown.index + 1, Home: 0, End: last };
  if (event.key === "Escape") hide();
  if (!(event.key in columns)) return;
  event.preventDefault();
  show(chart, columns[event.key]);
  document.getElementById("announcer").textContent = tooltip.textContent;
}

/** Live updates replace charts. */
function makeFocusable() {
  for (const chart of document.querySelectorAll("svg.chart:not([tabindex])")) chart.tabIndex = 0;
}

makeFocusable();
new MutationObserver(makeFocusable).observe(document.getElementById("main"), { childList: true, subtree: true });
document.addEventListener("pointerdown", showAtPointer);
document.addEventListener("pointermove", showAtPointer);
document.addEventListener("keydown", showByKey);
document.addEventListener("focusin", ({ target }) => {
  if (target.matches("svg.chart:focus-visible")) show(target, labelsOf(target).length - 1);
});
document.addEventListener("focusout", hide);
