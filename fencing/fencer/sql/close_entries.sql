SELECT cellquota.close_entries($1, $2, $3, $4);
