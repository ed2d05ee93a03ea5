package store

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func encodeCell(c core.Cell) proto.Message {
	return &storev1.Cell{
		Spec: convert.CellSpec(c.Spec), State: pb.CellState(c.State), Version: c.Version, FenceVersion: c.FenceVersion,
		OperationId: c.OperationID, ProofId: c.ProofID, InstanceGroup: c.InstanceGroup, Reclaimed: c.Reclaimed,
		Paused: c.Paused, PauseReason: c.PauseReason, LastOperation: c.LastOperation, LastParameters: c.LastParameters,
	}
}

func decodeCell(kv *mvccpb.KeyValue) (core.Cell, error) {
	var m storev1.Cell
	err := decode(kv.Value, &m)
	return core.Cell{
		Spec: convert.FromCellSpec(m.GetSpec()), State: core.CellState(small(m.GetState())), Version: m.GetVersion(), FenceVersion: m.GetFenceVersion(),
		OperationID: m.GetOperationId(), ProofID: m.GetProofId(), InstanceGroup: m.GetInstanceGroup(), Reclaimed: m.GetReclaimed(),
		Paused: m.GetPaused(), PauseReason: m.GetPauseReason(), LastOperation: m.GetLastOperation(), LastParameters: m.GetLastParameters(),
		ModRevision: kv.ModRevision,
	}, err
}

func encodeInstance(i core.Instance) proto.Message {
	return &storev1.Instance{
		CellId: string(i.Cell), InstanceId: i.ID, InstanceGroup: i.Group, Address: i.Address, Roles: i.Roles,
		ProgramVersion: i.ProgramVersion, FenceVersion: i.FenceVersion, RegisteredAt: convert.Time(i.RegisteredAt),
		SchemaStep: i.SchemaStep,
	}
}

func decodeInstance(kv *mvccpb.KeyValue) (core.Instance, error) {
	var m storev1.Instance
	err := decode(kv.Value, &m)
	return core.Instance{
		Cell: ids.CellID(m.GetCellId()), ID: m.GetInstanceId(), Group: m.GetInstanceGroup(), Address: m.GetAddress(), Roles: m.GetRoles(),
		ProgramVersion: m.GetProgramVersion(), FenceVersion: m.GetFenceVersion(), RegisteredAt: convert.FromTime(m.GetRegisteredAt()),
		SchemaStep: m.GetSchemaStep(), Lease: kv.Lease, ModRevision: kv.ModRevision,
	}, err
}

func encodeProof(p core.Proof) proto.Message {
	m := &storev1.Proof{
		CellId: string(p.Cell), FenceVersion: p.FenceVersion, Evidence: pb.Evidence(p.Evidence),
		ShardIdentity: p.ShardIdentity, FencedAt: convert.Time(p.FencedAt), Parts: int32(p.Parts), Part: int32(p.Part), Set: p.Set,
	}
	if who := p.Attestation; who.Operator != "" {
		m.Attestation = &storev1.Attestation{
			Reason: who.Reason, Operator: who.Operator, Approver: who.Approver, ApprovalReason: who.ApprovalReason, ApprovedAt: convert.Time(who.ApprovedAt),
		}
	}
	for _, u := range p.Sealed {
		m.Sealed = append(m.Sealed, convert.Units(u))
	}
	for _, s := range p.Stocks {
		m.Stocks = append(m.Stocks, convert.Stock(s))
	}
	for _, a := range p.Adjustments {
		m.Adjustments = append(m.Adjustments, &storev1.AppliedAdjustment{
			AdjustmentId: a.ID, CampaignId: string(a.Key.Campaign), SkuId: string(a.Key.SKU), Number: a.Number,
			Kind: pb.AdjustmentKind(a.Kind), Units: a.Units.Int32(), Outcome: pb.AdjustmentOutcome(a.Outcome), FenceVersion: a.FenceVersion,
		})
	}
	for _, a := range p.Settled {
		m.Settled = append(m.Settled, &storev1.SettledAdjustments{
			CampaignId: string(a.Key.Campaign), SkuId: string(a.Key.SKU), FenceVersion: a.FenceVersion, Count: a.Count, Digest: a.Digest,
		})
	}
	for _, at := range p.Positions {
		m.Positions = append(m.Positions, &storev1.Position{
			Topic: at.Topic, TopicId: at.TopicID, Partition: at.Partition, NextOffset: at.NextOffset, LeaderEpoch: at.LeaderEpoch,
		})
	}
	return m
}

func decodeProof(kv *mvccpb.KeyValue) (core.Proof, error) {
	var m storev1.Proof
	if err := decode(kv.Value, &m); err != nil {
		return core.Proof{}, err
	}
	var r reader
	p := core.Proof{
		Cell: ids.CellID(m.GetCellId()), FenceVersion: m.GetFenceVersion(), Evidence: core.Evidence(small(m.GetEvidence())),
		ShardIdentity: m.GetShardIdentity(), FencedAt: convert.FromTime(m.GetFencedAt()), ModRevision: kv.ModRevision,
		Parts: int(m.GetParts()), Part: int(m.GetPart()), Set: m.GetSet(),
	}
	if who := m.GetAttestation(); who != nil {
		p.Attestation = core.Attestation{
			Reason: who.GetReason(), Operator: who.GetOperator(), Approver: who.GetApprover(), ApprovalReason: who.GetApprovalReason(), ApprovedAt: convert.FromTime(who.GetApprovedAt()),
		}
	}
	for _, u := range m.GetSealed() {
		p.Sealed = append(p.Sealed, keep(&r, u, convert.FromUnits))
	}
	for _, s := range m.GetStocks() {
		p.Stocks = append(p.Stocks, keep(&r, s, convert.FromStock))
	}
	for _, a := range m.GetAdjustments() {
		p.Adjustments = append(p.Adjustments, core.AppliedAdjustment{
			ID: a.GetAdjustmentId(), Key: bookKey(a.GetCampaignId(), a.GetSkuId()), Kind: core.AdjustmentKind(small(a.GetKind())),
			Units: r.units(a.GetUnits()), Outcome: core.Outcome(small(a.GetOutcome())), Step: core.Step{FenceVersion: a.GetFenceVersion(), Number: a.GetNumber()},
		})
	}
	for _, a := range m.GetSettled() {
		p.Settled = append(p.Settled, core.SettledAdjustments{
			Key: bookKey(a.GetCampaignId(), a.GetSkuId()), FenceVersion: a.GetFenceVersion(), Count: a.GetCount(), Digest: a.GetDigest(),
		})
	}
	for _, at := range m.GetPositions() {
		p.Positions = append(p.Positions, core.Position{
			Topic: at.GetTopic(), TopicID: at.GetTopicId(), Partition: at.GetPartition(), NextOffset: at.GetNextOffset(), LeaderEpoch: at.GetLeaderEpoch(),
		})
	}
	return p, r.err
}
