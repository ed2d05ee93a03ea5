package entries

// Waiting counts the entries that wait for a transaction.
func (d *Desk) Waiting() int { return len(d.queue) }
