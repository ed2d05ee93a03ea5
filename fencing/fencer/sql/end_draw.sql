SELECT cellquota.end_draw($1, $2, $3, $4);
