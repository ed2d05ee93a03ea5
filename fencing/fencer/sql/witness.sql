SELECT cellquota.witness()
