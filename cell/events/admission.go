package events

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// MaxQuantity bounds the units of one request, as max_quantity_per_order does.
const MaxQuantity = 1000

// admittedAtTag is the wire tag of field 15, sfixed64: (15 << 3) | 1, the letter
// 'y'. The mirror's script writes the same byte.
const admittedAtTag = 'y'

// PrepareAdmission encodes m without its field 15, admitted_at_ms: the mirror
// adds it when it grants. m is not changed. The bytes are deterministic.
func PrepareAdmission(m *eventsv1.Admission) ([]byte, error) {
	if m.GetAdmittedAtMs() != 0 {
		m = proto.CloneOf(m)
		m.AdmittedAtMs = 0
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return b, nil
}

// AppendAdmittedAt finishes prepared bytes: it appends field 15 to dst, in Unix
// milliseconds, exactly as the mirror's script does.
func AppendAdmittedAt(dst []byte, ms int64) []byte {
	dst = append(dst, admittedAtTag)
	return binary.LittleEndian.AppendUint64(dst, uint64(ms))
}

// DecodeAdmission reads the value of an admission and checks every field: the
// grammars of the ids, quantity 1 to MaxQuantity, a build, an instant, and that
// the reservation id is the one derived from the rest. Anything else is
// ErrMalformed naming field and rule. What time, price or stock say about it is
// for the shard to judge.
func DecodeAdmission(value []byte) (*eventsv1.Admission, error) {
	m := &eventsv1.Admission{}
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := checkAdmission(m); err != nil {
		return nil, err
	}
	return m, nil
}

func checkAdmission(m *eventsv1.Admission) error {
	reservation, err := ids.ParseReservation(m.GetReservationId())
	if err != nil {
		return malformed(err)
	}
	campaign, err := ids.ParseCampaignID(m.GetCampaignId())
	if err != nil {
		return malformed(err)
	}
	sku, err := ids.ParseSKUID(m.GetSkuId())
	if err != nil {
		return malformed(err)
	}
	user, err := ids.ParseUserID(m.GetUserId())
	if err != nil {
		return malformed(err)
	}
	request, err := ids.ParseRequestID(m.GetRequestId())
	if err != nil {
		return malformed(err)
	}
	build, err := BuildOf(m.GetBuild())
	if err != nil {
		return err
	}
	if want := ids.DeriveReservation(campaign, sku, user, request, reservation.Cell(), build); reservation != want {
		return fmt.Errorf("%w: reservation_id must be the one derived from the request, its cell and its build", ErrMalformed)
	}
	switch {
	case m.GetQuantity() < 1 || m.GetQuantity() > MaxQuantity:
		return fmt.Errorf("%w: quantity must be 1 to %d", ErrMalformed, MaxQuantity)
	case m.GetFingerprint() == "":
		return fmt.Errorf("%w: fingerprint must not be empty", ErrMalformed)
	case m.GetAdmittedAtMs() < 1:
		return fmt.Errorf("%w: admitted_at_ms must be a Unix time in milliseconds", ErrMalformed)
	}
	return nil
}

func malformed(err error) error { return fmt.Errorf("%w: %w", ErrMalformed, err) }
