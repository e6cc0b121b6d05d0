// Makes a purchase as a caller that obeys the client's results, and checks that it is charged at most
// once.
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { newKey, Orders } from '../orders.js';
import type { Action, Order, OrderParams, Result } from '../orders.js';
import { faults } from './faults.js';
import type { API, FaultyServer } from './faults.js';

// World is the API behind the faults, the customer, and the provider's record of charges.
export interface World {
  api: API;
  customer: (action: Action, approves: boolean) => Promise<void>;
  charges: (key: string) => Promise<number>;
}

export interface Purchase {
  cards: string[]; // after each decline, the customer uses the next card
  invalid: boolean; // the first request must be corrected
  changes: boolean; // after the result 'corrected', the caller changes the request even if it was valid
  approves: boolean;
  faults: string[];
  aborts: number[]; // for each call, the wait during which it is aborted
  random: number;
}

export const purchases = (cards: string[]): fc.Arbitrary<Purchase> => fc.record({
  cards: fc.array(fc.constantFrom(...cards), { minLength: 1, maxLength: 3 }),
  invalid: fc.boolean(),
  changes: fc.boolean(),
  approves: fc.boolean(),
  faults: fc.array(fc.constantFrom(...faults), { maxLength: 10 }),
  aborts: fc.array(fc.nat({ max: 5 }), { maxLength: 3 }),
  random: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
});

const backoffMs = 100;
const maxBackoffMs = 1000;

// buy makes the purchase of the plan. It checks the charges, and that each call sends only its stored
// key and bytes.
export async function buy(server: FaultyServer, url: string, apiKey: string, timeoutMs: number, world: World, plan: Purchase): Promise<void> {
  server.api = world.api;
  server.plan = [...plan.faults];
  const stored: { key: string; params: OrderParams }[] = []; // each request is stored before its first send
  const store = (key: string, card: string, email: string) => stored.push({
    key, params: { email, currency: 'usd', payment_method: card, items: [{ sku: 'tea', quantity: 2, unit_amount: 1250 }] },
  });
  const cards = [...plan.cards];
  const aborts = [...plan.aborts];
  store(newKey(), cards[0] ?? '', plan.invalid ? '' : 'ada@example.com');
  const failed: string[] = [];
  let paid = '';

  for (let calls = 0, stopped = false; !stopped; calls++) {
    assert.ok(calls < 100, 'the purchase does not end');
    const { key, params } = stored.at(-1)!;
    const controller = new AbortController();
    const abortIn = aborts.shift() ?? Infinity;
    const waits: number[] = [];
    server.calls = [];
    server.replies = [];
    let retryAfter: number[] = []; // of each attempt, in milliseconds
    const orders = new Orders({
      baseUrl: url, apiKey, timeoutMs, backoffMs, maxBackoffMs, random: () => plan.random,
      observe: ({ status }) => {
        const { 'retry-after': value = '' } = status ? server.replies.at(-1)?.headers ?? {} : {};
        retryAfter.push(status && server.replies.at(-1)?.status === status ? (value.endsWith('GMT') ? 7000 : Number(value) * 1000) : 0);
      },
      sleep: async (ms) => {
        waits.push(ms);
        assert.ok(waits.length < 100, 'the call does not end');
        if (waits.length > abortIn) controller.abort();
        if (waits.length > plan.faults.length) await new Promise((resolve) => setTimeout(resolve, 20)); // gives a request that is in progress time to end
      },
    });
    const result: Result<Order> = await orders.createOrder(key, params, { signal: controller.signal });

    for (const call of server.calls) {
      assert.equal(call.key, key, 'another key');
      assert.equal(`${call.method} ${call.path}`, 'POST /v1/orders', 'another address');
      assert.equal(call.body, JSON.stringify(params), 'other bytes');
    }
    waits.forEach((wait, i) => {
      const limit = Math.min(backoffMs * 2 ** i, maxBackoffMs);
      assert.equal(wait, plan.random * limit + (retryAfter[i] ?? 0), `wait ${i}`);
    });
    if (result.problem && result.kind !== 'unknown' && result.problem.retry !== 'new-key' && result.problem.outcome !== 'final') {
      assert.equal(server.calls.length, 1, `${result.kind} does not resolve earlier attempts`);
    }

    switch (result.kind) {
      case 'created':
        paid = key;
        assert.equal(result.value.status, 'paid');
        assert.ok(!('padding' in result.value));
        stopped = true;
        break;
      case 'action-required':
        await world.customer(result.action, plan.approves);
        break;
      case 'declined':
      case 'refused':
        failed.push(key);
        cards.shift();
        if (cards[0]) store(newKey(), cards[0], 'ada@example.com');
        else stopped = true;
        break;
      case 'corrected': // the same key
        store(key, params.payment_method, plan.changes ? 'grace@example.com' : 'ada@example.com');
        break;
      case 'reused':
      case 'expired':
      case 'never':
        stopped = true;
        break;
      case 'unknown': // the caller starts again with what it has stored
        break;
    }
  }

  const keys = [...new Set(stored.map(({ key }) => key))];
  const charges = await Promise.all(keys.map(async (key) => ({ key, n: await world.charges(key) })));
  const charged = charges.filter(({ n }) => n > 0);
  assert.ok(charged.length <= 1, 'two keys are charged');
  assert.ok(charged.every(({ n }) => n === 1), 'a key is charged twice');
  if (paid) assert.deepEqual(charged, [{ key: paid, n: 1 }]);
  assert.ok(!charged.some(({ key }) => failed.includes(key)), 'charged after the final response');
}
