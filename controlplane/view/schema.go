package view

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/go-memdb"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// row is one record in a table.
type row struct {
	key         string // etcd's, whole
	value       any    // see store.Kind
	modRevision int64
}

// schema is one table per mirrored kind.
func schema() *memdb.DBSchema {
	tables := map[string]*memdb.TableSchema{}
	for _, kind := range store.Mirrored() {
		tables[kind.String()] = table(kind)
	}
	return &memdb.DBSchema{Tables: tables}
}

// table gives the indexes of a kind. Every table has id, the etcd key.
func table(kind store.Kind) *memdb.TableSchema {
	t := &memdb.TableSchema{Name: kind.String(), Indexes: map[string]*memdb.IndexSchema{
		"id": {Name: "id", Unique: true, Indexer: index(func(r *row) []byte { return []byte(r.key) })},
	}}
	if kind == store.KindRecord {
		// campaign: a campaign's records in the order in which they were created.
		t.Indexes["campaign"] = &memdb.IndexSchema{Name: "campaign", Indexer: index(func(r *row) []byte {
			rec, _ := r.value.(core.Record)
			return append([]byte(string(rec.Key.Campaign)+"\x00"), ascending(rec.CreateRevision)...)
		})}
		// adjustment: the record of an adjustment's id.
		t.Indexes["adjustment"] = &memdb.IndexSchema{Name: "adjustment", AllowMissing: true, Indexer: manyIndex(func(r *row) [][]byte {
			rec, _ := r.value.(core.Record)
			var out [][]byte
			for _, a := range rec.Adjustments {
				out = append(out, []byte(a.ID+"\x00"))
			}
			return out
		})}
		// open: records with an adjustment that a shard has not answered.
		t.Indexes["open"] = &memdb.IndexSchema{Name: "open", AllowMissing: true, Indexer: index(func(r *row) []byte {
			rec, _ := r.value.(core.Record)
			if !rec.Open() {
				return nil
			}
			return ascending(rec.CreateRevision)
		})}
	}
	if kind == store.KindOperation {
		// created: in the order in which they were begun.
		t.Indexes["created"] = &memdb.IndexSchema{Name: "created", Indexer: index(func(r *row) []byte {
			op, _ := r.value.(core.Operation)
			return ascending(op.CreateRevision)
		})}
		// open: operations that have not ended, oldest first.
		t.Indexes["open"] = &memdb.IndexSchema{Name: "open", AllowMissing: true, Indexer: index(func(r *row) []byte {
			op, _ := r.value.(core.Operation)
			if op.State.Terminal() {
				return nil
			}
			return ascending(op.CreateRevision)
		})}
	}
	if kind == store.KindApproval {
		// created: in the order in which they were asked for.
		t.Indexes["created"] = &memdb.IndexSchema{Name: "created", Indexer: index(func(r *row) []byte {
			a, _ := r.value.(core.Approval)
			return ascending(a.CreateRevision)
		})}
		// pending: approvals that nobody has decided, oldest first.
		t.Indexes["pending"] = &memdb.IndexSchema{Name: "pending", AllowMissing: true, Indexer: index(func(r *row) []byte {
			a, _ := r.value.(core.Approval)
			if a.State.Terminal() {
				return nil
			}
			return ascending(a.CreateRevision)
		})}
	}
	return t
}

func ascending(n int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(max(n, 0)))
}

// last is above every number of ascending.
const last = int64(math.MaxInt64)

// index makes an index of a function of the row; nil: not in the index. Arguments
// are a string or []byte, taken as they are.
type index func(*row) []byte

var errArgs = errors.New("an index takes one string or []byte")

// FromArgs implements memdb.Indexer.
func (index) FromArgs(args ...any) ([]byte, error) {
	if len(args) != 1 {
		return nil, errArgs
	}
	switch v := args[0].(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	}
	return nil, errArgs
}

// PrefixFromArgs implements memdb.PrefixIndexer.
func (i index) PrefixFromArgs(args ...any) ([]byte, error) { return i.FromArgs(args...) }

// FromObject implements memdb.SingleIndexer.
func (i index) FromObject(raw any) (bool, []byte, error) {
	r, ok := raw.(*row)
	if !ok {
		return false, nil, fmt.Errorf("a table holds %T", raw)
	}
	value := i(r)
	return value != nil, value, nil
}

// manyIndex makes an index of several values of a row.
type manyIndex func(*row) [][]byte

// FromArgs implements memdb.Indexer.
func (manyIndex) FromArgs(args ...any) ([]byte, error) { return index(nil).FromArgs(args...) }

// FromObject implements memdb.MultiIndexer.
func (i manyIndex) FromObject(raw any) (bool, [][]byte, error) {
	r, ok := raw.(*row)
	if !ok {
		return false, nil, fmt.Errorf("a table holds %T", raw)
	}
	values := i(r)
	return len(values) > 0, values, nil
}
