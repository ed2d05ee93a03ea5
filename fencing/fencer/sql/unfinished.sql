-- What is not over in the shard; one row. Units that are left of a sale that is settled are nobody's: available counts
-- in the campaigns $1 only.
SELECT (SELECT coalesce(sum(available), 0) FROM cellquota.stock WHERE campaign_id = ANY ($1::text[])),
       (SELECT coalesce(sum(reserved), 0) FROM cellquota.stock),
       (SELECT count(*) FROM cellquota.v_orders WHERE state = 'PENDING_PAYMENT'),
       (SELECT count(*) FROM cellquota.v_payments WHERE state IN ('REFUND_PENDING', 'PAID_AFTER_CLOSE')),
       (SELECT count(*) FROM cellquota.v_outbox WHERE state = 'PENDING'),
       (SELECT count(*) FROM cellquota.v_outbox WHERE state = 'PARKED'),
       (SELECT count(*) FROM cellquota.v_inbox i WHERE outcome = 'PARKED'
          AND NOT EXISTS (SELECT FROM cellquota.v_findings f WHERE f.event_id = i.event_id AND f.state = 'REPAIRED'));
