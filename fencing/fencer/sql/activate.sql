SELECT cellquota.activate_cell($1, $2, $3, $4);
