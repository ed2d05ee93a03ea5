package lottery

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/evidence"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// page is how many entries are read, or winners told, at once.
const page = 10_000

// ErrEntries: a shard's list of entries is not what it counted when entry was closed.
var ErrEntries = errors.New("the entries of a shard changed after entry was closed")

// drawing is one SKU's draw under way.
type drawing struct {
	*Driver
	key      core.BookKey
	campaign core.Campaign
	units    quantity.Quantity
	op       core.Operation
	homes    []core.Cell // in the order of their entries' ids
	lost     []ids.CellID

	doc       evidence.Document
	drawn     []allocator.Winner
	object    core.ArchiveObject
	ungranted int32
}

// sortByEntry: an entry's id begins with its cell and a dot, and a list is in the order of ids.
func sortByEntry(cells []core.Cell) {
	slices.SortFunc(cells, func(a, b core.Cell) int { return cmp.Compare(string(a.Spec.ID)+".", string(b.Spec.ID)+".") })
}

func (d *drawing) sku() fencing.SKU {
	return fencing.SKU{Campaign: string(d.key.Campaign), SKU: string(d.key.SKU)}
}

// with opens a cell's shard for as long as use takes.
func (d *drawing) with(ctx context.Context, cell core.Cell, use func(Shard) error) error {
	shard, err := d.Open(ctx, cell.Spec)
	if err != nil {
		return fmt.Errorf("cell %s: %w", cell.Spec.ID, err)
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	if err := use(shard); err != nil {
		return fmt.Errorf("cell %s: %w", cell.Spec.ID, err)
	}
	return nil
}

// read closes entry, digests the list and draws from it.
func (d *drawing) read(ctx context.Context) error {
	list := allocator.NewEntrantList()
	d.doc = evidence.Document{
		Version: 1, Campaign: string(d.key.Campaign), SKU: string(d.key.SKU), Seed: hex.EncodeToString(d.campaign.LotterySeed), Beacon: d.op.Beacon, Units: d.units.Int64(),
	}
	for _, cell := range d.homes {
		if err := d.with(ctx, cell, func(shard Shard) error { return d.closes(ctx, shard, cell, list) }); err != nil {
			return err
		}
	}
	sum := list.Digest()
	d.doc.Entrants, d.doc.EntrantsSHA256 = list.Count(), hex.EncodeToString(sum[:])
	rules, err := d.doc.Rules()
	if err != nil {
		return err
	}
	promised := allocator.Commitment(rules.Seed)
	d.doc.Commitment = hex.EncodeToString(promised[:])
	draw, err := allocator.NewDraw(rules)
	if err != nil {
		return err
	}
	if err := d.entrants(ctx, draw.Add); err != nil {
		return err
	}
	d.drawn = draw.Winners()
	d.doc.Winners = int64(len(d.drawn))
	for i := range d.doc.Cells {
		d.doc.Cells[i].Winners = int64(len(d.wonIn(d.doc.Cells[i].Cell)))
	}
	for _, cell := range d.lost {
		d.doc.LostCells = append(d.doc.LostCells, string(cell))
	}
	return nil
}

// closes ends entry in one shard and takes its entries into the list.
func (d *drawing) closes(ctx context.Context, shard Shard, cell core.Cell, list *allocator.EntrantList) error {
	counted, err := shard.CloseEntries(ctx, string(cell.Spec.ID), d.sku())
	if err != nil {
		return err
	}
	before := list.Count()
	if err := d.entries(ctx, shard, cell, list.Add); err != nil {
		return err
	}
	if n := list.Count() - before; n != counted {
		return fmt.Errorf("%w: it has %d of %s and counted %d", ErrEntries, n, d.key, counted)
	}
	d.doc.Cells = append(d.doc.Cells, evidence.Cell{Cell: string(cell.Spec.ID), Entrants: counted})
	return nil
}

// entrants hands every entrant over, in ascending order of ids.
func (d *drawing) entrants(ctx context.Context, each func(allocator.Entrant) error) error {
	for _, cell := range d.homes {
		if err := d.with(ctx, cell, func(shard Shard) error { return d.entries(ctx, shard, cell, each) }); err != nil {
			return err
		}
	}
	return nil
}

// entries hands one shard's entrants over, page by page.
func (d *drawing) entries(ctx context.Context, shard Shard, cell core.Cell, each func(allocator.Entrant) error) error {
	for after := ""; ; {
		rows, err := shard.Entries(ctx, d.sku(), after, page)
		if err != nil {
			return err
		}
		for _, e := range rows {
			if err := each(allocator.Entrant{ID: e.ID, Cell: string(cell.Spec.ID), Tickets: e.Tickets}); err != nil {
				return err
			}
			after = e.ID
		}
		if len(rows) < page {
			return nil
		}
	}
}

// wonIn lists the winners of one cell, by their entries' ids.
func (d *drawing) wonIn(cell string) []string {
	var out []string
	for _, w := range d.drawn {
		if w.Cell == cell {
			out = append(out, w.ID)
		}
	}
	return out
}

// begin draws, keeps the evidence, and writes its name into the operation before any shard hears of a winner.
func (d *drawing) begin(ctx context.Context, leader core.Leader) error {
	if err := d.read(ctx); err != nil {
		return err
	}
	if err := d.keep(ctx); err != nil {
		return err
	}
	return d.change(ctx, leader, d.op.ID, func(_ *store.Tx, op core.Operation) core.Operation {
		op.Drawing, op.DrawingEvidence = d.key.SKU, d.object
		return op.Waits(StepDraw, fmt.Sprintf("%s: the evidence is kept, shards are told", d.key.SKU))
	})
}

// load takes a draw whose evidence is kept from it, as it is there.
func (d *drawing) load(ctx context.Context) error {
	d.object = d.op.DrawingEvidence
	raw, err := d.Archive.Get(ctx, d.object)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &d.doc); err != nil {
		return fmt.Errorf("%w: %s: %w", archive.ErrCorrupt, d.object.Name, err)
	}
	for _, part := range d.doc.WinnerParts {
		content, err := d.Archive.Get(ctx, core.ArchiveObject{Name: part.Object, SHA256: part.SHA256, Size: part.Size})
		if err != nil {
			return err
		}
		for id := range strings.Lines(string(content)) {
			id = strings.TrimSuffix(id, "\n")
			d.drawn = append(d.drawn, allocator.Winner{Entrant: allocator.Entrant{ID: id, Cell: string(ids.EntryID(id).Cell())}})
		}
	}
	return nil
}

// keep puts lists and document into the archive. The names hold the operation and what was drawn from: one
// that draws again after its leader died writes the same bytes, and one from another list others.
func (d *drawing) keep(ctx context.Context) error {
	prefix := "lottery/" + core.Digest(d.op.ID, d.key.String(), d.doc.EntrantsSHA256, strings.Join(d.doc.LostCells, " "))
	entrants := parts{ctx: ctx, archive: d.Archive, prefix: prefix + "/entrants-"}
	if err := d.entrants(ctx, func(e allocator.Entrant) error { return entrants.add(evidence.Line(e)) }); err != nil {
		return err
	}
	won := parts{ctx: ctx, archive: d.Archive, prefix: prefix + "/winners-"}
	for _, w := range d.drawn {
		if err := won.add(w.ID + "\n"); err != nil {
			return err
		}
	}
	if err := errors.Join(entrants.flush(), won.flush()); err != nil {
		return err
	}
	d.doc.EntrantParts, d.doc.WinnerParts = entrants.kept, won.kept
	raw, err := json.Marshal(d.doc)
	if err != nil {
		return err
	}
	d.object, err = d.Archive.Put(ctx, prefix+"/draw", raw)
	return err
}

// tell names each shard its winners, and ends the draw there.
func (d *drawing) tell(ctx context.Context) error {
	for _, cell := range d.homes {
		winners := d.wonIn(string(cell.Spec.ID))
		err := d.with(ctx, cell, func(shard Shard) error {
			for some := range slices.Chunk(winners, page) {
				if err := shard.DrawEntries(ctx, string(cell.Spec.ID), d.sku(), some); err != nil {
					return err
				}
			}
			return shard.EndDraw(ctx, string(cell.Spec.ID), d.sku(), int64(len(winners)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// grant gives each cell the units of its winners, with the draw in the campaign's record. What a cell may
// not take now stays in the reserve, counted: an operator tops it up later.
func (d *drawing) grant(ctx context.Context, leader core.Leader, s view.Snapshot) error {
	var book core.Book
	var granted []core.Adjustment
	id := "lottery." + core.Digest(d.op.ID, d.key.String())
	_, err := d.Store.Move(ctx, store.Move{
		RecordID: id, Parameters: core.Digest("lottery", d.op.ID, d.key.String()), Key: d.key, Actor: d.op.Actor, Method: d.op.Kind, Reason: d.op.Reason, OperationID: d.op.ID,
		Leader: &leader,
		Also: func(tx *store.Tx) (err error) {
			if book, granted, err = d.shareIn(tx, s); err != nil {
				return err
			}
			return d.record(tx)
		},
		Edit: func(core.Book, map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			return book, granted, nil
		},
	})
	return err
}

// shareIn is share with what the transaction reads.
func (d *drawing) shareIn(tx *store.Tx, s view.Snapshot) (core.Book, []core.Adjustment, error) {
	book, known, err := tx.Book(d.key)
	if err != nil || !known {
		return book, nil, errors.Join(err, fmt.Errorf("%w: %s", core.ErrUnknownSKU, d.key))
	}
	cells, err := tx.Cells()
	if err != nil {
		return book, nil, err
	}
	return d.share(s, book, cells)
}

// record puts the draw into the campaign's record.
func (d *drawing) record(tx *store.Tx) error {
	campaign, known, err := tx.Campaign(d.key.Campaign)
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("%w: %s", core.ErrUnknownCampaign, d.key.Campaign)
	}
	return tx.PutCampaign(campaign.Drawn(core.LotteryDraw{
		SKU: d.key.SKU, Entrants: d.doc.Entrants, EntrantsSHA256: d.doc.EntrantsSHA256, Evidence: d.object.Name, EvidenceSHA256: d.object.SHA256, EvidenceSize: d.object.Size, Beacon: d.op.Beacon,
		Units: d.units.Int32(), Winners: int32(d.doc.Winners), Ungranted: d.ungranted, DrawnAt: tx.Now(), LostCells: lostCells(d.doc),
	}))
}

// lostCells are those whose entries were not in the list.
func lostCells(doc evidence.Document) []ids.CellID {
	var out []ids.CellID
	for _, cell := range doc.LostCells {
		out = append(out, ids.CellID(cell))
	}
	return out
}

// share grants what each cell's customers won, as far as the reserve goes: it may have been lowered since.
func (d *drawing) share(s view.Snapshot, book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
	d.ungranted = 0
	var adjustments []core.Adjustment
	for _, c := range d.doc.Cells {
		cell := cells[ids.CellID(c.Cell)]
		units, err := quantity.New(c.Winners)
		if err != nil {
			return core.Book{}, nil, err
		}
		if cell.MayTakeAs(s.CellState(cell)) != nil {
			d.ungranted += units.Int32()
			continue
		}
		given := quantity.Min(units, book.Reserve)
		d.ungranted += units.Int32() - given.Int32()
		if given.IsZero() {
			continue
		}
		var step core.Step
		if book, step, err = book.Grant(cell, given); err != nil {
			return core.Book{}, nil, err
		}
		adjustments = append(adjustments, core.Adjustment{
			ID: "lottery." + core.Digest(d.op.ID, d.key.String(), c.Cell), Key: d.key, Cell: cell.Spec.ID, Kind: core.KindGrant, Units: given,
			State: core.StateBooked, Step: step, Actor: d.op.Actor, Reason: d.op.Reason, CreatedAt: d.Clock.Now().UTC(),
		})
	}
	return book, adjustments, nil
}
