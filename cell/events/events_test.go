package events_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func sample() *eventsv1.Admission {
	build := ids.Build{Fence: 3, Count: 2}
	return &eventsv1.Admission{
		ReservationId: string(ids.DeriveReservation("c", "s", "ann", "r1", "cell-1", build)),
		RequestId:     "r1", CampaignId: "c", SkuId: "s", UserId: "ann", Quantity: 2,
		Build: events.ProtoBuild(build), Fingerprint: "fp", Price: &cellquotav1.Money{Amount: "10.00", Currency: "CNY"},
		CampaignVersion: 7, PermitExpiresAtMs: 1_800_000_000_000, AdmittedAtMs: 1_799_999_999_999,
	}
}

// The mirror's script appends field 15 by hand; a decoder must not see a difference.
func TestAppendedInstantIsFieldFifteen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := sample()
		m.AdmittedAtMs = rapid.Int64Range(1, 1<<53).Draw(t, "ms")
		prepared, err := events.PrepareAdmission(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := events.DecodeAdmission(events.AppendAdmittedAt(prepared, m.GetAdmittedAtMs()))
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, m) {
			t.Fatalf("got %v, want %v", got, m)
		}
		whole, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if !bytes.Equal(whole, events.AppendAdmittedAt(prepared, m.GetAdmittedAtMs())) {
			t.Fatal("the bytes differ from a marshalled message")
		}
	})
}

func TestDecodeAdmissionNamesWhatIsBroken(t *testing.T) {
	break1 := map[string]func(*eventsv1.Admission){
		"reservation of another request": func(m *eventsv1.Admission) { m.RequestId = "r2" },
		"reservation of another build":   func(m *eventsv1.Admission) { m.Build.Count++ },
		"no reservation":                 func(m *eventsv1.Admission) { m.ReservationId = "" },
		"campaign":                       func(m *eventsv1.Admission) { m.CampaignId = "C" },
		"sku":                            func(m *eventsv1.Admission) { m.SkuId = "a b" },
		"user":                           func(m *eventsv1.Admission) { m.UserId = "a\nb" },
		"request":                        func(m *eventsv1.Admission) { m.RequestId = "" },
		"quantity 0":                     func(m *eventsv1.Admission) { m.Quantity = 0 },
		"quantity negative":              func(m *eventsv1.Admission) { m.Quantity = -5 },
		"quantity huge":                  func(m *eventsv1.Admission) { m.Quantity = events.MaxQuantity + 1 },
		"no build":                       func(m *eventsv1.Admission) { m.Build = nil },
		"no fingerprint":                 func(m *eventsv1.Admission) { m.Fingerprint = "" },
		"no instant":                     func(m *eventsv1.Admission) { m.AdmittedAtMs = 0 },
	}
	good, _ := proto.Marshal(sample())
	if _, err := events.DecodeAdmission(good); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, f := range break1 {
		t.Run(name, func(t *testing.T) {
			m := sample()
			f(m)
			value, _ := proto.Marshal(m)
			if _, err := events.DecodeAdmission(value); !errors.Is(err, events.ErrMalformed) {
				t.Fatalf("got %v, want ErrMalformed", err)
			}
		})
	}
}

func FuzzDecodeAdmission(f *testing.F) {
	good, _ := proto.Marshal(sample())
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := events.DecodeAdmission(value)
		if (m == nil) == (err == nil) {
			t.Fatalf("message %v and error %v", m, err)
		}
		if err != nil && !errors.Is(err, events.ErrMalformed) {
			t.Fatalf("error %v is not ErrMalformed", err)
		}
	})
}

func TestHeadersThereAndBack(t *testing.T) {
	for _, want := range []events.Headers{
		{EventID: "reserve-x", Type: events.TypeAdmission, FenceVersion: 12},
		{EventID: "b", Type: events.TypeBarrier, FenceVersion: 1, Traceparent: "00-a-b-01"},
	} {
		got, err := events.ParseHeaders(want.Render())
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestHeadersAreJudged(t *testing.T) {
	good := events.Headers{EventID: "e", Type: "t", FenceVersion: 1}.Render()
	set := func(key, value string) []kgo.RecordHeader {
		out := append([]kgo.RecordHeader(nil), good...)
		for i := range out {
			if out[i].Key == key {
				out[i].Value = []byte(value)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		headers []kgo.RecordHeader
		want    error
	}{
		"none":         {nil, events.ErrMalformed},
		"no id":        {set(events.HeaderEventID, ""), events.ErrMalformed},
		"no type":      {set(events.HeaderEventType, ""), events.ErrMalformed},
		"fence 0":      {set(events.HeaderFenceVersion, "0"), events.ErrMalformed},
		"fence text":   {set(events.HeaderFenceVersion, "x"), events.ErrMalformed},
		"newer schema": {set(events.HeaderSchemaVersion, "2"), events.ErrSchema},
		"twice":        {append(set("", ""), good[0]), events.ErrMalformed},
	} {
		if _, err := events.ParseHeaders(c.headers); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestBarrierAndEffectAreChecked(t *testing.T) {
	build := &cellquotav1.Build{FenceVersion: 1, Count: 1}
	for name, m := range map[string]*eventsv1.Barrier{
		"no campaign":    {Build: build, Partitions: 1},
		"sku":            {CampaignId: "c", SkuId: "a/b", Build: build, Partitions: 1},
		"no build":       {CampaignId: "c", Partitions: 1},
		"partition high": {CampaignId: "c", Build: build, Partition: 1, Partitions: 1},
	} {
		value, _ := events.EncodeBarrier(m)
		if _, err := events.DecodeBarrier(value); !errors.Is(err, events.ErrMalformed) {
			t.Errorf("barrier %s: got %v", name, err)
		}
	}
	value, _ := events.EncodeBarrier(&eventsv1.Barrier{CampaignId: "c", Build: build, Partitions: 1})
	if _, err := events.DecodeBarrier(value); err != nil {
		t.Errorf("a good barrier: %v", err)
	}
	value, _ = events.EncodeEffect(&eventsv1.MirrorEffect{EffectId: "e", CampaignId: "c"})
	if _, err := events.DecodeEffect(value); !errors.Is(err, events.ErrMalformed) {
		t.Errorf("effect without SKU: got %v", err)
	}
}

// Outside names: a change here is a breaking change of the contract.
func TestOutsideNames(t *testing.T) {
	for got, want := range map[string]string{
		events.AdmissionsTopic("cell-1"):                             "cellquota.admissions.cell-1",
		events.OrderEventsTopic:                                      "cellquota.events",
		events.ClientID("cell-1", "relay"):                           "cellquota.cell-1.relay",
		events.GroupID("cell-1"):                                     "cellquota.cell-1.orders",
		events.SettleEffectID("r"):                                   "settle-r",
		events.ReleaseEffectID("r"):                                  "release-r",
		events.RestockEffectID("f"):                                  "restock-f",
		events.ReturnEffectID("r"):                                   "return-r",
		events.HeaderEventID:                                         "event_id",
		events.HeaderEventType:                                       "event_type",
		events.HeaderSchemaVersion:                                   "schema_version",
		events.HeaderFenceVersion:                                    "fence_version",
		events.HeaderTraceparent:                                     "traceparent",
		events.BarrierID("c", "s", ids.Build{Fence: 1, Count: 2}, 3): "barrier-c/s-1.2-3",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
