package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
)

// sellingRoles must each be run by some process, or the cell does half its work.
var sellingRoles = []string{"admission", "relay", "orders", "closer", "outbox"}

// look judges the cell's processes. One that is not ACTIVE needs none.
func look(s Subject, p *part) {
	switch {
	case s.Cell == nil || s.Cell.State == core.CellProvisioned:
		p.saw("processes", "not provisioned: none are expected", true, "")
		return
	case s.Unknown != "":
		p.saw("processes", "not known: "+s.Unknown, false, "the leader must answer for what processes say: repeat when one leads")
		return
	case s.Cell.State != core.CellActive && s.Cell.State != core.CellDraining:
		p.saw("processes", fmt.Sprintf("%d live; the cell is %s", len(s.Processes), s.Cell.State), true, "")
		return
	}
	p.saw("processes", fmt.Sprintf("%d holding a lease", len(s.Processes)), len(s.Processes) > 0,
		"at least one process of group "+s.Cell.InstanceGroup+" must hold a lease: start it, or fence the cell")
	var roles, versions []string
	for _, one := range s.Processes {
		p.saw("process "+one.ID+" faults", cmp.Or(strings.Join(one.Faults, ", "), "none"), len(one.Faults) == 0, "must be ready; its readyz names each fault's cause")
		p.saw("process "+one.ID+" group", one.Group, one.Group == s.Cell.InstanceGroup, "must be "+s.Cell.InstanceGroup+", which the fence row names")
		roles, versions = append(roles, one.Roles...), append(versions, one.Version)
	}
	if len(s.Processes) == 0 {
		return
	}
	var missing []string
	for _, role := range sellingRoles {
		if !slices.Contains(roles, role) {
			missing = append(missing, role)
		}
	}
	seen := "all are run"
	if len(missing) > 0 {
		seen = "nobody runs " + strings.Join(missing, ", ")
	}
	p.saw("process roles", seen, len(missing) == 0, "each of "+strings.Join(sellingRoles, ", ")+" must be run by a process")
	slices.Sort(versions)
	versions = slices.Compact(versions)
	p.saw("process versions", strings.Join(versions, ", "), len(versions) <= 2, "at most two program versions at a time: finish the upgrade")
}
