SELECT cellquota.install($1, $2);
