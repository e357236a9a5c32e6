// Waits for a condition with a deadline.

const POLL_MS = 20;

// Returns the value of `condition` as soon as it is truthy.
export async function eventually(what, condition, withinMs = 20_000) {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
