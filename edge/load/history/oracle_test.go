package history

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// shards is a Resolver of given rows.
type shards struct {
	rows        map[Key][]Row
	unreachable map[string]string
	from        map[string]int64
}

func (s shards) Resolve(_ context.Context, keys []Key) ([][]Row, map[string]string, error) {
	out := make([][]Row, len(keys))
	for i, k := range keys {
		out[i] = s.rows[k]
	}
	return out, s.unreachable, nil
}

func (s shards) MessagesFrom(cell string) int64 { return s.from[cell] }

func key(user, request string) Key {
	return Key{Campaign: "c", SKU: "s", User: user, Request: request}
}

func request(user, id string, status int, code string) Record {
	r := Record{Op: OpRequest, Campaign: "c", Scope: "s", SKU: "s", User: user, Request: id, Quantity: 1, Status: status, Code: code}
	if status == 202 {
		r.State, r.Reservation, r.Cell, r.Fence = "QUEUED", "cell-1.r1", "cell-1", 1
	}
	return r
}

func order(id, state string) Row {
	return Row{Cell: "cell-1", Outcome: "ORDERED", Order: id, State: state, Quantity: 1}
}

func stream(records ...Record) func(func(Record, error) bool) {
	return func(yield func(Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestOracleNamesWhatCannotBeTrue(t *testing.T) {
	tests := []struct {
		name    string
		records []Record
		shards  shards
		want    string // "" for a clean report, else invariant and a part of the detail
	}{
		{"accepted and ordered", []Record{request("u", "r", 202, "")}, shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}}}, ""},
		{"accepted and rejected", []Record{request("u", "r", 202, "")}, shards{rows: map[Key][]Row{key("u", "r"): {{Cell: "cell-1", Outcome: "REJECTED", Reason: "SOLD_OUT"}}}}, ""},
		{"accepted and forgotten", []Record{request("u", "r", 202, "")}, shards{}, "I6 no shard has an outcome"},
		{"accepted below messages_from reads fenced", []Record{request("u", "r", 202, "")}, shards{from: map[string]int64{"cell-1": 2}}, ""},
		{"accepted at messages_from and forgotten", []Record{request("u", "r", 202, "")}, shards{from: map[string]int64{"cell-1": 1}}, "I6 no shard has an outcome"},
		{"refused and ordered", []Record{request("u", "r", 409, "TEMP_SOLD_OUT")}, shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}}}, "I6 every attempt was refused"},
		{"unknown and ordered", []Record{{Op: OpRequest, Campaign: "c", SKU: "s", User: "u", Request: "r", Quantity: 1, Unknown: true}}, shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}}}, ""},
		{"503 and ordered", []Record{request("u", "r", 503, "NOT_READY")}, shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}}}, ""},
		{"unknown and nothing", []Record{{Op: OpRequest, Campaign: "c", SKU: "s", User: "u", Request: "r", Unknown: true}}, shards{}, ""},
		{
			"two orders of one user",
			[]Record{request("u", "r1", 202, ""), request("u", "r2", 202, "")},
			shards{rows: map[Key][]Row{key("u", "r1"): {order("o1", "CLOSED")}, key("u", "r2"): {order("o2", "PAID")}}},
			"I4 user has two orders",
		},
		{
			"one request, two shards, two orders",
			[]Record{request("u", "r", 202, "")},
			shards{rows: map[Key][]Row{key("u", "r"): {order("o1", "PAID"), {Cell: "cell-2", Order: "o2", State: "CLOSED", Quantity: 1}}}},
			"I4 one request has 2 orders",
		},
		{
			"one order, two users",
			[]Record{request("u", "r", 202, ""), request("v", "r", 202, "")},
			shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}, key("v", "r"): {order("o", "PAID")}}},
			"I4 belongs to request r of user u too",
		},
		{
			"status 404 with a receipt",
			[]Record{request("u", "r", 202, ""), {Op: OpStatus, Campaign: "c", SKU: "s", User: "u", Request: "r", Receipt: true, Status: 404}},
			shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}}},
			"I6 answered 404",
		},
		{
			"told paid, is closed",
			[]Record{request("u", "r", 202, ""), {Op: OpStatus, Campaign: "c", SKU: "s", User: "u", Request: "r", Status: 200, State: "PAID", Order: "o"}},
			shards{rows: map[Key][]Row{key("u", "r"): {order("o", "CLOSED")}}},
			"I7 was told PAID",
		},
		{
			"callback said paid, is closed",
			[]Record{request("u", "r", 202, ""), {Op: OpCallback, User: "u", Order: "o", Status: 200, State: "PAID"}},
			shards{rows: map[Key][]Row{key("u", "r"): {order("o", "CLOSED")}}},
			"I7 an answer said that order o is PAID",
		},
		{
			"told sold out for good, is ordered",
			[]Record{request("u", "r", 202, ""), {Op: OpStatus, Campaign: "c", SKU: "s", User: "u", Request: "r", Status: 200, State: "REJECTED", Reason: "SOLD_OUT"}},
			shards{rows: map[Key][]Row{key("u", "r"): {order("o", "PAID")}}},
			"I6 was told REJECTED/SOLD_OUT",
		},
		{
			"told of an order that no shard has",
			[]Record{request("u", "r", 202, ""), {Op: OpStatus, Campaign: "c", SKU: "s", User: "u", Request: "r", Status: 200, State: "PENDING_PAYMENT", Order: "o"}},
			shards{rows: map[Key][]Row{key("u", "r"): {{Cell: "cell-1", Outcome: "REJECTED", Reason: "SOLD_OUT"}}}},
			"I6 the shards have none",
		},
		{"other quantity", []Record{request("u", "r", 202, "")}, shards{rows: map[Key][]Row{key("u", "r"): {{Cell: "cell-1", Outcome: "ORDERED", Order: "o", State: "PAID", Quantity: 2}}}}, "I6 asked for 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report, err := Check(t.Context(), stream(tt.records...), tt.shards)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if len(report.Breaches) != 0 {
					t.Fatalf("breaches = %v, want none", report.Breaches)
				}
				return
			}
			for _, b := range report.Breaches {
				invariant, part, _ := strings.Cut(tt.want, " ")
				if b.Invariant == invariant && strings.Contains(b.Detail, part) {
					return
				}
			}
			t.Fatalf("breaches = %v, want %q", report.Breaches, tt.want)
		})
	}
}

func TestOracleSaysWhatItCouldNotCheck(t *testing.T) {
	report, err := Check(t.Context(), stream(request("u", "r", 202, "")), shards{unreachable: map[string]string{"cell-1": "connection refused"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Breaches) != 0 || len(report.Unchecked) != 1 {
		t.Fatalf("breaches %v, unchecked %v; want none and one", report.Breaches, report.Unchecked)
	}
}

type sink struct {
	bytes.Buffer
	fail bool
}

func (s *sink) Write(p []byte) (int, error) {
	if s.fail {
		return 0, errors.New("disk full")
	}
	return s.Buffer.Write(p)
}

func (s *sink) Close() error { return nil }

func TestFileRoundTrip(t *testing.T) {
	out := &sink{}
	w := NewWriter(out)
	want := request("u", "r", 202, "")
	w.Add(want)
	w.Add(Record{Op: OpCallback, Order: "o", Unknown: true})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []Record
	for r, err := range Read(&out.Buffer) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if len(got) != 2 || got[0] != want || w.Count() != 2 {
		t.Fatalf("read %+v", got)
	}
}

func TestDamagedFilesAreNotWhole(t *testing.T) {
	for name, text := range map[string]string{"cut": `{"op":"request","us`, "not an operation": `{"user":"u"}`, "not JSON": "hello\n"} {
		t.Run(name, func(t *testing.T) {
			if _, err := Check(t.Context(), Read(strings.NewReader(text)), shards{}); err == nil {
				t.Fatal("damaged history was accepted")
			}
		})
	}
	w := NewWriter(&sink{fail: true})
	w.Add(Record{Op: OpStatus})
	if err := w.Close(); err == nil {
		t.Fatal("a lost line was not reported")
	}
	var _ io.WriteCloser = &sink{}
}
