// A client of the orders API. It retries a request so that it takes effect exactly once.
// ../doc.go states the rules and their reasons. A caller stores the key and the request before
// the first call.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { components } from './contract.js'; // openapi-typescript generates it from openapi.yaml

type Schemas = components['schemas'];
export type OrderParams = Schemas['OrderRequest'];
export type Order = Schemas['Order'];
export type RefundParams = Schemas['RefundRequest'];
export type Refund = Schemas['Refund'];
export type OrderEvent = Schemas['Event'];
export type Problem = Schemas['ProblemDetails'];
// client_secret is for the customer's browser, so JSON.stringify includes it. inspect and console.log hide it.
export type Action = NonNullable<Schemas['KeyStatus']['action']>;

export type Result<T> =
  | { kind: 'created' | 'done'; value: T; replayed: boolean; problem?: never } // done: nothing was created
  // The customer must approve the payment. Afterwards, make the same call again.
  | { kind: 'action-required'; action: Action; problem?: never }
  // The key has its final response. Another attempt is another payment, with a new key.
  | { kind: 'declined' | 'refused'; problem: Problem }
  // Correct the request, and send it with the same key.
  | { kind: 'corrected'; problem: Problem }
  // Another call with this key cannot succeed.
  | { kind: 'reused' | 'expired' | 'never'; problem: Problem }
  // The request may have taken effect. Keep the key, and make the same call later. The
  // problem, if any, is about the last attempt only.
  | { kind: 'unknown'; attempts: number; problem?: Problem; detail: string };

export interface Request {
  key: string;
  path: string; // such as /v1/orders
  body: string; // JSON, the same in every attempt
  success?: 200 | 201; // status of the success, 201 by default
}
export interface Options {
  signal?: AbortSignal;
  deadline?: number; // milliseconds since 1970; without a deadline, retries do not end
}
export interface Config {
  baseUrl: string;
  apiKey: string;
  timeoutMs?: number; // of one attempt
  backoffMs?: number; // maximum jitter before the second attempt; it doubles up to maxBackoffMs
  maxBackoffMs?: number;
  observe?: (attempt: { key: string; status?: number; replayed?: boolean; error?: unknown }) => void;
  fetch?: typeof globalThis.fetch;
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>; // ends early if the signal is aborted
  random?: () => number;
}

// newKey returns a random key. The caller stores it before the first call. Nothing in this file
// calls newKey, because a retry with a new key would charge again.
export const newKey = (): string => crypto.randomUUID();

const maxResponse = 1 << 20; // characters
const maxTimer = 2 ** 31 - 1; // setTimeout fires at once if the delay is longer

export class Orders {
  readonly #config: Required<Config>; // private, so that a log of the object does not show apiKey

  constructor({
    baseUrl, apiKey, timeoutMs = 60_000, backoffMs = 500, maxBackoffMs = 30_000,
    observe = () => {}, fetch = globalThis.fetch, sleep = pause, random = Math.random,
  }: Config) {
    // fetch would throw for any other URL or API key in each attempt, and retries would not end.
    if (!URL.canParse(baseUrl) || !/^https?:\/\/[^?#@]+$/i.test(baseUrl)) throw new TypeError('baseUrl must be an http or https URL');
    if (!/^[!-~]+$/.test(apiKey)) throw new TypeError('apiKey must be visible ASCII characters');
    if (!(timeoutMs > 0 && timeoutMs <= maxTimer && backoffMs > 0 && maxBackoffMs > 0)) throw new TypeError('a duration is invalid');
    this.#config = { baseUrl: baseUrl.replace(/\/$/, ''), apiKey, timeoutMs, backoffMs, maxBackoffMs, observe, fetch, sleep, random };
  }

  async createOrder(key: string, params: OrderParams, options?: Options): Promise<Result<Order>> {
    return this.send({ key, path: '/v1/orders', body: JSON.stringify(params) }, options);
  }

  async createRefund(key: string, orderId: string, params: RefundParams, options?: Options): Promise<Result<Refund>> {
    if (!/^[\w-]+$/.test(orderId)) throw new TypeError('orderId is invalid'); // ".." would change the path
    return this.send({ key, path: `/v1/orders/${orderId}/refunds`, body: JSON.stringify(params) }, options);
  }

  // The order of the result 'done' was not charged and never will be. Until then, the customer may still pay.
  async cancelOrder(key: string, orderId: string, options?: Options): Promise<Result<Order>> {
    if (!/^[\w-]+$/.test(orderId)) throw new TypeError('orderId is invalid');
    return this.send({ key, path: `/v1/orders/${orderId}/cancel`, body: '{}', success: 200 }, options);
  }

  // send repeats the request, with the same bytes and key, until a response is final, the deadline
  // would pass or the signal is aborted.
  async send<T>({ key, path, body, success = 201 }: Request, { signal, deadline = Infinity }: Options = {}): Promise<Result<T>> {
    // The API would read a key that begins with a quote as a String (RFC 9651).
    if (!/^[!#-~][!-~]{15,254}$/.test(key)) throw new TypeError('a key has 16 to 255 visible ASCII characters, the first one not a quote');
    if (!path.startsWith('/')) throw new TypeError('path must begin with a slash'); // otherwise it could change the host
    const { backoffMs, maxBackoffMs, observe, sleep, random } = this.#config;
    let last = 'nothing was sent';
    for (let attempts = 0, wait = 0; ; ) {
      const late = Date.now() + wait >= deadline;
      if (!late && attempts > 0) await sleep(wait, signal);
      if (late || signal?.aborted) {
        return { kind: 'unknown', attempts, detail: `${late ? 'the deadline is before the next attempt' : 'aborted'} (last: ${last})` };
      }
      wait = random() * Math.min(backoffMs * 2 ** attempts, maxBackoffMs);
      attempts++;
      const { response, text, error } = await this.#attempt({ key, path, body }, deadline, signal);
      if (!response) {
        observe({ key, error });
        last = String(error instanceof Error && error.cause ? error.cause : error);
        continue;
      }
      observe({ key, status: response.status, replayed: isReplay(response) });
      const result = judge<T>(response, text, success);
      if (result?.problem && attempts > 1 && result.problem.retry !== 'new-key' && result.problem.outcome !== 'final') {
        // The rejection does not resolve the earlier attempts.
        return { kind: 'unknown', attempts, problem: result.problem, detail: `rejected: ${result.problem.detail}` };
      }
      if (result) return result;
      last = `status ${response.status}, ${text.length} characters`;
      wait = Math.min(wait + retryAfter(response.headers), maxTimer);
    }
  }

  async #attempt({ key, path, body }: Request, deadline: number, signal?: AbortSignal) {
    const { baseUrl, apiKey, timeoutMs, fetch } = this.#config;
    // AbortSignal.any is not used, because Node 20 may collect its timeout as garbage, and the attempt
    // would not end.
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    const timeout = setTimeout(() => controller.abort(new Error('timeout')), Math.min(timeoutMs, deadline - Date.now()));
    signal?.addEventListener('abort', abort);
    try {
      const response = await fetch(baseUrl + path, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${apiKey}`,
          Accept: 'application/json, application/problem+json',
          'Content-Type': 'application/json',
          'Idempotency-Key': key,
        },
        body,
        // Another server must neither receive the API key nor answer for this one (R31, one call, one
        // answer). fetch itself resends a request only after a 421, which means that the server has not
        // executed it (RFC 9110, 15.5.20).
        redirect: 'manual',
        signal: controller.signal,
      });
      return { response, text: await read(response) };
    } catch (error) {
      return { error };
    } finally {
      clearTimeout(timeout);
      signal?.removeEventListener('abort', abort);
    }
  }
}

async function read(response: Response): Promise<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let text = '';
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > maxResponse) throw new Error(`the response has more than ${maxResponse} characters`);
  }
  return text + decoder.decode();
}

// judge returns the result of a final response, or undefined if the same request must be sent again.
function judge<T>(response: Response, text: string, success: number): Result<T> | undefined {
  const mediaType = response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  if (mediaType === 'application/json' && response.status === success) {
    return { kind: success === 201 ? 'created' : 'done', value: value as T, replayed: isReplay(response) };
  }
  if (mediaType === 'application/json' && response.status === 202 && isObject(value.action)) {
    const action = value.action as Action;
    const visible = { ...action, client_secret: '[hidden]' };
    Object.defineProperty(action, Symbol.for('nodejs.util.inspect.custom'), { value: () => visible });
    return { kind: 'action-required', action };
  }
  if (mediaType !== 'application/problem+json') return undefined;
  const problem = value as Problem;
  switch (problem.retry) {
    case 'corrected':
      return { kind: 'corrected', problem };
    case 'new-key':
      return { kind: problem.type === '/problems/payment-declined' ? 'declined' : 'refused', problem };
    case 'never':
      if (problem.type === '/problems/idempotency-key-reused') return { kind: 'reused', problem };
      return { kind: problem.type === '/problems/idempotency-key-expired' ? 'expired' : 'never', problem };
    default:
      return undefined;
  }
}

const isReplay = (response: Response): boolean => response.headers.get('idempotent-replayed') === 'true';

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

// retryAfter returns the requested delay in milliseconds. The header has seconds, or a date that is
// relative to the Date header (RFC 9110, 10.2.3).
function retryAfter(headers: Headers): number {
  const value = headers.get('retry-after') ?? '';
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  if (!value.endsWith(' GMT')) return 0;
  const now = Date.parse(headers.get('date') ?? '') || Date.now();
  return Math.max(Date.parse(value) - now, 0) || 0;
}

// pause waits, or ends early without an error if the signal is aborted. send checks the signal after it.
const pause = (ms: number, signal?: AbortSignal): Promise<void> => delay(ms, undefined, { signal }).catch(() => {});

// EventRejected means that the API has not sent this request, or not now. Respond with 400.
export class EventRejected extends Error {}

const eventTolerance = 5 * 60_000; // milliseconds

// verifyEvent returns the event in a request of the API to the shop's endpoint, or throws EventRejected.
// body is as received. secrets are those of the endpoint that may be in use (whsec_…): while a secret is
// rotated, the old one and the new one. Any signature by any of them suffices.
export function verifyEvent(
  secrets: string[], headers: Headers | Record<string, string | string[] | undefined>, body: string | Uint8Array, now = Date.now(),
): OrderEvent {
  const get = (name: string): string => String((headers instanceof Headers ? headers.get(name) : headers[name]) ?? '');
  const id = get('webhook-id');
  const sent = get('webhook-timestamp');
  if (!/^\d+$/.test(sent) || Math.abs(now - Number(sent) * 1000) > eventTolerance) {
    throw new EventRejected(`sent at ${sent}, received at ${now / 1000}`);
  }
  const valid = secrets.map((secret) => {
    const [, encoded] = /^(?:whsec_)?([A-Za-z0-9+/]+=*)$/.exec(secret) ?? [];
    if (!encoded) throw new TypeError('a signing secret is not in base64');
    return `v1,${createHmac('sha256', Buffer.from(encoded, 'base64')).update(`${id}.${sent}.`).update(body).digest('base64')}`;
  });
  const signatures = get('webhook-signature').split(' ');
  if (!valid.some((one) => signatures.some((other) => isEqual(one, other)))) throw new EventRejected('no signature is valid');
  return { ...JSON.parse(typeof body === 'string' ? body : new TextDecoder().decode(body)), id };
}

function isEqual(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
