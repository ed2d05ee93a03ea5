-- One row for each privilege that is not as migrations/grants.sql leaves it; whoever asks may read the
-- catalogue. A role that is missing is one row of its own.
WITH want(role, object, privilege, must) AS (VALUES
  ('cellquota_app', 'cellquota.reservations', 'INSERT', true), ('cellquota_app', 'cellquota.orders', 'UPDATE', true),
  ('cellquota_app', 'cellquota.stock', 'UPDATE', true), ('cellquota_app', 'cellquota.ledger', 'INSERT', true),
  ('cellquota_app', 'cellquota.fence', 'SELECT', true),
  ('cellquota_app', 'cellquota.fence', 'UPDATE', false), ('cellquota_app', 'cellquota.term', 'UPDATE', false),
  ('cellquota_app', 'cellquota.ledger', 'UPDATE', false), ('cellquota_app', 'cellquota.ledger', 'DELETE', false),
  ('cellquota_fencer', 'cellquota.stock', 'SELECT', true), ('cellquota_fencer', 'cellquota.stock', 'UPDATE', false),
  ('cellquota_fencer', 'cellquota.fence', 'UPDATE', false),
  ('cellquota_reader', 'cellquota.v_stock', 'SELECT', true), ('cellquota_reader', 'cellquota.v_fence', 'SELECT', true),
  ('cellquota_reader', 'cellquota.stock', 'UPDATE', false), ('cellquota_reader', 'cellquota.stock', 'INSERT', false)
), calls(role, name) AS (VALUES
  ('cellquota_app', 'require_fence'), ('cellquota_app', 'raise_term'), ('cellquota_fencer', 'install'), ('cellquota_fencer', 'fence_cell'),
  ('cellquota_fencer', 'restore_cell'), ('cellquota_fencer', 'activate_cell'), ('cellquota_fencer', 'raise_term')
)
SELECT 'role ' || role || ' does not exist' FROM (SELECT DISTINCT role FROM want) AS r
  WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r.role)
UNION ALL
SELECT role || CASE WHEN must THEN ' lacks ' ELSE ' has ' END || privilege || ' on ' || object FROM want
  WHERE CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = role) AND to_regclass(object) IS NOT NULL
    THEN has_table_privilege(role::name, to_regclass(object)::oid, privilege) <> must ELSE false END
UNION ALL
SELECT c.role || ' may not call ' || c.name FROM calls AS c JOIN pg_proc AS f ON f.proname = c.name AND f.pronamespace = 'cellquota'::regnamespace
  WHERE CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = c.role) THEN NOT has_function_privilege(c.role::name, f.oid, 'EXECUTE') ELSE false END
UNION ALL
SELECT rolname || ' is a superuser' FROM pg_roles WHERE rolname LIKE 'cellquota\_%' AND rolsuper
ORDER BY 1;
