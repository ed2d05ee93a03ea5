// Package evidence is what a draw leaves behind, and how anybody repeats it.
//
// A draw's evidence is one JSON document that names the rules, the list of entrants and the winners. The
// lists are objects of their own, in parts of at most PartBytes: one line "ID CELL TICKETS" per entrant in
// ascending order of ids, one line "ID" per winner in the order in which they were drawn. Every object is
// named with the SHA-256 of its bytes; the document's own is in the campaign's record.
//
// Pure: no context, clock or I/O. Neighbours: allocator draws; controlplane/lottery writes, controlplane/ctl
// verifies.
package evidence

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/allocator"
)

// PartBytes bounds one object.
const PartBytes = 1 << 20

// Document says what one SKU's draw was made from and what came out.
type Document struct {
	Version        int      `json:"version"` // 1
	Campaign       string   `json:"campaign_id"`
	SKU            string   `json:"sku_id"`
	Commitment     string   `json:"commitment"` // SHA-256 of the seed
	Seed           string   `json:"seed"`
	Beacon         string   `json:"beacon"`
	Units          int64    `json:"units"`
	Entrants       int64    `json:"entrants"`
	EntrantsSHA256 string   `json:"entrants_sha256"` // of the list as allocator.EntrantList takes it
	Winners        int64    `json:"winners"`
	Cells          []Cell   `json:"cells"`
	LostCells      []string `json:"lost_cells,omitempty"` // written off: nobody can read their entries
	EntrantParts   []Part   `json:"entrant_parts"`
	WinnerParts    []Part   `json:"winner_parts"`
}

// Cell is one cell's share.
type Cell struct {
	Cell     string `json:"cell_id"`
	Entrants int64  `json:"entrants"`
	Winners  int64  `json:"winners"`
}

// Part names an object with a piece of a list.
type Part struct {
	Object string `json:"object"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"` // bytes
}

// ErrEvidence: the evidence does not say what a draw from it gives.
var ErrEvidence = errors.New("the evidence does not hold")

// Line is an entrant as a part has him.
func Line(e allocator.Entrant) string { return fmt.Sprintf("%s %s %d\n", e.ID, e.Cell, e.Tickets) }

func readLine(line string) (allocator.Entrant, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 {
		return allocator.Entrant{}, fmt.Errorf("%w: line %q is not an entrant", ErrEvidence, line)
	}
	n, err := strconv.Atoi(fields[2])
	if err != nil {
		return allocator.Entrant{}, fmt.Errorf("%w: line %q: tickets are no number", ErrEvidence, line)
	}
	return allocator.Entrant{ID: fields[0], Cell: fields[1], Tickets: n}, nil
}

// Digest is the SHA-256 of an object's bytes, hex.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Rules are those of the draw that the document describes.
func (d Document) Rules() (allocator.LotteryRules, error) {
	r := allocator.LotteryRules{Campaign: d.Campaign, SKU: d.SKU, Beacon: d.Beacon, Units: d.Units}
	seed, err1 := hex.DecodeString(d.Seed)
	list, err2 := hex.DecodeString(d.EntrantsSHA256)
	if err := errors.Join(err1, err2); err != nil || len(seed) != len(r.Seed) || len(list) != len(r.Entrants) {
		return r, fmt.Errorf("%w: seed and entrants_sha256 must be 32 bytes in hex", ErrEvidence)
	}
	copy(r.Seed[:], seed)
	copy(r.Entrants[:], list)
	return r, nil
}

// Claim is what the campaign's record says of a draw, which the evidence must agree with.
type Claim struct {
	Campaign, SKU, Commitment, Seed, Beacon, EntrantsSHA256, DocumentSHA256 string
	Units, Entrants, Winners                                                int64
}

// Verify repeats a draw from its evidence: the document is the one that the record names, the seed is the
// one that was promised, the entrants are those digested, and the winners are those drawn. get gives an
// object's bytes by its name ("" is the document). ErrEvidence names the first thing that does not hold.
func Verify(claim Claim, get func(object string) ([]byte, error)) (Document, error) {
	doc, err := document(claim, get)
	if err != nil {
		return doc, err
	}
	rules, err := doc.Rules()
	if err != nil {
		return doc, err
	}
	if c := allocator.Commitment(rules.Seed); hex.EncodeToString(c[:]) != claim.Commitment {
		return doc, fmt.Errorf("%w: the seed's SHA-256 is not the commitment %s", ErrEvidence, claim.Commitment)
	}
	draw, err := allocator.NewDraw(rules)
	if err != nil {
		return doc, err
	}
	list := allocator.NewEntrantList()
	err = lines(doc.EntrantParts, get, func(line string) error {
		e, err := readLine(line)
		if err != nil {
			return err
		}
		return errors.Join(list.Add(e), draw.Add(e))
	})
	if err != nil {
		return doc, err
	}
	if sum := list.Digest(); hex.EncodeToString(sum[:]) != doc.EntrantsSHA256 || list.Count() != doc.Entrants {
		return doc, fmt.Errorf("%w: the list has %d entrants with SHA-256 %x, the document says %d with %s", ErrEvidence, list.Count(), sum, doc.Entrants, doc.EntrantsSHA256)
	}
	return doc, winners(doc, draw.Winners(), get)
}

func document(claim Claim, get func(string) ([]byte, error)) (Document, error) {
	var doc Document
	raw, err := get("")
	if err != nil {
		return doc, err
	}
	if sum := Digest(raw); sum != claim.DocumentSHA256 {
		return doc, fmt.Errorf("%w: the document's SHA-256 is %s, the campaign's record says %s", ErrEvidence, sum, claim.DocumentSHA256)
	}
	if err := json.Unmarshal(raw, &doc); err != nil || doc.Version != 1 {
		return doc, fmt.Errorf("%w: the document cannot be read (version %d): %w", ErrEvidence, doc.Version, errors.Join(err))
	}
	said := Claim{doc.Campaign, doc.SKU, doc.Commitment, doc.Seed, doc.Beacon, doc.EntrantsSHA256, claim.DocumentSHA256, doc.Units, doc.Entrants, doc.Winners}
	if said != claim {
		return doc, fmt.Errorf("%w: the document says %+v, the campaign's record %+v", ErrEvidence, said, claim)
	}
	return doc, nil
}

// winners compares the list with what a draw gives, one by one.
func winners(doc Document, drawn []allocator.Winner, get func(string) ([]byte, error)) error {
	at := 0
	err := lines(doc.WinnerParts, get, func(line string) error {
		if at >= len(drawn) || drawn[at].ID != line {
			return fmt.Errorf("%w: winner %d is %s, a draw gives %s", ErrEvidence, at+1, line, nth(drawn, at))
		}
		at++
		return nil
	})
	if err != nil {
		return err
	}
	if at != len(drawn) || int64(at) != doc.Winners {
		return fmt.Errorf("%w: the list has %d winners, the document says %d, a draw gives %d", ErrEvidence, at, doc.Winners, len(drawn))
	}
	return nil
}

func nth(drawn []allocator.Winner, at int) string {
	if at >= len(drawn) {
		return "nobody"
	}
	return drawn[at].ID
}

// lines hands the lines of a list's parts over, each part checked against its digest.
func lines(parts []Part, get func(string) ([]byte, error), each func(string) error) error {
	for _, p := range parts {
		content, err := get(p.Object)
		if err != nil {
			return err
		}
		if sum := Digest(content); sum != p.SHA256 {
			return fmt.Errorf("%w: %s has SHA-256 %s, the document says %s", ErrEvidence, p.Object, sum, p.SHA256)
		}
		in := bufio.NewScanner(bytes.NewReader(content))
		for in.Scan() {
			if err := each(in.Text()); err != nil {
				return err
			}
		}
		if err := in.Err(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrEvidence, p.Object, err)
		}
	}
	return nil
}
