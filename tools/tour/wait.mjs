// Waiting for a condition, with a deadline and never for a fixed time.

const POLL_MS = 20;

// What `condition` gives as soon as it is truthy.
export async function eventually(what, condition, withinMs = 20_000) {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
