package orders

import (
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// run is a stretch of items that one transaction applies: messages of users that differ, or one
// barrier, or one broken record.
type run struct {
	messages []shard.Message
	values   [][]byte // of the messages, as they lay in the log
	barrier  *shard.Barrier
	broken   *shard.Parking
	oldest   item  // first item
	next     int64 // offset after its last item
	epoch    int32 // of its last item
}

// cut divides items, in offset order, into runs of at most limit messages. It is pure. Items below
// from are dropped: they were applied before.
func cut(items []item, from int64, limit int) []run {
	var out []run
	var open *run
	users := map[ids.UserID]struct{}{}
	closeRun := func() {
		if open != nil {
			out = append(out, *open)
			open = nil
			clear(users)
		}
	}
	for _, it := range items {
		if it.offset < from {
			continue
		}
		if it.message == nil {
			closeRun()
			out = append(out, run{barrier: it.barrier, broken: it.broken, oldest: it, next: it.offset + 1, epoch: it.epoch})
			continue
		}
		if _, twice := users[it.message.User]; twice || (open != nil && len(open.messages) == limit) {
			closeRun()
		}
		if open == nil {
			open = &run{oldest: it}
		}
		users[it.message.User] = struct{}{}
		open.messages = append(open.messages, *it.message)
		open.values = append(open.values, it.value)
		open.next, open.epoch = it.offset+1, it.epoch
	}
	closeRun()
	return out
}

// halves divides a run of at least two messages; the first half ends where the second begins.
func (r run) halves() (run, run) {
	mid := len(r.messages) / 2
	first, second := r, r
	first.messages, second.messages = r.messages[:mid], r.messages[mid:]
	first.values, second.values = r.values[:mid], r.values[mid:]
	first.next = r.messages[mid].Offset
	return first, second
}
