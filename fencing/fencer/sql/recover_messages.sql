SELECT cellquota.recover_messages($1, $2)
