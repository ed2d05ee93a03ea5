-- $1 text: a table's full name. Is it there?
SELECT to_regclass($1) IS NOT NULL
