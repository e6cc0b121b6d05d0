// Implements World by "playground run". The environment has its address, an API key and the address of
// its fake Stripe.
import assert from 'node:assert/strict';
import type { World } from './purchase.js';

export const { ORDERS_API_KEY: apiKey = '', ORDERS_URL: api = '', STRIPE_URL: provider = '' } = process.env;

export const get = async (address: string, token: string) =>
  (await fetch(address, { headers: { Authorization: `Bearer ${token}` } })).json() as Promise<any>;

export const world: World = {
  api: async ({ method, path, headers, body }) => {
    const passed = ['authorization', 'idempotency-key', 'content-type', 'prefer'];
    const response = await fetch(api + path, {
      method, ...(body && { body }), headers: Object.fromEntries(Object.entries(headers).filter(([name]) => passed.includes(name))), redirect: 'manual',
    });
    const kept = ['content-type', 'location', 'retry-after', 'idempotent-replayed'];
    return { status: response.status, headers: Object.fromEntries([...response.headers].filter(([name]) => kept.includes(name))), body: await response.text() };
  },
  customer: async ({ payment_intent_id: id, client_secret }, approves) => {
    const address = `${provider}/customer/${id}/${approves ? 'approve' : 'decline'}`;
    const { status } = await fetch(address, { method: 'POST', body: new URLSearchParams({ client_secret }) });
    assert.equal(status, 204, 'the action of the customer');
  },
  charges: async (key) => {
    const { order } = await get(`${api}/v1/idempotency-keys/${key}`, apiKey);
    if (!order) return 0;
    let charges = 0;
    for (let after = '', more = true; more;) {
      const page = await get(`${provider}/v1/payment_intents?limit=100${after && `&starting_after=${after}`}`, 'sk_test_dev');
      for (const intent of page.data) {
        if (intent.metadata.order_id === order.id && intent.status === 'succeeded') charges++;
        after = intent.id;
      }
      more = page.has_more;
    }
    return charges;
  },
};
