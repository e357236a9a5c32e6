// Limits how long an action takes.

import { TimeoutError } from './error.js';

/**
 * Runs an action. Rejects when it takes too long or the outer signal is aborted, even if the action ignores its signal.
 */
export async function withTimeout<T>(
  outer: AbortSignal | undefined,
  timeoutMs: number,
  act: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  outer?.throwIfAborted();
  const controller = new AbortController();
  const { signal } = controller;
  const abort = () => controller.abort(outer?.reason);
  outer?.addEventListener('abort', abort);
  const expire = () => controller.abort(new TimeoutError(`No response within ${timeoutMs} ms.`));
  const timer = setTimeout(expire, timeoutMs);
  try {
    return await new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
      act(signal).then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
    outer?.removeEventListener('abort', abort);
  }
}
