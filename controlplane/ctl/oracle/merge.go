package oracle

import (
	"fmt"

	"github.com/cellquota/cellquota/edge/load/history"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Merge folds the verdict over a history into the answer of Verify: I6 is judged by it alone, I4 and
// I7 by both.
func Merge(v *pb.VerifyResponse, h history.Report) {
	broken, missed := map[string]int{}, map[string]int{}
	for _, b := range h.Breaches {
		broken[b.Invariant]++
		v.Breaches = append(v.Breaches, &pb.Breach{Invariant: b.Invariant, CampaignId: b.Key.Campaign, SkuId: b.Key.SKU, Detail: who(b.Key) + b.Detail})
	}
	for _, u := range h.Unchecked {
		missed[u.Invariant]++
		v.Unchecked = append(v.Unchecked, &pb.Unchecked{Invariant: u.Invariant, What: who(u.Key), Why: u.Detail})
	}
	said := fmt.Sprintf("history: %d records, %d requests, %d promised, %d orders, %d without an answer", h.Records, h.Requests, h.Promised, h.Orders, h.Unknown)
	for _, name := range []string{"I4", "I6", "I7"} {
		c := check(v, name)
		switch {
		case broken[name] > 0:
			c.Verdict, c.Detail = pb.Verdict_VERDICT_BROKEN, fmt.Sprintf("%d breaches in the history", broken[name])
		case c.GetVerdict() == pb.Verdict_VERDICT_BROKEN:
		case missed[name] > 0:
			c.Verdict, c.Detail = pb.Verdict_VERDICT_UNCHECKED, fmt.Sprintf("%d requests of the history could not be asked", missed[name])
		case c.GetVerdict() == pb.Verdict_VERDICT_UNCHECKED: // a shard was not read
		case name == "I6":
			c.Verdict, c.Detail = pb.Verdict_VERDICT_OK, said
		}
	}
	v.Ok = v.GetOk() && len(h.Breaches) == 0
}

func check(v *pb.VerifyResponse, name string) *pb.Check {
	for _, c := range v.GetChecks() {
		if c.GetInvariant() == name {
			return c
		}
	}
	c := &pb.Check{Invariant: name, Verdict: pb.Verdict_VERDICT_SKIPPED}
	v.Checks = append(v.Checks, c)
	return c
}

func who(k history.Key) string {
	if k.Request == "" {
		return ""
	}
	return fmt.Sprintf("request %s of user %s: ", k.Request, k.User)
}
