import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newKey, Orders } from '../orders.js';
import { api, apiKey } from './dev.js';

test('playground run shows a refund that a client made', async () => {
  const orders = new Orders({ baseUrl: api, apiKey });
  const params = { email: 'ada@example.com', currency: 'usd', payment_method: 'pm_card_visa', items: [{ sku: 'tea', quantity: 2, unit_amount: 1250 }] };
  const order = await orders.createOrder(newKey(), params);
  assert.ok(order.kind === 'created');
  const refund = await orders.createRefund(newKey(), order.value.id, { amount: 500 });
  assert.ok(refund.kind === 'created');
  assert.deepEqual((await orders.getRefund(order.value.id, refund.value.id) as { value?: unknown }).value, refund.value);
  assert.deepEqual((await orders.listRefunds(order.value.id, { limit: 1 }) as { value?: unknown }).value, { data: [refund.value], has_more: false });
});
