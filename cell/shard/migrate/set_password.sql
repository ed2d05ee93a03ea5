-- ALTER ROLE takes no parameters: the server itself quotes name and password into the statement.
SELECT format('ALTER ROLE %I PASSWORD %L', $1::text, $2::text);
