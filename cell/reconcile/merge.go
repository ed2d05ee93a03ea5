package reconcile

import (
	"context"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// Pages are the database's ledgers, sorted by reservation; *shard.Ledgers is one.
type Pages interface {
	Inbox(ctx context.Context, campaign ids.CampaignID, after string, limit int) ([]shard.InboxFact, error)
	Holds(ctx context.Context, campaign ids.CampaignID, after ids.ReservationID, limit int) ([]shard.HoldFact, error)
	Entries(ctx context.Context, campaign ids.CampaignID, after ids.ReservationID, entry int64, limit int) ([]shard.EntryFact, error)
	Buyers(ctx context.Context, campaign ids.CampaignID, after shard.BuyerFact, limit int) ([]shard.BuyerFact, error)
	Chain(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, after int64, limit int) ([]shard.ChainFact, error)
}

// stream is one sorted ledger, a page of which is in memory.
type stream[T any] struct {
	read func(ctx context.Context, last T) ([]T, error)
	key  func(*T) ids.ReservationID
	page []T
	last T // where the next page begins
	end  bool
	size int
}

// head is the first row that was not taken; nil: there is none.
func (s *stream[T]) head(ctx context.Context) (*T, error) {
	if len(s.page) == 0 && !s.end {
		page, err := s.read(ctx, s.last)
		if err != nil {
			return nil, err
		}
		s.page, s.end = page, len(page) < s.size
		if len(page) > 0 {
			s.last = page[len(page)-1]
		}
	}
	if len(s.page) == 0 {
		return nil, nil
	}
	return &s.page[0], nil
}

// upTo gives the head's key when it is below least, or when there is no least yet.
func (s *stream[T]) upTo(ctx context.Context, least ids.ReservationID) (ids.ReservationID, error) {
	head, err := s.head(ctx)
	if err != nil || head == nil {
		return least, err
	}
	if k := s.key(head); least == "" || k < least {
		return k, nil
	}
	return least, nil
}

// take removes the head if it is of the key.
func (s *stream[T]) take(ctx context.Context, key ids.ReservationID) (*T, error) {
	head, err := s.head(ctx)
	if err != nil || head == nil || s.key(head) != key {
		return nil, err
	}
	s.page = s.page[1:]
	return head, nil
}

// merge joins the three ledgers as they come.
type merge struct {
	inbox   stream[shard.InboxFact]
	holds   stream[shard.HoldFact]
	entries stream[shard.EntryFact]
}

// newMerge begins after a reservation ("": at the first), in pages of so many rows.
func newMerge(p Pages, campaign ids.CampaignID, after ids.ReservationID, size int) *merge {
	return &merge{
		inbox: stream[shard.InboxFact]{
			size: size, last: shard.InboxFact{Event: ids.EventID(after)}, key: func(f *shard.InboxFact) ids.ReservationID { return f.Reservation },
			read: func(ctx context.Context, last shard.InboxFact) ([]shard.InboxFact, error) {
				return p.Inbox(ctx, campaign, last.Event, size)
			},
		},
		holds: stream[shard.HoldFact]{
			size: size, last: shard.HoldFact{Reservation: after}, key: func(f *shard.HoldFact) ids.ReservationID { return f.Reservation },
			read: func(ctx context.Context, last shard.HoldFact) ([]shard.HoldFact, error) {
				return p.Holds(ctx, campaign, last.Reservation, size)
			},
		},
		entries: stream[shard.EntryFact]{
			size: size, last: shard.EntryFact{Reservation: after, ID: lastEntry}, key: func(f *shard.EntryFact) ids.ReservationID { return f.Reservation },
			read: func(ctx context.Context, last shard.EntryFact) ([]shard.EntryFact, error) {
				return p.Entries(ctx, campaign, last.Reservation, last.ID, size)
			},
		},
	}
}

// lastEntry is above every entry: a walk that goes on begins after all entries of its reservation.
const lastEntry = 1<<63 - 1

// next gives what the ledgers hold of the next reservation; nil at the end.
func (m *merge) next(ctx context.Context) (*facts, error) {
	key, err := m.inbox.upTo(ctx, "")
	if err == nil {
		key, err = m.holds.upTo(ctx, key)
	}
	if err == nil {
		key, err = m.entries.upTo(ctx, key)
	}
	if err != nil || key == "" {
		return nil, err
	}
	f := &facts{id: key}
	if f.inbox, err = m.inbox.take(ctx, key); err != nil {
		return nil, err
	}
	if f.hold, err = m.holds.take(ctx, key); err != nil {
		return nil, err
	}
	for {
		e, err := m.entries.take(ctx, key)
		if err != nil || e == nil {
			return f, err
		}
		f.entries = append(f.entries, *e)
	}
}
