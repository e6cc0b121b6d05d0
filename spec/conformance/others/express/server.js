// A small API behind the middleware express-idempotency. A charge is a line of the file
// CHARGES, so it outlives the process.
const express = require('express');
const fs = require('fs');
const idempotency = require('express-idempotency');

const file = process.env.CHARGES;
const accounts = { 'Bearer one': '1', 'Bearer uno': '1', 'Bearer two': '2' };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let made = 0;
const newID = () => `ch_${process.hrtime.bigint().toString(36)}_${++made}`;

const app = express();
app.disable('etag');
app.use((req, res, next) => {
  req.account = accounts[req.get('Authorization')];
  if (!req.account) return res.sendStatus(401);
  next();
});
app.get('/charges', (req, res) => {
  const lines = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  res.json({ data: lines.map((line) => JSON.parse(line)).filter((charge) => charge.account === req.account) });
});
app.use(express.json());
app.post('*', idempotency.idempotency());
app.post('/charges', async (req, res) => {
  if (idempotency.getSharedIdempotencyService().isHit(req)) return; // the middleware has responded
  const { amount, card, delay_ms: delay = 0 } = req.body;
  if (!(amount >= 1)) return res.status(422).json({ error: 'amount must be positive' });
  if (card === 'declined') return res.status(402).json({ error: 'declined', id: newID() });
  await pause(delay);
  const charge = { id: newID(), account: req.account, amount };
  fs.appendFileSync(file, `${JSON.stringify(charge)}\n`);
  await pause(delay);
  res.status(201).location(`/charges/${charge.id}`).json(charge);
});
app.post('/refunds', (req, res) => {
  if (!idempotency.getSharedIdempotencyService().isHit(req)) res.sendStatus(404);
});
// The middleware sets the status of its errors. Express would send 500.
app.use((err, req, res, next) => {
  res.status(err.status || (res.statusCode >= 400 ? res.statusCode : 500)).json({ error: err.message });
});
const [host, port] = process.env.ADDR.split(':');
app.listen(Number(port), host);
