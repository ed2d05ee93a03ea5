-- The operator's switch of this cell.

-- name: switch_set
SELECT cellquota.set_cell_switch($1::boolean, $2::bigint, $3::text);

-- name: switch_read
SELECT paused, version, reason FROM cellquota.cell_switch;

-- name: switch_known
SELECT to_regclass('cellquota.cell_switch') IS NOT NULL;
