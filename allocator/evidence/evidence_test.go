package evidence_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/evidence"
)

// draw makes the evidence of a draw of 20 entrants for 5 units, its lists in two parts each.
func draw(t *testing.T) (evidence.Claim, map[string][]byte) {
	t.Helper()
	objects := map[string][]byte{}
	doc := evidence.Document{Version: 1, Campaign: "c", SKU: "s", Seed: strings.Repeat("ab", 32), Beacon: "b", Units: 5}
	list := allocator.NewEntrantList()
	var entrants []allocator.Entrant
	for i := range 20 {
		e := allocator.Entrant{ID: fmt.Sprintf("cell-1.e%02d", i), Cell: "cell-1", Tickets: 1 + i%3}
		if err := list.Add(e); err != nil {
			t.Fatal(err)
		}
		entrants = append(entrants, e)
	}
	sum := list.Digest()
	doc.Entrants, doc.EntrantsSHA256 = list.Count(), hex.EncodeToString(sum[:])
	rules, err := doc.Rules()
	if err != nil {
		t.Fatal(err)
	}
	promised := allocator.Commitment(rules.Seed)
	doc.Commitment = hex.EncodeToString(promised[:])
	drawing, err := allocator.NewDraw(rules)
	if err != nil {
		t.Fatal(err)
	}
	part := func(name, content string) evidence.Part {
		objects[name] = []byte(content)
		return evidence.Part{Object: name, SHA256: evidence.Digest([]byte(content)), Size: int64(len(content))}
	}
	var text [2]string
	for i, e := range entrants {
		text[i/10] += evidence.Line(e)
		if err := drawing.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	doc.EntrantParts = []evidence.Part{part("e1", text[0]), part("e2", text[1])}
	text = [2]string{}
	won := drawing.Winners()
	for i, w := range won {
		text[i/3] += w.ID + "\n"
	}
	doc.Winners, doc.WinnerParts = int64(len(won)), []evidence.Part{part("w1", text[0]), part("w2", text[1])}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	objects[""] = raw
	return evidence.Claim{
		Campaign: "c", SKU: "s", Commitment: doc.Commitment, Seed: doc.Seed, Beacon: "b", EntrantsSHA256: doc.EntrantsSHA256, DocumentSHA256: evidence.Digest(raw),
		Units: 5, Entrants: 20, Winners: 5,
	}, objects
}

// forge changes the document and signs it anew, as somebody could who may write the archive and the
// campaign's record.
func forge(t *testing.T, claim *evidence.Claim, objects map[string][]byte, change func(*evidence.Document)) {
	t.Helper()
	var doc evidence.Document
	if err := json.Unmarshal(objects[""], &doc); err != nil {
		t.Fatal(err)
	}
	change(&doc)
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	objects[""] = raw
	claim.DocumentSHA256, claim.Winners, claim.Entrants, claim.EntrantsSHA256, claim.Seed = evidence.Digest(raw), doc.Winners, doc.Entrants, doc.EntrantsSHA256, doc.Seed
}

func TestEvidenceHoldsOrNamesWhatDoesNot(t *testing.T) {
	swap := func(objects map[string][]byte, name string, from, to string) evidence.Part {
		objects[name] = []byte(strings.Replace(string(objects[name]), from, to, 1))
		return evidence.Part{Object: name, SHA256: evidence.Digest(objects[name]), Size: int64(len(objects[name]))}
	}
	for name, tamper := range map[string]struct {
		do   func(*evidence.Claim, map[string][]byte)
		says string
	}{
		"as drawn":          {func(*evidence.Claim, map[string][]byte) {}, ""},
		"document replaced": {func(_ *evidence.Claim, o map[string][]byte) { o[""] = append(o[""], ' ') }, "the campaign's record says"},
		"another record":    {func(c *evidence.Claim, _ map[string][]byte) { c.Beacon = "x" }, "the campaign's record {"},
		"a part replaced":   {func(_ *evidence.Claim, o map[string][]byte) { swap(o, "e2", "cell-1", "cell-2") }, "e2 has SHA-256"},
		"another seed, signed": {func(c *evidence.Claim, o map[string][]byte) {
			forge(t, c, o, func(d *evidence.Document) { d.Seed = strings.Repeat("cd", 32) })
		}, "is not the commitment"},
		"a friend put in, signed": {func(c *evidence.Claim, o map[string][]byte) {
			forge(t, c, o, func(d *evidence.Document) { d.EntrantParts[1] = swap(o, "e2", "cell-1.e19", "cell-1.e1x") })
		}, "the list has 20 entrants"},
		"a winner exchanged, signed": {func(c *evidence.Claim, o map[string][]byte) {
			forge(t, c, o, func(d *evidence.Document) {
				first, _, _ := strings.Cut(string(o["w1"]), "\n")
				d.WinnerParts[0] = swap(o, "w1", first, "cell-1.e1x")
			})
		}, "winner 1 is cell-1.e1x"},
		"a winner left out, signed": {func(c *evidence.Claim, o map[string][]byte) {
			forge(t, c, o, func(d *evidence.Document) { d.WinnerParts, d.Winners = d.WinnerParts[:1], 3 })
		}, "a draw gives 5"},
	} {
		claim, objects := draw(t)
		tamper.do(&claim, objects)
		_, err := evidence.Verify(claim, func(object string) ([]byte, error) { return objects[object], nil })
		switch {
		case tamper.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tamper.says != "" && (!errors.Is(err, evidence.ErrEvidence) || !strings.Contains(err.Error(), tamper.says)):
			t.Errorf("%s: %v, want one that says %q", name, err, tamper.says)
		}
	}
}
