-- Reads for status pages. Each is one statement: one snapshot.

-- The attempt of the highest build; always one row, because the fence is.
-- name: request_lookup
SELECT f.messages_from, coalesce(m.raised_fence, 0), coalesce(m.raised_count, 0), i.event_id IS NOT NULL,
  coalesce(i.quantity, 0), coalesce(i.reservation_id, ''), coalesce(i.fingerprint, ''), coalesce(i.outcome, ''), coalesce(i.reason, ''),
  coalesce(i.fence_version, 0), coalesce(i.build_count, 0), i.admitted_at,
  coalesce(extract(epoch FROM cellquota.now() - i.received_at), 0)::float8,
  coalesce(o.order_id, ''), coalesce(o.state, ''), coalesce(r.state, ''), coalesce(o.reason, ''), coalesce(o.version, 0), o.expires_at
FROM cellquota.fence f
LEFT JOIN LATERAL (SELECT * FROM cellquota.inbox WHERE campaign_id = $1 AND sku_id = $2 AND user_id = $3 AND request_id = $4
  ORDER BY fence_version DESC, build_count DESC LIMIT 1) i ON true
LEFT JOIN cellquota.orders o ON o.reservation_id = i.reservation_id
LEFT JOIN cellquota.reservations r ON r.reservation_id = i.reservation_id
LEFT JOIN cellquota.campaigns c ON c.campaign_id = $1
LEFT JOIN cellquota.mirrors m ON m.campaign_id = $1 AND m.scope_key = CASE c.purchase_scope WHEN 'CAMPAIGN' THEN '*' ELSE $2 END;

-- What another cell answered before a handover.
-- name: carried_lookup
SELECT reservation_id, quantity, fingerprint, outcome, reason FROM cellquota.carried_requests
WHERE campaign_id = $1 AND sku_id = $2 AND user_id = $3 AND request_id = $4;

-- name: request_list
SELECT DISTINCT ON (i.sku_id, i.request_id) i.request_id, i.sku_id, i.quantity, i.reservation_id, i.fingerprint, i.outcome, i.reason,
  i.fence_version, i.build_count, i.admitted_at,
  coalesce(o.order_id, ''), coalesce(o.state, ''), coalesce(r.state, ''), coalesce(o.reason, ''), coalesce(o.version, 0), o.expires_at
FROM cellquota.skus s
JOIN cellquota.inbox i ON i.campaign_id = s.campaign_id AND i.sku_id = s.sku_id AND i.user_id = $2
LEFT JOIN cellquota.orders o ON o.reservation_id = i.reservation_id
LEFT JOIN cellquota.reservations r ON r.reservation_id = i.reservation_id
WHERE s.campaign_id = $1
ORDER BY i.sku_id, i.request_id, i.fence_version DESC, i.build_count DESC LIMIT $3;

-- name: order_get
SELECT o.order_id, o.reservation_id, o.request_id, o.campaign_id, o.sku_id, o.user_id, o.quantity, cellquota.amount_text(o.amount), o.currency,
  o.state, r.state, o.reason, o.version, o.created_at, o.expires_at, o.paid_at, o.closed_at,
  coalesce((SELECT p.state FROM cellquota.payments p WHERE p.order_id = o.order_id ORDER BY p.created_at DESC, p.payment_id DESC LIMIT 1), '')
FROM cellquota.orders o JOIN cellquota.reservations r ON r.reservation_id = o.reservation_id
WHERE o.order_id = $1 AND o.user_id = $2;

-- name: order_list
SELECT o.order_id, o.reservation_id, o.request_id, o.campaign_id, o.sku_id, o.user_id, o.quantity, cellquota.amount_text(o.amount), o.currency,
  o.state, r.state, o.reason, o.version, o.created_at, o.expires_at, o.paid_at, o.closed_at,
  coalesce((SELECT p.state FROM cellquota.payments p WHERE p.order_id = o.order_id ORDER BY p.created_at DESC, p.payment_id DESC LIMIT 1), '')
FROM cellquota.orders o JOIN cellquota.reservations r ON r.reservation_id = o.reservation_id
WHERE o.user_id = $1 ORDER BY o.created_at DESC, o.order_id LIMIT $2;

-- name: buyer_of
SELECT b.origin, b.reservation_id, coalesce(o.request_id, ''), coalesce(o.order_id, ''), coalesce(o.state, '')
FROM cellquota.buyers b LEFT JOIN cellquota.orders o ON o.reservation_id = b.reservation_id
WHERE b.campaign_id = $1 AND b.scope_key = $2 AND b.user_id = $3;
