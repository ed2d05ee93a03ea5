-- A shard of a step before 7 keeps fewer columns of its findings.
SELECT to_regclass('cellquota.v_finding_details') IS NOT NULL;
