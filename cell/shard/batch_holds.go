package shard

import (
	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// deviceKey names a device within a campaign.
type deviceKey struct {
	campaign ids.CampaignID
	device   string
}

// holdCounts are the unpaid orders of the candidates of bounded campaigns, and of their devices, as the
// shard has them and as this batch adds to them. A user has one message in a batch.
type holdCounts struct {
	users   map[int]int32 // by message
	devices map[deviceKey]int32
}

func (h holdCounts) allow(bounds reservation.Holds, i int, m *Message) bool {
	return !bounds.Bounded() || bounds.Allow(h.users[i], h.devices[deviceKey{m.Campaign, m.DeviceID}])
}

// add counts an order that this batch makes; a message without a device counts for none.
func (h holdCounts) add(m *Message) {
	if h.devices != nil && m.DeviceID != "" {
		h.devices[deviceKey{m.Campaign, m.DeviceID}]++
	}
}

// bounded are the candidates whose campaign bounds unpaid orders.
func (r *batchRun) bounded(candidates []int) []int {
	var out []int
	for _, i := range candidates {
		m := &r.in.Messages[i]
		if r.facts.rules[skuKey{m.Campaign, m.SKU}].Holds.Bounded() {
			out = append(out, i)
		}
	}
	return out
}

// holdArgs render the arrays of batch_holds_lock and batch_holds_count.
func (r *batchRun) holdArgs(bounded []int) (locks, counts []any) {
	n := len(bounded)
	campaign, user, device := make([]string, n), make([]string, n), make([]string, n)
	lockCampaign, holder := make([]string, 0, 2*n), make([]string, 0, 2*n)
	for j, i := range bounded {
		m := &r.in.Messages[i]
		campaign[j], user[j], device[j] = string(m.Campaign), string(m.User), m.DeviceID
		lockCampaign, holder = append(lockCampaign, campaign[j]), append(holder, "u:"+user[j])
		if m.DeviceID != "" {
			lockCampaign, holder = append(lockCampaign, campaign[j]), append(holder, "d:"+m.DeviceID)
		}
	}
	return []any{lockCampaign, holder}, []any{campaign, user, device}
}

func (r *batchRun) readHolds(res pgx.BatchResults, bounded []int) error {
	r.holds = holdCounts{users: map[int]int32{}, devices: map[deviceKey]int32{}}
	var j, user, device int32
	return eachRow(res, []any{&j, &user, &device}, func() error {
		i := bounded[j]
		m := &r.in.Messages[i]
		r.holds.users[i] = user
		if m.DeviceID != "" {
			r.holds.devices[deviceKey{m.Campaign, m.DeviceID}] = device
		}
		return nil
	})
}
