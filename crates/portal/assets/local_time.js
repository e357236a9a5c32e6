// Shows the reader's local time for a time in UTC, by mouse, touch and keyboard focus. Without JavaScript, UTC stays.

const GAP_PX = 8;
const formats = [
  { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" },
  { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
].map((options) => new Intl.DateTimeFormat("en-US", options));
const tooltip = document.createElement("div");
tooltip.className = "chart-tooltip";
tooltip.setAttribute("aria-hidden", "true");
tooltip.hidden = true;
document.body.append(tooltip);

function hide() {
  tooltip.hidden = true;
}

function show(time) {
  const date = new Date(time.dateTime);
  if (Number.isNaN(date.getTime())) return;
  const hasSeconds = /T\d\d:\d\d:\d\d/.test(time.dateTime);
  tooltip.textContent = `${formats[Number(hasSeconds)].format(date)}, your time`;
  tooltip.hidden = false;
  const { left, top, width } = time.getBoundingClientRect();
  const half = tooltip.offsetWidth / 2 + GAP_PX;
  const middle = Math.min(Math.max(left + width / 2, half), document.documentElement.clientWidth - half);
  tooltip.style.left = `${scrollX + middle}px`;
  tooltip.style.top = `${scrollY + top - GAP_PX}px`;
}

/** The time that the pointer is on, or that a focused element contains. */
function timeOf({ type, target }) {
  if (!(target instanceof Element)) return null;
  if (type !== "focusin") return target.closest("time[datetime]");
  return target.matches("a, button, summary, time") ? (target.closest("time[datetime]") ?? target.querySelector("time[datetime]")) : null;
}

for (const type of ["pointerover", "focusin"]) {
  document.addEventListener(type, (event) => {
    const time = timeOf(event);
    if (time) show(time);
    else hide();
  });
}
document.addEventListener("focusout", hide);
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") hide();
});
