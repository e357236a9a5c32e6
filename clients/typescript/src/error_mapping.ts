// Maps error responses to their classes.

import * as errors from './error.js';

type ErrorClass = new (response: Response, body: Partial<errors.ErrorBody>) => errors.ApiError;

const CODES: Record<string, ErrorClass> = {
  missing_api_key: errors.MissingKeyError,
  invalid_api_key: errors.InvalidKeyError,
  inactive_api_key: errors.InactiveKeyError,
  origin_not_allowed: errors.OriginNotAllowedError,
  network_not_allowed: errors.NetworkNotAllowedError,
  network_blocked: errors.NetworkBlockedError,
  ticket_required: errors.TicketRequiredError,
  rate_limit_exceeded: errors.BurstLimitError,
  https_required: errors.HttpsRequiredError,
  not_found: errors.NotFoundError,
  method_not_allowed: errors.MethodNotAllowedError,
  uri_too_long: errors.UriTooLongError,
  misdirected_request: errors.MisdirectedRequestError,
  bad_request: errors.BadRequestError,
  headers_too_large: errors.HeadersTooLargeError,
  internal_error: errors.InternalError,
};

/** Causes that share their code with another one, by the stable anchor of `docs`. */
const ANCHORS: Record<string, ErrorClass> = {
  tickets: errors.InvalidTicketError,
  'paused-keys': errors.PausedKeyError,
  'expired-keys': errors.ExpiredKeyError,
  'daily-quota': errors.DailyQuotaError,
  'caller-limit': errors.CallerLimitError,
  'key-status-limit': errors.KeyStatusLimitError,
  'ticket-limit': errors.TicketLimitError,
  'demo-quota': errors.DemoQuotaError,
};

/** Maps a response to its error. */
export function apiErrorOf(response: Response, body: Partial<errors.ErrorBody>): errors.ApiError {
  const anchor = body.docs?.split('#').pop() ?? '';
  return new (ANCHORS[anchor] ?? CODES[body.error ?? ''] ?? errors.UnexpectedResponseError)(response, body);
}
