-- A shard one step behind has no refunds.
SELECT to_regclass('cellquota.v_refunds') IS NOT NULL;
