-- The outbox of Fila: rows are messages that fila-outbox moves to the broker. PostgreSQL 14 or newer.
-- All of it may be applied again.

CREATE TABLE IF NOT EXISTS fila_outbox (
	id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(), -- the DEDUP id
	seq        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- the order
	queue      text        NOT NULL,
	key        text        NOT NULL DEFAULT 'default',         -- the fairness key
	payload    bytea       NOT NULL,
	options    text[]      NOT NULL DEFAULT '{}',              -- of FILA.ENQUEUE, without KEY and DEDUP
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	failed_at  timestamptz,                                    -- set if the broker refuses the message for good
	error      text,
	part       smallint    NOT NULL GENERATED ALWAYS AS ((hashtextextended(key, hashtextextended(queue, 0)) & 63)::smallint) STORED
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000);

-- The only index by seq: another one would be taken for the rows of a partition, and reads the rows of all.
CREATE INDEX IF NOT EXISTS fila_outbox_waiting ON fila_outbox (part, seq) WHERE failed_at IS NULL;
CREATE INDEX IF NOT EXISTS fila_outbox_failed ON fila_outbox (failed_at) WHERE failed_at IS NOT NULL;

-- A worker locks the rows of the partitions that it works on.
CREATE TABLE IF NOT EXISTS fila_outbox_part (part smallint PRIMARY KEY);
INSERT INTO fila_outbox_part SELECT generate_series(0, 63) ON CONFLICT DO NOTHING;

-- Enqueues a message when the transaction is committed, and returns its DEDUP id. A delay counts from now. options are
-- any other options of FILA.ENQUEUE: '{COST,10}'.
CREATE OR REPLACE FUNCTION fila_enqueue(
	queue text, payload bytea, key text DEFAULT NULL, priority int DEFAULT NULL, delay interval DEFAULT NULL, ttl interval DEFAULT NULL,
	throttles text[] DEFAULT NULL, headers jsonb DEFAULT NULL, options text[] DEFAULT NULL
) RETURNS uuid LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO fila_outbox (queue, key, payload, options) VALUES (
		fila_enqueue.queue,
		coalesce(fila_enqueue.key, 'default'),
		fila_enqueue.payload,
		coalesce(fila_enqueue.options, '{}')
			|| CASE WHEN priority IS NULL THEN '{}' ELSE ARRAY['PRIORITY', priority::text] END
			|| CASE WHEN delay IS NULL THEN '{}' ELSE ARRAY['AT', (extract(epoch FROM clock_timestamp() + delay) * 1000)::bigint::text] END
			|| CASE WHEN ttl IS NULL THEN '{}' ELSE ARRAY['TTL', (extract(epoch FROM ttl) * 1000)::bigint::text] END
			|| ARRAY(SELECT w FROM unnest(throttles) WITH ORDINALITY AS t(v, i), unnest(ARRAY['THROTTLE', v]) WITH ORDINALITY AS o(w, j) ORDER BY i, j)
			|| ARRAY(SELECT w FROM jsonb_each_text(headers) WITH ORDINALITY AS h(k, v, i), unnest(ARRAY['HEADER', k, v]) WITH ORDINALITY AS o(w, j) ORDER BY i, j)
	) RETURNING id;
END;

CREATE OR REPLACE FUNCTION fila_enqueue(
	queue text, payload text, key text DEFAULT NULL, priority int DEFAULT NULL, delay interval DEFAULT NULL, ttl interval DEFAULT NULL,
	throttles text[] DEFAULT NULL, headers jsonb DEFAULT NULL, options text[] DEFAULT NULL
) RETURNS uuid LANGUAGE sql
BEGIN ATOMIC
	SELECT fila_enqueue(queue, convert_to(payload, 'UTF8'), key, priority, delay, ttl, throttles, headers, options);
END;

-- Inserts wake the relays. PostgreSQL commits transactions with a NOTIFY one after the other, so there is one in 20 ms at
-- most, and relays look again for a second after each. The sequence has the time of the last one, in milliseconds.
CREATE SEQUENCE IF NOT EXISTS fila_outbox_notified MINVALUE 0;
CREATE OR REPLACE FUNCTION fila_outbox_notify() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
	IF abs(now_ms - (SELECT last_value FROM fila_outbox_notified)) >= 20 THEN
		PERFORM setval('fila_outbox_notified', now_ms);
		NOTIFY fila_outbox;
	END IF;
	RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER fila_outbox_notify AFTER INSERT ON fila_outbox FOR EACH STATEMENT EXECUTE FUNCTION fila_outbox_notify();
