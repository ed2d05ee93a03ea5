package client

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

// left tells whether an error says something about the replica rather than about
// the request, so that another replica may do better: it is gone, silent, stopping,
// or has no etcd.
func left(err error) bool {
	return errors.Is(err, rpcstatus.ErrUnavailable) || errors.Is(err, transport.ErrSilent)
}

// reads are the beginnings of the names of methods that change nothing.
var reads = []string{"Get", "List", "Preview", "Plan", "Validate", "Preflight", "Check", "Lookup", "Verify", "Trace", "Resolve"}

// ids are the fields that make a repeat of a mutation the same mutation.
var ids = []protoreflect.Name{"operation_id", "adjustment_id", "refund_id"}

// repeatable tells whether a call that may have happened may be made again: it
// changes nothing, or it names the mutation that it is. An approval does neither:
// a second one finds it decided and is refused, which would hide that the first
// one went through.
func repeatable(method string, req any) bool {
	name := method[strings.LastIndex(method, "/")+1:]
	for _, read := range reads {
		if strings.HasPrefix(name, read) {
			return true
		}
	}
	m, ok := req.(proto.Message)
	if !ok {
		return false
	}
	r := m.ProtoReflect()
	for _, id := range ids {
		if field := r.Descriptor().Fields().ByName(id); field != nil && r.Get(field).String() != "" {
			return true
		}
	}
	return false
}
