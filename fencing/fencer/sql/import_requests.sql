SELECT buyers_after, buyers_done, buyers, requests_after, requests_done, requests, opened_at IS NOT NULL
FROM cellquota.import_requests($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
