package migrations

// Locks are the advisory locks of one 64-bit key that a shard knows, by purpose; there are no others, and
// no two are the same. A session's lock and a transaction's are one lock if their keys are equal: a
// process that held another's key while it served would stop every migration (a test walks all SQL).
// Keys that are computed by name lie beside: hashes of campaigns, in two halves or in all 64 bits.
func Locks() map[string]int64 {
	return map[string]int64{
		"writers and fencer": writersKey,     // cellquota.lock_key()
		"reporter":           writersKey + 1, // cell/shard/fence.sql
		"grants":             writersKey + 2, // grants.sql, a number of its own: the schema may not be there
		"roles":              writersKey + 3, // cell/shard/migrate/create_roles.sql, likewise
		"gates":              writersKey + 8, // cell/shard/fence.sql
		"migrations":         4097083626,     // goose's, of all its programs in a database
	}
}

// writersKey is what step 1 named, for ever.
const writersKey = 4851379024617
