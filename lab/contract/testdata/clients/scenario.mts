// What each generated TypeScript client does, as ../ogen/main.go does: node CLIENT.mjs URL KEY LATER.
import { deepStrictEqual, equal, ok } from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

interface Order { email: string; currency: string; payment_method: string; items: { sku: string; quantity: number; unit_amount: number }[] }
interface Answer { data?: unknown; error?: unknown; response?: { status: number; headers: Headers } }
export interface API {
  create(key: string, order: Order): Promise<Answer>;
  refund(key: string, id: string): Promise<Answer>;
  cancel(key: string, id: string): Promise<Answer>;
  list(limit: number): Promise<Answer>;
}

export async function run(connect: (baseUrl: string, headers: Record<string, string>) => API): Promise<void> {
  const [url = '', apiKey, laterURL = ''] = process.argv.slice(2);
  const headers = { Authorization: `Bearer ${apiKey}` };
  let api = connect(url, headers);
  const read = async (answer: Promise<Answer>) => {
    const { data, error, response } = await answer;
    return { status: response?.status, order: data as any, problem: error as any, replayed: response?.headers.get('Idempotent-Replayed') };
  };
  const create = (key: string, payment_method: string) => read(api.create(key, {
    email: 'ada@example.com', currency: 'usd', payment_method, items: [{ sku: 'MUG-BLUE', quantity: 1, unit_amount: 1800 }],
  }));

  const used = randomUUID();
  const created = await create(used, 'pm_card_visa');
  deepStrictEqual([created.status, created.order.status, created.replayed], [201, 'paid', null]);
  deepStrictEqual(await create(used, 'pm_card_visa'), { ...created, replayed: 'true' });
  const reused = await create(used, 'pm_card_mastercard');
  deepStrictEqual([reused.problem.type, reused.problem.retry], ['/problems/idempotency-key-reused', 'never']);
  const declined = await create(randomUUID(), 'pm_card_visa_chargeDeclined');
  deepStrictEqual([declined.status, declined.problem.code], [402, 'card_declined']);
  equal((await read(api.refund(randomUUID(), created.order.id))).order.amount, created.order.amount);
  equal((await read(api.cancel(randomUUID(), declined.problem.order_id))).order.status, 'payment_failed');
  deepStrictEqual((await read(api.list(2))).order.data.map(({ id }: { id: string }) => id), [declined.problem.order_id, created.order.id]);

  api = connect(laterURL, headers);
  equal((await create('a-later-version-201', 'pm_card_visa')).order.status, 'later');
  for (const status of [400, 401, 402, 409, 413, 415, 422, 429, 500, 503, 418]) {
    const { problem } = await create(`a-later-version-${status}`, 'pm_card_visa');
    deepStrictEqual([problem.type, problem.status], ['/problems/later', status]);
    ok(problem.retry);
  }
}
