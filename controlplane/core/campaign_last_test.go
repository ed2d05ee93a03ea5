package core_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
)

// TestRepeats: the last mutation, repeated, is known; its id with other
// parameters is refused; anything else is a call of its own.
func TestRepeats(t *testing.T) {
	asked := core.Digest("pause", "c", "phone-x")
	c := core.Campaign{Spec: core.CampaignSpec{ID: "c"}}.Stamped("op-1", asked)
	for _, row := range []struct {
		name, operation, parameters string
		repeats                     bool
		want                        error
	}{
		{"the same call", "op-1", asked, true, nil},
		{"the id with other parameters", "op-1", core.Digest("pause", "c", ""), false, core.ErrIDReused},
		{"another id with the same parameters", "op-2", asked, false, nil},
		{"no id", "", "", false, nil},
	} {
		got, err := c.Repeats(row.operation, row.parameters)
		if got != row.repeats || !errors.Is(err, row.want) {
			t.Errorf("%s: %v, %v; want %v, %v", row.name, got, err, row.repeats, row.want)
		}
	}
	if got, err := (core.Campaign{}).Repeats("", ""); got || err != nil {
		t.Errorf("a record of an older release repeats nothing: %v, %v", got, err)
	}
}
