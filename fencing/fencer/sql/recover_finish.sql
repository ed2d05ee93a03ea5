SELECT cellquota.recover_finish($1, $2)
