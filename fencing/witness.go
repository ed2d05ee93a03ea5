package fencing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Witness is the highest that anybody saw of a shard after a commit. A shard never
// shows less than it showed before, unless it went back in time: a standby promoted
// without the tail, a backup restored, an empty directory. Positions are kept for
// the recovery and are no evidence: a consumer may lawfully begin again.
type Witness struct {
	// Identity is the system identifier and timeline of the PostgreSQL that spoke,
	// "ID/TIMELINE": another one is another history, which may or may not lack anything.
	Identity string
	// Version is the fence version; 0: the shard has no fence row.
	Version Version
	Stocks  map[SKU]Mark
	// Routes is the newest route version that moved a bucket, by campaign.
	Routes map[string]int64
	// Builds is the newest build of a mirror that was given out.
	Builds map[Scope]BuildMark
	// Positions is where each partition's consumer stood.
	Positions map[Partition]PositionMark
	// Settled are campaigns whose rows are in none of the above, because they may be deleted.
	Settled map[string]bool
}

// Mark is how far a shard came with one SKU.
type Mark struct {
	// AdjustmentVersion is the fence version of LastNumber.
	AdjustmentVersion, LastNumber int64
	// StockVersion grows by one with every ledger entry.
	StockVersion int64
}

// Scope names one mirror: a campaign and the scope of its buyers.
type Scope struct{ Campaign, Key string }

// BuildMark is a build id: a mirror's life.
type BuildMark struct{ Fence, Count int64 }

// Compare orders builds by fence version, then by count.
func (b BuildMark) Compare(other BuildMark) int {
	return cmp.Or(cmp.Compare(b.Fence, other.Fence), cmp.Compare(b.Count, other.Count))
}

// Partition names one log.
type Partition struct {
	Topic     string
	Partition int32
}

// PositionMark is where a log is read on.
type PositionMark struct {
	TopicID string
	Next    int64
	Epoch   int32
}

// ErrWitness says that what a shard told of itself cannot be read. It proves nothing.
var ErrWitness = errors.New("what the shard says of itself cannot be read")

// Lacks says in words what a reading lacks of what was seen before, or "". A row that
// was seen and is gone counts as lacking, unless its campaign was settled meanwhile.
func (w Witness) Lacks(now Witness) string {
	w = w.Without(func(campaign string) bool { return now.Settled[campaign] })
	if now.Version < w.Version {
		return fmt.Sprintf("fence version %s, it was seen at %s", now.Version, w.Version)
	}
	for _, sku := range slices.SortedFunc(maps.Keys(w.Stocks), SKU.Compare) {
		was, is := w.Stocks[sku], now.Stocks[sku]
		switch {
		case cmp.Or(cmp.Compare(is.AdjustmentVersion, was.AdjustmentVersion), cmp.Compare(is.LastNumber, was.LastNumber)) < 0:
			return fmt.Sprintf("%s: adjustment %d of fence version %d, number %d of version %d was seen", sku, is.LastNumber, is.AdjustmentVersion, was.LastNumber, was.AdjustmentVersion)
		case is.StockVersion < was.StockVersion:
			return fmt.Sprintf("%s: stock version %d, %d was seen", sku, is.StockVersion, was.StockVersion)
		}
	}
	for _, campaign := range slices.Sorted(maps.Keys(w.Routes)) {
		if was, is := w.Routes[campaign], now.Routes[campaign]; is < was {
			return fmt.Sprintf("%s: route version %d, %d was seen", campaign, is, was)
		}
	}
	for _, scope := range slices.SortedFunc(maps.Keys(w.Builds), func(a, b Scope) int {
		return cmp.Or(strings.Compare(a.Campaign, b.Campaign), strings.Compare(a.Key, b.Key))
	}) {
		if was, is := w.Builds[scope], now.Builds[scope]; is.Compare(was) < 0 {
			return fmt.Sprintf("%s: mirror build %d.%d, %d.%d was seen", scope.Campaign, is.Fence, is.Count, was.Fence, was.Count)
		}
	}
	return ""
}

// Unsealed gives the reading of a fenced shard as it was right before the fence: every
// stock row without its SEAL entry. It is not changed.
func (w Witness) Unsealed() Witness {
	w.Stocks = maps.Clone(w.Stocks)
	for sku, m := range w.Stocks {
		m.StockVersion--
		w.Stocks[sku] = m
	}
	return w
}

// Raise gives the highest of both; what only one has is kept, except of campaigns that
// now are settled. The identity is the newer reading's. Neither is changed.
func (w Witness) Raise(now Witness) Witness {
	return w.raise(now).Without(func(campaign string) bool { return now.Settled[campaign] })
}

func (w Witness) raise(now Witness) Witness {
	out := Witness{
		Identity: cmp.Or(now.Identity, w.Identity), Version: max(w.Version, now.Version),
		Stocks: map[SKU]Mark{}, Routes: map[string]int64{}, Builds: map[Scope]BuildMark{}, Positions: map[Partition]PositionMark{},
		Settled: now.Settled,
	}
	for _, from := range []Witness{w, now} {
		for k, m := range from.Stocks {
			out.Stocks[k] = out.Stocks[k].raise(m)
		}
		for k, v := range from.Routes {
			out.Routes[k] = max(out.Routes[k], v)
		}
		for k, b := range from.Builds {
			if b.Compare(out.Builds[k]) > 0 {
				out.Builds[k] = b
			}
		}
		for k, p := range from.Positions {
			if has, known := out.Positions[k]; !known || has.TopicID != p.TopicID || p.Next > has.Next {
				out.Positions[k] = p
			}
		}
	}
	return out
}

func (m Mark) raise(other Mark) Mark {
	out := Mark{AdjustmentVersion: m.AdjustmentVersion, LastNumber: m.LastNumber, StockVersion: max(m.StockVersion, other.StockVersion)}
	if cmp.Or(cmp.Compare(other.AdjustmentVersion, m.AdjustmentVersion), cmp.Compare(other.LastNumber, m.LastNumber)) > 0 {
		out.AdjustmentVersion, out.LastNumber = other.AdjustmentVersion, other.LastNumber
	}
	return out
}

// Without gives the witness without some campaigns: those whose rows a shard may
// delete, because they are settled.
func (w Witness) Without(gone func(campaign string) bool) Witness {
	out := w.raise(Witness{})
	out.Settled = w.Settled
	maps.DeleteFunc(out.Stocks, func(k SKU, _ Mark) bool { return gone(k.Campaign) })
	maps.DeleteFunc(out.Routes, func(k string, _ int64) bool { return gone(k) })
	maps.DeleteFunc(out.Builds, func(k Scope, _ BuildMark) bool { return gone(k.Campaign) })
	return out
}

// DecodeWitness reads what the shard's function cellquota.witness answers. ErrWitness.
func DecodeWitness(raw []byte) (Witness, error) {
	var j struct {
		Identity string `json:"identity"`
		Version  int64  `json:"fence_version"`
		Stocks   []struct {
			Campaign string `json:"campaign_id"`
			SKU      string `json:"sku_id"`
			Fence    int64  `json:"adjustment_version"`
			Number   int64  `json:"last_number"`
			Version  int64  `json:"stock_version"`
		} `json:"stocks"`
		Routes []struct {
			Campaign string `json:"campaign_id"`
			Version  int64  `json:"route_version"`
		} `json:"routes"`
		Builds []struct {
			Campaign string `json:"campaign_id"`
			Scope    string `json:"scope"`
			Fence    int64  `json:"fence_version"`
			Count    int64  `json:"count"`
		} `json:"builds"`
		Positions []struct {
			Topic     string `json:"topic"`
			Partition int32  `json:"partition"`
			TopicID   string `json:"topic_id"`
			Next      int64  `json:"next_offset"`
			Epoch     int32  `json:"leader_epoch"`
		} `json:"positions"`
		Settled []string `json:"settled_campaigns"`
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return Witness{}, fmt.Errorf("%w: %w", ErrWitness, err)
	}
	if j.Identity == "" || j.Version < 0 {
		return Witness{}, fmt.Errorf("%w: identity %q, fence version %d", ErrWitness, j.Identity, j.Version)
	}
	w := Witness{
		Identity: j.Identity, Version: Version(j.Version),
		Stocks: map[SKU]Mark{}, Routes: map[string]int64{}, Builds: map[Scope]BuildMark{}, Positions: map[Partition]PositionMark{},
		Settled: map[string]bool{},
	}
	for _, c := range j.Settled {
		w.Settled[c] = true
	}
	for _, s := range j.Stocks {
		w.Stocks[SKU{Campaign: s.Campaign, SKU: s.SKU}] = Mark{AdjustmentVersion: s.Fence, LastNumber: s.Number, StockVersion: s.Version}
	}
	for _, r := range j.Routes {
		w.Routes[r.Campaign] = r.Version
	}
	for _, b := range j.Builds {
		w.Builds[Scope{Campaign: b.Campaign, Key: b.Scope}] = BuildMark{Fence: b.Fence, Count: b.Count}
	}
	for _, p := range j.Positions {
		w.Positions[Partition{Topic: p.Topic, Partition: p.Partition}] = PositionMark{TopicID: p.TopicID, Next: p.Next, Epoch: p.Epoch}
	}
	return w, nil
}
