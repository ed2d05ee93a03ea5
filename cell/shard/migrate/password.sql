-- $1 text: a role, $2 text: its new password. ALTER ROLE takes no parameters, so
-- the server quotes both into a statement for us to send back.
SELECT format('ALTER ROLE %I PASSWORD %L', $1::text, $2::text)
