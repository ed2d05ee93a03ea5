package shard_test

import (
	"testing"
)

// TestK43DamagedRulesHideNoOthers: a row of rules that is truncated, blank or of nobody's making is read as
// rules that cannot be read; the other campaigns of the shard are read all the same, and a newer version
// that is written over it cures it.
func TestK43DamagedRulesHideNoOthers(t *testing.T) {
	b := newBench(t)
	good, bad := rules(phone), rules(phone)
	bad.Spec.CampaignId = "damaged"
	b.install(good)
	b.install(bad)
	for name, bytes := range map[string][]byte{"truncated": {0x0a, 0x7f, 0x01}, "garbage": {0xff, 0xff, 0xff}, "blank": {}} {
		if _, err := b.admin.Exec(b.ctx, "UPDATE cellquota.campaigns SET rules = $1 WHERE campaign_id = 'damaged'", bytes); err != nil {
			t.Fatal(err)
		}
		all, err := b.store.Campaigns(b.ctx)
		if err != nil || len(all) != 2 {
			t.Fatalf("%s: %d campaigns, %v", name, len(all), err)
		}
		for _, c := range all {
			if readable := c.Rules.GetSpec().GetCampaignId() == string(c.ID); readable != (c.ID != "damaged") {
				t.Errorf("%s: %s readable %t", name, c.ID, readable)
			}
		}
	}
	bad.Version++
	b.install(bad)
	all, err := b.store.Campaigns(b.ctx)
	if err != nil || all[0].Rules.GetSpec() == nil || all[1].Rules.GetSpec() == nil {
		t.Errorf("written over: %v, %v", all, err)
	}
	if v, err := b.store.RulesVersion(b.ctx, "damaged"); err != nil || v != bad.Version {
		t.Errorf("version %d, %v", v, err)
	}
	if v, err := b.store.RulesVersion(b.ctx, "nobody"); err != nil || v != 0 {
		t.Errorf("of nobody: %d, %v", v, err)
	}
}
