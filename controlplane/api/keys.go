package api

import (
	"context"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ListKeys answers every key that has a state or that a live process has.
func (h *Access) ListKeys(ctx context.Context, _ *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	who := h.holders(ctx)
	out := &pb.ListKeysResponse{Holders: who.all}
	if asReplica(ctx) {
		return out, nil
	}
	for _, use := range core.KeyUses() {
		for _, k := range withUnknown(h.stored(use), who, use) {
			out.Keys = append(out.Keys, &pb.SigningKey{Info: convert.Key(k), MissingAt: who.missing(k)})
		}
	}
	return out, nil
}

// withUnknown adds the keys that a process has and that have no state.
func withUnknown(keys []core.Key, who holders, use string) []core.Key {
	state := core.KeyPending
	if len(keys) == 0 {
		state = core.KeyUnmanaged
	}
	for _, kid := range who.kids(use) {
		if !slices.ContainsFunc(keys, func(k core.Key) bool { return k.KID == kid }) {
			keys = append(keys, core.Key{Use: use, KID: kid, State: state})
		}
	}
	slices.SortFunc(keys, func(a, b core.Key) int { return strings.Compare(a.KID, b.KID) })
	return keys
}

// stored are the keys of a use that have a state.
func (h *Access) stored(use string) []core.Key {
	return slices.DeleteFunc(slices.Clone(h.View.Snapshot().Keys()), func(k core.Key) bool { return k.Use != use })
}

// RotateKey makes a key ACTIVE once every live process has its bytes.
func (h *Access) RotateKey(ctx context.Context, req *pb.RotateKeyRequest) (*pb.RotateKeyResponse, error) {
	var f fields
	use, kid := f.key(req.GetUse(), req.GetKid())
	operation, reason := f.operation("operation_id", req.GetOperationId()), f.reason(req.GetReason(), false)
	if req.GetNotBefore() != nil && !req.GetNotBefore().IsValid() {
		f.add("not_before", "must be a time from year 1 to 9999")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	who := h.holders(ctx)
	key := core.Key{Use: use, KID: kid}
	key, err := h.Intent.RotateKey(ctx, caller(ctx), core.Rotation{
		Use: use, KID: kid, NotBefore: convert.FromTime(req.GetNotBefore()), OperationID: operation,
		Missing: who.missing(key), Silent: who.silent, Holders: len(who.all), Held: who.kids(use),
	}, reason, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return &pb.RotateKeyResponse{Key: &pb.SigningKey{Info: convert.Key(key), MissingAt: who.missing(key)}, OperationId: operation}, nil
}

// RevokeKey makes a key verify nothing any more.
func (h *Access) RevokeKey(ctx context.Context, req *pb.RevokeKeyRequest) (*pb.RevokeKeyResponse, error) {
	var f fields
	use, kid := f.key(req.GetUse(), req.GetKid())
	operation, reason := f.operation("operation_id", req.GetOperationId()), f.reason(req.GetReason(), true)
	if err := f.err(); err != nil {
		return nil, err
	}
	key, err := h.Intent.RevokeKey(ctx, caller(ctx), use, kid, operation, reason, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return &pb.RevokeKeyResponse{Key: &pb.SigningKey{Info: convert.Key(key)}, OperationId: operation}, nil
}

func (f *fields) key(use, kid string) (string, string) {
	for _, v := range core.CheckKeyName(use, kid) {
		f.add(v.Field, v.Rule)
	}
	return use, kid
}

// cellHolder begins the name of a cell's process.
const cellHolder = access.Cell + "/"
