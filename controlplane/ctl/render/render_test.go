package render

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func books() *pb.ListAllocationsResponse {
	return &pb.ListAllocationsResponse{Revision: 9007199254740993, Books: []*pb.Book{{
		CampaignId: "demo", SkuId: "phone-x", SaleLimit: 10000, Reserve: 400, Version: 3,
		Allocations: []*pb.Allocation{
			{CellId: "cell-1", Granted: 2400, FenceVersion: 1, State: pb.CellState_CELL_STATE_ACTIVE, LastNumber: 1},
			{CellId: "cell-2", State: pb.CellState_CELL_STATE_FENCED},
		},
	}}}
}

const booksJSON = `{
  "books": [
    {
      "campaign_id": "demo",
      "sku_id": "phone-x",
      "sale_limit": 10000,
      "reserve": 400,
      "version": 3,
      "allocations": [
        {
          "cell_id": "cell-1",
          "granted": 2400,
          "fence_version": 1,
          "state": "ACTIVE",
          "last_number": 1,
          "written_off": 0,
          "first_grant": 0
        },
        {
          "cell_id": "cell-2",
          "granted": 0,
          "fence_version": 0,
          "state": "FENCED",
          "last_number": 0,
          "written_off": 0,
          "first_grant": 0
        }
      ],
      "limit_target": 0,
      "final": false
    }
  ],
  "revision": 9007199254740993,
  "view_age_ms": 0
}
`

func TestMessageAsScriptsReadIt(t *testing.T) {
	if got := string(JSON(books())); got != booksJSON {
		t.Errorf("got\n%s\nwant\n%s", got, booksJSON)
	}
}

func TestAbsentEmptyAndStrange(t *testing.T) {
	op := &pb.Operation{
		OperationId: `a "quoted" <id>`, State: pb.OperationState(77), Detail: "é\n",
		StartedAt: timestamppb.New(eleventh),
	}
	want := `{"operation_id":"a \"quoted\" <id>","kind":"","subject":"","state":"77","step":"","detail":"é\n","started_at":"2026-11-11T00:00:00.000Z","steps":[],"actor":"","reason":"","approval":"UNSPECIFIED"}`
	var got bytes.Buffer
	if err := json.Compact(&got, JSON(op)); err != nil || got.String() != want {
		t.Errorf("got %s (%v)\nwant %s", got.String(), err, want)
	}
	trace := &pb.TraceResponse{Unreachable: map[string]string{"b": "2", "a": "1"}, Events: []*pb.TraceEvent{{}}}
	got.Reset()
	if err := json.Compact(&got, JSON(trace)); err != nil || got.String() != `{"events":[{"cell_id":"","store":"","what":"","fields":{}}],"unreachable":{"a":"1","b":"2"}}` {
		t.Errorf("got %s (%v)", got.String(), err)
	}
	arm := &pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: -1, Reporter: true}}}
	got.Reset()
	if err := json.Compact(&got, JSON(arm)); err != nil || got.String() != `{"keep_alive":{"sequence":-1,"reporter":true,"faults":[],"keys":[]}}` {
		t.Errorf("got %s (%v)", got.String(), err)
	}
}

var eleventh = mustTime("2026-11-11T08:00:00+08:00")

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{15 * time.Minute: `"900s"`, 250 * time.Millisecond: `"0.25s"`} {
		m := &pb.PermitRules{Ttl: durationpb.New(d)}
		if !bytes.Contains(JSON(m), []byte(want)) {
			t.Errorf("%s: got %s, want %s", d, JSON(m), want)
		}
	}
}

func TestEveryEnumLosesItsPrefix(t *testing.T) {
	for e, want := range map[interface {
		proto.Message
	}]string{
		&pb.Check{Verdict: pb.Verdict_VERDICT_UNCHECKED}:           "UNCHECKED",
		&pb.Adjustment{Evidence: pb.Evidence_EVIDENCE_STORE_FENCE}: "STORE_FENCE",
		&pb.Campaign{State: pb.CampaignState_CAMPAIGN_STATE_OPEN}:  "OPEN",
	} {
		if !bytes.Contains(JSON(e), []byte(`"`+want+`"`)) {
			t.Errorf("%s is missing in %s", want, JSON(e))
		}
	}
}

func TestYAMLSaysTheSame(t *testing.T) {
	var out bytes.Buffer
	m := books()
	m.Books[0].SkuId, m.Books[0].CampaignId = "007", "true" // text that looks like something else
	if err := Write(&out, FormatYAML, View{Message: m}); err != nil {
		t.Fatal(err)
	}
	back, err := yaml.YAMLToJSON(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := json.Unmarshal(back, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(JSON(m), &b); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Errorf("yaml says\n%s\njson says\n%s\nfrom\n%s", x, y, out.String())
	}
}

func TestShapes(t *testing.T) {
	v := View{
		Lines: []string{"leader a"},
		Tables: []Table{
			{Title: "OTHER", Columns: Columns("K"), Rows: [][]string{{"v"}}},
			{Columns: Columns("CELL", "#UNITS", "+NOTE"), Rows: [][]string{{"cell-1", "7", "a\nb, c"}, {"cell-22", "1000", ""}}},
		},
	}
	for f, want := range map[Format]string{
		FormatTable: "leader a\n\nOTHER\nK\nv\n\nCELL     UNITS\ncell-1       7\ncell-22   1000\n",
		FormatWide:  "leader a\n\nOTHER\nK\nv\n\nCELL     UNITS  NOTE\ncell-1       7  a b, c\ncell-22   1000  -\n",
		FormatName:  "cell-1\ncell-22\n",
		FormatCSV:   "cell,units,note\ncell-1,7,\"a\nb, c\"\ncell-22,1000,\n",
	} {
		var out bytes.Buffer
		if err := Write(&out, f, v); err != nil || out.String() != want {
			t.Errorf("%s: got\n%q (%v)\nwant\n%q", f, out.String(), err, want)
		}
	}
}

func TestParseFormat(t *testing.T) {
	if _, err := ParseFormat("xml"); err == nil {
		t.Error("xml is no format of ours")
	}
	for _, f := range Formats {
		if got, err := ParseFormat(f); err != nil || string(got) != f {
			t.Errorf("%s: %v %v", f, got, err)
		}
	}
}

func mustTime(s string) (t time.Time) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}
