SELECT cellquota.recover_begin($1, $2, $3, $4, $5, $6, $7, $8, $9)
