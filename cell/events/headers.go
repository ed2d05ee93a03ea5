package events

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// SchemaVersion is the version of cellquota.events.v1 that this program writes
// and the highest that it reads.
const SchemaVersion = 1

// Names of the record headers (contract §6).
const (
	HeaderEventID       = "event_id"
	HeaderEventType     = "event_type"
	HeaderSchemaVersion = "schema_version"
	HeaderFenceVersion  = "fence_version"
	HeaderTraceparent   = "traceparent"
)

var (
	// ErrMalformed says that a message breaks its own rules. It stays broken
	// however often it is read: reject or park it.
	ErrMalformed = errors.New("events: malformed message")
	// ErrSchema says that a newer program wrote the message. Stop, upgrade.
	ErrSchema = errors.New("events: schema version is newer than this program")
)

// Headers are the headers of one record.
type Headers struct {
	EventID      string // unique per event; the same on every delivery
	Type         string // one of the Type… constants
	FenceVersion int64  // of the writer; at least 1
	Traceparent  string // W3C, or empty: then there is no such header
}

// Render is h as record headers, in the order of the contract.
func (h Headers) Render() []kgo.RecordHeader {
	out := make([]kgo.RecordHeader, 0, 5)
	out = append(out,
		kgo.RecordHeader{Key: HeaderEventID, Value: []byte(h.EventID)},
		kgo.RecordHeader{Key: HeaderEventType, Value: []byte(h.Type)},
		kgo.RecordHeader{Key: HeaderSchemaVersion, Value: strconv.AppendInt(nil, SchemaVersion, 10)},
		kgo.RecordHeader{Key: HeaderFenceVersion, Value: strconv.AppendInt(nil, h.FenceVersion, 10)},
	)
	if h.Traceparent != "" {
		out = append(out, kgo.RecordHeader{Key: HeaderTraceparent, Value: []byte(h.Traceparent)})
	}
	return out
}

// ParseHeaders reads the headers of a record. A missing one, one that stands
// twice, or a number that is none is ErrMalformed; a schema version above ours is
// ErrSchema. Headers of other names are left alone.
func ParseHeaders(headers []kgo.RecordHeader) (Headers, error) {
	seen := make(map[string]string, len(headers))
	for _, h := range headers {
		if _, twice := seen[h.Key]; twice {
			return Headers{}, fmt.Errorf("%w: header %s stands twice", ErrMalformed, h.Key)
		}
		seen[h.Key] = string(h.Value)
	}
	version, err := positive(seen, HeaderSchemaVersion)
	if err != nil {
		return Headers{}, err
	}
	if version > SchemaVersion {
		return Headers{}, fmt.Errorf("%w: %d, not %d", ErrSchema, version, SchemaVersion)
	}
	fence, err := positive(seen, HeaderFenceVersion)
	if err != nil {
		return Headers{}, err
	}
	out := Headers{EventID: seen[HeaderEventID], Type: seen[HeaderEventType], FenceVersion: fence, Traceparent: seen[HeaderTraceparent]}
	if out.EventID == "" || out.Type == "" {
		return Headers{}, fmt.Errorf("%w: headers %s and %s must not be empty", ErrMalformed, HeaderEventID, HeaderEventType)
	}
	return out, nil
}

func positive(seen map[string]string, name string) (int64, error) {
	n, err := strconv.ParseInt(seen[name], 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: header %s must be a whole number of at least 1, not %.40q", ErrMalformed, name, seen[name])
	}
	return n, nil
}
