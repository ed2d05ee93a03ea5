package convert

import (
	"github.com/cellquota/cellquota/controlplane/core"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Operation gives an operation for the wire.
func Operation(o core.Operation) *pb.Operation {
	return &pb.Operation{
		OperationId: o.ID, Kind: o.Kind, Subject: o.Subject, State: pb.OperationState(o.State), Step: o.Step, Detail: o.Detail,
		StartedAt: Time(o.StartedAt), EndedAt: Time(o.EndedAt), Actor: o.Actor, Reason: o.Reason,
		Steps: mapped(o.Steps, func(s core.OperationStep) *pb.OperationStep {
			return &pb.OperationStep{Name: s.Name, At: Time(s.At), Detail: s.Detail}
		}),
	}
}

// FromOperation reads what an operation has on the wire; the store adds the rest.
func FromOperation(p *pb.Operation) core.Operation {
	return core.Operation{
		ID: p.GetOperationId(), Kind: p.GetKind(), Subject: p.GetSubject(), State: enum[core.OperationState](p.GetState()), Step: p.GetStep(), Detail: p.GetDetail(),
		StartedAt: FromTime(p.GetStartedAt()), EndedAt: FromTime(p.GetEndedAt()), Actor: p.GetActor(), Reason: p.GetReason(),
		Steps: mapped(p.GetSteps(), func(s *pb.OperationStep) core.OperationStep {
			return core.OperationStep{Name: s.GetName(), At: FromTime(s.GetAt()), Detail: s.GetDetail()}
		}),
	}
}
