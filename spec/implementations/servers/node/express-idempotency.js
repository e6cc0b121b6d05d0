// express-idempotency as its README sets it up, with the adapter for Redis as the adapter's
// README does.
const express = require('express');
const idempotency = require('express-idempotency');
const RedisAdapter = require('express-idempotency-redis-adapter').default;
const { account, answer, listen } = require('./fixture');

const options = {};
if (process.env.STORE === 'redis') {
  options.dataAdapter = new RedisAdapter({
    connectionConfig: { url: process.env.REDIS_URL },
    ...(process.env.LIFETIME ? { ttl: Number(process.env.LIFETIME) } : {}),
  });
  options.dataAdapter.connect();
}

const app = express();
app.use((req, res, next) => {
  req.account = account(req.get('Authorization'));
  if (!req.account) return res.sendStatus(401);
  next();
});
app.use(express.json());
app.post('*', idempotency.idempotency(options));
app.post('/charges', async (req, res, next) => {
  const service = idempotency.getSharedIdempotencyService();
  if (service.isHit(req)) return; // the middleware has responded
  try {
    const { status, body, location } = await answer(req.account, req.body);
    // "the middleware must be aware of the error"
    if (status >= 500) service.reportError(req);
    if (location) res.location(location);
    res.status(status).json(body);
  } catch (error) {
    service.reportError(req);
    next(error);
  }
});
app.post('/refunds', (req, res) => {
  if (!idempotency.getSharedIdempotencyService().isHit(req)) res.sendStatus(404);
});
// The middleware sets the status of its errors on the response. Express would send 500.
app.use((err, req, res, next) => {
  res.status(err.status || (res.statusCode >= 400 ? res.statusCode : 500)).json({ error: err.message });
});
listen(app);
