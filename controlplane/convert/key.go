package convert

import (
	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Key gives a key's state for the wire.
func Key(k core.Key) *pb.KeyInfo {
	out := &pb.KeyInfo{Use: k.Use, Kid: k.KID, State: string(k.State)}
	if !k.NotBefore.IsZero() {
		out.NotBeforeMs = k.NotBefore.UnixMilli()
	}
	return out
}
