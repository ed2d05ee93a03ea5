package store

import (
	"errors"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// small cuts an enum of the wire to one byte; what does not fit becomes a value
// that no Check accepts.
func small[P ~int32](v P) uint8 {
	if v < 0 || v > math.MaxUint8 {
		return math.MaxUint8
	}
	return uint8(v)
}

// reader gathers what could not be read.
type reader struct{ err error }

func (r *reader) units(n int32) quantity.Quantity {
	q, err := quantity.New(int64(n))
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("%w: %v", core.ErrBroken, err)) //nolint:errorlint // the text is what helps
	}
	return q
}

func keep[P, C any](r *reader, p P, from func(P) (C, error)) C {
	c, err := from(p)
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("%w: %v", core.ErrBroken, err)) //nolint:errorlint // the text is what helps
	}
	return c
}

func bookKey(campaign, sku string) core.BookKey {
	return core.BookKey{Campaign: ids.CampaignID(campaign), SKU: ids.SKUID(sku)}
}

func encodeBook(b core.Book) proto.Message {
	m := &storev1.Book{
		CampaignId: string(b.Key.Campaign), SkuId: string(b.Key.SKU), SaleLimit: b.SaleLimit.Int32(), Reserve: b.Reserve.Int32(),
		Version: b.Version, LimitTarget: b.LimitTarget.Int32(), Final: b.Final, LastRecordId: b.LastRecordID,
		Settled: b.Settled,
	}
	for _, a := range b.Allocations {
		m.Allocations = append(m.Allocations, &storev1.Allocation{
			CellId: string(a.Cell), Granted: a.Granted.Int32(), FenceVersion: a.FenceVersion, CellVersion: a.CellVersion,
			State: pb.CellState(a.State), LastNumber: a.LastNumber, WrittenOff: a.WrittenOff.Int32(), FirstGrant: a.FirstGrant.Int32(),
		})
	}
	return m
}

func decodeBook(kv *mvccpb.KeyValue) (core.Book, error) {
	var m storev1.Book
	if err := decode(kv.Value, &m); err != nil {
		return core.Book{}, err
	}
	var r reader
	b := core.Book{
		Key: bookKey(m.GetCampaignId(), m.GetSkuId()), SaleLimit: r.units(m.GetSaleLimit()), Reserve: r.units(m.GetReserve()),
		Version: m.GetVersion(), LimitTarget: r.units(m.GetLimitTarget()), Final: m.GetFinal(), LastRecordID: m.GetLastRecordId(), ModRevision: kv.ModRevision,
		Settled: m.GetSettled(),
	}
	for _, a := range m.GetAllocations() {
		b.Allocations = append(b.Allocations, core.Allocation{
			Cell: ids.CellID(a.GetCellId()), Granted: r.units(a.GetGranted()), FenceVersion: a.GetFenceVersion(), CellVersion: a.GetCellVersion(),
			State: core.CellState(small(a.GetState())), LastNumber: a.GetLastNumber(), WrittenOff: r.units(a.GetWrittenOff()), FirstGrant: r.units(a.GetFirstGrant()),
		})
	}
	return b, r.err
}

func encodeRecord(rec core.Record) proto.Message { return RecordMessage(rec) }

// RecordMessage gives a journal record as the message that etcd and the archive
// keep of it.
func RecordMessage(rec core.Record) *storev1.Record {
	m := &storev1.Record{
		RecordId: rec.ID, CampaignId: string(rec.Key.Campaign), SkuId: string(rec.Key.SKU), Actor: rec.Actor, Reason: rec.Reason,
		OperationId: rec.OperationID, BookVersion: rec.BookVersion, At: convert.Time(rec.At), Parameters: rec.Parameters,
	}
	for _, a := range rec.Adjustments {
		m.Adjustments = append(m.Adjustments, convert.Adjustment(a))
	}
	return m
}

func decodeRecord(kv *mvccpb.KeyValue) (core.Record, error) {
	var m storev1.Record
	if err := decode(kv.Value, &m); err != nil {
		return core.Record{}, err
	}
	return FromRecordMessage(&m, kv.CreateRevision, kv.ModRevision)
}

// FromRecordMessage is the way back, with etcd's revisions of the record.
// core.ErrBroken.
func FromRecordMessage(m *storev1.Record, created, modified int64) (core.Record, error) {
	var r reader
	rec := core.Record{
		ID: m.GetRecordId(), Key: bookKey(m.GetCampaignId(), m.GetSkuId()), Actor: m.GetActor(), Reason: m.GetReason(),
		OperationID: m.GetOperationId(), BookVersion: m.GetBookVersion(), At: convert.FromTime(m.GetAt()), Parameters: m.GetParameters(),
		CreateRevision: created, ModRevision: modified,
	}
	for _, a := range m.GetAdjustments() {
		rec.Adjustments = append(rec.Adjustments, keep(&r, a, convert.FromAdjustment))
	}
	return rec, r.err
}

func encodeStock(p core.PhysicalStock) proto.Message {
	m := &storev1.PhysicalStock{SkuId: string(p.SKU), Units: p.Units.Int32(), Version: p.Version, Limits: map[string]int32{}}
	for c, limit := range p.Limits {
		m.Limits[string(c)] = limit.Int32()
	}
	return m
}

func decodeStock(kv *mvccpb.KeyValue) (core.PhysicalStock, error) {
	var m storev1.PhysicalStock
	if err := decode(kv.Value, &m); err != nil {
		return core.PhysicalStock{}, err
	}
	var r reader
	p := core.PhysicalStock{
		SKU: ids.SKUID(m.GetSkuId()), Units: r.units(m.GetUnits()), Version: m.GetVersion(),
		Limits: map[ids.CampaignID]quantity.Quantity{}, ModRevision: kv.ModRevision,
	}
	for c, limit := range m.GetLimits() {
		p.Limits[ids.CampaignID(c)] = r.units(limit)
	}
	return p, r.err
}

// DecodeBook reads a book's value, for whoever walks etcd's history to prove I1.
func DecodeBook(value []byte) (core.Book, error) {
	return decodeBook(&mvccpb.KeyValue{Value: value})
}
