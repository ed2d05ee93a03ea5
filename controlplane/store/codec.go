package store

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/core"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

// The version byte before every value. A proof whose rows stand in parts has one of its
// own: a program that does not know of parts must not take it for a proof that found
// nothing, and quarantines it.
const (
	schema      = 0x01
	schemaParts = 0x02
)

func schemaOf(m proto.Message) byte {
	if p, is := m.(*storev1.Proof); is && p.GetParts() > 0 {
		return schemaParts
	}
	return schema
}

// maxValue bounds one value; etcd's own limit is 1.5 MiB for a whole request.
const maxValue = 1 << 20

func encode(m proto.Message) ([]byte, error) {
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{schemaOf(m)}, m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	if len(out) > maxValue {
		return nil, fmt.Errorf("%w: %T of %d bytes, at most %d", core.ErrTooLarge, m, len(out), maxValue)
	}
	return out, nil
}

func decode(value []byte, m proto.Message) error {
	switch {
	case len(value) == 0:
		return fmt.Errorf("%w: blank value", core.ErrBroken)
	case len(value) > maxValue:
		return fmt.Errorf("%w: value of %d bytes", core.ErrBroken, len(value))
	}
	if err := proto.Unmarshal(value[1:], m); err != nil {
		return fmt.Errorf("%w: %v", core.ErrBroken, err) //nolint:errorlint // the text is what helps
	}
	if value[0] != schemaOf(m) {
		return fmt.Errorf("%w: schema version %d", core.ErrBroken, value[0])
	}
	return nil
}

// Entry is one key as it was listed or watched.
type Entry struct {
	Key         string
	Kind        Kind
	Value       any // see Kind; nil when deleted or when Err is set
	Deleted     bool
	ModRevision int64
	Err         error // it could not be decoded or broke its Check
}

// entry decodes a listed or watched key. Keys of nobody have Kind 0.
func (s *Store) entry(kv *mvccpb.KeyValue) Entry {
	e := Entry{Key: string(kv.Key), ModRevision: kv.ModRevision}
	e.Kind = s.keys.kind(e.Key)
	if !e.Kind.Mirrored() && e.Kind != KindCluster {
		return e
	}
	e.Value, e.Err = s.decodeKind(e.Kind, kv)
	if e.Err != nil {
		e.Value = nil
	}
	return e
}

func (s *Store) decodeKind(kind Kind, kv *mvccpb.KeyValue) (any, error) {
	switch kind {
	case KindCell:
		return checked(decodeCell(kv))
	case KindInstance:
		return checked(decodeInstance(kv))
	case KindCampaign:
		return checked(decodeCampaign(kv))
	case KindRoute:
		return checked(decodeRoute(kv))
	case KindBook:
		return checked(decodeBook(kv))
	case KindRecord:
		return checked(decodeRecord(kv))
	case KindProof, KindProofPart:
		return checked(decodeProof(kv))
	case KindStock:
		return checked(decodeStock(kv))
	case KindOperation:
		return checked(decodeOperation(kv))
	case KindApproval:
		return checked(decodeApproval(kv))
	case KindToken:
		return checked(decodeToken(kv))
	case KindTombstone:
		return checked(decodeTombstone(kv))
	case KindLeader:
		return decodeLeader(kv)
	case KindTerm:
		return decodeTerm(kv)
	case KindKey:
		return checked(decodeKey(kv))
	case KindRestored:
		return checked(decodeRestored(kv))
	case KindCluster:
		return checked(decodeCluster(kv))
	case KindReplica:
		return checked(decodeReplica(kv))
	default:
		return nil, fmt.Errorf("%w: kind %s is not mirrored", core.ErrBroken, kind)
	}
}

// checked lets a decoded value pass only when it obeys its own law (K43).
func checked[T interface{ Check() error }](v T, err error) (T, error) {
	if err != nil {
		return v, err
	}
	return v, v.Check()
}

func decodeLeader(kv *mvccpb.KeyValue) (core.Leader, error) {
	var m storev1.Leader
	err := decode(kv.Value, &m)
	return core.Leader{Address: m.GetAddress(), Term: core.Term{Count: m.GetTerm().GetCount(), ID: m.GetTerm().GetId()}, CreateRevision: kv.CreateRevision}, err
}

func decodeTerm(kv *mvccpb.KeyValue) (core.Term, error) {
	var m storev1.TermRecord
	err := decode(kv.Value, &m)
	return core.Term{Count: m.GetTerm().GetCount(), ID: m.GetTerm().GetId()}, err
}
