SELECT cellquota.fence_cell($1, $2, $3, $4);
