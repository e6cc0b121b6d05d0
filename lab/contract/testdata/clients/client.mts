// Runs requests with openapi-typescript and openapi-fetch, see ogen/main.go.
import { deepStrictEqual, equal, ok } from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import createClient from 'openapi-fetch';
import type { components, paths } from './contract.js';

const [url, key, laterURL] = process.argv.slice(2);

async function create(baseUrl: string | undefined, idempotencyKey: string, payment_method: string) {
  const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
  const { data, error, response } = await api.POST('/v1/orders', {
    params: { header: { 'Idempotency-Key': idempotencyKey } },
    body: { email: 'ada@example.com', currency: 'usd', payment_method, items: [{ sku: 'MUG-BLUE', quantity: 1, unit_amount: 1800 }] },
  });
  const replayed = response.headers.get('Idempotent-Replayed');
  return { status: response.status, order: data && 'amount' in data ? data : undefined, problem: error, replayed };
}

// The compiler narrows a problem by its type, as docs/guides/generated-clients.md shows.
type Problem = components['schemas']['ProblemDetails'];
type Typed<T extends string, M extends keyof Problem> = Problem & { type: `/problems/${T}` } & Required<Pick<Problem, M>>;
type Known = Typed<'payment-declined', 'order_id'> | Typed<'validation-failed', 'errors'>;
const orderOf = (problem: Known): string | undefined =>
  problem.type === '/problems/payment-declined' ? problem.order_id : undefined;

const used = randomUUID();
const created = await create(url, used, 'pm_card_visa');
equal(created.status, 201);
equal(created.order?.status, 'paid');
equal(created.replayed, null);
deepStrictEqual(await create(url, used, 'pm_card_visa'), { ...created, replayed: 'true' });
const reused = await create(url, used, 'pm_card_mastercard');
equal(reused.problem?.type, '/problems/idempotency-key-reused');
equal(reused.problem?.retry, 'never');
const declined = await create(url, randomUUID(), 'pm_card_visa_chargeDeclined');
equal(declined.status, 402);
equal(declined.problem?.code, 'card_declined');
ok(orderOf(declined.problem as Known));
const refunded = await createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } }).POST('/v1/orders/{id}/refunds', {
  params: { path: { id: created.order!.id }, header: { 'Idempotency-Key': randomUUID() } },
  body: {},
});
ok(refunded.data && 'amount' in refunded.data, JSON.stringify(refunded.error));
equal(refunded.data.amount, created.order!.amount);

equal((await create(laterURL, 'a-later-version-201', 'pm_card_visa')).order?.status, 'later');
for (const status of [400, 401, 402, 409, 413, 415, 422, 429, 500, 503, 418]) {
  const later = await create(laterURL, `a-later-version-${status}`, 'pm_card_visa');
  equal(later.problem?.type, '/problems/later');
  equal(later.problem?.status, status);
  ok(later.problem?.retry);
}
