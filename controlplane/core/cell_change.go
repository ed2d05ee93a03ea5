package core

import (
	"fmt"
	"reflect"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Repeats tells whether the cell's last pause, resume or update was this very one,
// so that its answer is the cell as it stands. The same id with other parameters is
// ErrIDReused. As with campaigns, only the last one is remembered.
func (c Cell) Repeats(operation, parameters string) (bool, error) {
	switch {
	case operation == "" || c.LastOperation != operation:
		return false, nil
	case c.LastParameters != parameters:
		return false, numbered(ErrIDReused, "operation_id", operation, "cell_id", c.Spec.ID)
	}
	return true, nil
}

// Stamped gives the cell as the operation left it, for Repeats to know.
func (c Cell) Stamped(operation, parameters string) Cell {
	c.LastOperation, c.LastParameters = operation, parameters
	return c
}

// Pause stops the cell's sales until Resume; changed false: it is paused already,
// for the reason it was given first. A retired cell is ErrCellState. Any other may
// be paused, a fenced one too: it stays paused through its restore.
func (c Cell) Pause(reason string) (next Cell, changed bool, err error) {
	if c.State == CellRetired {
		return Cell{}, false, c.refuses("pause")
	}
	if c.Paused {
		return c, false, nil
	}
	c.Paused, c.PauseReason = true, reason
	c.Version++
	return c, true, nil
}

// Resume undoes Pause; changed false: it is not paused.
func (c Cell) Resume() (next Cell, changed bool, err error) {
	if c.State == CellRetired {
		return Cell{}, false, c.refuses("resume")
	}
	if !c.Paused {
		return c, false, nil
	}
	c.Paused, c.PauseReason = false, ""
	c.Version++
	return c, true, nil
}

// Amend replaces the cell's spec and names the paths of cell.yaml that differ; no
// path: nothing changes. What a cell is known by stays, and every path of it that
// differs is refused at once (ErrCellFixed): its positions, its processes' group and
// other cells' records depend on it. The map of buckets of published campaigns is
// frozen, so that a new weight or region counts for campaigns that are published
// later. ErrCellState once it is retired.
func (c Cell) Amend(spec CellSpec) (next Cell, changed []string, err error) {
	if c.State == CellRetired {
		return Cell{}, nil, c.refuses("update")
	}
	var v []rpcstatus.Violation
	for _, p := range cellPaths {
		was, is := p.of(c.Spec), p.of(spec)
		if reflect.DeepEqual(was, is) {
			continue
		}
		changed = append(changed, p.path)
		if p.stays != "" {
			v = append(v, rpcstatus.Violation{Field: p.path, Rule: fmt.Sprintf("must stay %v: %s", was, p.stays)})
		}
	}
	if len(v) > 0 {
		text := fmt.Errorf("%w: %d of the file's differences from cell %s may not be made", ErrCellFixed, len(v), c.Spec.ID)
		return Cell{}, nil, rpcstatus.With(text, map[string]string{"cell_id": string(c.Spec.ID)}, v, 0)
	}
	if len(changed) == 0 {
		return c, nil, nil
	}
	c.Spec = spec
	c.Version++
	return c, changed, nil
}

// cellPaths are the keys of cell.yaml; stays says why one may not change.
var cellPaths = []struct {
	path, stays string
	of          func(CellSpec) any
}{
	{"cell_id", "books, routes and the fence row name the cell by it", func(s CellSpec) any { return s.ID }},
	{"region", "", func(s CellSpec) any { return s.Region }},
	{"instance_group", "the fence row names it; fence the cell and restore it under the other group", func(s CellSpec) any { return s.InstanceGroup }},
	{"weight", "", func(s CellSpec) any { return s.Weight }},
	{"redis.mode", "", func(s CellSpec) any { return s.Redis.Mode }},
	{"redis.addrs", "", func(s CellSpec) any { return s.Redis.Addrs }},
	{"redis.password_file", "", func(s CellSpec) any { return s.Redis.PasswordFile }},
	{"redis.master_name", "", func(s CellSpec) any { return s.Redis.MasterName }},
	{"redis.tls.ca_file", "", func(s CellSpec) any { return s.Redis.TLS.CAFile }},
	{"redis.tls.cert_file", "", func(s CellSpec) any { return s.Redis.TLS.CertFile }},
	{"redis.tls.key_file", "", func(s CellSpec) any { return s.Redis.TLS.KeyFile }},
	{"redis.tls.server_name", "", func(s CellSpec) any { return s.Redis.TLS.ServerName }},
	{"kafka.brokers", "", func(s CellSpec) any { return s.Kafka.Brokers }},
	{"kafka.topic", "the shard's positions are of this log", func(s CellSpec) any { return s.Kafka.Topic }},
	{"kafka.partitions", "a SKU's admissions go to one partition, chosen by their number", func(s CellSpec) any { return s.Kafka.Partitions }},
	{"kafka.replication", "", func(s CellSpec) any { return s.Kafka.Replication }},
	{"kafka.tls.ca_file", "", func(s CellSpec) any { return s.Kafka.TLS.CAFile }},
	{"kafka.tls.cert_file", "", func(s CellSpec) any { return s.Kafka.TLS.CertFile }},
	{"kafka.tls.key_file", "", func(s CellSpec) any { return s.Kafka.TLS.KeyFile }},
	{"kafka.tls.server_name", "", func(s CellSpec) any { return s.Kafka.TLS.ServerName }},
	{"kafka.sasl.mechanism", "", func(s CellSpec) any { return s.Kafka.SASL.Mechanism }},
	{"kafka.sasl.user", "", func(s CellSpec) any { return s.Kafka.SASL.User }},
	{"kafka.sasl.password_file", "", func(s CellSpec) any { return s.Kafka.SASL.PasswordFile }},
	{"shard.dsn_file", "", func(s CellSpec) any { return s.Shard.DSNFile }},
	{"shard.reader_dsn_file", "", func(s CellSpec) any { return s.Shard.ReaderDSNFile }},
	{"shard.fencer_dsn_file", "", func(s CellSpec) any { return s.Shard.FencerDSNFile }},
	{"shard.replicated", "", func(s CellSpec) any { return s.Shard.Replicated }},
}

// CellPaths lists the keys of cell.yaml beside its head, in the order of the file.
func CellPaths() []string {
	out := make([]string, len(cellPaths))
	for i, p := range cellPaths {
		out[i] = p.path
	}
	return out
}
