package admission

// Waiting is how many asks wait for a transaction.
func (d *Direct) Waiting() int { return len(d.queue) }
