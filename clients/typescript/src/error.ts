// One class for each error. Distinguish them by `instanceof` or by `name`.

import type { IpFacts } from './facts.js';
import { type RateLimit, rateLimitOf, retryAfterS } from './rate_limit.js';

/** Base class of all errors of this package. */
export abstract class IpseityError extends Error {}

/** The connection failed or broke. The lookup may have been charged. */
export class ConnectionError extends IpseityError {
  override readonly name = 'ConnectionError';
}

/** The lookup timed out. It may have been charged. */
export class TimeoutError extends IpseityError {
  override readonly name = 'TimeoutError';
}

/** The key's scope is narrower than the client's. The lookup succeeded and was charged, but lacks fields of its type. */
export class InsufficientScopeError extends IpseityError {
  override readonly name = 'InsufficientScopeError';
  constructor(message: string, readonly facts: IpFacts) {
    super(message);
  }
}

/** Body of an error response. */
export interface ErrorBody {
  error: string;
  message: string;
  docs: string;
  enterprise?: string;
  signup?: string;
}

/** The service, or a proxy in front of it, returned an error. */
export abstract class ApiError extends IpseityError {
  /** HTTP status. */
  declare readonly status: number;
  /** Error code, such as `invalid_api_key`. Empty if the response is not from the service. */
  declare readonly code: string;
  /** URL of the error's documentation. */
  declare readonly docs: string;
  /** Request ID. Include it when you contact support. */
  declare readonly requestId: string | null;
  /** Seconds in `Retry-After`, or undefined without one. */
  declare readonly retryAfterS: number | undefined;

  constructor({ status, headers }: Response, body: Partial<ErrorBody>) {
    super(body.message ?? `Unexpected response with status ${status}. Check the base URL.`);
    this.status = status;
    this.code = body.error ?? '';
    this.docs = body.docs ?? '';
    this.requestId = headers.get('x-request-id');
    this.retryAfterS = retryAfterS(headers);
  }
}

/** 401: the key is empty. */
export class MissingKeyError extends ApiError {
  override readonly name = 'MissingKeyError';
}

/** 401: the key does not exist. */
export class InvalidKeyError extends ApiError {
  override readonly name = 'InvalidKeyError';
}

/** 400: the key was sent over plain HTTP. Rotate it, and use an `https` base URL. */
export class HttpsRequiredError extends ApiError {
  override readonly name = 'HttpsRequiredError';
}

/** 403: the key is deactivated. Its owner can reactivate it. */
export class InactiveKeyError extends ApiError {
  override readonly name = 'InactiveKeyError';
}

/** 403: the key exceeded the burst limit and is paused until its owner resumes it. Waiting does not help. */
export class PausedKeyError extends ApiError {
  override readonly name = 'PausedKeyError';
}

/** 403: the key has expired. Its owner can change the expiry. */
export class ExpiredKeyError extends ApiError {
  override readonly name = 'ExpiredKeyError';
}

/**
 * 403: the page's origin is not allowed for the key or the ticket. Or a page, or a key with allowed origins, cannot create
 * tickets.
 */
export class OriginNotAllowedError extends ApiError {
  override readonly name = 'OriginNotAllowedError';
}

/** 403: the caller's address is not in one of the key's allowed networks. */
export class NetworkNotAllowedError extends ApiError {
  override readonly name = 'NetworkNotAllowedError';
}

/** 403: the operator of the service has blocked the caller's network. */
export class NetworkBlockedError extends ApiError {
  override readonly name = 'NetworkBlockedError';
}

/** 403: the key accepts only tickets. */
export class TicketRequiredError extends ApiError {
  override readonly name = 'TicketRequiredError';
}

/** 401: the ticket has expired, is used up, or is not from this service. */
export class InvalidTicketError extends ApiError {
  override readonly name = 'InvalidTicketError';
}

/** 404: the base URL is wrong, or the service has no tickets. */
export class NotFoundError extends ApiError {
  override readonly name = 'NotFoundError';
}

/** 405: a proxy or the `fetch` option changed the method. */
export class MethodNotAllowedError extends ApiError {
  override readonly name = 'MethodNotAllowedError';
}

/** 414: the URL is too long. */
export class UriTooLongError extends ApiError {
  override readonly name = 'UriTooLongError';
}

/** 421: the base URL is for the other address family. */
export class MisdirectedRequestError extends ApiError {
  override readonly name = 'MisdirectedRequestError';
}

/** 400: the request is malformed, for example because a proxy changed it. */
export class BadRequestError extends ApiError {
  override readonly name = 'BadRequestError';
}

/** 431: the headers are too large. */
export class HeadersTooLargeError extends ApiError {
  override readonly name = 'HeadersTooLargeError';
}

/** 500: the service failed. */
export class InternalError extends ApiError {
  override readonly name = 'InternalError';
}

/** Any other status, or a body that is not from the service; most likely from a proxy in front of it. */
export class UnexpectedResponseError extends ApiError {
  override readonly name = 'UnexpectedResponseError';
}

/** 429: the request exceeded a limit. */
export abstract class RateLimitError extends ApiError {
  declare readonly retryAfterS: number;
  /** The exceeded limit. */
  declare readonly rateLimit: RateLimit;

  constructor(response: Response, body: Partial<ErrorBody>) {
    super(response, body);
    this.rateLimit = rateLimitOf(response.headers);
  }
}

/** 429: this request exceeded the burst limit and paused the key; see {@link PausedKeyError}. */
export class BurstLimitError extends RateLimitError {
  override readonly name = 'BurstLimitError';
}

/** 429: the key reached its daily quota. */
export class DailyQuotaError extends RateLimitError {
  override readonly name = 'DailyQuotaError';
  /** URL to request a higher limit. */
  declare readonly enterprise: string;

  constructor(response: Response, body: Partial<ErrorBody>) {
    super(response, body);
    this.enterprise = body.enterprise ?? '';
  }
}

/** 429: the caller reached the key's limit per caller. */
export class CallerLimitError extends RateLimitError {
  override readonly name = 'CallerLimitError';
}

/** 429: the status of the key was requested too often. */
export class KeyStatusLimitError extends RateLimitError {
  override readonly name = 'KeyStatusLimitError';
}

/** 429: the key created too many tickets. */
export class TicketLimitError extends RateLimitError {
  override readonly name = 'TicketLimitError';
}

/** 429: the demo reached its daily quota, which all callers share. */
export class DemoQuotaError extends RateLimitError {
  override readonly name = 'DemoQuotaError';
  /** URL to get a key. */
  declare readonly signup: string;

  constructor(response: Response, body: Partial<ErrorBody>) {
    super(response, body);
    this.signup = body.signup ?? '';
  }
}
