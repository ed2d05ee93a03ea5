-- A page of answered requests after the key ($2, $3, $4), one answer each: an order before a rejection,
-- then the newest attempt. REJECTED/MOVED is no answer.
SELECT DISTINCT ON (sku_id, user_id, request_id) sku_id, user_id, request_id, reservation_id, quantity, fingerprint, outcome, reason FROM (
  (SELECT DISTINCT ON (sku_id, user_id, request_id) sku_id, user_id, request_id, reservation_id, quantity, fingerprint, outcome, reason
   FROM cellquota.inbox
   WHERE campaign_id = $1 AND (sku_id, user_id, request_id) > ($2, $3, $4)
     AND (outcome IN ('ORDERED', 'RELEASED') OR outcome = 'REJECTED' AND reason <> 'MOVED')
   ORDER BY sku_id, user_id, request_id, outcome <> 'ORDERED', fence_version DESC, build_count DESC LIMIT $5)
  UNION ALL
  (SELECT sku_id, user_id, request_id, reservation_id, quantity, fingerprint, outcome, reason
   FROM cellquota.carried_requests
   WHERE campaign_id = $1 AND (sku_id, user_id, request_id) > ($2, $3, $4)
   ORDER BY sku_id, user_id, request_id LIMIT $5)) AS both_of
ORDER BY sku_id, user_id, request_id, outcome <> 'ORDERED' LIMIT $5;
