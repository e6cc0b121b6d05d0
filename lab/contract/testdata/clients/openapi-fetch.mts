// Runs requests with openapi-typescript and openapi-fetch.
import createClient from 'openapi-fetch';
import type { components, paths } from './contract.js';
import { run } from './scenario.mjs';

const keyed = (key: string) => ({ 'Idempotency-Key': key });

await run((baseUrl, headers) => {
  const api = createClient<paths>({ baseUrl, headers });
  return {
    create: (key, body) => api.POST('/v1/orders', { params: { header: keyed(key) }, body }),
    refund: (key, id) => api.POST('/v1/orders/{id}/refunds', { params: { path: { id }, header: keyed(key) }, body: {} }),
    cancel: (key, id) => api.POST('/v1/orders/{id}/cancel', { params: { path: { id }, header: keyed(key) }, body: {} }),
    list: (limit) => api.GET('/v1/orders', { params: { query: { limit } } }),
  };
});

// The compiler narrows a problem by its type, as docs/guides/generated-clients.md shows.
type Problem = components['schemas']['ProblemDetails'];
type Typed<T extends string, M extends keyof Problem> = Problem & { type: `/problems/${T}` } & Required<Pick<Problem, M>>;
type Known = Typed<'payment-declined', 'order_id'> | Typed<'validation-failed', 'errors'>;
export const orderOf = (problem: Known): string | undefined =>
  problem.type === '/problems/payment-declined' ? problem.order_id : undefined;
