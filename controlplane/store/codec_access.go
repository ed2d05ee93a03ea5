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
