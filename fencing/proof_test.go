package fencing

import (
	"errors"
	"testing"
)

func TestProofCheckFindsEachBreach(t *testing.T) {
	good := func() Proof {
		p := proofOf(15, 20, 15,
			Applied{ID: "g1", Version: 1, Number: 1, Kind: KindGrant, Units: 60, Outcome: OutcomeApplied},
			Applied{ID: "r1", Version: 1, Number: 2, Kind: KindReturn, Units: 10, Outcome: OutcomeApplied},
			Applied{ID: "r2", Version: 1, Number: 3, Kind: KindReturn, Outcome: OutcomeRefused},
		)
		p.SKUs = append(p.SKUs, SKUFacts{SKU: watch}) // a row that came without a seal: nothing in it
		return p
	}
	if err := good().Check(); err != nil {
		t.Fatalf("the good proof: %v", err)
	}
	breaches := map[string]func(*Proof){
		"no cell":                    func(p *Proof) { p.Cell = "" },
		"no version":                 func(p *Proof) { p.Version = 0 },
		"version too high":           func(p *Proof) { p.Version = MaxVersion + 1 },
		"SKU twice":                  func(p *Proof) { p.SKUs[1].SKU = phone },
		"SKU unnamed":                func(p *Proof) { p.SKUs[1].SKU = SKU{Campaign: "c"} },
		"one seal for two SKUs":      func(p *Proof) { p.SKUs[1].SealID = p.SKUs[0].SealID },
		"available after the seal":   func(p *Proof) { p.SKUs[0].Available = 1 },
		"granted is not the sum":     func(p *Proof) { p.SKUs[0].Granted++ },
		"sealed below 0":             func(p *Proof) { p.SKUs[0].Sealed = -1 },
		"reserved below 0":           func(p *Proof) { p.SKUs[0].Reserved, p.SKUs[0].Confirmed = -1, 36 },
		"confirmed above the bound":  func(p *Proof) { p.SKUs[0].Confirmed, p.SKUs[0].Granted = MaxUnits+1, MaxUnits+21 },
		"sealed without id":          func(p *Proof) { p.SKUs[0].SealID = "" },
		"adjustment unnamed":         func(p *Proof) { p.Applied[0].ID = "" },
		"adjustment twice":           func(p *Proof) { p.Applied[1].ID = "g1" },
		"adjustment named as a seal": func(p *Proof) { p.Applied[1].ID = "seal.cell-1.2" },
		"adjustment of another SKU":  func(p *Proof) { p.Applied[1].SKU.SKU = "pen" },
		"number used twice":          func(p *Proof) { p.Applied[1].Number = 1 },
		"number 0":                   func(p *Proof) { p.Applied[1].Number = 0 },
		"under the fence's version":  func(p *Proof) { p.Applied[1].Version = 2 },
		"under no version":           func(p *Proof) { p.Applied[1].Version = 0 },
		"a seal among them":          func(p *Proof) { p.Applied[1].Kind = KindSeal },
		"no kind":                    func(p *Proof) { p.Applied[1].Kind = 0 },
		"not decided":                func(p *Proof) { p.Applied[1].Outcome, p.Applied[1].Units = OutcomeUnknown, 0 },
		"outcome unknown":            func(p *Proof) { p.Applied[1].Outcome, p.Applied[1].Units = 9, 0 },
		"refused with units":         func(p *Proof) { p.Applied[2].Units = 1 },
		"units below 0":              func(p *Proof) { p.Applied[0].Units = -1 },
		"units above the bound":      func(p *Proof) { p.Applied[0].Units = MaxUnits + 1 },
		"position unnamed":           func(p *Proof) { p.Positions[0].Topic = "" },
		"position below 0":           func(p *Proof) { p.Positions[0].NextOffset = -1 },
		"partition below 0":          func(p *Proof) { p.Positions[0].Partition = -1 },
		"position twice":             func(p *Proof) { p.Positions = append(p.Positions, p.Positions[0]) },
	}
	for name, edit := range breaches {
		p := good()
		edit(&p)
		if err := p.Check(); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
}

func TestProofFacts(t *testing.T) {
	p := proofOf(15, 20, 15)
	if f, ok := p.Facts(phone); !ok || f.Sealed != 15 {
		t.Errorf("phone: %+v, %v", f, ok)
	}
	if f, ok := p.Facts(watch); ok || f != (SKUFacts{SKU: watch}) {
		t.Errorf("watch: %+v, %v, want no row", f, ok)
	}
	if phone.Compare(watch) >= 0 || watch.Compare(phone) <= 0 || phone.Compare(phone) != 0 || (SKU{Campaign: "a", SKU: "z"}).Compare(phone) >= 0 {
		t.Error("SKUs are not ordered by campaign, then SKU")
	}
}
