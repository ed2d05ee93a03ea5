package orders

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// item is one record, read: exactly one of message, barrier and broken is set.
type item struct {
	offset    int64
	epoch     int32
	timestamp time.Time
	value     []byte
	message   *shard.Message
	barrier   *shard.Barrier
	broken    *shard.Parking
}

// decode reads a record. Whatever its bytes, it is an item, except one that a newer program wrote:
// that is events.ErrSchema, and nothing after it may be taken either.
func decode(r *kgo.Record) (item, error) {
	it := item{offset: r.Offset, epoch: r.LeaderEpoch, timestamp: r.Timestamp, value: r.Value}
	h, err := events.ParseHeaders(r.Headers)
	if errors.Is(err, events.ErrSchema) {
		return it, err
	}
	if err == nil {
		switch h.Type {
		case events.TypeAdmission:
			it.message, err = decodeAdmission(r, h)
		case events.TypeBarrier:
			it.barrier, err = decodeBarrier(r.Value)
		default:
			err = events.ErrMalformed
		}
	}
	if err != nil {
		it.message, it.barrier = nil, nil
		it.broken = &shard.Parking{Offset: r.Offset, ErrorClass: classDecode, Value: r.Value}
	}
	return it, nil
}

// classDecode is the error class of what cannot be read.
const classDecode = "DECODE"

func decodeAdmission(r *kgo.Record, h events.Headers) (*shard.Message, error) {
	a, err := events.DecodeAdmission(r.Value)
	if err != nil {
		return nil, err
	}
	if h.EventID != ids.EventID(ids.ReservationID(a.GetReservationId())) {
		return nil, events.ErrMalformed // two names for one message: neither can be trusted
	}
	price, err := reservation.ParseMoney(a.GetPrice().GetAmount(), a.GetPrice().GetCurrency())
	if err != nil {
		return nil, err
	}
	return &shard.Message{Offset: r.Offset, Traceparent: h.Traceparent, Admission: admissionOf(a, price)}, nil
}

func admissionOf(a *eventsv1.Admission, price reservation.Money) reservation.Admission {
	out := reservation.Admission{
		Reservation: ids.ReservationID(a.GetReservationId()), Request: ids.RequestID(a.GetRequestId()),
		Campaign: ids.CampaignID(a.GetCampaignId()), SKU: ids.SKUID(a.GetSkuId()), User: ids.UserID(a.GetUserId()),
		Quantity: a.GetQuantity(), Domain: a.GetDomain(), Fingerprint: a.GetFingerprint(), Price: price,
		Build:    ids.Build{Fence: a.GetBuild().GetFenceVersion(), Count: a.GetBuild().GetCount()},
		DeviceID: a.GetDeviceId(), RiskTier: a.GetRiskTier(), AdmittedAt: time.UnixMilli(a.GetAdmittedAtMs()).UTC(),
	}
	if ms := a.GetPermitExpiresAtMs(); ms != 0 {
		out.PermitExpiresAt = time.UnixMilli(ms).UTC()
	}
	return out
}

func decodeBarrier(value []byte) (*shard.Barrier, error) {
	b, err := events.DecodeBarrier(value)
	if err != nil {
		return nil, err
	}
	build, err := events.BuildOf(b.GetBuild())
	if err != nil {
		return nil, err
	}
	scope := b.GetSkuId()
	if scope == "" {
		scope = shard.WholeCampaign
	}
	return &shard.Barrier{
		Campaign: ids.CampaignID(b.GetCampaignId()), ScopeKey: scope, Build: build, Partition: b.GetPartition(), Partitions: b.GetPartitions(),
	}, nil
}
