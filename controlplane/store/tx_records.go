package store

import (
	"cmp"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// The reads and puts of a transaction, by record. A read that finds nothing is
// no error; a put checks the record's law first and needs the key to have been
// read in the same transaction.

// Cell reads one cell.
func (tx *Tx) Cell(id ids.CellID) (core.Cell, bool, error) {
	c, found, err := fetch(tx, tx.s.keys.cell(id), decodeCell)
	saw(tx, tx.s.keys.cell(id), found, c.State)
	return c, found, err
}

// PutCell writes a cell; the caller has grown its version.
func (tx *Tx) PutCell(c core.Cell) error {
	if err := c.Check(); err != nil {
		return err
	}
	tx.movesCell(tx.s.keys.cell(c.Spec.ID), c)
	return tx.put(tx.s.keys.cell(c.Spec.ID), encodeCell(c))
}

// Campaign reads one campaign.
func (tx *Tx) Campaign(id ids.CampaignID) (core.Campaign, bool, error) {
	c, found, err := fetch(tx, tx.s.keys.campaign(id), decodeCampaign)
	saw(tx, tx.s.keys.campaign(id), found, c.State)
	return c, found, err
}

// maxDraft bounds a campaign that has no book yet, in bytes: opening a book writes the
// campaign, with its lists of SKUs, beside a record of up to 1,000 grants, and etcd
// takes 1.5 MiB at once (a transaction of ours 1.25).
const maxDraft = 512 << 10

// PutCampaign writes a campaign; Campaign.Step has grown its version. The first
// time that it is CLOSED, when is kept. core.ErrTooLarge for a draft above 512 KiB.
func (tx *Tx) PutCampaign(c core.Campaign) error {
	if c.State == core.CampaignClosed && c.ClosedAt.IsZero() {
		c.ClosedAt = tx.Now()
	}
	if err := c.Check(); err != nil {
		return err
	}
	m := encodeCampaign(c)
	if size := proto.Size(m); c.State == core.CampaignDraft && size > maxDraft {
		return fmt.Errorf("%w: campaign %s of %d bytes, at most %d", core.ErrTooLarge, c.Spec.ID, size, maxDraft)
	}
	tx.movesCampaign(tx.s.keys.campaign(c.Spec.ID), c)
	return tx.put(tx.s.keys.campaign(c.Spec.ID), m)
}

// Route reads a campaign's route.
func (tx *Tx) Route(id ids.CampaignID) (core.Route, bool, error) {
	return fetch(tx, tx.s.keys.route(id), decodeRoute)
}

// PutRoute writes a route.
func (tx *Tx) PutRoute(r core.Route) error {
	if err := r.Check(); err != nil {
		return err
	}
	return tx.put(tx.s.keys.route(r.Campaign), encodeRoute(r))
}

// DropRoute deletes a route, when a publish is given up.
func (tx *Tx) DropRoute(id ids.CampaignID) error { return tx.remove(tx.s.keys.route(id)) }

// Book reads one book, and compares it with what this process remembers of it.
// core.ErrRestored: etcd lost its past.
func (tx *Tx) Book(key core.BookKey) (core.Book, bool, error) {
	seen, known := tx.s.past.of(key) // before the read: what is read must not be older
	book, found, err := fetch(tx, tx.s.keys.book(key), decodeBook)
	if err == nil && known {
		err = tx.follows(key, seen, book, found)
	}
	return book, found, err
}

// PutBook writes a stamped book. core.ErrRestored while etcd is known to have lost
// its past.
func (tx *Tx) PutBook(b core.Book) error {
	if err := b.Check(); err != nil {
		return err
	}
	if b.Version < 1 || b.LastRecordID == "" {
		return fmt.Errorf("%w: book %s is not stamped", core.ErrBroken, b.Key)
	}
	if err := tx.whole(); err != nil {
		return err
	}
	tx.books = append(tx.books, b)
	return tx.put(tx.s.keys.book(b.Key), encodeBook(b))
}

// DropBook deletes a book that nothing was sent for, when a publish is given up.
func (tx *Tx) DropBook(key core.BookKey) error {
	if err := tx.whole(); err != nil {
		return err
	}
	tx.dropped = append(tx.dropped, key)
	return tx.remove(tx.s.keys.book(key))
}

// Record reads one journal record.
func (tx *Tx) Record(id string) (core.Record, bool, error) {
	return fetch(tx, tx.s.keys.record(id), decodeRecord)
}

// PutRecord writes a journal record.
func (tx *Tx) PutRecord(r core.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	return tx.put(tx.s.keys.record(r.ID), encodeRecord(r))
}

// DropRecord deletes the record of a book that DropBook deletes.
func (tx *Tx) DropRecord(id string) error { return tx.remove(tx.s.keys.record(id)) }

// Proof reads the record of a cell's proof at a fence version, without the rows that
// stand in parts: it tells whether there is one.
func (tx *Tx) Proof(cell ids.CellID, version int64) (core.Proof, bool, error) {
	return fetch(tx, tx.s.keys.proof(cell, version), decodeProof)
}

// PutProof writes a proof, as Store.StageProof gave it. core.ErrRace when its parts are
// another try's by now: a record beside them could never be read again.
func (tx *Tx) PutProof(p core.Proof) error {
	if err := p.Check(); err != nil {
		return err
	}
	for n := 1; n <= p.Parts; n++ {
		part, stands, err := fetch(tx, tx.s.keys.room(KindProofPart)+ProofPartName(p.Cell, p.FenceVersion, n), decodeProof)
		if err != nil {
			return err
		}
		if !stands || part.Set != p.Set {
			return fmt.Errorf("%w: part %d of proof %s", core.ErrRace, n, core.ProofID(p.Cell, p.FenceVersion))
		}
	}
	return tx.put(tx.s.keys.proof(p.Cell, p.FenceVersion), encodeProof(p))
}

// DropProof deletes a proof that a later one replaced, with its parts.
func (tx *Tx) DropProof(cell ids.CellID, version int64) error {
	if err := tx.remove(tx.s.keys.proof(cell, version)); err != nil {
		return err
	}
	tx.ops = append(tx.ops, clientv3.OpDelete(tx.s.keys.proofParts(cell, version), clientv3.WithPrefix()))
	return nil
}

// Stock reads the physical stock of a SKU.
func (tx *Tx) Stock(id ids.SKUID) (core.PhysicalStock, bool, error) {
	return fetch(tx, tx.s.keys.stock(id), decodeStock)
}

// PutStock writes physical stock.
func (tx *Tx) PutStock(p core.PhysicalStock) error {
	if err := p.Check(); err != nil {
		return err
	}
	return tx.put(tx.s.keys.stock(p.SKU), encodeStock(p))
}

// Operation reads one operation.
func (tx *Tx) Operation(id string) (core.Operation, bool, error) {
	o, found, err := fetch(tx, tx.s.keys.operation(id), decodeOperation)
	saw(tx, tx.s.keys.operation(id), found, o.State)
	return o, found, err
}

// PutOperation writes an operation and grows its version.
func (tx *Tx) PutOperation(o core.Operation) error {
	if err := o.Check(); err != nil {
		return err
	}
	o.Version++
	tx.movesOperation(tx.s.keys.operation(o.ID), o)
	return tx.put(tx.s.keys.operation(o.ID), encodeOperation(o))
}

// DropOperation deletes an operation that ended long ago.
func (tx *Tx) DropOperation(id string) error { return tx.remove(tx.s.keys.operation(id)) }

// Approval reads the approval of an operation.
func (tx *Tx) Approval(id string) (core.Approval, bool, error) {
	return fetch(tx, tx.s.keys.approval(id), decodeApproval)
}

// PutApproval writes an approval.
func (tx *Tx) PutApproval(a core.Approval) error {
	if err := a.Check(); err != nil {
		return err
	}
	return tx.put(tx.s.keys.approval(a.ID), encodeApproval(a))
}

// DropApproval deletes an approval that was decided long ago.
func (tx *Tx) DropApproval(id string) error { return tx.remove(tx.s.keys.approval(id)) }

// Token reads one token.
func (tx *Tx) Token(id string) (core.Token, bool, error) {
	return fetch(tx, tx.s.keys.token(id), decodeToken)
}

// PutToken writes a token.
func (tx *Tx) PutToken(t core.Token) error {
	if err := t.Check(); err != nil {
		return err
	}
	return tx.put(tx.s.keys.token(t.ID), encodeToken(t))
}

// DropToken deletes a token that is dead for good.
func (tx *Tx) DropToken(id string) error { return tx.remove(tx.s.keys.token(id)) }

// Instance reads one live process.
func (tx *Tx) Instance(cell ids.CellID, id string) (core.Instance, bool, error) {
	return fetch(tx, tx.s.keys.instance(cell, id), decodeInstance)
}

// Audit remembers the mutation beside it.
func (tx *Tx) Audit(a core.Audit) error {
	if a.At.IsZero() {
		a.At = tx.Now()
	}
	a.Reason = cmp.Or(a.Reason, "no reason given")
	value, err := encode(encodeAudit(a))
	if err != nil {
		return err
	}
	tx.ops = append(tx.ops, clientv3.OpPut(tx.s.keys.audit(a.At, ids.NewOperationID()), string(value)))
	return nil
}
