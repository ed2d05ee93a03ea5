-- What is still under way: outbox rows for the mirror that are not applied.
SELECT (SELECT count(*) FROM cellquota.v_outbox_payloads WHERE state = 'PENDING' AND target = 'MIRROR' AND ($1 = '' OR campaign_id = $1)),
       (SELECT count(*) FROM cellquota.v_parked);
