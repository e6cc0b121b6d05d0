// Runs requests with the client of orval.
import { cancelOrder, createOrder, createRefund, listOrders } from './orval/api.js';
import { server } from './fetcher.js';
import { run } from './scenario.mjs';

const keyed = (key: string) => ({ 'Idempotency-Key': key });

async function answer(response: Promise<{ data: unknown; status: number; headers: Headers }>) {
  const { data, ...rest } = await response;
  return { [rest.status < 300 ? 'data' : 'error']: data, response: rest };
}

await run((baseUrl, headers) => {
  Object.assign(server, { baseUrl, headers });
  return {
    create: (key, body) => answer(createOrder(body, keyed(key))),
    refund: (key, id) => answer(createRefund(id, {}, keyed(key))),
    cancel: (key, id) => answer(cancelOrder(id, {}, keyed(key))),
    list: (limit) => answer(listOrders({ limit })),
  };
});
