// All that can go wrong, one class each: whoever catches one can tell by `instanceof`, or by `name`, whose turn it is.

import type { IpFacts } from './facts.js';
import { type Limits, limitsOf, retryAfterS } from './limits.js';

/** Every error of this package. */
export abstract class IpseityError extends Error {}

/** No answer came: no connection, or one that broke. The lookup may have been charged. */
export class ConnectionError extends IpseityError {
  override readonly name = 'ConnectionError';
}

/** No answer came in time. The lookup may have been charged. */
export class TimeoutError extends IpseityError {
  override readonly name = 'TimeoutError';
}

/**
 * The key's scope is narrower than the client's: the lookup was answered, and charged, with fewer fields than its type
 * promises.
 */
export class NarrowKeyError extends IpseityError {
  override readonly name = 'NarrowKeyError';
  constructor(message: string, readonly facts: IpFacts) {
    super(message);
  }
}

/** The body of every refusal. */
interface ErrorBody {
  error: string;
  message: string;
  docs: string;
  enterprise?: string;
  signup?: string;
}

/** The service, or something in front of it, answered that it does not tell. */
export abstract class Refusal extends IpseityError {
  /** HTTP status. */
  readonly status: number;
  /** The error's code, such as `invalid_api_key`; empty when the answer was not the service's own. */
  readonly code: string;
  /** Where the error is explained. */
  readonly docs: string;
  /** The request's id, to be told when you ask for help. */
  readonly requestId: string | null;
  /** Seconds until it is worth asking again; undefined when the answer does not say. */
  readonly retryAfterS: number | undefined;

  constructor({ status, headers }: Response, body: Partial<ErrorBody>) {
    super(body.message ?? `The answer has status ${status} and is not one of Ipseity's. Does the base URL lead to it?`);
    this.status = status;
    this.code = body.error ?? '';
    this.docs = body.docs ?? '';
    this.requestId = headers.get('x-request-id');
    this.retryAfterS = retryAfterS(headers);
  }
}

/** 401: the key is empty. */
export class MissingKeyError extends Refusal {
  override readonly name = 'MissingKeyError';
}

/** 401: no such key exists. */
export class InvalidKeyError extends Refusal {
  override readonly name = 'InvalidKeyError';
}

/** 403: the key is deactivated; its owner can reactivate it. */
export class InactiveKeyError extends Refusal {
  override readonly name = 'InactiveKeyError';
}

/** 403: the key is paused, because it exceeded the burst limit; its owner can resume it, and waiting does not help. */
export class PausedKeyError extends Refusal {
  override readonly name = 'PausedKeyError';
}

/** 404: the base URL leads to nothing. */
export class NotFoundError extends Refusal {
  override readonly name = 'NotFoundError';
}

/** 405: a proxy on the way, or your own `fetch`, changed the method. */
export class MethodNotAllowedError extends Refusal {
  override readonly name = 'MethodNotAllowedError';
}

/** 414: the request's address is too long. */
export class UriTooLongError extends Refusal {
  override readonly name = 'UriTooLongError';
}

/** 500: something failed inside the service. */
export class InternalError extends Refusal {
  override readonly name = 'InternalError';
}

/** Any other status, or a body that is not the service's: most likely of a proxy in front of it. */
export class UnexpectedAnswerError extends Refusal {
  override readonly name = 'UnexpectedAnswerError';
}

/** 429: a limit is exceeded. */
export abstract class RateLimitError extends Refusal {
  declare readonly retryAfterS: number;
  /** The limit that was exceeded. */
  readonly limits: Limits;

  constructor(response: Response, body: Partial<ErrorBody>) {
    super(response, body);
    this.limits = limitsOf(response.headers);
  }
}

/** 429: this request exceeded the burst limit and paused the key; see {@link PausedKeyError}. */
export class BurstLimitError extends RateLimitError {
  override readonly name = 'BurstLimitError';
}

/** 429: the key's requests for today are used up. */
export class DailyQuotaError extends RateLimitError {
  override readonly name = 'DailyQuotaError';
  /** Where to ask for more. */
  readonly enterprise: string;

  constructor(response: Response, body: Partial<ErrorBody>) {
    super(response, body);
    this.enterprise = body.enterprise ?? '';
  }
}

/** 429: the demo's requests for today, shared by all callers, are used up. */
export class DemoQuotaError extends RateLimitError {
  override readonly name = 'DemoQuotaError';
  /** Where to get a key. */
  readonly signup: string;

  constructor(response: Response, body: Partial<ErrorBody>) {
    super(response, body);
    this.signup = body.signup ?? '';
  }
}

const CODES: Record<string, new (response: Response, body: Partial<ErrorBody>) => Refusal> = {
  missing_api_key: MissingKeyError,
  invalid_api_key: InvalidKeyError,
  not_found: NotFoundError,
  method_not_allowed: MethodNotAllowedError,
  uri_too_long: UriTooLongError,
  internal_error: InternalError,
};

/**
 * The error that an answer is. Two codes have several causes: what the bodies carry, and their frozen `docs` anchors,
 * tell them apart.
 */
export function refusalOf(response: Response, body: Partial<ErrorBody>): Refusal {
  switch (body.error) {
    case 'inactive_api_key':
      return new (body.docs?.endsWith('#paused-keys') ? PausedKeyError : InactiveKeyError)(response, body);
    case 'rate_limit_exceeded':
      return new (body.enterprise ? DailyQuotaError : body.signup ? DemoQuotaError : BurstLimitError)(response, body);
    default:
      return new (CODES[body.error ?? ''] ?? UnexpectedAnswerError)(response, body);
  }
}
