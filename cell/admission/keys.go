package admission

import (
	"github.com/cellquota/cellquota/internal/ids"
)

// Key grammar, all of it:
//
//	cq:{TAG}:meta                               the mirror's head; the only key without a build
//	cq:{TAG}:BUILD:stock:SKU                    units left; may be negative for a moment
//	cq:{TAG}:BUILD:marks                        user → the request that holds the user's place
//	cq:{TAG}:BUILD:applied                      effect ids that changed stock
//	cq:{TAG}:BUILD:stream                       admissions that the log has not acknowledged
//	cq:{TAG}:BUILD:buckets:DOMAIN               512 bytes, one bit per bucket owned
//	cq:{TAG}:BUILD:outstanding:SKU              reservation, scored by admitted_at_ms
//	cq:{TAG}:BUILD:pending:SKU                  reservation → QUANTITY|message
//	cq:{TAG}:BUILD:stats:SKU                    counters since the build
//	cq:{TAG}:BUILD:nonce:NONCE                  a burnt permit
//	cq:{TAG}:BUILD:record:SKU:REQUEST:USER      one request
//	cq:{CAMPAIGN}:held:u:USER                   reservation, scored by the Unix ms until which it counts
//	cq:{CAMPAIGN}:held:d:DEVICE                 the same of one device
//
// The last two belong to no mirror: a user's orders are of all SKUs. They are a hint (holds.go).
//
// TAG is CAMPAIGN, or CAMPAIGN:SKU when the purchase scope is the SKU. It is the
// first pair of braces in every key and neither ids can hold a brace, so every key
// of a mirror lies in one Redis Cluster slot whatever a user id or nonce holds
// (K47). Only the last part of a key is free text; what stands before it has no
// colon of its own (SKU, request and build grammars), so no two names collide.
//
// marks and applied hold a guard entry under the empty name from the install on
// (no user and no effect has that name): an empty one that is gone is thereby told
// from an empty one that is there.

// Scope names one mirror: a campaign, and the SKU when the purchase scope is SKU.
type Scope struct {
	Campaign ids.CampaignID
	SKU      ids.SKUID // "" when the purchase scope is CAMPAIGN
}

// AnySKU is the scope key of purchase scope CAMPAIGN in the shard.
const AnySKU = "*"

// Key is the scope key of the shard's tables: the SKU, or AnySKU.
func (s Scope) Key() string {
	if s.SKU == "" {
		return AnySKU
	}
	return string(s.SKU)
}

// Tag is the Redis hash tag, without braces.
func (s Scope) Tag() string {
	if s.SKU == "" {
		return string(s.Campaign)
	}
	return string(s.Campaign) + ":" + string(s.SKU)
}

// ScopeOf is the mirror of a SKU under a scope key of the shard.
func ScopeOf(campaign ids.CampaignID, key string) Scope {
	if key == AnySKU {
		return Scope{Campaign: campaign}
	}
	return Scope{Campaign: campaign, SKU: ids.SKUID(key)}
}

// guard is the field and member that keeps marks and applied from being empty.
const guard = ""

func (s Scope) prefix() string { return "cq:{" + s.Tag() + "}:" }

func (s Scope) metaKey() string { return s.prefix() + "meta" }

// userHolds and deviceHolds are the sets of unpaid reservations (holds.go).
func userHolds(campaign ids.CampaignID, user ids.UserID) string {
	return "cq:{" + string(campaign) + "}:held:u:" + string(user)
}

func deviceHolds(campaign ids.CampaignID, device string) string {
	return "cq:{" + string(campaign) + "}:held:d:" + device
}

// buildKeys makes the keys of one build of one mirror.
type buildKeys string

func (s Scope) at(build ids.Build) buildKeys {
	return buildKeys(s.prefix() + build.String() + ":")
}

func (k buildKeys) stock(sku ids.SKUID) string       { return string(k) + "stock:" + string(sku) }
func (k buildKeys) marks() string                    { return string(k) + "marks" }
func (k buildKeys) applied() string                  { return string(k) + "applied" }
func (k buildKeys) stream() string                   { return string(k) + "stream" }
func (k buildKeys) buckets(domain string) string     { return string(k) + "buckets:" + domain }
func (k buildKeys) outstanding(sku ids.SKUID) string { return string(k) + "outstanding:" + string(sku) }
func (k buildKeys) pending(sku ids.SKUID) string     { return string(k) + "pending:" + string(sku) }
func (k buildKeys) stats(sku ids.SKUID) string       { return string(k) + "stats:" + string(sku) }
func (k buildKeys) nonce(nonce string) string        { return string(k) + "nonce:" + nonce }

func (k buildKeys) record(sku ids.SKUID, request ids.RequestID, user ids.UserID) string {
	return string(k) + "record:" + string(sku) + ":" + string(request) + ":" + string(user)
}
