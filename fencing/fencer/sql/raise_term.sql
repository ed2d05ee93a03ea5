SELECT cellquota.raise_term($1, $2);
