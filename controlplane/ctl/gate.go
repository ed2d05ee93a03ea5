package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/controlplane/ctl/render"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func gateView(out *pb.CellAdminServiceGetGateResponse) render.View {
	t := render.Table{Columns: render.Columns("PROCESS", "CAMPAIGN", "SKU", "STATE", "#BOUND", "#OUTSTANDING", "#ORDERS/S", "#OLDEST", "#MIRROR", "BUILD", "CAUSE")}
	for _, p := range out.GetProcesses() {
		for _, g := range p.GetGates() {
			t.Rows = append(t.Rows, []string{
				p.GetInstanceId(), g.GetCampaignId(), g.GetSkuId(), render.Word(g.GetState()), number(g.GetBound()), number(g.GetOutstanding()),
				strconv.FormatFloat(g.GetConsumeRate(), 'f', 0, 64), millis(g.GetOldestUnsettledAgeMs()), number(g.GetMirrorStock()),
				fmt.Sprintf("%d.%d", g.GetBuild().GetFenceVersion(), g.GetBuild().GetCount()), g.GetCause(),
			})
		}
	}
	v := render.View{Message: out, Tables: []render.Table{t}}
	for _, p := range out.GetProcesses() {
		if faults := p.GetFaults(); len(faults) > 0 {
			v.Lines = append(v.Lines, fmt.Sprintf("%s is not ready: %s", p.GetInstanceId(), strings.Join(faults, ", ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(out.GetUnreachable())) {
		v.Lines = append(v.Lines, fmt.Sprintf("%s did not answer: %s", name, out.GetUnreachable()[name]))
	}
	return v
}
