// Redis SET NX, as many articles show it: the key is taken with NX and a lifetime, the response
// replaces it, and a failure deletes it.
const { createClient } = require('redis');
const express = require('express');
const { account, answer, listen } = require('./fixture');

const lifetime = Number(process.env.LIFETIME || 24 * 60 * 60);
const lock = Math.min(30, lifetime); // seconds

async function main() {
  const redis = await createClient({ url: process.env.REDIS_URL }).connect();
  const idempotent = async (req, res, next) => {
    const key = req.get('Idempotency-Key');
    if (!key) return res.status(400).json({ error: 'Idempotency-Key is required' });
    const name = `idempotency:${key}`;
    if (!await redis.set(name, 'processing', { NX: true, EX: lock })) {
      const stored = await redis.get(name);
      if (!stored || stored === 'processing') return res.status(409).json({ error: 'the request is in progress' });
      const { status, body } = JSON.parse(stored);
      return res.status(status).json(body);
    }
    const send = res.json.bind(res);
    res.json = async (body) => {
      if (res.statusCode >= 500) await redis.del(name);
      else await redis.set(name, JSON.stringify({ status: res.statusCode, body }), { EX: lifetime });
      send(body);
    };
    next();
  };

  const app = express();
  app.use((req, res, next) => {
    req.account = account(req.get('Authorization'));
    if (!req.account) return res.sendStatus(401);
    next();
  });
  app.use(express.json());
  app.post('/charges', idempotent, async (req, res, next) => {
    try {
      const { status, body, location } = await answer(req.account, req.body);
      if (location) res.location(location);
      await res.status(status).json(body);
    } catch (error) {
      next(error);
    }
  });
  app.post('/refunds', idempotent, (req, res) => res.status(404).json({ error: 'no such charge' }));
  listen(app);
}
main();
