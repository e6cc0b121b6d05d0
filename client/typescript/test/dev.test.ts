import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { newKey, Orders } from '../orders.js';
import { api, apiKey, get, world } from './dev.js';
import { FaultyServer } from './faults.js';
import { buy, purchases } from './purchase.js';

const server = new FaultyServer();
let url = '';
before(async () => { url = await server.start(); });
after(() => server.stop());

const cards = ['pm_card_visa', 'pm_card_visa', 'pm_card_visa_chargeDeclined', 'pm_card_nobody', 'pm_card_threeDSecure2Required'];

test('a purchase at playground run is charged once, with one key', async () => {
  await fc.assert(fc.asyncProperty(purchases(cards), (plan) => buy(server, url, apiKey, 2000, world, plan)), { numRuns: 50 });
});

test('playground run cancels an order', async () => {
  server.api = world.api;
  server.plan = [];
  const orders = new Orders({ baseUrl: url, apiKey, sleep: async () => {} });
  const key = newKey();
  const params = { email: 'ada@example.com', currency: 'usd', payment_method: 'pm_card_threeDSecure2Required', items: [{ sku: 'tea', quantity: 2, unit_amount: 1250 }] };
  assert.equal((await orders.createOrder(key, params)).kind, 'action-required');
  const { order } = await get(`${api}/v1/idempotency-keys/${key}`, apiKey);
  server.plan = ['no response', 'cut body'];
  const canceled = await orders.cancelOrder(newKey(), order.id);
  assert.equal(canceled.kind === 'done' && canceled.value.failure?.code, 'canceled');
  assert.equal((await orders.createOrder(key, params)).kind, 'refused');
});

test('playground run shows what a client made', async () => {
  server.api = world.api;
  const orders = new Orders({ baseUrl: url, apiKey, sleep: async () => {} });
  const key = `${newKey()}/#`;
  const params = { email: 'ada@example.com', currency: 'usd', payment_method: 'pm_card_visa', items: [{ sku: 'tea', quantity: 2, unit_amount: 1250 }], reference: newKey() };
  server.plan = ['no response'];
  assert.ok(['accepted', 'created'].includes((await orders.createOrder(key, params, { prefer: ['respond-async'] })).kind));
  const status = await orders.getKey(key, { prefer: ['wait=20'] });
  assert.ok(status.kind === 'done' && status.value.state === 'finished' && status.value.order);
  const order = await orders.getOrder(status.value.order.id);
  assert.ok(order.kind === 'done' && order.value.status === 'paid');
  const list = await orders.listOrders({ reference: params.reference, limit: 1 });
  assert.deepEqual(list.kind === 'done' && list.value, { data: [order.value], has_more: false });
});
