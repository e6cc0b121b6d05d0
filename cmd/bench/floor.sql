\set n random(1, 1000000000000000000)
\startpipeline
BEGIN ISOLATION LEVEL READ COMMITTED;
INSERT INTO idempotency_keys (id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash, recovery_point, lease_token, attempt, locked_at, last_run_at, created_at)
VALUES (md5('key' || :n)::uuid, '11111111-1111-4111-8111-111111111111', 'the-floor-' || md5('' || :n), 'create_order', 'POST', '/v1/orders',
 convert_to('{"currency":"usd","email":"buyer@example.com","items":[{"description":"Coffee beans, 1 kg","quantity":1,"sku":"beans-1kg","unit_amount":2500}],"metadata":{"cart":"c-1029"},"payment_method":"pm_card_visa"}', 'UTF8'),
 decode('01' || md5('a' || :n) || md5('b' || :n), 'hex'), 'started', md5('lease' || :n)::uuid, 1, now(), now(), now()) ON CONFLICT DO NOTHING;
SELECT k.account_id, k.id, k.idempotency_key, k.operation, k.request_path, k.request_params, k.params_hash, k.recovery_point, k.lease_token, k.locked_at, coalesce(k.locked_at > now() - interval '90 s', false), k.attempt, k.created_at, k.last_run_at, k.finished_at, k.needs_review_at, coalesce(k.last_error, ''), now(), coalesce(k.response_code, 0), coalesce(k.response_headers, '{}'), k.response_body
  FROM idempotency_keys AS k WHERE k.account_id = '11111111-1111-4111-8111-111111111111' AND k.id = md5('key' || :n)::uuid;
\endpipeline
\startpipeline
WITH held AS (UPDATE idempotency_keys SET recovery_point = 'order_created', locked_at = clock_timestamp(), last_error = NULL
 WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('key' || :n)::uuid AND lease_token = md5('lease' || :n)::uuid AND recovery_point = 'started' AND locked_at <= clock_timestamp() RETURNING locked_at)
SELECT 1 / count(*), max(locked_at) FROM held;
INSERT INTO orders (id, account_id, idempotency_key_id, idempotency_key, email, currency, amount, items, metadata, payment_method, status, created_at)
VALUES (CASE WHEN NOT EXISTS (SELECT FROM refunds WHERE account_id = '11111111-1111-4111-8111-111111111111' AND idempotency_key = 'the-floor-' || md5('' || :n)) THEN md5('order' || :n)::uuid END,
 '11111111-1111-4111-8111-111111111111', md5('key' || :n)::uuid, 'the-floor-' || md5('' || :n), 'buyer@example.com', 'usd', 2500, '[{"sku":"beans-1kg","quantity":1,"description":"Coffee beans, 1 kg","unit_amount":2500}]', '{"cart":"c-1029"}', 'pm_card_visa', 'pending', now());
INSERT INTO audit_records (id, account_id, action, resource_type, resource_id, data, request_ip, created_at)
VALUES (md5('audit1' || :n)::uuid, '11111111-1111-4111-8111-111111111111', 'order.created', 'order', md5('order' || :n)::uuid::text, '{"amount": 2500, "currency": "usd"}', '127.0.0.1', now());
COMMIT;
\endpipeline
\startpipeline
BEGIN ISOLATION LEVEL READ COMMITTED;
WITH held AS (UPDATE idempotency_keys SET recovery_point = 'charge_created', locked_at = clock_timestamp(), last_error = NULL
 WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('key' || :n)::uuid AND lease_token = md5('lease' || :n)::uuid AND recovery_point = 'order_created' AND locked_at <= clock_timestamp() RETURNING locked_at)
SELECT 1 / count(*), max(locked_at) FROM held;
UPDATE orders SET payment_intent_id = 'pi_' || left(md5('intent' || :n), 24) WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('order' || :n)::uuid;
INSERT INTO audit_records (id, account_id, action, resource_type, resource_id, data, request_ip, created_at)
VALUES (md5('audit2' || :n)::uuid, '11111111-1111-4111-8111-111111111111', 'order.charge_created', 'order', md5('order' || :n)::uuid::text, jsonb_build_object('payment_intent_id', 'pi_' || left(md5('intent' || :n), 24)), '127.0.0.1', now());
COMMIT;
\endpipeline
\startpipeline
BEGIN ISOLATION LEVEL READ COMMITTED;
WITH held AS (UPDATE idempotency_keys SET recovery_point = 'finished', locked_at = NULL, last_error = NULL, finished_at = now(), needs_review_at = NULL, response_code = 201, response_headers = '{"Content-Type": "application/json", "Location": "/v1/orders/11111111-1111-4111-8111-111111111111"}',
  response_body = convert_to('{"id":"11111111-1111-4111-8111-111111111111","status":"paid","amount":2500,"amount_refunded":0,"currency":"usd","email":"buyer@example.com","items":[{"sku":"beans-1kg","description":"Coffee beans, 1 kg","quantity":1,"unit_amount":2500}],"payment_intent_id":"pi_111111111111111111111111","metadata":{"cart":"c-1029"},"created_at":"2026-01-02T03:04:05.123456Z","paid_at":"2026-01-02T03:04:05.123456Z"}', 'UTF8')
 WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('key' || :n)::uuid AND lease_token = md5('lease' || :n)::uuid AND recovery_point = 'charge_created' AND locked_at <= clock_timestamp() RETURNING now() AS locked_at)
SELECT 1 / count(*), max(locked_at) FROM held;
UPDATE orders SET status = 'paid', paid_at = now() WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('order' || :n)::uuid;
INSERT INTO staged_jobs (account_id, id, kind, args) VALUES ('11111111-1111-4111-8111-111111111111', md5('job' || :n)::uuid, 'receipt', jsonb_build_object('order_id', md5('order' || :n)::uuid));
INSERT INTO audit_records (id, account_id, action, resource_type, resource_id, data, request_ip, created_at)
VALUES (md5('audit3' || :n)::uuid, '11111111-1111-4111-8111-111111111111', 'order.paid', 'order', md5('order' || :n)::uuid::text, jsonb_build_object('payment_intent_id', 'pi_' || left(md5('intent' || :n), 24), 'amount', 2500, 'currency', 'usd'), '127.0.0.1', now());
COMMIT;
\endpipeline
