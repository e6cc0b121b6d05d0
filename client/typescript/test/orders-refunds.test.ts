import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { Orders } from '../orders.js';
import { FaultyServer } from './faults.js';

const key = '2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10';
const server = new FaultyServer();
let orders: Orders;
before(async () => { orders = new Orders({ baseUrl: await server.start(), apiKey: 'api-key' }); });
beforeEach(() => {
  server.calls = [];
  server.api = async ({ method }) => ({ status: method === 'POST' ? 201 : 200, headers: { 'content-type': 'application/json' }, body: '{"id":"r1"}' });
});
after(() => server.stop());

test('a refund of an amount, and of what remains', async () => {
  assert.equal((await orders.createRefund(key, 'o1', { amount: 500 })).kind, 'created');
  await orders.refundRemaining(key, 'o1');
  await orders.refundRemaining(key, 'o1', { reason: 'duplicate' });
  const want = ['{"amount":500}', '{}', '{"reason":"duplicate"}'].map((body) => ['POST', '/v1/orders/o1/refunds', key, body]);
  assert.deepEqual(server.calls.map(({ method, path, key, body }) => [method, path, key, body]), want);
});

test('nothing is sent without a valid id and amount', async () => {
  for (const id of ['', '..', 'a/b']) await assert.rejects(orders.createRefund(key, id, { amount: 1 }), TypeError, id);
  for (const amount of [0, NaN, undefined as never]) await assert.rejects(orders.createRefund(key, 'o1', { amount }), TypeError, String(amount));
  assert.equal(server.calls.length, 0);
});

test('addresses of refunds', async () => {
  assert.equal((await orders.getRefund('o1', 'r1')).kind, 'done');
  assert.equal((await orders.listRefunds('o1', { limit: 2, after: 'r1' })).kind, 'done');
  assert.deepEqual(server.calls.map(({ path }) => path), ['/v1/orders/o1/refunds/r1', '/v1/orders/o1/refunds?limit=2&after=r1']);
});
