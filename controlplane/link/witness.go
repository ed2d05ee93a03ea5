package link

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// witnessEvery is how often what was seen of the shards is written down.
const witnessEvery = 2 * time.Second

// history says why a process may not register because its shard is not the one that was seen, or nil.
// A hello that shows less than a witness saw is no proof by itself: it may have been read before what
// the witness saw. So the leader reads the shard then, behind all that it compares with; what is still
// missing is, and the cell becomes REGRESSED. Another history that lacks nothing is taken for the
// cell's from now on.
func (s *stream) history(ctx context.Context, cell core.Cell) (*pb.Refusal, error) {
	if cell.State == core.CellRestoring {
		return nil, nil // it may have gone back in time, and sells nothing; it is compared when it is ACTIVE
	}
	seen, err := s.hub.seen(ctx, s.reign, cell)
	if err != nil {
		return nil, err
	}
	own := s.lacksOf(cell)
	if s.hello.GetWitness() == nil && own == "" && s.hello.GetFenceVersion() >= cell.FenceVersion {
		return nil, nil // a schema or a program that shows no more than its fence row
	}
	now := convert.FromWitness(s.hello.GetWitness())
	if own == "" && seen.Lacks(now) == "" && (seen.Identity == "" || seen.Identity == now.Identity) {
		s.reign.raise(s.cell, now)
		return nil, nil
	}
	read, err := s.hub.Shards.Look(ctx, cell.Spec)
	if err != nil {
		return refuse(pb.RefusalCode_REFUSAL_CODE_REGRESSED, "the shard of cell %s is not what was seen, and cannot be read: %v", s.cell, err), nil
	}
	why := seen.Lacks(read)
	if why == "" {
		why = own
	}
	if why == "" {
		s.hub.Log.WarnContext(ctx, "the shard has another history and lacks nothing", append(s.fields("shard_history"), "was", seen.Identity, "is", read.Identity)...)
		s.reign.raise(s.cell, read)
		return nil, s.hub.Store.RaiseWitness(ctx, s.reign.leader, s.cell, read)
	}
	if err := s.hub.Store.RaiseWitness(ctx, s.reign.leader, s.cell, seen); err != nil {
		return nil, err // what the recovery has to reach is written before the cell is marked
	}
	if _, err := s.hub.Store.Regress(ctx, s.reign.leader, s.cell, why); err != nil {
		return nil, err
	}
	s.hub.Log.ErrorContext(ctx, "the shard went back in time", append(s.fields("cell_regressed"), telemetry.NewState, core.CellRegressed.String(), "detail", why)...)
	return refuse(pb.RefusalCode_REFUSAL_CODE_REGRESSED, "the shard of cell %s went back in time (%s); recover it: cellctl cell restore %s", s.cell, why, s.cell), nil
}

// lacksOf is what the process itself misses in its shard; "" too where the cell was recovered since.
func (s *stream) lacksOf(cell core.Cell) string {
	if s.hello.GetLacks() == "" || s.hello.GetLacksVersion() < cell.FenceVersion {
		return ""
	}
	return "a process of it saw more: " + s.hello.GetLacks()
}

// seen is the highest that anybody here saw of a cell's shard: what was written down, what came under
// this leadership, and what the books know that it decided.
func (h *Hub) seen(ctx context.Context, r *reign, cell core.Cell) (fencing.Witness, error) {
	written, _, err := h.Store.Witness(ctx, cell.Spec.ID)
	if err != nil {
		return written, err
	}
	if now := r.witness(cell.Spec.ID); now.Version >= written.Version { // a lower one is from before a recovery
		written = written.Raise(now)
	}
	return Decided(h.View.Snapshot(), cell).Raise(written), nil
}

// Decided is what the records prove of a cell's shard: it has decided every adjustment whose outcome
// is in the journal, it closed or opened the buckets of every handover that is that far, and it stands
// at the cell's fence version at least. No process of the cell need have reported any of it: a standby
// that lacks a closing would sell to users whose orders another cell takes.
func Decided(s view.Snapshot, cell core.Cell) fencing.Witness {
	w := fencing.Witness{Version: fencing.Version(cell.FenceVersion), Stocks: map[fencing.SKU]fencing.Mark{}, Settled: map[string]bool{}}
	id := cell.Spec.ID
	for _, book := range s.Books("") {
		a, held := book.Allocation(id)
		if c, known := s.Campaign(book.Key.Campaign); !held || book.Settled || !known || c.State == core.CampaignSettled {
			continue
		}
		w.Stocks[fencing.SKU{Campaign: string(book.Key.Campaign), SKU: string(book.Key.SKU)}] = fencing.Mark{AdjustmentVersion: a.FenceVersion, LastNumber: a.LastNumber}
	}
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			sku := fencing.SKU{Campaign: string(a.Key.Campaign), SKU: string(a.Key.SKU)}
			mark, has := w.Stocks[sku]
			if !has || a.Cell != id || !a.Open() || a.FenceVersion != mark.AdjustmentVersion || a.Number == 0 {
				continue
			}
			mark.LastNumber = min(mark.LastNumber, a.Number-1)
			w.Stocks[sku] = mark
		}
	}
	for sku, mark := range w.Stocks {
		if mark.LastNumber == 0 { // the version may have reached the book alone
			delete(w.Stocks, sku)
		}
	}
	w.Routes = moved(s, id)
	return w
}

// moved gives, by campaign, the newest route version under which a cell's shard closed or opened buckets.
func moved(s view.Snapshot, cell ids.CellID) map[string]int64 {
	out := map[string]int64{}
	raise := func(campaign ids.CampaignID, version int64) {
		if c, known := s.Campaign(campaign); version > out[string(campaign)] && known && c.State != core.CampaignSettled {
			out[string(campaign)] = version
		}
	}
	for _, c := range s.Campaigns() {
		if route, known := s.Route(c.Spec.ID); known {
			raise(c.Spec.ID, route.Moved(cell))
		}
	}
	for _, op := range s.OpenOperations() {
		raise(ids.CampaignID(op.Subject), op.MovedBuckets(cell))
	}
	return out
}

// witness is what came under this leadership.
func (r *reign) witness(cell ids.CellID) fencing.Witness {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.desk(cell).seen
}

func (r *reign) raise(cell ids.CellID, now fencing.Witness) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.desk(cell)
	if now.Version > d.seen.Version {
		d.seen = fencing.Witness{} // a fence or a recovery came between: what the shard shows now is all there is
	}
	d.seen, d.unwritten = d.seen.Raise(now), true
}

// reportedWitness takes what the reporter saw; a reading of another history than the registered one is left.
func (r *reign) reportedWitness(s *stream, m *pb.ShardWitness) {
	if m == nil {
		return
	}
	now := convert.FromWitness(m)
	if was := r.witness(s.cell); was.Identity == "" || was.Identity == now.Identity {
		r.raise(s.cell, now)
	}
}

// write writes down what was seen, a cell after the other.
func (h *Hub) write(r *reign) {
	tick := h.Clock.NewTicker(witnessEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C():
		}
		for cell, seen := range r.unwritten() {
			if err := h.Store.RaiseWitness(r.ctx, r.leader, cell, seen); err != nil && r.ctx.Err() == nil {
				h.Log.WarnContext(r.ctx, "what was seen of a shard is not written down", telemetry.Event, "witness_unwritten", telemetry.CellID, string(cell), telemetry.Error, fmt.Sprint(err))
				r.raise(cell, seen)
			}
		}
	}
}

// unwritten takes what has to be written down.
func (r *reign) unwritten() map[ids.CellID]fencing.Witness {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[ids.CellID]fencing.Witness{}
	for cell, d := range r.cells {
		if d.unwritten {
			out[cell], d.unwritten = d.seen, false
		}
	}
	return out
}
