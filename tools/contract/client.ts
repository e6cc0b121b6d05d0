// What a client in TypeScript can rely on, for clients-check.sh.
import createClient from 'openapi-fetch';
import type { components, paths } from './contract';

const api = createClient<paths>({ baseUrl: 'http://localhost:8080', headers: { Authorization: 'Bearer ok_' } });

export async function create(key: string): Promise<number | 'same-key' | 'corrected' | 'new-key' | 'never'> {
  const { data, error } = await api.POST('/v1/orders', {
    params: { header: { 'Idempotency-Key': key } },
    body: {
      email: 'ada@example.com',
      currency: 'usd',
      payment_method: 'pm_card_visa',
      items: [{ sku: 'MUG-BLUE', quantity: 1, unit_amount: 1800 }],
    },
  });
  if (error) return error.retry;
  return 'amount' in data ? data.amount : 'same-key'; // 202 has no order yet: ask again
}

// The type of a problem tells which members it has.
export function declined(problem: components['schemas']['Problem']): string | undefined {
  return problem.type === '/problems/payment-declined' ? problem.order_id : undefined;
}
