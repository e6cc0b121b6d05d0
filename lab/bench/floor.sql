-- The SQL of an order, generated from the program's statements (make generate).
\set n random(100000000000000, 999999999999999)
\startpipeline
SELECT
       k.account_id, k.id, coalesce(k.idempotency_key, ''), k.operation, k.request_path, k.recovery_point, k.runs,
       k.created_at, k.updated_at, now() - k.updated_at, k.finished_at,
       coalesce(k.locked_at BETWEEN now() - '60 seconds'::interval AND now() + '60 seconds'::interval, false),
       greatest(k.created_at, k.updated_at, k.locked_at, k.finished_at) > now() + '60 seconds'::interval,
       k.action_required_at IS NOT NULL, coalesce(k.last_error, ''), coalesce(k.response_code, 0),
       k.expired_at IS NOT NULL, k.lost,
       k.request_params, k.fingerprint, k.lease_token, k.response_headers, k.response_body
  FROM idempotency_keys AS k
 WHERE k.account_id = '11111111-1111-4111-8111-111111111111' AND k.id = md5('key' || :n)::uuid;
\endpipeline
\startpipeline
begin;
WITH claimed AS (
    INSERT INTO idempotency_keys (
        id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
        recovery_point, lease_token, runs, locked_at, updated_at, created_at
    ) VALUES (md5('key' || :n)::uuid, '11111111-1111-4111-8111-111111111111', 'bench-floor-' || :n, 'create_order', 'POST', '/v1/orders', '\x7b2263757272656e6379223a22757364222c22656d61696c223a226275796572406578616d706c652e636f6d222c226974656d73223a5b7b226465736372697074696f6e223a22436f66666565206265616e732c2031206b67222c227175616e74697479223a312c22736b75223a226265616e732d316b67222c22756e69745f616d6f756e74223a323530307d2c7b226465736372697074696f6e223a2250617065722066696c746572732c20313030222c227175616e74697479223a322c22736b75223a2266696c7465722d3032222c22756e69745f616d6f756e74223a3435307d5d2c226d65746164617461223a7b2263617274223a22632d31303239222c226368616e6e656c223a22776562227d2c227061796d656e745f6d6574686f64223a22706d5f636172645f76697361227d', '\x014b4c0e5f3ab040ffb4301c299ef586cc13aba82f4e890e6afc3a5f3e0af2900e', 'order_created', md5('lease' || :n)::uuid, 1, now(), now(), now())
    ON CONFLICT DO NOTHING
    RETURNING locked_at
)
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'claim_conflict'), max(locked_at) FROM claimed;
INSERT INTO orders (
    id,
    account_id,
    idempotency_key,
    email,
    currency,
    amount,
    items,
    metadata,
    payment_method,
    off_session,
    status,
    reference,
    created_at
) VALUES (md5('order' || :n)::uuid, '11111111-1111-4111-8111-111111111111', 'bench-floor-' || :n, 'buyer@example.com', 'usd', 3400, '[{"sku":"beans-1kg","description":"Coffee beans, 1 kg","quantity":1,"unit_amount":2500},{"sku":"filter-02","description":"Paper filters, 100","quantity":2,"unit_amount":450}]', '{"cart":"c-1029","channel":"web"}', 'pm_card_visa', 'false', 'pending', NULL, now());
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data
) VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || left(md5('31' || :n), 20))::uuid, '11111111-1111-4111-8111-111111111111', 'order.created', 'order', md5('order' || :n)::uuid, '{"amount":3400,"currency":"usd"}');
COMMIT;
\endpipeline
\startpipeline
begin;
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point = 'charge_created',
           locked_at      = statement_timestamp(),
           last_error     = NULL
     WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('key' || :n)::uuid
       AND lease_token = md5('lease' || :n)::uuid
       AND recovery_point = 'order_created'
       AND locked_at IS NOT NULL
    RETURNING locked_at
)
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'lease_lost'), max(locked_at) FROM held;
UPDATE orders SET payment_intent_id = 'pi_' || left(md5('intent' || :n), 24) WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('order' || :n)::uuid RETURNING cancel_requested_at IS NOT NULL;
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data
) VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || left(md5('45' || :n), 20))::uuid, '11111111-1111-4111-8111-111111111111', 'order.charge_created', 'order', md5('order' || :n)::uuid, ('{"payment_intent_id":"' || 'pi_' || left(md5('intent' || :n), 24) || '"}')::jsonb);
COMMIT;
\endpipeline
\startpipeline
begin;
WITH held AS (
    UPDATE idempotency_keys
       SET recovery_point   = 'finished',
           locked_at        = NULL,
           last_error       = NULL,
           finished_at      = now(),
           response_code    = 201,
           response_headers = ('{"Content-Type":"application/json","Location":"/v1/orders/' || md5('order' || :n)::uuid || '"}')::jsonb,
           response_body    = '\x7b226964223a22787878787878787878787878787878787878787878787878787878787878787878787878222c22737461747573223a2270616964222c22616d6f756e74223a333430302c22616d6f756e745f726566756e646564223a302c2263757272656e6379223a22757364222c22656d61696c223a226275796572406578616d706c652e636f6d222c226974656d73223a5b7b22736b75223a226265616e732d316b67222c226465736372697074696f6e223a22436f66666565206265616e732c2031206b67222c227175616e74697479223a312c22756e69745f616d6f756e74223a323530307d2c7b22736b75223a2266696c7465722d3032222c226465736372697074696f6e223a2250617065722066696c746572732c20313030222c227175616e74697479223a322c22756e69745f616d6f756e74223a3435307d5d2c227061796d656e745f696e74656e745f6964223a22787878787878787878787878787878787878787878787878787878222c226d65746164617461223a7b2263617274223a22632d31303239222c226368616e6e656c223a22776562227d2c22637265617465645f6174223a22323032362d30312d30325430333a30343a30352e3637383930315a222c22706169645f6174223a22323032362d30312d30325430333a30343a30352e3637383930315a222c226661696c757265223a6e756c6c2c227265666572656e6365223a6e756c6c2c226469737075746573223a5b5d7d'
     WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('key' || :n)::uuid
       AND lease_token = md5('lease' || :n)::uuid
       AND recovery_point = 'charge_created'
       AND locked_at IS NOT NULL
    RETURNING finished_at AS locked_at
)
SELECT count(*) = 1 OR idempotency_assert(count(*) = 1, 'lease_lost'), max(locked_at) FROM held;
UPDATE orders SET status = 'paid', paid_at = now() WHERE account_id = '11111111-1111-4111-8111-111111111111' AND id = md5('order' || :n)::uuid RETURNING cancel_requested_at IS NOT NULL;
INSERT INTO staged_jobs AS j (account_id, id, kind, args)
VALUES ('11111111-1111-4111-8111-111111111111', md5('58' || :n)::uuid, 'receipt', ('{"order_id":"' || md5('order' || :n)::uuid || '"}')::jsonb)
    ON CONFLICT DO NOTHING;
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data
) VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || left(md5('65' || :n), 20))::uuid, '11111111-1111-4111-8111-111111111111', 'order.paid', 'order', md5('order' || :n)::uuid, ('{"amount":3400,"currency":"usd","payment_intent_id":"' || 'pi_' || left(md5('intent' || :n), 24) || '"}')::jsonb);
COMMIT;
\endpipeline
