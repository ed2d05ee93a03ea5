-- What is not over yet of campaign $1; one row. A parked message counts until a finding about it is REPAIRED.
WITH orders AS MATERIALIZED (SELECT order_id, state FROM cellquota.v_orders WHERE campaign_id = $1),
pay AS (
  SELECT o.order_id, o.state AS order_state, p.state FROM orders o JOIN cellquota.v_payments p USING (order_id)
  WHERE p.state IN ('SUCCEEDED', 'REFUND_PENDING', 'PAID_AFTER_CLOSE')
)
SELECT (SELECT count(*) FROM cellquota.v_reservations WHERE campaign_id = $1 AND state = 'RESERVED'),
       (SELECT count(*) FROM cellquota.v_reservations WHERE campaign_id = $1 AND state = 'MANUAL_REVIEW'),
       (SELECT count(*) FROM orders WHERE state = 'PENDING_PAYMENT'),
       (SELECT count(*) FROM orders WHERE state = 'CLOSED'),
       (SELECT count(*) FROM orders WHERE state = 'PAID'),
       (SELECT count(DISTINCT order_id) FROM pay WHERE order_state = 'PAID'),
       (SELECT count(*) FROM pay WHERE state IN ('REFUND_PENDING', 'PAID_AFTER_CLOSE')),
       (SELECT count(*) FROM cellquota.v_outbox_payloads WHERE campaign_id = $1 AND state = 'PENDING'),
       (SELECT count(*) FROM cellquota.v_outbox_payloads WHERE campaign_id = $1 AND state = 'PARKED'),
       (SELECT count(*) FROM cellquota.v_inbox i WHERE campaign_id = $1 AND outcome = 'PARKED'
          AND NOT EXISTS (SELECT FROM cellquota.v_findings f WHERE f.event_id = i.event_id AND f.state = 'REPAIRED')),
       (SELECT count(*) FROM cellquota.v_findings f WHERE campaign_id = $1 AND state <> 'REPAIRED'
          AND NOT EXISTS (SELECT FROM cellquota.v_inbox i WHERE i.event_id = f.event_id AND i.outcome = 'PARKED'));
