SELECT buyers_after, buyers_done, buyers, requests_after, requests_done, requests, opened_at IS NOT NULL
FROM cellquota.import_buckets($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb);
