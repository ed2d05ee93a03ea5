package cell

import (
	"fmt"
	"time"

	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// loadKeys reads the keys that this process works with: payment keys only where it signs its
// questions to the channel.
func (p *parts) loadKeys() error {
	uses := map[signed.Use]**signed.Ring{signed.UsePermit: &p.permits, signed.UseReceipt: &p.receipts}
	if p.cfg.Provider.Kind == "http" && p.cfg.Provider.KeyID != "" {
		uses[signed.UsePayment] = &p.payKeys
	}
	for use, ring := range uses {
		loaded, err := signed.LoadRing(p.cfg.KeysDir, use)
		if err != nil {
			return fmt.Errorf("keys_dir: %w", err)
		}
		*ring = loaded
	}
	return nil
}

func (p *parts) rings() []*signed.Ring {
	rings := []*signed.Ring{p.permits, p.receipts}
	if p.payKeys != nil {
		rings = append(rings, p.payKeys)
	}
	return rings
}

// keyNames are the keys whose bytes are here, for keep-alives.
func (p *parts) keyNames() (names []string) {
	for _, ring := range p.rings() {
		names = append(names, ring.Names()...)
	}
	return names
}

// keyFault is the first thing that is wrong with the key files; "": nothing.
func (p *parts) keyFault() string {
	for _, ring := range p.rings() {
		if fault := ring.Fault(); fault != "" {
			return fault
		}
	}
	return ""
}

// followKeys goes by the states that the leader sent, all of them. A use that it does not name keeps
// what was heard before.
func (p *parts) followKeys(states []*pb.KeyInfo) {
	for _, ring := range p.rings() {
		var mine []signed.Status
		for _, k := range states {
			if signed.Use(k.GetUse()) == ring.Use() {
				mine = append(mine, signed.Status{KID: k.GetKid(), State: signed.State(k.GetState()), NotBefore: time.UnixMilli(k.GetNotBeforeMs())})
			}
		}
		if len(mine) == 0 {
			continue
		}
		if err := ring.Follow(mine); err != nil {
			p.log.Error("keys not read again", telemetry.Event, "keys_reload_failed", telemetry.Error, err.Error())
		}
	}
}
