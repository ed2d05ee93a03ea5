SELECT cellquota.draw_entries($1, $2, $3, $4);
