package core

// ArchiveObject names an immutable object of the archive. etcd keeps it when the
// content has left etcd, so that what is read back can be held against it.
type ArchiveObject struct {
	// Name within the archive: segments of letters, digits, '.', '_' and '-',
	// joined by '/'.
	Name string
	// SHA256 of the content, hex; of the content and not of its compressed form, so
	// that another compressor's bytes are still the same object.
	SHA256 string
	// Size of the content in bytes.
	Size int64
}

// Cancelled tells whether the campaign was cancelled: unpaid orders are closed,
// paid ones refunded, and nothing is sold any more.
func (c Campaign) Cancelled() bool { return c.CancelledBy != "" }

// Repeats tells whether the campaign's last mutation was this very one, so that
// its answer is the campaign as it stands. The same id with other parameters is
// ErrIDReused. Only the last mutation is remembered: an older id that comes back
// is judged as a new call, which its expected version, or its own idempotence,
// has to bear.
func (c Campaign) Repeats(operation, parameters string) (bool, error) {
	switch {
	case operation == "" || c.LastOperation != operation:
		return false, nil
	case c.LastParameters != parameters:
		return false, numbered(ErrIDReused, "operation_id", operation, "campaign_id", c.Spec.ID)
	}
	return true, nil
}

// Stamped gives the campaign as the operation left it, for Repeats to know.
func (c Campaign) Stamped(operation, parameters string) Campaign {
	c.LastOperation, c.LastParameters = operation, parameters
	return c
}
