// Implements World by an API in memory that keeps the rules of the contract.
import { problem } from './faults.js';
import type { Call, Reply } from './faults.js';
import type { World } from './purchase.js';

export const cards = ['paid', 'paid', 'declined', 'refused', 'action'];

export function fakeWorld(): World {
  const requests = new Map<string, { call: Call; final?: Reply }>();
  const charged: string[] = [];
  const customers = new Map<string, boolean>();
  const failure = { outcome: 'final', order_id: 'o1', code: 'card_declined' };

  const run = (call: Call): Reply | undefined => {
    const card = JSON.parse(call.body).payment_method;
    if (card === 'declined' || customers.get(call.key) === false) return problem(402, 'payment-declined', 'new-key', failure);
    if (card === 'refused') return problem(422, 'payment-refused', 'new-key', failure);
    if (card === 'action' && !customers.has(call.key)) return undefined;
    charged.push(call.key);
    return { status: 201, headers: { 'content-type': 'application/json; charset=utf-8' }, body: '{"id":"o1","status":"paid"}' };
  };

  return {
    api: async (call) => {
      const known = requests.get(call.key);
      if (known && known.call.body !== call.body) {
        return problem(422, 'idempotency-key-reused', 'never', { outcome: known.final ? 'final' : 'unknown' });
      }
      if (known?.final) return { ...known.final, headers: { ...known.final.headers, 'idempotent-replayed': 'true' } };
      if (!known && JSON.parse(call.body).email === '') return problem(422, 'validation-failed', 'corrected', { outcome: 'none' });
      const request = known ?? { call };
      requests.set(call.key, request);
      const final = run(call);
      if (final) request.final = final;
      const action = { type: 'use_stripe_sdk', client_secret: 'a secret', payment_intent_id: call.key };
      return final ?? { status: 202, headers: { 'content-type': 'application/json' }, body: JSON.stringify({ state: 'requires_action', action }) };
    },
    customer: async (action, approves) => void customers.set(action.payment_intent_id, approves),
    charges: async (key) => charged.filter((one) => one === key).length,
  };
}
