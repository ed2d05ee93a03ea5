package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/check"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Checker looks at a cell's parts; check.Checker is one.
type Checker interface {
	Look(ctx context.Context, s check.Subject) []check.Finding
}

// CheckCell looks at a stored cell, or at a spec before it is provisioned, and changes
// nothing. A region-operator may look at what lies in its regions, with the files that
// the stored cell names. A look at a given spec has files read and is audited.
func (h *Cells) CheckCell(ctx context.Context, req *pb.CheckCellRequest) (*pb.CheckCellResponse, error) {
	subject, err := h.subject(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.GetSpec() != nil {
		if err := h.Intent.Looked(ctx, caller(ctx), subject.Spec); err != nil {
			return nil, err
		}
	}
	found := h.Checker.Look(ctx, subject)
	out := &pb.CheckCellResponse{Ok: check.OK(found)}
	for _, f := range found {
		out.Findings = append(out.Findings, &pb.CellFinding{Part: f.Part, Subject: f.Subject, Ok: f.OK, Seen: f.Seen, Rule: f.Rule})
	}
	return out, nil
}

// subject reads what is to be looked at. A spec of a cell that is stored is looked at
// as the cell would be after an update.
func (h *Cells) subject(ctx context.Context, req *pb.CheckCellRequest) (check.Subject, error) {
	var f fields
	var spec core.CellSpec
	given := req.GetSpec() != nil
	switch {
	case given && req.GetCellId() != "":
		f.add("cell_id", "must be empty where a spec is given")
	case given:
		spec = convert.FromCellSpec(req.GetSpec())
		for _, v := range spec.Check() {
			f.add("spec."+v.Field, v.Rule)
		}
	default:
		spec.ID = f.cell(req.GetCellId())
	}
	if err := f.err(); err != nil {
		return check.Subject{}, err
	}
	cell, known := h.View.Snapshot().Cell(spec.ID)
	switch {
	case !known && !given:
		return check.Subject{}, unknownCell(spec.ID)
	case !given:
		spec = cell.Spec
	}
	for _, region := range []string{spec.Region, cell.Spec.Region} {
		if region == "" {
			continue
		}
		if err := access.Region(ctx, region); err != nil {
			return check.Subject{}, err
		}
	}
	if err := h.mayName(ctx, spec, cell.Spec, true); err != nil {
		return check.Subject{}, err
	}
	if !known {
		return check.Subject{Spec: spec}, nil
	}
	return h.living(ctx, check.Subject{Spec: spec, Cell: &cell})
}

// mayName refuses a spec that names files which the caller may not have this control
// plane read (core.Naming has the rule), each by its field. stored is the cell as it is;
// zero: there is none. look: they are read now, for the caller.
func (h *Cells) mayName(ctx context.Context, spec, stored core.CellSpec, look bool) error {
	p, _ := transport.PrincipalFrom(ctx)
	refused := core.Naming{Dir: h.SecretsDir, Anywhere: p.Role == access.SRE, Look: look}.Refuses(spec, stored)
	if len(refused) == 0 {
		return nil
	}
	for i := range refused {
		refused[i].Field = "spec." + refused[i].Field
	}
	return rpcstatus.With(rpcstatus.ErrPermissionDenied, map[string]string{"field": refused[0].Field}, refused, 0)
}

// living adds the cell's processes, as the leader knows them.
func (h *Cells) living(ctx context.Context, s check.Subject) (check.Subject, error) {
	got, err := h.GetCell(ctx, &pb.GetCellRequest{CellId: string(s.Spec.ID)})
	if err != nil {
		return s, err
	}
	groups := map[string]string{}
	for _, in := range h.View.Snapshot().Instances(s.Spec.ID) {
		groups[in.ID] = in.Group
	}
	s.Unknown = got.GetCell().GetLivenessUnknown()
	for _, in := range got.GetCell().GetInstances() {
		group, seen := groups[in.GetInstanceId()]
		if !seen {
			group = s.Cell.InstanceGroup // the leader knows it already, and lets no other register
		}
		s.Processes = append(s.Processes, check.Process{
			ID: in.GetInstanceId(), Group: group, Version: in.GetProgramVersion(), Roles: in.GetRoles(), Faults: in.GetFaults(),
		})
	}
	return s, nil
}
