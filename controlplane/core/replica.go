package core

import "time"

// Replica is a running replica of the control plane, as it registered under its
// lease. It says who may be asked, and nothing about who leads.
type Replica struct {
	// Address is how others reach it, host:port; unique.
	Address string
	// ProgramVersion is the build of its program.
	ProgramVersion string
	// StartedAt is when it registered.
	StartedAt time.Time
	// Lease is its lease in etcd.
	Lease int64
}

// Check is the law of a stored replica.
func (r Replica) Check() error {
	if r.Address == "" {
		return broken("a replica without an address")
	}
	return nil
}
