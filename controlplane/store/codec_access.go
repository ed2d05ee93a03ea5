package store

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

func encodeApproval(a core.Approval) proto.Message {
	return &storev1.Approval{Approval: convert.Approval(a)}
}

func decodeApproval(kv *mvccpb.KeyValue) (core.Approval, error) {
	var m storev1.Approval
	err := decode(kv.Value, &m)
	a := convert.FromApproval(m.GetApproval())
	a.ModRevision, a.CreateRevision = kv.ModRevision, kv.CreateRevision
	return a, err
}

func encodeToken(t core.Token) proto.Message {
	return &storev1.Token{Token: convert.Token(t), SecretSha256: t.Digest[:], OperationId: t.OperationID, Issuers: t.Issuers}
}

func decodeToken(kv *mvccpb.KeyValue) (core.Token, error) {
	var m storev1.Token
	if err := decode(kv.Value, &m); err != nil {
		return core.Token{}, err
	}
	t := convert.FromToken(m.GetToken())
	if n := copy(t.Digest[:], m.GetSecretSha256()); n != len(t.Digest) || n != len(m.GetSecretSha256()) {
		return core.Token{}, fmt.Errorf("%w: token %s has a digest of %d bytes", core.ErrBroken, t.ID, len(m.GetSecretSha256()))
	}
	t.OperationID, t.Issuers, t.ModRevision = m.GetOperationId(), m.GetIssuers(), kv.ModRevision
	return t, nil
}

func encodeAudit(a core.Audit) proto.Message {
	return &storev1.AuditEvent{
		At: convert.Time(a.At), Actor: a.Actor, Method: a.Method, OperationId: a.OperationID, Subject: a.Subject, Reason: a.Reason,
	}
}

func encodeRefusals(a core.Audit) proto.Message {
	return &storev1.Refusals{Event: convert.Audit(a)}
}

// decodeTrail reads a record of either folder of the audit.
func decodeTrail(kind Kind, kv *mvccpb.KeyValue) (core.Audit, error) {
	if kind == KindRefusal {
		var m storev1.Refusals
		err := decode(kv.Value, &m)
		return convert.FromAudit(m.GetEvent()), err
	}
	var m storev1.AuditEvent
	err := decode(kv.Value, &m)
	return core.Audit{
		At: convert.FromTime(m.GetAt()), Actor: m.GetActor(), Method: m.GetMethod(), OperationID: m.GetOperationId(), Subject: m.GetSubject(), Reason: m.GetReason(),
	}, err
}

func encodeArchiveIndex(x core.ArchiveIndex) proto.Message {
	return &storev1.ArchiveIndex{
		Object: &storev1.ArchiveObject{Name: x.Object.Name, Sha256: x.Object.SHA256, Size: x.Object.Size}, From: convert.Time(x.From), To: convert.Time(x.To),
	}
}

func decodeArchiveIndex(kv *mvccpb.KeyValue) (core.ArchiveIndex, error) {
	var m storev1.ArchiveIndex
	err := decode(kv.Value, &m)
	o := m.GetObject()
	return core.ArchiveIndex{
		Object: core.ArchiveObject{Name: o.GetName(), SHA256: o.GetSha256(), Size: o.GetSize()}, From: convert.FromTime(m.GetFrom()), To: convert.FromTime(m.GetTo()),
	}, err
}
