package campaignfile_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/goccy/go-yaml"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
)

func schema(t *testing.T) *openapi3.Schema {
	t.Helper()
	var s openapi3.Schema
	if err := s.UnmarshalJSON(campaignfile.Schema()); err != nil {
		t.Fatal(err)
	}
	return &s
}

// document is a file as JSON's own types.
func document(t *testing.T, text string) map[string]any {
	t.Helper()
	var raw any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// properties are the names of every key that the schema knows.
func properties(s *openapi3.Schema, into map[string]bool) {
	for name, p := range s.Properties {
		into[name] = true
		properties(p.Value, into)
	}
	for _, inner := range []*openapi3.SchemaRef{s.Items, s.AdditionalProperties.Schema} {
		if inner != nil {
			properties(inner.Value, into)
		}
	}
}

// TestTheSchemaHasTheValidatorsKeys: every key that the reader asks for stands in the schema, and no other.
func TestTheSchemaHasTheValidatorsKeys(t *testing.T) {
	asks := regexp.MustCompile(`\.(?:text|instant|count|span|permille|units|amount|rate|child|list|texts|node|number|refuse|has)\("([a-z_]+)"|enum\(\w+, "([a-z_]+)"`)
	read := map[string]bool{"apiVersion": true, "kind": true}
	for _, name := range []string{"campaign.go", "sku.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asks.FindAllStringSubmatch(string(source), -1) {
			read[m[1]+m[2]] = true
		}
	}
	known := map[string]bool{}
	properties(schema(t), known)
	if got, want := slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(read)); !slices.Equal(got, want) {
		t.Errorf("the schema knows\n%v\nthe reader asks for\n%v", got, want)
	}
}

// TestTheSchemaTakesWhatTheValidatorTakes: files that are valid are valid by the schema; and a file that the
// schema refuses is refused by the validator.
func TestTheSchemaTakesWhatTheValidatorTakes(t *testing.T) {
	s := schema(t)
	good := []string{
		contract, least,
		strings.Replace(contract, "reserve: 400", `reserve: "4%"`, 1),
		strings.Replace(contract, "reserve: 400", `reserve: "400"`, 1),
		strings.Replace(contract, "reserve: 400", "reserve: 4.5%", 1),
		strings.Replace(contract, "reservation_ttl: 15m", "reservation_ttl: 1h30m", 1),
		strings.Replace(contract, "policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: 2, cell-2: 0}}", 1),
		strings.Replace(contract, "policy: EQUAL}", "policy: DEMAND}", 1),
		strings.Replace(least, "campaign_id: c", "campaign_id: 42", 1),
		strings.Replace(least, "open_at: 2026-11-11T00:00:00Z", "open_at: 2026-11-11T00:00:00.250+08:00", 1),
		strings.Replace(contract, "rate: 2/s, burst: 5", "rate: 0.5/s", 1),
	}
	for _, text := range good {
		if _, _, faults := campaignfile.ParseCampaign(text); len(faults) > 0 {
			t.Fatalf("not valid: %v\n%s", faults, text)
		}
		if err := s.VisitJSON(document(t, text)); err != nil {
			t.Errorf("valid, and refused by the schema: %v\n%s", err, text)
		}
	}
	for _, change := range [][2]string{
		{"refund_rule: NO_RESTOCK", "refund_rule: MAYBE"},
		{"refund_rule: NO_RESTOCK", ""},
		{"campaign_id: double-eleven", "campaign_id: Double_Eleven"},
		{"sale_limit: 10000", "sale_limit: -1"},
		{"sale_limit: 10000", `sale_limit: "10000"`},
		{"sale_limit: 10000", "sale_limit: 1000000001"},
		{"reserve: 400", "reserve: 4 percent"},
		{"open_at: 2026-11-11T00:00:00+08:00 ", "open_at: 2026-11-11T00:00:00 "},
		{"reservation_ttl: 15m", "reservation_ttl: soon"},
		{`amount: "4999.00"`, `amount: "4999,00"`},
		{"currency: CNY", "currency: yuan"},
		{"rate: 2/s", "rate: fast"},
		{`margin: "5%"`, "margin: 5"},
		{"baseline_rps: 0", "baseline_rps: 0, extra: 1"},
		{"max_quantity_per_order: 1", "max_quantity_per_order: 1001"},
		{"cells: [cell-1, cell-2, cell-3, cell-4]", "cells: []"},
		{"policy: EQUAL}", "policy: SOMEHOW}"},
		{"policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: 1000001}}"},
		{"kind: Campaign", "kind: Cell"},
		{"purchase_scope: SKU", "colour: red"},
	} {
		text := strings.Replace(contract, change[0], change[1], 1)
		if _, _, faults := campaignfile.ParseCampaign(text); len(faults) == 0 {
			t.Errorf("%q is valid", change[1])
		}
		if err := s.VisitJSON(document(t, text)); err == nil {
			t.Errorf("%q: the schema takes it", change[1])
		}
	}
}

// TestTheSchemasDefaults: a file that writes every default out is the file that leaves them out.
func TestTheSchemasDefaults(t *testing.T) {
	doc := document(t, least)
	fill(schema(t), doc)
	text, err := json.Marshal(doc) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	full, _, faults := campaignfile.ParseCampaign(string(text))
	short, _, _ := campaignfile.ParseCampaign(least)
	if len(faults) > 0 || !full.Equal(short) {
		t.Errorf("%v\n%s\n%+v\nis not\n%+v", faults, text, full, short)
	}
	if !strings.Contains(string(text), `"max_wait":"2s"`) || !strings.Contains(string(text), `"tranche":"5%"`) {
		t.Errorf("defaults are missing:\n%s", text)
	}
}

// fill writes the schema's defaults into a document, and blocks that have some.
func fill(s *openapi3.Schema, doc map[string]any) {
	for name, p := range s.Properties {
		_, there := doc[name]
		switch {
		case p.Value.Default != nil && !there:
			doc[name] = p.Value.Default
		case name == "limits" || name == "lottery":
		case len(p.Value.Properties) > 0 && !there:
			inner := map[string]any{}
			if fill(p.Value, inner); len(inner) > 0 {
				doc[name] = inner
			}
		case name == "skus":
			for _, item := range doc[name].([]any) {
				fill(p.Value.Items.Value, item.(map[string]any))
			}
		}
	}
}

// TestTheDocumentedSample: the sample of the reference page is the file that it says it is: valid, whole.
func TestTheDocumentedSample(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "campaign-file.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	sample, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page has no sample")
	}
	if _, _, faults := campaignfile.ParseCampaign(sample); len(faults) > 0 {
		t.Fatal(faults)
	}
	known := map[string]bool{}
	properties(schema(t), known)
	for name := range known {
		if !strings.Contains(string(page), name) {
			t.Errorf("the page does not say what %s is", name)
		}
	}
}
