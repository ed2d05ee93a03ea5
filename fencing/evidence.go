package fencing

import (
	"errors"
	"fmt"
	"strings"
)

// Evidence is the reason why units may leave a cell's allocation without that
// cell's doing. A lapsed lease is none.
type Evidence uint8

// The kinds of evidence. The zero value is none.
const (
	// StoreFence: the fence stands in the shard, and what the shard holds was
	// read after it. Sealed units and unapplied grants may be given to others.
	StoreFence Evidence = iota + 1
	// AttestedLoss: the shard is gone for good, and two people say so. Whatever
	// the cell held is written off; none of it is ever given to anyone.
	AttestedLoss
)

var evidenceNames = [...]string{StoreFence: "STORE_FENCE", AttestedLoss: "ATTESTED_LOSS"}

// String gives the word of the contract, section 8; "NONE" for the zero value.
func (e Evidence) String() string {
	switch {
	case e == 0:
		return "NONE"
	case int(e) < len(evidenceNames):
		return evidenceNames[e]
	}
	return fmt.Sprintf("Evidence(%d)", uint8(e))
}

// ParseEvidence reads the word of the contract. ErrEvidence for any other.
func ParseEvidence(text string) (Evidence, error) {
	for e, name := range evidenceNames {
		if name != "" && text == name {
			return Evidence(e), nil
		}
	}
	return 0, fmt.Errorf("%.40q: %w", text, ErrEvidence)
}

var (
	// ErrEvidence: not a kind of evidence.
	ErrEvidence = errors.New("evidence must be STORE_FENCE or ATTESTED_LOSS")
	// ErrAttestation: an attestation lacks a reason or its second person.
	ErrAttestation = errors.New("a write-off needs a reason, an operator and another person who approved")
)

// Attestation is the word of two people that a shard is gone for good.
type Attestation struct {
	Reason   string
	Operator string // who said so
	Approver string // who approved; somebody else
}

// Check returns ErrAttestation unless there is a reason and two different people.
func (a Attestation) Check() error {
	reason, operator, approver := strings.TrimSpace(a.Reason), strings.TrimSpace(a.Operator), strings.TrimSpace(a.Approver)
	switch {
	case reason == "":
		return fmt.Errorf("reason: empty: %w", ErrAttestation)
	case operator == "" || approver == "":
		return fmt.Errorf("operator or approver: empty: %w", ErrAttestation)
	case operator == approver:
		return fmt.Errorf("approver: %.64q approved the own attestation: %w", approver, ErrAttestation)
	}
	return nil
}
