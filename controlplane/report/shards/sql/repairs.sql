-- What was done about finding $1, in order.
SELECT action, outcome, detail, actor, reason, incident, approval_id, approver, at FROM cellquota.v_finding_repairs WHERE finding_id = $1 ORDER BY repair_id LIMIT 1000;
