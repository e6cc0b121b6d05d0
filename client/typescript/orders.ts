// A client of the orders API. It retries a request so that it takes effect exactly once.
// ../doc.go states the rules and their reasons. A caller stores the key and the request before
// the first call.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { components, operations } from './contract.js'; // openapi-typescript generates it from openapi.yaml

type Schemas = components['schemas'];
export type OrderParams = Schemas['OrderRequest'];
export type Order = Schemas['Order'];
export type RefundParams = Schemas['RefundRequest'] & { amount: number };
export type Refund = Schemas['Refund'];
export type Page<T> = { data: T[]; has_more: boolean }; // the id of its last object is the after of the next page
export type OrderFilter = NonNullable<operations['listOrders']['parameters']['query']>;
export type RefundFilter = NonNullable<operations['listRefunds']['parameters']['query']>;
export type KeyStatus = Schemas['KeyStatus'];
export type OrderEvent = Schemas['Event'];
export type Problem = Schemas['ProblemDetails'];
/** client_secret is for the customer's browser, so JSON.stringify includes it. inspect and console.log hide it. */
export type Action = NonNullable<KeyStatus['action']>;

export type ReadResult<T> =
  | { kind: 'done'; value: T; replayed: boolean; problem?: never } // success, and nothing was created
  // If another request with this key was answered with 202, `same-key` or nothing, send that one again, unchanged.
  // Otherwise correct this one, and send it with the same key.
  | { kind: 'corrected'; problem: Problem }
  // Do not make this call again. If problem.order_id names an order, read it, because it may be paid, and a later
  // change of it decides what comes next. A read has found nothing.
  | { kind: 'never'; problem: Problem }
  // The request may have taken effect. Keep the key, and make the same call later, within 23 hours of the first. The
  // problem, if any, is about the last attempt only.
  | { kind: 'unknown'; attempts: number; problem?: Problem; detail: string };

export type Result<T> =
  | ReadResult<T>
  | { kind: 'created'; value: T; replayed: boolean; problem?: never }
  // The customer must approve the payment. Afterwards, make the same call again.
  | { kind: 'action-required'; action: Action; problem?: never }
  // After respond-async: the API has stored the request. The same call returns its result later.
  | { kind: 'accepted'; status: KeyStatus; problem?: never }
  // The key has its final response. Another attempt is another payment, with a new key.
  | { kind: 'declined' | 'refused'; problem: Problem }
  // Do not make this call again. After 'expired', read what the problem names, because it may be paid.
  | { kind: 'reused' | 'expired'; problem: Problem };

export interface Request {
  key: string;
  path: string; // such as /v1/orders
  body: string; // JSON, the same in every attempt
  success?: 200 | 201; // status of the success, 201 by default
}
export interface Options {
  signal?: AbortSignal;
  deadline?: number; // milliseconds since 1970; without a deadline, retries do not end
  prefer?: ('respond-async' | `wait=${number}`)[]; // as the contract describes them
}
export interface Config {
  baseUrl: string;
  apiKey: string;
  timeoutMs?: number; // of one attempt; 90 s by default, because a request runs for up to 75 s; add that of a wait
  backoffMs?: number; // maximum jitter before the second attempt; it doubles up to maxBackoffMs
  maxBackoffMs?: number;
  observe?: (attempt: { key?: string; status?: number; replayed?: boolean; error?: unknown }) => void;
  fetch?: typeof globalThis.fetch;
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>; // ends early if the signal is aborted
  random?: () => number;
}

/**
 * Returns a random key. The caller stores it before the first call. Nothing in this file calls
 * newKey, because a retry with a new key would charge again.
 */
export const newKey = (): string => crypto.randomUUID();

const maxResponse = 1 << 20; // characters
const maxTimer = 2 ** 31 - 1; // setTimeout fires at once if the delay is longer

export class Orders {
  readonly #config: Required<Config>; // private, so that a log of the object does not show apiKey

  constructor({
    baseUrl, apiKey, timeoutMs = 90_000, backoffMs = 500, maxBackoffMs = 30_000,
    observe = () => {}, fetch = globalThis.fetch, sleep = pause, random = Math.random,
  }: Config) {
    // fetch would throw for any other URL or API key in each attempt, and retries would not end.
    if (!URL.canParse(baseUrl) || !/^https?:\/\/[^?#@]+$/i.test(baseUrl)) throw new TypeError('baseUrl must be an http or https URL');
    if (!/^[!-~]+$/.test(apiKey)) throw new TypeError('apiKey must be visible ASCII characters');
    if (!(timeoutMs > 0 && timeoutMs <= maxTimer && backoffMs > 0 && maxBackoffMs > 0)) throw new TypeError('a duration is invalid');
    this.#config = { baseUrl: baseUrl.replace(/\/$/, ''), apiKey, timeoutMs, backoffMs, maxBackoffMs, observe, fetch, sleep, random };
  }

  /** Creates an order and charges it once per key. */
  async createOrder(key: string, params: OrderParams, options?: Options): Promise<Result<Order>> {
    return this.send({ key, path: '/v1/orders', body: JSON.stringify(params) }, options);
  }

  async getOrder(id: string, options?: Options): Promise<ReadResult<Order>> {
    return this.#read(`/v1/orders/${segment(id)}`, options);
  }

  async listOrders(filter: OrderFilter = {}, options?: Options): Promise<ReadResult<Page<Order>>> {
    return this.#read(`/v1/orders?${query(filter)}`, options);
  }

  /** The order of the result 'done' was not charged and never will be. Until then, the customer may still pay. */
  async cancelOrder(key: string, orderId: string, options?: Options): Promise<Result<Order>> {
    return this.send({ key, path: `/v1/orders/${segment(orderId)}/cancel`, body: '{}', success: 200 }, options);
  }

  /** Refunds an order once per key. */
  async createRefund(key: string, orderId: string, params: RefundParams, options?: Options): Promise<Result<Refund>> {
    if (!(params.amount > 0)) throw new TypeError('amount must be positive'); // undefined would refund all that remains
    return this.send({ key, path: `/v1/orders/${segment(orderId)}/refunds`, body: JSON.stringify(params) }, options);
  }

  /** Refunds an order's remaining amount once per key. */
  async refundRemaining(key: string, orderId: string, { reason }: Omit<RefundParams, 'amount'> = {}, options?: Options): Promise<Result<Refund>> {
    return this.send({ key, path: `/v1/orders/${segment(orderId)}/refunds`, body: JSON.stringify({ reason }) }, options);
  }

  async getRefund(orderId: string, id: string, options?: Options): Promise<ReadResult<Refund>> {
    return this.#read(`/v1/orders/${segment(orderId)}/refunds/${segment(id)}`, options);
  }

  async listRefunds(orderId: string, filter: RefundFilter = {}, options?: Options): Promise<ReadResult<Page<Refund>>> {
    return this.#read(`/v1/orders/${segment(orderId)}/refunds?${query(filter)}`, options);
  }

  /** For an unknown key the result is 'never', which is about this read and proves nothing: send the request with the key. */
  async getKey(key: string, options?: Options): Promise<ReadResult<KeyStatus>> {
    checkKey(key);
    // Some proxies undo escapes, so the API also accepts base64url.
    const plain = encodeURIComponent(key) === key && !key.startsWith('~');
    return this.#read(`/v1/idempotency-keys/${plain ? key : `~${Buffer.from(key).toString('base64url')}`}`, options);
  }

  /**
   * Repeats the request, with the same bytes and key, until a response is final, the deadline would
   * pass or the signal is aborted.
   */
  async send<T>({ key, path, body, success = 201 }: Request, options?: Options): Promise<Result<T>> {
    checkKey(key);
    if (!path.startsWith('/')) throw new TypeError('path must begin with a slash'); // otherwise it could change the host
    return this.#repeat<T>({ key, path, body, success }, options);
  }

  async #read<T>(path: string, options?: Options): Promise<ReadResult<T>> {
    return this.#repeat<T>({ path, success: 200 }, options) as Promise<ReadResult<T>>; // others need a key
  }

  async #repeat<T>(request: Sent, { signal, deadline = Infinity, prefer = [] }: Options = {}): Promise<Result<T>> {
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
      const { response, text, error } = await this.#attempt(request, prefer, deadline, signal);
      const seen = request.key === undefined ? {} : { key: request.key };
      if (!response) {
        observe({ ...seen, error });
        last = String((error as { cause?: unknown } | undefined)?.cause ?? error);
        continue;
      }
      observe({ ...seen, status: response.status, replayed: isReplay(response) });
      const result = judge<T>(response, text, request.success, prefer.includes('respond-async'));
      if (result?.problem && request.key && attempts > 1 && result.problem.retry !== 'new-key' && result.problem.outcome !== 'final') {
        // The rejection does not resolve the earlier attempts.
        return { kind: 'unknown', attempts, problem: result.problem, detail: `rejected: ${result.problem.detail}` };
      }
      if (result) return result;
      last = `status ${response.status}, ${text.length} characters`;
      wait = Math.min(wait + retryAfter(response.headers), maxTimer);
    }
  }

  async #attempt({ key, path, body }: Sent, prefer: string[], deadline: number, signal?: AbortSignal) {
    const { baseUrl, apiKey, timeoutMs, fetch } = this.#config;
    // AbortSignal.any is not used, because Node 20 may collect its timeout as garbage, and the attempt
    // would not end.
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    const timeout = setTimeout(() => controller.abort(new Error('timeout')), Math.min(timeoutMs, deadline - Date.now()));
    signal?.addEventListener('abort', abort);
    try {
      const response = await fetch(baseUrl + path, {
        ...(body === undefined ? {} : { method: 'POST', body }),
        headers: {
          Authorization: `Bearer ${apiKey}`,
          Accept: 'application/json, application/problem+json',
          ...(prefer.length > 0 && { Prefer: prefer.join(', ') }),
          ...(key !== undefined && { 'Content-Type': 'application/json', 'Idempotency-Key': key }),
        },
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
      controller.abort(); // a response that was not read to its end
      clearTimeout(timeout);
      signal?.removeEventListener('abort', abort);
    }
  }
}

interface Sent { key?: string; path: string; body?: string; success: number } // without a key, a read

function checkKey(key: string): void {
  // The API would read a key that begins with a quote as a String (RFC 9651).
  if (!/^[!#-~][!-~]{15,254}$/.test(key)) throw new TypeError('a key has 16 to 255 visible ASCII characters, the first one not a quote');
}

function segment(id: string): string {
  if (!/^[\w-]+$/.test(id)) throw new TypeError('an id is invalid'); // ".." would change the path
  return id;
}

function query(filter: OrderFilter): URLSearchParams {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  return new URLSearchParams(Object.fromEntries(given.map(([name, value]) => [name, String(value)])));
}

// read does not iterate over the body, because the types of browsers lack that.
async function read(response: Response): Promise<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const reader = response.body?.getReader();
  let text = '';
  for (let chunk = await reader?.read(); chunk?.value; chunk = await reader?.read()) {
    text += decoder.decode(chunk.value, { stream: true });
    if (text.length > maxResponse) throw new Error(`the response has more than ${maxResponse} characters`);
  }
  return text + decoder.decode();
}

// judge returns the result of a final response, or undefined if the same request must be sent again.
function judge<T>(response: Response, text: string, success: number, respondAsync: boolean): Result<T> | undefined {
  const mediaType = response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  if (isObject(value['action'])) {
    const visible = { ...value['action'], client_secret: '[hidden]' };
    Object.defineProperty(value['action'], Symbol.for('nodejs.util.inspect.custom'), { value: () => visible });
  }
  if (mediaType === 'application/json' && response.status === success) {
    return { kind: success === 201 ? 'created' : 'done', value: value as T, replayed: isReplay(response) };
  }
  if (mediaType === 'application/json' && response.status === 202) {
    const status = value as KeyStatus;
    if (isObject(status.action)) return { kind: 'action-required', action: status.action };
    return respondAsync && status.state ? { kind: 'accepted', status } : undefined;
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

/** The API has not sent this request, or not now. Respond with 400. */
export class EventRejected extends Error {}

const eventTolerance = 5 * 60_000; // milliseconds

/**
 * Returns the event in a request of the API to the shop's endpoint, or throws EventRejected. body is as
 * received. secrets are those that may be in use (whsec_…): while a secret is rotated, the old one and the
 * new one. Any signature by any of them suffices.
 */
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
