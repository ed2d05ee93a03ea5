SELECT cellquota.restore_cell($1, $2, $3, $4, $5);
