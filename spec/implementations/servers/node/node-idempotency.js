// @node-idempotency/core, called as its README shows: onRequest before the handler, onResponse
// after it.
const { Idempotency, IdempotencyErrorCodes } = require('@node-idempotency/core');
const { MemoryStorageAdapter } = require('@node-idempotency/storage-adapter-memory');
const { RedisStorageAdapter } = require('@node-idempotency/storage-adapter-redis');
const express = require('express');
const { account, answer, listen } = require('./fixture');

// The package @node-idempotency/nestjs maps the errors to these statuses.
const statuses = {
  [IdempotencyErrorCodes.REQUEST_IN_PROGRESS]: 409,
  [IdempotencyErrorCodes.IDEMPOTENCY_FINGERPRINT_MISSMATCH]: 422,
};

async function main() {
  let storage = new MemoryStorageAdapter();
  if (process.env.STORE === 'redis') {
    storage = new RedisStorageAdapter({ url: process.env.REDIS_URL });
    await storage.connect();
  }
  const lifetime = process.env.LIFETIME ? { cacheTTLMS: 1000 * process.env.LIFETIME } : {};
  const idempotency = new Idempotency(storage, lifetime);

  const app = express();
  app.use((req, res, next) => {
    req.account = account(req.get('Authorization'));
    if (!req.account) return res.sendStatus(401);
    next();
  });
  app.use(express.json());
  const idempotent = (handler) => async (req, res, next) => {
    const request = { method: req.method, headers: req.headers, body: req.body, path: req.path };
    const send = ({ body, additional }) => {
      if (additional.location) res.location(additional.location);
      res.status(additional.status).json(body);
    };
    try {
      const cached = await idempotency.onRequest(request);
      if (cached) return send(cached);
      const { status, body, location } = await handler(req);
      const response = { body, additional: { status, location } };
      await idempotency.onResponse(request, response);
      send(response);
    } catch (error) {
      if (!error.code) return next(error);
      res.status(statuses[error.code] || 400).json({ error: error.message });
    }
  };
  app.post('/charges', idempotent((req) => answer(req.account, req.body)));
  app.post('/refunds', idempotent(() => ({ status: 404, body: { error: 'no such charge' } })));
  listen(app);
}
main();
