package routes

import (
	"fmt"

	"github.com/hashicorp/go-memdb"

	"github.com/cellquota/cellquota/edge/route"
)

// Tables of the copy, and the one index each has.
const (
	campaigns = "campaigns" // *route.Campaign by campaign id
	cells     = "cells"     // *route.Cell by cell id
	keys      = "keys"      // Key by use/kid
	byID      = "id"
)

func schema() *memdb.DBSchema {
	table := func(name string, id func(any) (string, bool)) *memdb.TableSchema {
		return &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{
			byID: {Name: byID, Unique: true, Indexer: idIndex(id)},
		}}
	}
	return &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		campaigns: table(campaigns, func(o any) (string, bool) {
			c, ok := o.(*route.Campaign)
			if !ok {
				return "", false
			}
			return string(c.ID), true
		}),
		cells: table(cells, func(o any) (string, bool) {
			c, ok := o.(*route.Cell)
			if !ok {
				return "", false
			}
			return string(c.ID), true
		}),
		keys: table(keys, func(o any) (string, bool) {
			k, ok := o.(Key)
			return k.Use + "/" + k.KID, ok
		}),
	}}
}

// idIndex indexes objects by the text it reads from them, without reflection: campaigns and cells
// are looked up once per customer's call.
type idIndex func(any) (string, bool)

// FromObject implements memdb.SingleIndexer.
func (f idIndex) FromObject(o any) (bool, []byte, error) {
	id, ok := f(o)
	if !ok || id == "" {
		return false, nil, fmt.Errorf("routes: no id in a %T", o)
	}
	return true, append([]byte(id), 0), nil
}

// FromArgs implements memdb.Indexer.
func (f idIndex) FromArgs(args ...any) ([]byte, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("routes: %d arguments for one id", len(args))
	}
	id, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("routes: an id is a string, not a %T", args[0])
	}
	return append([]byte(id), 0), nil
}
