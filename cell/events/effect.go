package events

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// EncodeEffect encodes a mirror effect as an outbox payload, deterministically.
func EncodeEffect(m *eventsv1.MirrorEffect) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, malformed(err)
	}
	return b, nil
}

// DecodeEffect reads an outbox payload of the target MIRROR. One without effect
// id, campaign or SKU is ErrMalformed: such a row is parked.
func DecodeEffect(value []byte) (*eventsv1.MirrorEffect, error) {
	m := &eventsv1.MirrorEffect{}
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, malformed(err)
	}
	if m.GetEffectId() == "" || m.GetCampaignId() == "" || m.GetSkuId() == "" {
		return nil, fmt.Errorf("%w: effect_id, campaign_id and sku_id must not be empty", ErrMalformed)
	}
	if b := m.GetAdmissionBuild(); b != nil {
		if _, err := BuildOf(b); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// The effect ids of seams: one effect per cause and reservation, refund or
// adjustment.
const (
	settlePrefix  = "settle-"
	releasePrefix = "release-"
	restockPrefix = "restock-"
	returnPrefix  = "return-"
)

// SettleEffectID is the effect of a message's outcome.
func SettleEffectID(reservation string) string { return settlePrefix + reservation }

// ReturnEffectID is the effect of a parked message that a person ended: it gives back what its settling did not.
func ReturnEffectID(reservation string) string { return returnPrefix + reservation }

// ReleaseEffectID is the effect of a reservation's release.
func ReleaseEffectID(reservation string) string { return releasePrefix + reservation }

// RestockEffectID is the effect of a restocking refund.
func RestockEffectID(refund string) string { return restockPrefix + refund }
